"""`dynsched nodes --watch`: asks again and again, and shows what changed."""

from __future__ import annotations

import contextlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

import click
from rich.console import Console, Group
from rich.live import Live

from dynsched.cli.node_tables import nodes_head, nodes_table
from dynsched.cli.watched_rows import Columns, Seen
from dynsched.tools.running import Running, nodes_path
from dynsched.util.errors import ExpectedError
from dynsched.util.tables import plain

MIN_PAUSE: Final = 1.0
MAX_PAUSE: Final = 5.0
"""Seconds from one question to the next: half the interval of dynsched's ticks, within these, as
the page does it. Between two ticks the answer is 304, which costs nothing."""
WITHOUT_ETAG: Final = 10.0
"""Seconds where each answer has all nodes in it: a dynsched that is older, or a proxy on the way
that drops the ETag."""
MAX_OLDER: Final = 10
"""Answers in a row that may be older than the last one that was shown: a replica is a tick behind
at most, which is two questions. More of them mean that the clock over there was set back."""


def watch_nodes(running: Running, *, marked: bool, as_json: bool) -> None:
    """Show the nodes, and what becomes of them, until Ctrl-C. ExpectedError when already the first
    question fails; later ones may.
    """
    console = Console()
    shown: _Shown = _Picture(console) if console.is_terminal else _Lines(marked=marked)
    if as_json:
        shown = _Json()
    with contextlib.suppress(KeyboardInterrupt), shown:
        for payload in answers(running, nodes_path(marked=marked), _period(running), shown):
            shown.show(payload)


class _Shown(ABC):
    """Where the nodes go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:  # noqa: B027 - most have nothing to leave in order
        """Leave everything as it should stay."""

    @abstractmethod
    def show(self, payload: Mapping[str, Any]) -> None:
        """A new answer of `/nodes`."""

    def say(self, text: str) -> None:
        """One line beside the nodes."""
        click.echo(text, err=True)


class _Picture(_Shown):
    """The table, drawn again in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def end(self) -> None:
        self._live.stop()

    def show(self, payload: Mapping[str, Any]) -> None:
        head = nodes_head(payload)
        room = max(1, self._live.console.height - len(head) - 3)  # titles, what is left out, cursor
        parts: list[Any] = [*head, nodes_table(payload, most=room)]
        if (left := len(payload["nodes"]) - room) > 0:
            parts.append(plain(f"... and {left} more"))
        self._live.update(Group(*parts), refresh=True)

    def say(self, text: str) -> None:
        self._live.console.print(plain(text), soft_wrap=True)


class _Lines(_Shown):
    """All nodes, and then a line for each change, as `kubectl get --watch` does it."""

    def __init__(self, *, marked: bool) -> None:
        self._seen = Seen()
        self._columns: Columns | None = None
        self._marked = marked

    def show(self, payload: Mapping[str, Any]) -> None:
        changes = self._seen.take(payload["nodes"])
        if self._columns is None and changes:
            self._columns = Columns(payload, (change.node for change in changes))
            click.echo(self._columns.titles)
        for change in changes:
            if self._columns is not None:
                click.echo(self._columns.line(change, payload, marked=self._marked))


class _Json(_Shown):
    """An object for each change, one a line, in the form of Kubernetes' watches."""

    def __init__(self) -> None:
        self._seen = Seen()

    def show(self, payload: Mapping[str, Any]) -> None:
        for change in self._seen.take(payload["nodes"]):
            told = {"type": change.type, "object": change.node}
            click.echo(json.dumps(told, ensure_ascii=False))


def answers(
    running: Running, path: str, period: float, shown: _Shown
) -> Iterator[Mapping[str, Any]]:
    """Each new answer at ``path``, for ever. That there is none is told once, and once that there
    is one again.
    """
    etag, latest, is_silent, older = None, "", False, 0
    while True:
        pause = period
        try:
            answer = running.ask(path, etag)
            payload = running.read(answer) if answer.is_news else None
        except ExpectedError as error:
            if not latest:
                raise
            if not is_silent:
                shown.say(f"No answer: {error}. Trying again.")
            is_silent = True
        else:
            if is_silent:
                shown.say("There are answers again.")
            is_silent = False
            if answer.etag is None and answer.is_news:
                pause = max(period, WITHOUT_ETAG)
            # Of several replicas behind a Service, one may be a tick behind.
            is_older = payload is not None and payload["taken_at"] < latest
            older = older + 1 if is_older else 0
            if payload is not None and (not is_older or older > MAX_OLDER):
                etag, latest, older = answer.etag, payload["taken_at"], 0
                yield payload
        time.sleep(pause)


def _period(running: Running) -> float:
    """Seconds between two questions."""
    try:
        status = running.read(running.ask("/status"), key="interval_seconds")
    except ExpectedError:  # it is not well: `/nodes` will tell
        return MAX_PAUSE
    return min(MAX_PAUSE, max(MIN_PAUSE, float(status["interval_seconds"]) / 2))
