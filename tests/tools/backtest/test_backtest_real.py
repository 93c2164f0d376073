"""The backtest on real Prometheus servers with a past of their own: gaps, pods that were placed
onto hot nodes, and incidents.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from backtest_support import Reported, rules
from blocks_support import Past, Points, prometheus_of
from browser import chromium
from builders import rule
from prometheus_support import Process
from source_support import source_at

from dynsched.tools.backtest.fetching import Window
from dynsched.tools.backtest.kube_state import incidents_of

pytestmark = pytest.mark.slow

STEP = 60
COUNT = 12 * 60
NOW = int(time.time()) // STEP * STEP
GAP = -1.0


def minute(number: int) -> int:
    return NOW - (COUNT - number) * STEP


def points(*changes: tuple[int, float], last: int = COUNT) -> Points:
    """One a minute, each value from its minute on; none while it is GAP."""
    values, value = dict(changes), GAP
    for number in range(last + 1):
        value = values.get(number, value)
        if value >= 0:
            yield minute(number), float(value)


def steady(value: float, first: int = 0, last: int = COUNT) -> Points:
    return points((first, value), last=last)


def counter(first: int, last: int, per_minute: float) -> Points:
    """From 0, and from 0 once more after that."""
    for number in range(COUNT + 1):
        yield minute(number), per_minute * (min(number, last) - first if number >= first else 0.0)


LOADS = {
    "worker-a": [(0, 10), (300, 95), (361, 10)],  # hot from 300 to 360
    "worker-b": [(0, 20), (50, 95), (61, 20)],
    "worker-c": [(0, 90)],
}
PODS = [
    # workload, node, minute, cores, what made it
    ("web-5d9c7b9d4f-x2x4p", "worker-a", 310, 0.5, "ReplicaSet"),  # there is room on b
    ("web-5d9c7b9d4f-x2x5p", "worker-a", 100, 0.5, "ReplicaSet"),  # not hot then
    ("big-5d9c7b9d4f-x2x6p", "worker-a", 340, 3.5, "ReplicaSet"),  # no room anywhere else
    ("web-5d9c7b9d4f-x2x7p", "worker-b", 330, 0.5, "ReplicaSet"),
    ("agent-x2x8p", "worker-a", 320, 0.1, "DaemonSet"),
]


def of_pod(name: str) -> str:
    return f'namespace="shop",pod="{name}",uid="u-{name}"'


def kube_state() -> dict[str, list[tuple[str, Points]]]:
    """The series of these pods, which live for an hour."""
    requests = [
        # What else runs on b: 3.4 of 4 cores are left before the pods come.
        (f'{of_pod("old")},node="worker-b",container="c",resource="cpu"', steady(0.6))
    ]
    info, moments = [], []
    for pod, node, at, cores, kind in PODS:
        life = (at + 1, min(COUNT, at + 60))
        info.append((f'{of_pod(pod)},node="{node}",created_by_kind="{kind}"', steady(1, *life)))
        moments.append((of_pod(pod), steady(minute(at), *life)))
        of_it = f'{of_pod(pod)},node="{node}",container="c",resource="cpu"'
        requests.append((of_it, steady(cores, *life)))
    info += [
        (f'{of_pod(pod)},node="{node}"', steady(1))
        for pod, node in (("api", "worker-a"), ("job", "worker-b"), ("gone", "worker-c"))
    ]
    return {
        "kube_pod_info": info,
        "kube_pod_status_scheduled_time": moments,
        "kube_pod_container_resource_requests": requests,
        "kube_node_info": [
            (f'node="{node}",internal_ip="10.0.0.{number}"', steady(1, COUNT - 5))
            for number, node in enumerate(LOADS)
        ],
    }


@pytest.fixture(scope="session")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """With incidents, too: `api` is killed for memory at 120 and 240, `job` fails at 90, is evicted
    at 200, `gone` was killed before; CPUs of worker-b wait for half of the time from 300 to 320.
    """
    has = (("cpu", 4.0), ("memory", 8e9))
    loads = enumerate(LOADS.values())
    past: Past = {
        "load": [(f'instance="10.0.0.{n}:9100"', points(*changes)) for n, changes in loads],
        "dynsched_marked_nodes": [("", points((0, 0), (401, 1)))],
        "kube_node_status_allocatable": [
            (f'node="{node}",resource="{what}"', steady(much))
            for node in LOADS
            for what, much in has
        ],
        **kube_state(),
        # From the first kill on this stays; the second one shows in the number of restarts only.
        "kube_pod_container_status_last_terminated_reason": [
            (f'{of_pod("api")},container="c",reason="OOMKilled"', steady(1, 120)),
            (f'{of_pod("gone")},container="c",reason="OOMKilled"', steady(1)),
            (f'{of_pod("job")},container="c",reason="Error"', steady(1, 90)),
        ],
        "kube_pod_container_status_restarts_total": [
            (f'{of_pod("api")},container="c"', points((0, 0), (120, 1), (240, 2))),
            (f'{of_pod("gone")},container="c"', steady(7)),
            (f'{of_pod("job")},container="c"', points((0, 0), (90, 1))),
        ],
        "kube_pod_status_reason": [
            (f'{of_pod("job")},reason="Evicted"', points((0, 0), (200, 1))),
            (f'{of_pod("api")},reason="Evicted"', steady(0)),
        ],
        "node_pressure_cpu_waiting_seconds_total": [
            ('instance="worker-b"', counter(300, 320, 30.0)),
            ('instance="worker-a"', counter(0, COUNT, 6.0)),
        ],
    }
    with prometheus_of(past, tmp_path_factory.mktemp("newer")) as running:
        yield running


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Without what nodes have to give; with gaps."""
    past: Past = {
        **kube_state(),
        "load": [(f'node="{node}"', points(*changes)) for node, changes in LOADS.items()],
        "patchy": [
            ('node="a"', points((0, 10), (300, 90), (360, 10))),
            ('node="b"', points((0, 10), (200, GAP), (320, 10))),
            ('node="c",zone="x"', points((0, 90), (100, GAP))),
            ('node="c",zone="y"', points((100, 90), (200, 10))),
        ],
    }
    # A part of this window has more samples than the server allows a query.
    folder = tmp_path_factory.mktemp("older")
    with prometheus_of(past, folder, ["--query.max-samples=900"]) as running:
        yield running


