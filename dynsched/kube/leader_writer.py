"""The one path of all writes that only the leader may make: nodes and the order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Unpack

from dynsched.kube.election import LeaseTimes
from dynsched.kube.failures import ApiRequest
from dynsched.kube.transport import ApiResponse, KubeApi, RequestOptions
from dynsched.util.errors import ClusterError


class LeaderWriter:
    """Each write is sent only while ``may_write()``, and takes at most ``limit`` seconds, as the
    election assumes.
    """

    def __init__(
        self,
        may_write: Callable[[], bool] = lambda: True,
        limit: float = LeaseTimes().write_timeout,
    ) -> None:
        self.may_write = may_write
        self._limit = limit
        self._under_way: set[asyncio.Task[ApiResponse]] = set()

    async def write(
        self,
        api: KubeApi,
        call: ApiRequest,
        *,
        accept: Collection[int] = (),
        shape: Any = Any,
        **request: Unpack[RequestOptions],
    ) -> ApiResponse:
        """As `KubeApi.call`. When the caller is cancelled, the write goes on: it may have been sent
        already, so the Lease must wait for it.
        """
        request["may_write"] = self.may_write

        async def limited() -> ApiResponse:
            try:
                async with asyncio.timeout(self._limit):
                    return await api.call(call, accept=accept, shape=shape, **request)
            except TimeoutError:
                raise ClusterError(f"cannot {call}: no answer in {self._limit:g} s") from None

        task = asyncio.create_task(limited())
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait([task])
        return task.result()

    async def wait_for_writes(self) -> None:
        """Return when no write is under way: after the limit at the latest, where none begins."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _ended(self, task: asyncio.Task[ApiResponse]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # asyncio logs those that nobody asks for
