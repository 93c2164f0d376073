"""kopf's settings for thousands of nodes that it must not touch, and its logging.

Those of queues and storages count only where nodes come through kopf (see
`dynsched.kube.kopf_answers`): 5,000 of them then take 85 to 95 MB, and with kopf's own 264 MB.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Any, Final

import kopf

from dynsched.kube.transport import CONNECT_TIMEOUT, LIST_TIMEOUT
from dynsched.util.backoff import jittered

CHUNK: Final = 250
"""Nodes a page of kopf's list."""

BACKOFFS: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
"""Seconds between the attempts of one request; after the last kopf ends (and is begun again)."""

NO_FINALIZER: Final = "dynsched.io/never-set"
"""kopf removes its finalizer, by name, from objects that it needs none on. With the default name
it would be that of every other kopf operator in the cluster."""


def settings() -> kopf.OperatorSettings:
    """Kopf's settings for thousands of nodes, read-only."""
    result = kopf.OperatorSettings()
    result.process.ultimate_exiting_timeout = None  # it is a SIGKILL, to the process
    result.posting.enabled = False
    result.scanning.disabled = True
    result.watching.chunk_size = CHUNK
    # As client-go: streams end now and then, so that clients spread over the API servers.
    result.watching.server_timeout = random.randint(300, 600)  # noqa: S311 - spreads load
    result.watching.reconnect_backoff = 1.0
    result.queueing.idle_timeout = 0.05
    result.queueing.exit_timeout = 1.0
    result.networking.request_timeout = LIST_TIMEOUT
    result.networking.connect_timeout = CONNECT_TIMEOUT
    result.networking.error_backoffs = _Backoffs()
    result.persistence.finalizer = NO_FINALIZER
    result.persistence.diffbase_storage = _NoDiffBase()
    result.persistence.progress_storage = _NoProgress()
    return result


class _Backoffs:
    """BACKOFFS, spread anew for each request."""

    def __iter__(self) -> Iterator[float]:
        return (jittered(seconds) for seconds in BACKOFFS)


class _NoDiffBase(kopf.DiffBaseStorage):
    """Neither keeps nor compares anything: half of the time that kopf spends on an event."""

    def build(self, **_: object) -> Any:
        return None

    def fetch(self, **_: object) -> None:
        return None

    def store(self, **_: object) -> None:
        return None


class _NoProgress(kopf.ProgressStorage):
    """Handlers of `on.event` have no progress to keep."""

    def fetch(self, **_: object) -> None:
        return None

    def store(self, **_: object) -> None:
        return None

    def purge(self, **_: object) -> None:
        return None

    def touch(self, **_: object) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence


def quiet_kopf() -> None:
    """Kopf logs each attempt and each object. What ends it is raised by us and logged once; kopf's
    own lines are written at log level `debug`.
    """
    verbose = logging.getLogger().isEnabledFor(logging.DEBUG)
    logging.getLogger("kopf").setLevel(logging.NOTSET if verbose else logging.CRITICAL)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING if verbose else logging.CRITICAL)
