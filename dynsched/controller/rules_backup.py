"""The rules in force outlive a restart: kept in the cluster while all is well, and taken from there
at a start whose rules file is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from dynsched.controller.reporting import report_warnings
from dynsched.core.wording import listed
from dynsched.kube.rules_config_map import RulesConfigMap
from dynsched.rules.file import RulesFile
from dynsched.rules.parse import read_rules
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.util.errors import ClusterError, ForbiddenError
from dynsched.util.logs import LoggedKinds
from dynsched.util.stopping import pause

logger = logging.getLogger(__name__)

POLL: Final = 1.0
READ_AGAIN: Final = 2.0
WRITE_AGAIN: Final = 60.0
"""Seconds until a call that failed is made again."""
MOST_FORBIDDEN: Final = 8
"""Answers 403 in a row, until the right is taken to be missing: an API server that has just started
gives them for some seconds.
"""


class RulesBackup:
    """``leads``: whether this replica writes. ``in_use``: the rules of the last tick, if their
    queries have passed (`Queries.has_passed`). Others are not kept. ``refused``: see
    `Queries.refused`.
    """

    def __init__(
        self,
        kept: RulesConfigMap,
        rules_file: RulesFile,
        leads: Callable[[], bool],
        in_use: Callable[[], RuleSet | None],
        refused: Callable[[Iterable[Rule]], Awaitable[Mapping[str, str]]],
    ) -> None:
        self._kept = kept
        self._file = rules_file
        self._leads = leads
        self._in_use = in_use
        self._refused = refused
        self._told = LoggedKinds()

    async def recall(self, stop: asyncio.Event) -> None:
        """Where the file, or a query in it, is refused: put in force what was in force before, if
        that is known. An API server that does not answer is waited for.
        """
        rules = () if self._file.rule_set is None else self._file.rule_set.rules
        if refused := await self._refused(rules):
            self._file.refuse(refused)
            self._file.text = None  # is not kept; its rules stay meanwhile, for what reads them
        forbidden = 0
        while self._file.error is not None and not stop.is_set():
            try:
                why_not = await self._take(await self._kept.read())
            except ClusterError as error:
                forbidden = forbidden + 1 if isinstance(error, ForbiddenError) else 0
                if forbidden < MOST_FORBIDDEN:
                    if self._told.is_new("rules", str(error)):
                        text = "which rules were in force before is not known yet: %s"
                        logger.warning(text, error)
                    await pause(stop, READ_AGAIN)
                    continue
                why_not = str(error)
            if why_not is not None and self._file.rule_set is not None:
                text = "the rules whose query is not refused are in force: %s:\n%s"
                logger.error(text, why_not, self._file.error)
                self._file.accept()
            elif why_not is not None:
                logger.error("no rules are in force, so no node is marked or released: %s", why_not)
            return

    async def _take(self, text: str | None) -> str | None:
        """Why these rules cannot be in force; None where they are."""
        if text is None:
            return f"the rules file is refused, and there is no {self._kept}"
        parsed = await asyncio.to_thread(read_rules, str(self._kept), text.encode())
        if parsed.rule_set is None:
            return f"the rules file is refused, and so is {parsed.errors[0]}"
        self._file.rule_set = parsed.rule_set
        names = listed([rule.name for rule in parsed.rule_set.rules])
        text = "the rules file is refused; those that were last accepted are in force, from %s: %s"
        logger.error(text, self._kept, names)
        report_warnings(parsed.warnings)
        return None

    async def run(self, stop: asyncio.Event) -> None:
        """Keep what is accepted, until ``stop`` is set. What is there already is not written."""
        written: str | None = None
        while not stop.is_set():
            text, is_used = self._file.text, self._in_use() is self._file.rule_set
            if not self._leads():
                written = None  # another replica may keep other rules meanwhile
            elif text is not None and text != written and is_used:
                try:
                    if await self._kept.read() != text:
                        await self._kept.write(text)
                    written = text
                except ClusterError as error:
                    if self._told.is_new("rules", str(error)):
                        logger.warning("the rules in force are not kept for a restart: %s", error)
                    await pause(stop, WRITE_AGAIN)
            await pause(stop, POLL)
