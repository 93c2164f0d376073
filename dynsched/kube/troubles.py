"""Why what is known of the nodes may be old: told once in the log, and kept while it is so."""

from __future__ import annotations

import logging
from enum import Enum

from dynsched.core.errors import ClusterError

logger = logging.getLogger(__name__)


class Part(Enum):
    """What can be in trouble, and what is told when it is not any more."""

    SERVER = "the API server answers again"
    WATCH = "the watch of nodes is at work again"
    NODES = "the nodes are known as the API server lists them again"


class Troubles:
    """The present trouble of each part. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._found: dict[Part, str] = {}

    @property
    def first(self) -> str | None:
        """The one that has lasted longest, in one line; None while all is well."""
        return next(iter(tuple(self._found.values())), None)

    def begin(self, part: Part, why: ClusterError | str) -> None:
        """``why`` is what troubles ``part`` from now on. What failed is tried again."""
        if self._found.get(part) != str(why):
            self._found[part] = str(why)
            logger.warning("%s; trying again" if isinstance(why, ClusterError) else "%s", why)

    def end(self, part: Part) -> None:
        """Nothing troubles ``part`` any more."""
        if part in self._found and self._found.pop(part, ""):
            logger.info(part.value)
