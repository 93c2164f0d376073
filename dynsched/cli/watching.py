"""`dynsched nodes --watch`: asks again and again, and shows what changed."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live

from dynsched.cli.node_tables import NODE_TITLES, in_order, node_row, nodes_head, nodes_table
from dynsched.tools.client import Running, nodes_path
from dynsched.util.errors import ExpectedError
from dynsched.util.tables import plain

PAUSE: Final = 2.0
"""Seconds from one question to the next; between two ticks the answer is 304, and costs little."""
MAX_OLDER: Final = 20
"""Answers in a row that may be older than the last one that was shown: of several replicas, one may
be a tick behind. More of them mean that the clock over there was set back."""
_ADDED: Final = "ADDED"
_MODIFIED: Final = "MODIFIED"
_DELETED: Final = "DELETED"
_GONE: Final = "no longer in the cluster"
_RELEASED: Final = "no longer marked, or no longer in the cluster"

Node = Mapping[str, Any]
Change = tuple[str, Node]
"""What became of a node, in the words of Kubernetes' watches, and the node as it is now, or as it
was last."""
Answers = Iterator[Mapping[str, Any]]
Changes = Iterator[tuple[Mapping[str, Any], list[Change]]]
"""Each answer, and what it changes."""


def watch_nodes(running: Running, *, marked: bool, as_json: bool) -> None:
    """Until Ctrl-C. ExpectedError when already the first question fails; later ones may."""
    console, path = Console(), nodes_path(marked=marked)
    with contextlib.suppress(KeyboardInterrupt):
        if console.is_terminal and not as_json:
            _draw(console, lambda say: answers(running, path, say))
            return
        found = _changes(answers(running, path, lambda text: click.echo(text, err=True)))
        for line in _as_json(found) if as_json else _as_lines(found, marked=marked):
            click.echo(line)


def _draw(console: Console, ask: Callable[[Callable[[str], None]], Answers]) -> None:
    with Live(console=console, auto_refresh=False) as live:
        for payload in ask(lambda text: console.print(plain(text), soft_wrap=True)):
            head = [*map(plain, nodes_head(payload))]
            room = max(1, console.height - len(head) - 3)  # titles, what is left out, cursor
            parts: list[Any] = [*head, nodes_table(payload, most=room)]
            if (left := len(payload["nodes"]) - room) > 0:
                parts.append(plain(f"... and {left} more"))
            live.update(Group(*parts), refresh=True)


def _as_json(found: Changes) -> Iterator[str]:
    """An object for each change, one a line, in the form of Kubernetes' watches."""
    for _, changes in found:
        for kind, node in changes:
            yield json.dumps({"type": kind, "object": node}, ensure_ascii=False)


def _as_lines(found: Changes, *, marked: bool) -> Iterator[str]:
    """As `kubectl get --watch` does it. The widths are those of the first rows."""
    widths: list[int] = []
    for payload, changes in found:
        rows: list[Sequence[str]] = []
        for kind, node in changes:
            cells = [plain(str(cell)).plain for cell in node_row(node, payload)]
            why = _RELEASED if marked else _GONE
            rows.append([cells[0], "-", "-", "-", why] if kind == _DELETED else cells)
        if rows and not widths:
            rows.insert(0, NODE_TITLES)
            widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
        for row in rows:
            yield "".join(map(str.ljust, row, widths)).rstrip()


def _changes(found: Answers) -> Changes:
    """In the order in which nodes are shown."""
    before: dict[str, Node] = {}
    for payload in found:
        now = {str(node["name"]): node for node in in_order(payload["nodes"])}
        changes = [
            (_MODIFIED if name in before else _ADDED, node)
            for name, node in now.items()
            if name not in before or _state(node) != _state(before[name])
        ]
        yield payload, changes + [(_DELETED, before[name]) for name in sorted(before.keys() - now)]
        before = now


def _state(node: Node) -> tuple[object, ...]:
    """What makes a new line when it changes: no values, ages, nor numbers inside of reasons."""
    return (
        *(node["marked"], node["pressured"], node["early"], node["carries"]),
        *(bool(node[reason]) for reason in ("conflict", "withheld", "ineligible")),
        node["due"] and node["due"]["action"],
        [(rule["rule"], rule["state"], rule["quality"]) for rule in node["rules"]],
    )


def answers(running: Running, path: str, say: Callable[[str], None]) -> Answers:
    """Each new answer at ``path``, for ever. That there is none is told once, and once that there
    is one again.
    """
    etag, latest, is_silent, older = None, "", False, 0
    while True:
        try:
            answer = running.ask(path, etag)
            payload = running.read(answer) if answer.status == HTTPStatus.OK else None
        except ExpectedError as error:
            if not latest:
                raise
            if not is_silent:
                say(f"No answer: {error}. Trying again.")
            is_silent = True
        else:
            if is_silent:
                say("There are answers again.")
            is_silent = False
            is_older = payload is not None and payload["taken_at"] < latest
            older = older + 1 if is_older else 0
            if payload is not None and (not is_older or older > MAX_OLDER):
                etag, latest, older = answer.etag, payload["taken_at"], 0
                yield payload
        time.sleep(PAUSE)