MORE = ("--nodes-from-series", "--since", "12h", "--step", "60s", "--until", str(NOW))
LOAD = rules(rule("load", expr="load"))


async def test_gaps_new_labels_and_a_limit_of_samples(reported: Reported, older: Process) -> None:
    report = await reported(older.url, rules(rule("load", expr="patchy")), *MORE)
    (load,), nodes = report["rules"], {node["node"]: node for node in report["nodes"]}
    # Prometheus looks back 5 minutes: the series ends, and its successor begins at once.
    assert {name: node["marks"] for name, node in nodes.items()} == {"a": 1, "b": 0, "c": 1}
    assert nodes["b"]["coverage"] == pytest.approx(1 - 116 / 721, abs=0.01)
    assert nodes["b"]["strip"].count(None) >= 8
    assert nodes["c"]["coverage"] == 1.0
    assert load["marks"] == 2
    assert load["longest_mark_seconds"] >= 100 * STEP
    # It did not come in one piece, and nothing is amiss.
    assert (report["queries"] > 1, report["notes"]) == (True, [])


async def test_pods_on_hot_nodes_and_those_for_which_there_was_room(call, reported, newer) -> None:
    found = (await reported(newer.url, LOAD, *MORE))["regret"]
    assert (found["pods_placed"], found["pods_on_hot"], found["pods_with_room"]) == (4, 2, 1)
    assert (found["share_on_hot"], found["room_by"]) == (0.5, "requests")
    assert found["pods_left_out"] == 1  # the DaemonSet's
    assert [one["workload"] for one in found["workloads"]] == ["shop/web", "shop/big"]
    assert found["namespaces"][0]["namespace"] == "shop"
    assert sum(day["pods_on_hot"] for day in found["days"]) == 2
    assert found["first_mark_day"] == time.strftime("%Y-%m-%d", time.gmtime(minute(401)))
    assert any("shorter than a scrape" in limit for limit in found["limits"])
    _, out, _ = await call(newer.url, LOAD, *MORE)
    assert "4 pods placed, 2 (50 %) onto a node that was over its threshold" in out
    assert "for 1 of them an unmarked node had room" in out
    assert "Pods placed on hot nodes, by workload" in out
    _, page, _ = await call(newer.url, LOAD, *MORE, "-o", "html")
    assert "first mark" in page


