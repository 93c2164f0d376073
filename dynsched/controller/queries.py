"""Runs the rules' queries concurrently: one that hangs delays neither other rules nor a tick."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from dynsched.core.samples import QueryResult
from dynsched.rules.fields import SourceName
from dynsched.rules.rule_set import Rule

logger = logging.getLogger(__name__)

PATIENCE: Final = 0.8
"""Share of the interval for which a tick waits for answers."""
_NOT_YET: Final = QueryResult(error="the query has not been answered yet", is_new=False)


class Source(Protocol):
    """Where a rule's samples come from."""

    async def query(self, rule: Rule) -> QueryResult:
        """Send one aggregate query. A bad answer is a QueryResult with an error, never raised."""


class Queries:
    """Runs at most one query per rule at a time. Until the next answer arrives, the last one is
    used, and its samples age. A tick does not wait for a rule whose last query took too long or is
    still running.
    """

    def __init__(self, sources: Mapping[SourceName, Source]) -> None:
        self._sources = sources
        self._under_way: dict[Rule, asyncio.Task[QueryResult]] = {}
        self._last: dict[Rule, QueryResult] = {}
        self._took: dict[Rule, float] = {}
        """Seconds that the last finished query took."""

    async def ask(self, rules: Iterable[Rule], patience: float | None) -> dict[str, QueryResult]:
        """Query the rules, and return the last answer of each by rule name.

        Waits for up to ``patience`` seconds, only for queries that should be answered by then;
        None: waits for all.
        """
        rules = tuple(rules)
        self._forget_all_but(rules)
        self._collect()
        await self._begin(rules, patience)
        answers = {rule.name: self._last.get(rule, _NOT_YET) for rule in rules}
        self._last = {rule: replace(found, is_new=False) for rule, found in self._last.items()}
        return answers

    async def refused(self, rules: Iterable[Rule], patience: float | None) -> dict[str, str]:
        """By rule name, the server's error message about queries that it refuses.

        Only rules without an answer are queried. A query that is not answered within ``patience``
        seconds does not count as refused.
        """
        tried = [rule for rule in rules if rule not in self._last]
        await self._begin(tried, patience)
        answers = {rule.name: self._last.get(rule, _NOT_YET) for rule in tried}
        return {
            name: found.error for name, found in answers.items() if found.refused and found.error
        }

    async def _begin(self, rules: Iterable[Rule], patience: float | None) -> None:
        """Start the queries that are not running; wait for those that should answer in time."""
        awaited = []
        for rule in rules:
            if rule not in self._under_way:
                task = asyncio.create_task(self._query(rule), name=f"query of {rule.name}")
                self._under_way[rule] = task
                if patience is None or self._took.get(rule, 0.0) <= patience:
                    awaited.append(task)
        if awaited:
            await asyncio.wait(awaited, timeout=patience)
        self._collect()

    def _collect(self) -> None:
        for rule in [rule for rule, task in self._under_way.items() if task.done()]:
            self._last[rule] = self._under_way.pop(rule).result()

    async def close(self) -> None:
        """Cancel the running queries."""
        self._forget_all_but(())

    def _forget_all_but(self, rules: tuple[Rule, ...]) -> None:
        for rule in self._under_way.keys() - set(rules):
            self._under_way.pop(rule).cancel()
        self._last = {rule: self._last[rule] for rule in rules if rule in self._last}
        self._took = {rule: self._took[rule] for rule in rules if rule in self._took}

    async def _query(self, rule: Rule) -> QueryResult:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await self._answer(rule)
        finally:
            self._took[rule] = loop.time() - began

    async def _answer(self, rule: Rule) -> QueryResult:
        source = self._sources.get(rule.source)
        if source is None:
            return QueryResult(error=f"source {rule.source} is not set up in this process")
        try:
            return await source.query(rule)
        except Exception as error:
            # A source must not raise. If one does, its rule is unknown, and the others continue.
            text = "rule %s: its source raised an unexpected error"
            logger.exception(text, rule.name, extra={"rule": rule.name})
            return QueryResult(error=f"unexpected {type(error).__name__}: {error}")
