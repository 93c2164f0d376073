"""Why the known state of the nodes may be outdated: kept while it lasts, and logged once.

The numbers in a message may change each time, and two kinds of trouble may alternate. Therefore
each kind is logged once until the part has recovered.
"""

from __future__ import annotations

import logging
from enum import Enum

from dynsched.engine.message_kind import LoggedKinds
from dynsched.util.errors import ClusterError

logger = logging.getLogger(__name__)


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
        self._told = LoggedKinds()

    @property
    def first(self) -> str | None:
        """The one that has lasted longest, in one line; None while all is well."""
        return next(iter(tuple(self._found.values())), None)

    def begin(self, part: Part, why: ClusterError | str) -> None:
        """``why`` is what troubles ``part`` from now on. What failed is tried again."""
        self._found[part] = str(why)
        if self._told.is_new(part, str(why)):
            logger.warning("%s; trying again" if isinstance(why, ClusterError) else "%s", why)

    def end(self, part: Part) -> None:
        """Nothing troubles ``part`` any more."""
        self._told.forget(part)
        if part in self._found and self._found.pop(part, ""):
            logger.info(part.value)
