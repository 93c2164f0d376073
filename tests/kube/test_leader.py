"""The elector with an API server: who leads, until when, and which errors are reported.

Each elector reads the Lease when the test calls it, with a clock that the test moves.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from api_support import api_of, stranger
from cluster import LEASES, Cluster, SimCluster
from operator_support import until

from dynsched.kube.election import LeaseTimes
from dynsched.kube.leader import Elector
from dynsched.kube.transport import USER_AGENT

LEASE = f"{LEASES}/dynsched"
TIMES = LeaseTimes()
GIVEN_UP = {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4}


class Race:
    """Creates electors in one cluster that share a clock."""

    def __init__(self, kubeconfig: Path, stack: AsyncExitStack) -> None:
        self.now = 1000.0
        self._kubeconfig = kubeconfig
        self._stack = stack

    async def elector(self, identity: str, **options: Any) -> Elector:
        api = await self._stack.enter_async_context(api_of(self._kubeconfig))
        usual = {"namespace": "default", "clock": lambda: self.now}
        return Elector(api, identity=identity, **{**usual, **options})

    async def start(self, identity: str, **options: Any) -> Elector:
        """An elector that has made one attempt."""
        found = await self.elector(identity, **options)
        await found.attempt()
        return found

    async def leader(self, identity: str = "first", **options: Any) -> Elector:
        found = await self.start(identity, **options)
        assert found.may_write, found.error
        return found

    async def pass_by(self, seconds: float, *electors: Elector) -> None:
        """Let time pass, in which these electors make attempts at their usual interval."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + TIMES.renew_every)
            for elector in electors:
                await elector.attempt()


@asynccontextmanager
async def racing(kubeconfig: Path) -> AsyncIterator[Race]:
    async with AsyncExitStack() as stack:
        yield Race(kubeconfig, stack)


@pytest.fixture
async def race(cluster: Cluster) -> AsyncIterator[Race]:
    async with racing(cluster.kubeconfig) as found:
        yield found


@pytest.fixture
async def sim_race(sim: SimCluster) -> AsyncIterator[Race]:
    async with racing(sim.kubeconfig) as found:
        yield found


async def leave(elector: Elector) -> None:
    """Stop the elector."""
    stop = asyncio.Event()
    stop.set()
    await elector.run(stop)


async def spec_of(cluster: Cluster) -> dict[str, Any]:
    found = await cluster.get_lease("dynsched")
    assert found is not None
    spec: dict[str, Any] = found["spec"]
    return spec


def writers(*electors: Elector) -> list[bool]:
    return [elector.may_write for elector in electors]


async def one_leads_after_the_duration(race: Race, *electors: Elector) -> None:
    """Before that nobody writes, because the last leader may still be writing."""
    await race.pass_by(TIMES.duration - 1, *electors)
    assert not any(writers(*electors))
    await race.pass_by(1.1, *electors)
    assert writers(*electors).count(True) == 1
    await race.pass_by(TIMES.renew_every, *electors)
    assert [elector.error for elector in electors] == [None] * len(electors)


async def test_the_first_elector_creates_and_renews_the_lease_while_the_second_waits(
    cluster: Cluster, race: Race
) -> None:
    first, second = await race.leader(), await race.elector("second")
    assert second.leader is second.lease is None  # nothing is known yet
    lease = await cluster.get_lease("dynsched")
    subject = ("Lease", "dynsched", "default", lease["metadata"]["uid"])  # of Events
    assert (first.lease.kind, first.lease.name, first.lease.namespace, first.lease.uid) == subject
    taken = await spec_of(cluster)
    assert (taken["holderIdentity"], taken["leaseDurationSeconds"]) == ("first", 15)
    assert taken["acquireTime"] == taken["renewTime"]
    assert taken["leaseTransitions"] == 0

    await race.pass_by(3 * TIMES.duration, first, second)

    assert writers(first, second) == [True, False]
    assert (first.leader, second.leader, second.error) == ("first", "first", None)
    renewed = await spec_of(cluster)
    assert renewed["renewTime"] > taken["renewTime"]
    assert renewed == {**taken, "renewTime": renewed["renewTime"]}
    writes = await cluster.writes("leases")
    assert [(write.verb, write.status) for write in writes] == [
        ("create", 201),
        *[("update", 200)] * (len(writes) - 1),
    ]
    assert {write.user_agent for write in writes} == {USER_AGENT}


