"""Single passes that write, beside an instance that may be running: who gives way, and how."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

from dynsched.engine.lease import LeaseTimes
from dynsched.kube.leader import Elector
from dynsched.kube.leases import LEASE_NAME, Holder, find_holders
from dynsched.kube.transport import KubeApi
from dynsched.util.errors import ClusterError, ForbiddenError

logger = logging.getLogger(__name__)

TAKE_SECONDS: Final = 2 * LeaseTimes().duration
"""Seconds that a single pass waits for a Lease that is no longer renewed."""
RELEASE_SECONDS: Final = 1.0
"""Seconds that the release of the Lease may take; after that, the Lease is left to expire."""
POLL: Final = 0.05


class AtWorkError(ClusterError):
    """An instance is running and would undo what is about to be written; nothing was written."""


async def _holder(api: KubeApi, namespace: str | None, own: str) -> Holder | None:
    return next(iter(await find_holders(api, namespace, own)), None)


async def refuse_prune(api: KubeApi, namespace: str | None, own: str, *, anyway: bool) -> None:
    """AtWorkError where an instance holds a Lease: it would put the marks back. ``anyway``: only a
    line in the log. The namespaces are `find_holders`'s.
    """
    try:
        holder = await _holder(api, namespace, own)
    except ForbiddenError as error:
        if anyway:
            return
        raise ForbiddenError(
            f"it cannot be determined whether an instance is running: {error}; or, if you know "
            "that none is running, use --force"
        ) from error
    if holder is None:
        return
    found = f"{holder}: an instance is running and puts marks back"
    if anyway:
        logger.warning("%s", found)
        return
    another = "" if namespace else "; where it is another installation's, use --lease-namespace"
    raise AtWorkError(
        f"{found}; nothing was removed. Stop it first, for example with `kubectl -n "
        f"{holder.namespace} scale deployment/dynsched --replicas=0`, or use --force{another}"
    )


async def refuse_pass(api: KubeApi, namespace: str | None, own: str) -> None:
    """AtWorkError where an instance holds a Lease: it writes already."""
    try:
        holder = await _holder(api, namespace, own)
    except ForbiddenError:
        return  # the election says which right is missing
    if holder is not None:
        raise AtWorkError(
            f"{holder}: an instance is running, so this pass writes nothing. `dynsched plan` shows "
            "what is due; --no-leader-elect writes all the same"
        )


@contextlib.asynccontextmanager
async def leading(elector: Elector) -> AsyncIterator[None]:
    """``elector`` holds the Lease inside of the block, and lets go of it at its end. One that its
    holder left without letting go is waited for. AtWorkError when the Lease is not free in time.
    """
    done = asyncio.Event()
    election = asyncio.create_task(elector.run(done), name="the leader election")
    try:
        await _until_it_leads(elector)
        yield
    finally:
        done.set()
        await asyncio.wait([election], timeout=RELEASE_SECONDS)
        election.cancel()
        await asyncio.gather(election, return_exceptions=True)


async def _until_it_leads(elector: Elector) -> None:
    try:
        async with asyncio.timeout(TAKE_SECONDS):
            while not elector.may_write:
                if elector.error is not None:
                    raise ClusterError(elector.error)
                await asyncio.sleep(POLL)
    except TimeoutError:
        raise AtWorkError(
            f"the Lease {LEASE_NAME} could not be taken within {TAKE_SECONDS:g} s: "
            f"the holder is {elector.leader or 'not known'}; nothing was written"
        ) from None
