"""There are never two writers: electors with wrong clocks on a bad network, in virtual time.

The Elector is the real one. The API server is a Lease with optimistic concurrency; calls arrive
late, are answered late, or both.
"""

import asyncio
import contextlib
import copy
import functools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from types import SimpleNamespace
from typing import Any

from hypothesis import event, example, given
from hypothesis import strategies as st
from properties import steady
from virtual_loop import VirtualLoop

from dynsched.kube.election import CLOCK_ERROR, LeaseTimes
from dynsched.kube.failures import ApiRequest
from dynsched.kube.leader import Elector
from dynsched.kube.transport import ApiResponse
from dynsched.util.errors import ClusterError, ConflictError, NotFoundError
from dynsched_sim.apiserver.api_errors import ApiError
from dynsched_sim.apiserver.objects import Objects
from dynsched_sim.apiserver.store import Store

TIMES = LeaseTimes()
SAMPLE = 0.1
NAME, NAMESPACE = "dynsched", "default"
ERRORS = {404: NotFoundError, 409: ConflictError}


class Server:
    """The Lease in the simulator's store, without HTTP."""

    def __init__(self) -> None:
        self.store = Store()
        self.objects = Objects(self.store)
        self.taken_at = 0.0

    @property
    def lease(self) -> dict[str, Any] | None:
        with contextlib.suppress(ApiError):
            return self.objects.get("leases", NAME, NAMESPACE)
        return None

    @property
    def is_new(self) -> bool:
        """Whether some electors may not know the current holder yet. If the Lease were deleted now,
        they would never know.
        """
        return asyncio.get_running_loop().time() - self.taken_at < 2 * TIMES.renew_every

    def answer(self, call: ApiRequest, body: Any) -> ApiResponse | ClusterError:
        if call.verb == "get":
            return ApiResponse(200 if self.lease else 404, self.lease)
        try:
            return ApiResponse(200, self.write(body, is_new=call.verb == "create"))
        except ApiError as error:
            return ERRORS[error.code](error.message)

    def write(self, body: dict[str, Any], *, is_new: bool = False) -> dict[str, Any]:
        before = self.lease or {"spec": {}}
        if is_new:
            lease = self.objects.create("leases", body).decode()
        else:
            lease = self.objects.replace("leases", NAME, body, NAMESPACE).decode()
        if lease["spec"].get("holderIdentity") != before["spec"].get("holderIdentity"):
            self.taken_at = asyncio.get_running_loop().time()
        return lease


@dataclass
class Network:
    """Stands in for the KubeApi of one elector. ``delays`` has, for each call, the delays of the
    request and of the response.
    """

    server: Server
    delays: Iterator[tuple[float, float]]
    config: Any = field(default_factory=lambda: SimpleNamespace(server="http://api"))

    async def call(self, call, *, body=None, accept=(), resend=True, timeout=0.0) -> ApiResponse:  # noqa: ASYNC109
        there, back = next(self.delays)
        answered = asyncio.create_task(self._answered(call, copy.deepcopy(body), there, back))
        done, _ = await asyncio.wait([answered], timeout=timeout)
        if not done:
            raise ClusterError("no answer in time")  # the request may still arrive
        found = answered.result()
        if isinstance(found, ClusterError):
            raise found
        return found

    async def _answered(self, call, body, there, back):
        await asyncio.sleep(there)
        found = self.server.answer(call, body)
        await asyncio.sleep(back)
        return found


