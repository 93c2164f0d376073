"""`dynsched nodes --watch`: what is shown again, what is not, and what an outage looks like."""

import io
import json
from collections.abc import Callable

import pytest
from asking import Scripted, Step
from rich.console import Console
from service_support import Pages

from dynsched.cli import watching
from dynsched.engine.model import Node
from dynsched.tools.client import Response, ServerError

SAME = Response(304, b"", '"1"')
Watch = Callable[..., Scripted]


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    """The seconds that were waited, without waiting."""
    waited: list[float] = []
    monkeypatch.setattr(watching.time, "sleep", waited.append)
    return waited


@pytest.fixture
def watched(pauses) -> Watch:
    def run(*steps: Step, marked: bool = False, as_json: bool = False) -> Scripted:
        running = Scripted(steps)
        watching.watch_nodes(running, marked=marked, as_json=as_json)
        return running

    return run


async def now(pages: Pages, etag: str | None = '"1"', *, marked: bool | None = None) -> Response:
    """The present `/nodes`."""
    snapshot = pages.snapshots.snapshot
    assert snapshot is not None
    pieces = await pages.snapshots.encoded_nodes(snapshot, marked=marked)
    return Response(200, b"".join(pieces), etag)


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


async def ticks(*loads: dict[str, float], **how: bool) -> list[Response]:
    """`/nodes` after each of these."""
    pages, steps = Pages(), []
    for cpu in loads:
        pages.tick(**cpu)
        steps.append(await now(pages, **how))
    return steps


async def test_into_a_pipe_each_change_of_state_is_a_line_and_new_values_are_none(
    watched, capsys
) -> None:
    watched(*await ticks(*({"worker_2": cpu} for cpu in (20.0, 25.5, 91.0, 92.0, 93.0))))
    out = capsys.readouterr()
    assert out.err == ""
    title, *lines = words(out.out)
    assert title == ["NODE", "MARKED", "SINCE", "RULES", "NOTE"]
    assert " ".join(line[0] for line in lines) == "worker-1 worker-2 worker-3 worker-2 worker-2"
    assert lines[3][4:6] == ["91", "pending,"]
    assert (lines[4][1], lines[4][5]) == ("yes", "firing,")
    title, *_, last = out.out.splitlines()
    assert last.index("node-cpu") == title.index("RULES")


async def test_into_a_pipe_no_text_of_others_steers_a_terminal_or_makes_a_line(
    watched, capsys
) -> None:
    (first,) = await ticks({})
    answer = json.loads(first.body)
    answer["nodes"][0] |= {"name": "n\x1b]0;x\x07", "conflict": "label st\x1b[31m\nby"}
    watched(Response(200, json.dumps(answer).encode(), '"1"'))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 1 + len(answer["nodes"])


async def test_a_node_that_is_gone_is_told_and_one_that_came(watched, capsys) -> None:
    pages = Pages()
    pages.tick()
    first = await now(pages)
    del pages.scene.nodes["worker-2"]
    pages.scene.nodes["worker-4"] = Node("worker-4")
    pages.tick()
    watched(first, await now(pages))
    *_, came, gone = capsys.readouterr().out.splitlines()
    assert came.startswith("worker-4")
    assert gone.split(maxsplit=4) == ["worker-2", "-", "-", "-", "no longer in the cluster"]


async def test_with_marked_a_release_is_told(watched, capsys) -> None:
    steps = await ticks(*[{"worker_1": 91.0}] * 3, *[{}] * 4, marked=True)
    running = watched(steps[2], steps[-1], marked=True)
    assert running.asked[0][0] == "/nodes?marked=true"
    (_, marked, gone) = words(capsys.readouterr().out)
    assert marked[:2] == ["worker-1", "yes"]
    assert gone[:2] == ["worker-1", "-"]
    assert "no longer marked" in " ".join(gone)


async def test_as_json_each_change_is_an_object_a_line_as_in_a_watch_of_kubernetes(
    watched, capsys
) -> None:
    watched(*await ticks({}, {"worker_3": 91.0}), as_json=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    types = [(each["type"], each["object"]["name"]) for each in told]
    added = [("ADDED", f"worker-{number}") for number in (1, 2, 3)]
    assert types == [*added, ("MODIFIED", "worker-3")]


async def test_what_has_not_changed_is_asked_for_by_its_etag(watched, pauses, capsys) -> None:
    (first,) = await ticks({})
    running = watched(first, SAME, SAME)
    assert running.asked == [("/nodes", None), *[("/nodes", '"1"')] * 3]
    assert pauses == [watching.PAUSE] * 3
    assert len(capsys.readouterr().out.splitlines()) == 4
    with pytest.raises(ServerError, match="connection refused"):  # nobody to ask at the start
        watched(ServerError("connection refused"))


async def test_a_restart_of_dynsched_is_told_once_and_it_goes_on(watched, capsys) -> None:
    pages = Pages()
    pages.tick()
    first = await now(pages)
    pages.tick(worker_1=91.0)
    away = [ServerError("connection refused"), ServerError("no tick has finished yet")]
    running = watched(first, *away, await now(pages, '"2"'), SAME)
    out = capsys.readouterr()
    told = "No answer: connection refused. Trying again.\nThere are answers again.\n"
    assert out.err == told
    assert words(out.out)[-1][0] == "worker-1"
    assert running.asked[-1] == ("/nodes", '"2"')


async def test_a_replica_that_is_behind_takes_nothing_back_but_a_clock_set_back_does(
    watched, capsys
) -> None:
    older, newer = await ticks({}, {"worker_1": 91.0})
    watched(older, newer, older, newer)
    assert len(capsys.readouterr().out.splitlines()) == 1 + 3 + 1
    pages = Pages()
    pages.at += 3600
    pages.tick()
    before = await now(pages, '"a"')
    pages.at -= 3600
    pages.tick(worker_1=91.0)
    after = await now(pages, '"b"')
    running = watched(before, *[after] * (watching.MAX_OLDER + 1))
    assert len(capsys.readouterr().out.splitlines()) == 1 + 3 + 1
    assert running.asked[-1] == ("/nodes", '"b"')


async def test_a_terminal_shows_the_newest_values_and_as_many_nodes_as_fit(
    watched, monkeypatch
) -> None:
    screen = io.StringIO()

    def console() -> Console:
        return Console(file=screen, force_terminal=True, width=100, height=6, color_system=None)

    monkeypatch.setattr(watching, "Console", console)
    pages = Pages()
    pages.tick()
    first = await now(pages)
    for _ in range(3):
        pages.tick(worker_3=91.0)
    watched(first, ServerError("connection refused"), await now(pages))
    shown = screen.getvalue()
    assert "No answer: connection refused. Trying again." in shown
    last = shown.rpartition("NODE")[2]
    assert "worker-3" in last  # it is hot now, and so comes first
    assert "91 firing" in last
    assert "... and 1 more" in last
