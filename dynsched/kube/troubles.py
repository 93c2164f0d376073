"""Why what is known of the nodes may be old: told once in the log, and kept while it is so.

The numbers in it may change with every look, and two kinds of trouble may take turns. So each kind
is logged once until the part is well again.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final

from dynsched.core.errors import ClusterError
from dynsched.core.message_kind import kind_of

logger = logging.getLogger(__name__)

_MAX_KINDS: Final = 20
"""Of one part; what else may come up before it is well again is in `/status` only."""


class Part(Enum):
    """The parts that can fail. The value is the message for the log when the part works again."""

    SERVER = "the API server answers again"
    WATCH = "the watch of nodes works again"
    NODES = "the nodes are known as the API server lists them again"
    NONE_LEFT = "the cluster has nodes again"


class Troubles:
    """The present trouble of each part. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._found: dict[Part, str] = {}
        self._told: dict[Part, frozenset[str]] = {}

    @property
    def first(self) -> str | None:
        """The one that has lasted longest, in one line; None while all is well."""
        return next(iter(tuple(self._found.values())), None)

    def begin(self, part: Part, why: ClusterError | str) -> None:
        """``why`` is what troubles ``part`` from now on. What failed is tried again."""
        self._found[part] = str(why)
        told, kind = self._told.get(part, frozenset()), kind_of(str(why))
        if kind not in told and len(told) < _MAX_KINDS:
            self._told[part] = told | {kind}
            logger.warning("%s; trying again" if isinstance(why, ClusterError) else "%s", why)

    def end(self, part: Part) -> None:
        """Nothing troubles ``part`` any more."""
        self._told.pop(part, None)
        if part in self._found and self._found.pop(part, ""):
            logger.info(part.value)