class Replica:
    """An elector with its own clock, from start to kill."""

    def __init__(
        self, name: str, server: Server, rate: float, delays: Sequence[tuple[float, float]]
    ) -> None:
        now = asyncio.get_running_loop().time
        self.name, self.rate = name, rate
        self.last_write_ends = -1.0
        self._network: Any = Network(server, cycle(delays))
        self._clock: Callable[[], float] = lambda: 1000.0 * len(name) + rate * now()
        self._wall = now
        self.start()

    def start(self) -> None:
        """Start a new process, which knows nothing about the past."""
        self.elector = Elector(
            self._network,
            namespace=NAMESPACE,
            identity=self.name,
            clock=self._clock,
            wall=self._wall,
        )
        self._running = asyncio.create_task(self.elector.run(asyncio.Event()))

    async def kill(self) -> None:
        """Kill the process. Its last requests may still be in flight."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


class Witness:
    """Asserts that at most one replica writes at a time, and records the writers in order."""

    def __init__(self, *replicas: Replica) -> None:
        self.replicas = replicas
        self.wrote: list[str] = []

    async def watch(self, until: float) -> None:
        while (now := asyncio.get_running_loop().time()) < until:
            for writer in self.replicas:
                if writer.elector.may_write:
                    self._writes(writer, now)
            await asyncio.sleep(SAMPLE)

    def _writes(self, writer: Replica, now: float) -> None:
        for other in self.replicas:
            if other is not writer:
                assert other.last_write_ends <= now, (
                    f"{writer.name} begins a write at {now:g}, "
                    f"{other.name}'s may last until {other.last_write_ends:g}"
                )
        # With a slow clock the write timeout lasts longer.
        writer.last_write_ends = now + TIMES.write_timeout / writer.rate
        if self.wrote[-1:] != [writer.name]:
            self.wrote.append(writer.name)


def in_virtual_time(history: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(history)
    def test(**drawn: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(history(**drawn))

    return test


RATE = st.floats(1 - CLOCK_ERROR, 1 + CLOCK_ERROR)
PROMPT = st.tuples(st.floats(0, 0.3), st.floats(0, 0.3))
AWAY = st.one_of(st.just(0.01), st.floats(0, 0.5), st.floats(0, 25))
BAD_NETWORK = st.lists(st.tuples(AWAY, AWAY), min_size=1, max_size=12)


@steady(40)
@given(RATE, RATE, BAD_NETWORK, BAD_NETWORK, st.lists(st.floats(5, 60), max_size=3))
@example(0.9, 1.1, [(0.01, 0.01)] * 8 + [(25.0, 0.0)] * 20, [(0.0, 0.0)], [])
@example(0.9, 1.1, [(0.01, 2.9)] * 6 + [(25.0, 0.0)] * 20, [(0.0, 0.0)], [])
@in_virtual_time
async def test_never_two_writers_whatever_the_clocks_and_the_network(
    rate_a, rate_b, delays_a, delays_b, restarts
) -> None:
    server = Server()
    a = Replica("a", server, rate_a, delays_a)
    await asyncio.sleep(1)
    b = Replica("bb", server, rate_b, delays_b)
    witness = Witness(a, b)
    watching = asyncio.create_task(witness.watch(200.0))
    for index, pause in enumerate(restarts):
        await asyncio.sleep(pause)
        restarted = (a, b)[index % 2]
        await restarted.kill()
        # A new process is another replica, although it has the identity of the old one.
        restarted.name += "'"
        restarted.start()
    await watching
    event(f"{len(witness.wrote)} writers in sequence")


def _emptied(spec: dict[str, Any]) -> None:
    spec |= {"holderIdentity": "", "leaseDurationSeconds": 15}


def _shortened(spec: dict[str, Any]) -> None:
    # An empty holder with a duration of one second is what a holder writes to release the Lease.
    spec["leaseDurationSeconds"] = 1 if spec.get("holderIdentity") else 2


def _given_to_another(spec: dict[str, Any]) -> None:
    spec["holderIdentity"] = "somebody"


def _cleared(spec: dict[str, Any]) -> None:
    spec.clear()


EDITS = [None, _emptied, _shortened, _given_to_another, _cleared]


@steady(40)
@given(
    RATE,
    RATE,
    st.lists(PROMPT, min_size=1, max_size=8),
    st.lists(st.tuples(st.floats(0.1, 30), st.sampled_from(EDITS)), min_size=1, max_size=8),
)
@in_virtual_time
async def test_never_two_writers_when_a_person_edits_or_deletes_the_lease(
    rate_a, rate_b, delays, edits
) -> None:
    server = Server()
    witness = Witness(
        Replica("a", server, rate_a, delays), Replica("bb", server, rate_b, delays[::-1])
    )
    end = 6.0 + sum(pause for pause, _ in edits) + 60.0
    watching = asyncio.create_task(witness.watch(end))
    await asyncio.sleep(6)  # both have seen the Lease
    for pause, edit in edits:
        await asyncio.sleep(pause)
        lease = server.lease
        if edit is None and lease is not None and not server.is_new:
            server.objects.delete("leases", NAME, NAMESPACE)
        elif edit is not None and lease is not None:
            edit(lease["spec"])
            server.write(lease)
    await watching
    assert any(replica.elector.may_write for replica in witness.replicas)


@steady(40)
@given(RATE, RATE, st.lists(PROMPT, min_size=1, max_size=8), st.floats(3, 30))
@in_virtual_time
async def test_after_the_holder_died_the_other_leads_within_the_duration_and_one_retry(
    rate_a, rate_b, delays, killed_at
) -> None:
    server, now = Server(), asyncio.get_running_loop().time
    a = Replica("a", server, rate_a, delays)
    await asyncio.sleep(1)
    b = Replica("bb", server, rate_b, delays[::-1])
    await asyncio.sleep(killed_at)
    assert a.elector.may_write
    await a.kill()
    assert not a.elector.may_write  # a cancelled elector does not go on leading
    died = now()
    while not b.elector.may_write:
        await asyncio.sleep(SAMPLE)
    # The last renewal may arrive after the holder's death, and is seen at the next retry. The wait
    # begins then, and at its end the Lease is read and taken.
    calls = 0.3 + 0.6 + 2 * 0.6
    late = TIMES.renew_every + TIMES.duration / rate_b + calls + 2 * SAMPLE
    assert now() - died <= late
    assert now() - died > TIMES.duration / rate_b - TIMES.renew_every - 1.0  # not too early