async def test_a_leader_that_stops_releases_the_lease_and_each_change_is_logged_once(
    cluster: Cluster, race: Race, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dynsched.kube.leader")
    first, second = await race.leader(), await race.start("second")
    before = await spec_of(cluster)
    await race.pass_by(5, first, second)

    await leave(first)

    left = await spec_of(cluster)
    assert (left.get("holderIdentity", ""), left["leaseDurationSeconds"]) == ("", 1)
    assert left["renewTime"] > before["renewTime"]
    assert (first.may_write, first.leader) == (False, None)
    await second.attempt()
    assert second.may_write
    spec = await spec_of(cluster)
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("second", 15)
    assert spec["leaseTransitions"] == 1
    await leave(first)  # it no longer leads, so the Lease is not changed
    assert await spec_of(cluster) == spec
    assert len(caplog.records) == 4


async def test_the_next_process_of_a_pod_takes_over_its_own_lease_at_once(cluster, race) -> None:
    """Another pod goes on waiting."""
    await race.leader("pod_uid")
    other = await race.start("other_uid")
    before = await spec_of(cluster)

    again = await race.leader("pod_uid")  # the clock was not moved
    await race.pass_by(TIMES.duration, again, other)
    assert writers(again, other) == [True, False]
    after = await spec_of(cluster)
    assert after["renewTime"] > before["renewTime"]
    assert after == {**before, "renewTime": after["renewTime"]}


async def test_a_leader_that_steps_down_is_replaced_and_does_not_return(cluster, race) -> None:
    first, second = await race.leader(), await race.start("second")
    first.step_down()
    assert not first.may_write
    await race.pass_by(2 * TIMES.duration, first, second)
    assert writers(first, second) == [False, True]
    assert first.leader == "second"
    assert (await spec_of(cluster))["leaseTransitions"] == 1


@pytest.mark.parametrize("expired", [False, True], ids=["absent", "expired"])
async def test_one_of_two_simultaneous_attempts_gets_the_lease(cluster, race, expired) -> None:
    if expired:
        await cluster.post(LEASES, {"metadata": {"name": "dynsched"}, "spec": GIVEN_UP})
    electors = [await race.elector(name) for name in ("first", "second")]
    await asyncio.gather(*(elector.attempt() for elector in electors))

    assert sorted(writers(*electors)) == [False, True]
    winner = next(elector.identity for elector in electors if elector.may_write)
    assert {(elector.leader, elector.error) for elector in electors} == {(winner, None)}


@pytest.mark.parametrize(
    ("spec", "leader"),
    [(None, None), ({"holderIdentity": ""}, None), ({"holderIdentity": "a-person"}, "a-person")],
    ids=["deleted", "emptied", "given-away"],
)
async def test_after_a_lease_is_taken_from_its_holder_by_hand_nobody_writes_for_its_duration(
    cluster: Cluster, race: Race, spec: Any, leader: str | None
) -> None:
    first, second = await race.leader(), await race.start("second")
    edit = cluster.delete(LEASE) if spec is None else cluster.patch(LEASE, {"spec": spec})
    _ = (await edit).ok

    await first.attempt()  # the holder stops writing before its own time is over
    await second.attempt()
    assert writers(first, second) == [False, False]
    assert first.leader == leader
    if spec is None:
        assert await cluster.get_lease("dynsched") is None
    await one_leads_after_the_duration(race, first, second)


async def recovers(elector: Elector) -> None:
    """Make attempts until the API server answers, which may still be starting."""

    async def is_ok() -> bool:
        await elector.attempt()
        return elector.error is None

    await until(is_ok, "the API server answers")


async def test_a_403_is_reported_with_the_verb_and_logged_once(cluster, tmp_path, caplog) -> None:
    may_not = {(verb, "leases") for verb in ("get", "create", "update")}
    async with racing(stranger(cluster, tmp_path, may_not)) as race:
        first = await race.start("first")
        await race.pass_by(10, first)
    error = str(first.error)
    assert not first.may_write
    assert error.startswith("may not get leases: ")
    assert "--no-leader-elect" in error
    logged = [record for record in caplog.records if record.name == "dynsched.kube.leader"]
    assert [record.levelname for record in logged] == ["WARNING"]  # once


async def test_during_an_outage_of_the_api_server_the_leader_stops_writing(sim, sim_race) -> None:
    first, second = await sim_race.leader(), await sim_race.start("second")
    await sim.server.down()
    await sim_race.pass_by(TIMES.write_for - 0.1, first, second)
    assert first.may_write  # a short outage stops nothing
    sim_race.now += 0.1
    assert not first.may_write
    assert first.leader == second.leader == "first"  # the Lease has not expired yet
    await sim_race.pass_by(TIMES.duration, first, second)
    assert first.leader is second.leader is None
    assert writers(first, second) == [False, False]

    await sim.server.up()
    for elector in (first, second):
        await recovers(elector)
    assert writers(first, second).count(True) == 1


@pytest.mark.parametrize("verb", ["create", "update"])
async def test_a_lost_answer_to_a_write_of_the_lease_does_not_cost_the_lead(
    sim, sim_race, verb
) -> None:
    first = await (sim_race.elector("first") if verb == "create" else sim_race.leader())
    fault = sim.server.faults.reset(after=True, times=1, resource="leases", verb=verb)
    await first.attempt()
    assert fault.hits == 1
    lost = await spec_of(sim)
    await sim_race.pass_by(2 * TIMES.renew_every, first)
    spec = await spec_of(sim)
    assert spec["renewTime"] > lost["renewTime"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("first", 0)
    assert (first.may_write, first.error) == (True, None)