async def test_without_room_it_says_what_it_counts_instead(
    reported: Reported, older: Process
) -> None:
    found: Any = (await reported(older.url, LOAD, *MORE))["regret"]
    assert (found["pods_placed"], found["pods_on_hot"], found["pods_with_room"]) == (4, 2, 2)
    assert (found["placed_by"], found["room_by"]) == ("kube_pod_status_scheduled_time", "load")
    assert any("kube_node_status_allocatable" in limit for limit in found["limits"])
    assert found["first_mark_day"] is None
    # A node that is marked still has no room, though it is not hot any more.
    kept = rules(rule("load", expr="load", keep_firing_for="12h"))
    found = (await reported(older.url, kept, *MORE))["regret"]
    assert (found["pods_on_hot"], found["pods_with_room"]) == (2, 0)


async def test_each_incident_is_found_once_at_its_node_and_moment(newer: Process) -> None:
    places = {"worker-a": 0, "worker-b": 1, "worker-c": 2}
    async with source_at(newer.url) as source:
        found = await incidents_of(source, Window(minute(0), STEP, COUNT // 2 + 1), places.get)
    expected = [("CPU stall", 1), ("Evicted", 1), ("OOMKilled", 0), ("OOMKilled", 0)]
    assert [(one.kind, one.node) for one in found] == expected
    for one, at in zip(found, (303, 200, 120, 240), strict=True):
        assert abs(one.at - minute(at)) <= 2 * STEP


async def test_suggestions_tell_of_incidents(reported: Reported, newer: Process) -> None:
    (load,) = (await reported(newer.url, LOAD, *MORE, "--suggest"))["suggested"]["rules"]
    told = {one["event"]: (one["count"], one["marked_before"]) for one in load["events"]}
    assert told == {"CPU stall": (1, 0), "Evicted": (1, 0), "OOMKilled": (2, 0)}


# Before and after: four days, of which dynsched acts on the last two.

DAY = 24 * 60
BEGAN = 2 * DAY
MIDNIGHT = NOW // 86_400 * 86_400 - 4 * 86_400
WEB = "web-5d9c7b9d4f-x{:04}"
WHOLE = ("--nodes-from-series", "--since", "4d", "--step", "2m", "--until", str(MIDNIGHT + 345_599))
LOAD_ON_DAYS = {"a": (6, 6, 3, 2), "b": (0, 0, 0, 0)}
"""By node, for how many hours of each day it is over the threshold."""


def on_days(value: Callable[[int], float | None]) -> Points:
    """Every two minutes, of the number of the minute since the first midnight."""
    for number in range(0, 4 * DAY, 2):
        if (found := value(number)) is not None:
            yield MIDNIGHT + 60 * number, float(found)


@pytest.fixture(scope="session")
def two_days_each(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    def load(node: str) -> Points:
        hot = LOAD_ON_DAYS[node]
        return on_days(lambda at: 95 if at % DAY < 60 * hot[at // DAY] else 40)

    def blind(at: int) -> bool:
        return BEGAN + DAY <= at < BEGAN + DAY + 60

    # One an hour, every third onto node a.
    pods = {WEB.format(hour): ("abb"[hour % 3], 60 * hour + 1) for hour in range(4 * 24)}
    lives = {
        pod: [MIDNIGHT + 60 * at + s for s in range(0, 4200, 120)] for pod, (_, at) in pods.items()
    }
    past: Past = {
        "load": [(f'node="{node}"', load(node)) for node in LOAD_ON_DAYS],
        "dynsched_build_info": [("", on_days(lambda _: 1))],
        "dynsched_marked_nodes": [("", on_days(lambda at: at >= BEGAN + 60))],
        # Five writes an hour.
        "dynsched_patches_total": [("", on_days(lambda at: max(0, at - BEGAN - 60) // 12))],
        "dynsched_rule_readings": [('quality="ok"', on_days(lambda at: 0 if blind(at) else 2))],
        "ALERTS": [
            (
                f'alertname="{name}",alertstate="firing"',
                on_days(lambda at: 1 if blind(at) else None),
            )
            for name in ("DynschedBlind", "KubeNodeNotReady")
        ],
        "kube_pod_info": [
            (
                f'{of_pod(pod)},node="{node}",created_by_kind="ReplicaSet"',
                [(at, 1) for at in lives[pod]],
            )
            for pod, (node, _) in pods.items()
        ],
        "kube_pod_status_scheduled_time": [
            (of_pod(pod), [(at, MIDNIGHT + 60 * since) for at in lives[pod]])
            for pod, (_, since) in pods.items()
        ],
    }
    with prometheus_of(past, tmp_path_factory.mktemp("two-days-each")) as running:
        yield running


async def test_the_report_compares_days_before_and_after_on_one_sheet(
    call, reported, two_days_each
) -> None:
    told = (await reported(two_days_each.url, LOAD, *WHOLE, "--report"))["report"]
    before, after, rows = told["before"], told["after"], told["rows"]
    assert [row["node_hours_over"] for row in rows] == pytest.approx([6, 6, 3, 2], abs=0.15)
    # The day on which it began, an hour after midnight, is neither.
    assert told["began"].startswith(rows[2]["period"])
    assert (before["days"], after["days"]) == (2, 1)
    assert (before["share_over"], after["share_over"]) == (
        pytest.approx(12 / 96, abs=0.01),
        pytest.approx(2 / 48, abs=0.01),
    )
    assert (before["mean_load"], after["mean_load"]) == (
        pytest.approx(40 + 55 / 8, abs=0.5),
        pytest.approx(40 + 55 / 24, abs=0.5),
    )
    assert (before["pods_placed"], before["pods_on_hot"], after["pods_on_hot"]) == (48, 4, 1)
    assert (before["writes"], after["writes"]) == (0, pytest.approx(120, abs=3))
    assert (after["not_seen_seconds"], before["not_seen_seconds"]) == (
        pytest.approx(3600, abs=600),
        0,
    )
    assert told["alerts"].keys() == {"DynschedBlind"}
    # A moment that is given counts, also where nothing was marked yet.
    given = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(MIDNIGHT + 86_400))
    told = (await reported(two_days_each.url, LOAD, *WHOLE, f"--report={given}"))["report"]
    assert (told["before"]["days"], told["after"]["days"]) == (1, 2)

    _, table, _ = await call(two_days_each.url, LOAD, *WHOLE, "--report")
    assert "would have been over a threshold for 6.0 node-hours after it; it was 2.0" in table
    assert "At the share of pods before it, 2 would have been placed" in table
    assert re.search(r"^after +1\.00 +2\.\d+ .*█", table, re.MULTILINE)
    # Where the history has no day before, nothing is made up.
    late = (*WHOLE[:2], "1d", *WHOLE[3:])
    assert "Nothing can be compared" in (await call(two_days_each.url, LOAD, *late, "--report"))[1]


async def test_the_report_of_ninety_days_prints_on_one_sheet(call, two_days_each) -> None:
    long = ("--nodes-from-series", "--since", "90d", "--step", "1h", *WHOLE[-2:])
    for more in (WHOLE, long):
        _, page, _ = await call(two_days_each.url, LOAD, *more, "--report", "-o", "html")
        async with chromium() as browser:
            tab = await browser.new_page()
            await tab.set_content(page)
            assert (
                len(re.findall(rb"/Type\s*/Page\b", await tab.pdf(prefer_css_page_size=True))) == 1
            )
