"""The elector against an API server: who leads, until when, and what is told when it fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster import LEASES, Cluster, EnvtestCluster, SimCluster
from operator_support import until

from dynsched.core.errors import ClusterError
from dynsched.core.lease import MAX_DURATION, LeaseTimes, is_released
from dynsched.core.model import Action, NodePatch
from dynsched.kube import leader
from dynsched.kube.client import KubeClient
from dynsched.kube.config import load_config
from dynsched.kube.leader import Elector, SoleWriter, boot_time
from dynsched.kube.transport import USER_AGENT, KubeApi
from dynsched.sim.apiserver.record import RequestRecord
from dynsched.sim.nodes import make_node

LEASE = f"{LEASES}/dynsched"
TIMES = LeaseTimes(renew_every=0.2)
LOOK = 0.6
"""Seconds in which everybody has looked."""


class Clock:
    """The electors' clock: real, but for what is skipped."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def __call__(self) -> float:
        return boot_time() + self.skipped

    async def skip(self, seconds: float) -> None:
        """Let so much time pass at once, and everybody look after it."""
        self.skipped += seconds
        await asyncio.sleep(LOOK)


class Candidate:
    """An elector that runs until it is told to leave, or dies."""

    def __init__(self, elector: Elector) -> None:
        self.elector = elector
        self._stop = asyncio.Event()
        self._running = asyncio.create_task(elector.run(self._stop))

    @property
    def leads(self) -> bool:
        return self.elector.may_write

    async def until(self, leads: bool = True, seconds: float = 10) -> float:
        """Wait until it leads, or does not; how long that took."""
        began = time.monotonic()
        limit = began + seconds
        while self.leads is not leads:
            assert time.monotonic() < limit, f"leads is {self.leads}: {self.elector.error}"
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    async def leave(self) -> None:
        self._stop.set()
        await self._running

    async def die(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


class Race:
    """Makes candidates in one cluster, who share a clock."""

    def __init__(self, kubeconfig: Path) -> None:
        self.clock = Clock()
        self._kubeconfig = kubeconfig
        self._stack = AsyncExitStack()

    async def elector(self, identity: str, **options: Any) -> Elector:
        api = KubeApi(await load_config(str(self._kubeconfig)), in_flight=2)
        self._stack.push_async_callback(api.close)
        usual = {"namespace": "default", "times": TIMES, "clock": self.clock}
        return Elector(api, identity=identity, **{**usual, **options})

    async def start(
        self, identity: str, elector: Elector | None = None, **options: Any
    ) -> Candidate:
        candidate = Candidate(elector or await self.elector(identity, **options))
        self._stack.push_async_callback(candidate.die)
        return candidate

    async def leader(self, identity: str = "first", **options: Any) -> Candidate:
        candidate = await self.start(identity, **options)
        await candidate.until()
        return candidate

    async def close(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def racing(kubeconfig: Path) -> AsyncIterator[Race]:
    race = Race(kubeconfig)
    try:
        yield race
    finally:
        await race.close()


@pytest.fixture
async def race(cluster: Cluster) -> AsyncIterator[Race]:
    async with racing(cluster.kubeconfig) as found:
        yield found


@pytest.fixture
async def sim_race(sim: SimCluster) -> AsyncIterator[Race]:
    async with racing(sim.kubeconfig) as found:
        yield found


async def spec_of(cluster: Cluster) -> dict[str, Any]:
    found = await cluster.get_lease("dynsched")
    assert found is not None
    spec: dict[str, Any] = found["spec"]
    return spec


async def all_the_while(seconds: float, holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        assert holds()
        await asyncio.sleep(0.01)


# --- taking, renewing, waiting ---


async def test_the_first_one_creates_the_lease_and_renews_it(cluster: Cluster, race: Race) -> None:
    first = await race.leader()
    taken = await spec_of(cluster)
    assert (taken["holderIdentity"], taken["leaseDurationSeconds"]) == ("first", 15)
    assert taken["acquireTime"] == taken["renewTime"]
    assert taken["leaseTransitions"] == 0

    await race.clock.skip(TIMES.write_for - 2)
    await race.clock.skip(TIMES.write_for - 2)

    assert first.leads
    renewed = await spec_of(cluster)
    assert renewed["renewTime"] > taken["renewTime"]
    assert renewed == {**taken, "renewTime": renewed["renewTime"]}
    writes = await cluster.writes("leases")
    assert {write.status for write in writes} == {200, 201}
    assert [write.verb for write in writes[:2]] == ["create", "update"]
    assert 4 <= len(writes) <= 14  # every 0.1 to 0.2 s, and what the call takes
    assert {write.user_agent for write in writes} == {USER_AGENT}


async def test_the_second_one_waits_and_knows_who_leads(cluster: Cluster, race: Race) -> None:
    first = await race.leader()
    second = await race.start("second")
    assert second.elector.leader is None  # nothing is known yet
    for _ in range(4):
        await race.clock.skip(TIMES.write_for - 2)
        assert (first.leads, second.leads) == (True, False)
    assert first.elector.leader == second.elector.leader == "first"
    assert second.elector.error is None
    assert (await spec_of(cluster))["leaseTransitions"] == 0


async def test_one_that_waits_tells_once_for_whom(sim: SimCluster, sim_race: Race, caplog) -> None:
    caplog.set_level(logging.INFO, "dynsched.kube.leader")
    first = await sim_race.leader()
    second = await sim_race.start("second")
    await until(lambda: _knows(second, "first"), "it has looked")
    await asyncio.sleep(LOOK)  # and looks on
    await first.leave()
    await second.until(leads=True)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "hold the Lease default/dynsched as first",
        (
            "first holds the Lease default/dynsched: nothing is written until it is free "
            "(we are second)"
        ),
        "gave up the Lease default/dynsched",
        "hold the Lease default/dynsched as second",
    ]


async def _knows(candidate: Candidate, leader: str) -> bool:
    return candidate.elector.leader == leader


async def test_a_pods_next_process_takes_its_own_lease_over_at_once(
    cluster: Cluster, race: Race
) -> None:
    """And another pod that looks on goes on waiting."""
    first = await race.leader("pod_uid", of_pod=True)
    other = await race.start("other_uid", of_pod=True)
    await asyncio.sleep(LOOK)
    await first.die()
    before = await spec_of(cluster)

    again = await race.leader("pod_uid", of_pod=True)  # the clock was not moved
    await race.clock.skip(TIMES.duration - 1)
    await again.until()
    assert not other.leads
    after = await spec_of(cluster)
    assert after["renewTime"] > before["renewTime"]
    assert after == {**before, "renewTime": after["renewTime"]}


async def test_only_at_its_start_a_process_takes_over_what_is_held_under_its_name(
    cluster: Cluster, race: Race
) -> None:
    """Later it may be what it held itself before others did: a restore of etcd brings it back."""
    other = await race.leader("other")
    again = await race.start("pod_uid", of_pod=True)
    await asyncio.sleep(LOOK)
    await other.die()
    _ = (await cluster.patch(LEASE, {"spec": {"holderIdentity": "pod_uid"}})).ok
    await all_the_while(3 * LOOK, lambda: not again.leads)


async def test_after_a_crash_the_second_leads_when_the_duration_is_over(
    cluster: Cluster, race: Race
) -> None:
    first = await race.leader()
    second = await race.start("second")
    await asyncio.sleep(LOOK)

    await first.die()
    await asyncio.sleep(LOOK)  # its last renewal may have been under way
    await race.clock.skip(TIMES.duration - 4)
    assert not second.leads
    assert second.elector.leader == "first"
    await race.clock.skip(4)

    await second.until()
    spec = await spec_of(cluster)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)
    assert second.elector.leader == "second"


async def test_the_end_of_a_lease_is_not_slept_through(cluster: Cluster, race: Race) -> None:
    await (await race.leader()).die()
    await asyncio.sleep(LOOK)  # its last renewal may have been under way
    second = await race.elector("second", times=LeaseTimes(renew_every=60.0))
    await second._attempt()
    race.clock.skipped += TIMES.duration - 0.5
    began = time.monotonic()
    await second._pause(asyncio.Event())
    await second._attempt()
    assert second.may_write
    assert time.monotonic() - began < 5  # and not 30


async def test_one_that_gives_way_lets_the_other_in_and_does_not_come_back(
    cluster: Cluster, race: Race
) -> None:
    first = await race.leader()
    second = await race.start("second")
    await asyncio.sleep(LOOK)

    first.elector.give_way()

    assert not first.leads
    await second.until()
    await race.clock.skip(3)
    await race.clock.skip(3)
    await race.clock.skip(TIMES.duration - 6)
    assert (first.leads, first.elector.leader) == (False, "second")
    assert (await spec_of(cluster))["leaseTransitions"] == 1


async def test_one_that_gives_way_to_nobody_leads_again_after_the_duration(
    cluster: Cluster, race: Race
) -> None:
    first = await race.leader()
    first.elector.give_way()
    await asyncio.sleep(LOOK)
    assert (first.leads, first.elector.leader, first.elector.error) == (False, None, None)
    assert is_released({"spec": await spec_of(cluster)})

    await race.clock.skip(TIMES.duration)

    await first.until()
    assert (await spec_of(cluster))["holderIdentity"] == "first"


async def test_one_that_stops_lets_the_other_in_at_once(cluster: Cluster, race: Race) -> None:
    first = await race.leader()
    second = await race.start("second")
    await asyncio.sleep(LOOK)

    await first.leave()

    assert not first.leads
    assert first.elector.leader is None
    assert await second.until() < TIMES.duration / 3
    spec = await spec_of(cluster)
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("second", 15)
    assert spec["leaseTransitions"] == 1


async def test_what_is_left_by_one_that_stopped(cluster: Cluster, race: Race) -> None:
    first = await race.leader()
    before = await spec_of(cluster)
    await first.leave()
    spec = await spec_of(cluster)
    assert (spec.get("holderIdentity", ""), spec["leaseDurationSeconds"]) == ("", 1)
    assert spec["renewTime"] > before["renewTime"]
    assert [write.verb for write in await cluster.writes("leases")][-1] == "update"


async def test_one_that_does_not_lead_leaves_the_lease_alone_when_it_stops(
    cluster: Cluster, race: Race
) -> None:
    await race.leader()
    second = await race.start("second")
    await asyncio.sleep(LOOK)
    await second.leave()
    assert (await spec_of(cluster))["holderIdentity"] == "first"


async def test_a_cancelled_one_leads_no_more_and_lets_the_lease_run_out(
    cluster: Cluster, race: Race
) -> None:
    # Only who sets `stop` knows that no write is under way any more.
    first = await race.leader()
    await first.die()
    assert not first.leads
    left = await spec_of(cluster)
    await asyncio.sleep(LOOK)
    assert not first.leads
    assert await spec_of(cluster) == left
    assert left["holderIdentity"] == "first"


@pytest.mark.parametrize("expired", [False, True], ids=["absent", "expired"])
async def test_of_two_that_saw_it_free_one_gets_it(cluster: Cluster, race: Race, expired) -> None:
    if expired:
        await cluster.post(LEASES, {"metadata": {"name": "dynsched"}, "spec": GIVEN_UP})
    electors = [await race.elector(name) for name in ("first", "second")]
    both_have_looked = asyncio.Barrier(2)

    def slowly(read):
        async def look():
            found = await read()
            elector_looks.append(found)
            if len(elector_looks) <= 2:
                await both_have_looked.wait()
            return found

        return look

    elector_looks: list[Any] = []
    for elector in electors:
        elector._leases.read = slowly(elector._leases.read)  # type: ignore[method-assign]
    await asyncio.gather(*(elector._attempt() for elector in electors))

    assert sorted(elector.may_write for elector in electors) == [False, True]
    winner = next(elector._identity for elector in electors if elector.may_write)
    assert {elector.leader for elector in electors} == {winner}
    assert {elector.error for elector in electors} == {None}
    writes = await cluster.writes("leases")
    assert sorted(write.status for write in writes if "tests" not in write.user_agent) in (
        [200, 409],
        [201, 409],
    )


GIVEN_UP = {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4}


# --- other hands on the Lease ---


async def test_a_lease_deleted_under_its_holder_is_waited_for(cluster: Cluster, race: Race) -> None:
    first = await race.leader()
    second = await race.start("second")
    await asyncio.sleep(LOOK)

    _ = (await cluster.delete(LEASE)).ok
    # It does not write on until its time is over.
    assert await first.until(leads=False) < TIMES.write_for / 2
    await race.clock.skip(TIMES.duration - 4)
    assert not first.leads
    assert not second.leads
    assert await cluster.get_lease("dynsched") is None

    await race.clock.skip(4)
    await until(lambda: _leads(first, second), "one of them leads again")
    assert [first.leads, second.leads].count(True) == 1
    await until(lambda: _well(first, second), "no attempt fails any more")


async def test_a_lease_emptied_by_hand_is_waited_for(cluster: Cluster, race: Race) -> None:
    first = await race.leader()
    second = await race.start("second")
    await asyncio.sleep(LOOK)

    _ = (await cluster.patch(LEASE, {"spec": {"holderIdentity": ""}})).ok
    await first.until(leads=False)
    await race.clock.skip(TIMES.duration - 4)
    assert not first.leads
    assert not second.leads
    assert first.elector.leader is None

    await race.clock.skip(4)
    await until(lambda: _leads(first, second), "one of them leads again")
    assert [first.leads, second.leads].count(True) == 1


async def test_a_lease_given_away_by_hand_is_respected(cluster: Cluster, race: Race) -> None:
    first = await race.leader()
    _ = (await cluster.patch(LEASE, {"spec": {"holderIdentity": "a-person"}})).ok
    await first.until(leads=False)
    await race.clock.skip(TIMES.duration - 4)
    assert (first.elector.leader, first.leads) == ("a-person", False)
    await race.clock.skip(4)
    await first.until()
    assert (await spec_of(cluster))["leaseTransitions"] == 1


async def test_what_others_add_to_the_lease_stays(cluster: Cluster, race: Race) -> None:
    first = await race.leader()
    added = {"metadata": {"labels": {"team": "blue"}, "annotations": {"why": "because"}}}
    _ = (await cluster.patch(LEASE, added)).ok
    patched = await spec_of(cluster)
    # The conflict is looked at, and the Lease renewed, at one and the same attempt.
    await until(lambda: _renewed(cluster, patched), "it is renewed")
    lease = await cluster.get_lease("dynsched")
    assert lease is not None
    assert lease["metadata"]["labels"] == {"team": "blue"}
    assert lease["metadata"]["annotations"] == {"why": "because"}
    assert first.leads
    assert lease["spec"]["leaseTransitions"] == 0


async def _renewed(cluster: Cluster, before: dict[str, Any]) -> bool:
    return (await spec_of(cluster))["renewTime"] > before["renewTime"]


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": "x"}], ids=str)
async def test_a_lease_made_by_hand_is_taken_after_a_whole_duration(
    cluster: Cluster, race: Race, spec
) -> None:
    body = {"metadata": {"name": "dynsched"}, **({} if spec is None else {"spec": spec})}
    _ = (await cluster.post(LEASES, body)).ok
    await _is_taken_when_its_duration_is_over(race)


async def test_an_old_time_in_the_lease_does_not_shorten_the_wait(
    cluster: Cluster, race: Race
) -> None:
    # Its holder's clock may be wrong by years; and ours.
    spec = {"holderIdentity": "x", "renewTime": "1999-01-01T00:00:00.000000Z"}
    _ = (await cluster.post(LEASES, {"metadata": {"name": "dynsched"}, "spec": spec})).ok
    await _is_taken_when_its_duration_is_over(race)


async def _is_taken_when_its_duration_is_over(race: Race) -> None:
    candidate = await race.start("first")
    await asyncio.sleep(LOOK)
    await race.clock.skip(TIMES.duration - 4)
    assert not candidate.leads
    await race.clock.skip(4)
    await candidate.until()


LONG = {"holderIdentity": "dead", "leaseDurationSeconds": 2**31 - 1}


async def test_a_dead_holders_lease_for_68_years_is_taken_when_it_is_deleted(
    cluster: Cluster, race: Race
) -> None:
    _ = (await cluster.post(LEASES, {"metadata": {"name": "dynsched"}, "spec": LONG})).ok
    candidate = await race.start("first")
    await asyncio.sleep(LOOK)
    await race.clock.skip(2 * TIMES.duration)
    assert candidate.elector.leader == "dead"
    _ = (await cluster.delete(LEASE)).ok
    await candidate.until(seconds=5)
    assert (await spec_of(cluster))["leaseDurationSeconds"] == TIMES.duration


async def test_a_dead_holders_lease_for_68_years_is_taken_within_minutes(
    cluster: Cluster, race: Race
) -> None:
    most = {**LONG, "leaseTransitions": 2**31 - 1}
    _ = (await cluster.post(LEASES, {"metadata": {"name": "dynsched"}, "spec": most})).ok
    candidate = await race.start("first")
    await asyncio.sleep(LOOK)
    await race.clock.skip(MAX_DURATION - 4)
    assert not candidate.leads
    await race.clock.skip(4)
    await candidate.until()
    assert (await spec_of(cluster))["leaseTransitions"] == 2**31 - 1


# --- an older state of etcd is put back ---


async def test_one_that_led_before_the_backup_does_not_lead_at_once_by_its_name(
    cluster: Cluster, race: Race
) -> None:
    first = await race.leader()
    backup = await cluster.back_up()
    await first.leave()
    second = await race.leader("second")
    again = await race.start("first", elector=first.elector)
    await asyncio.sleep(LOOK)

    await cluster.restore(backup)
    assert (await spec_of(cluster))["holderIdentity"] == "first"
    await second.until(leads=False)
    await all_the_while(2 * LOOK, lambda: not (again.leads or second.leads))
    await race.clock.skip(TIMES.duration)
    await until(lambda: _leads(again, second), "one of them leads again")
    assert [again.leads, second.leads].count(True) == 1
    await until(lambda: _well(again, second), "no attempt fails any more")


async def test_one_that_leads_before_and_after_leads_again(cluster: Cluster, race: Race) -> None:
    first = await race.leader()
    taken = await spec_of(cluster)
    backup = await cluster.back_up()
    await until(lambda: _renewed(cluster, taken), "it is renewed")
    await cluster.restore(backup)
    await first.until(leads=False)
    await asyncio.sleep(LOOK)  # it counts from when it saw the older Lease
    await race.clock.skip(TIMES.duration)
    await first.until()
    assert (await spec_of(cluster))["holderIdentity"] == "first"
    assert first.elector.error is None


async def test_the_lease_as_the_subject_of_events(cluster: Cluster, race: Race) -> None:
    elector = await race.elector("first")
    assert elector.lease is None
    await elector._attempt()
    found = await cluster.get_lease("dynsched")
    assert found is not None
    assert elector.lease is not None
    assert elector.lease.uid == found["metadata"]["uid"]
    assert (elector.lease.kind, elector.lease.name, elector.lease.namespace) == (
        "Lease",
        "dynsched",
        "default",
    )


# --- what is refused ---


def stranger(cluster: Cluster, folder: Path) -> Path:
    """A kubeconfig of somebody who may not touch Leases."""
    if isinstance(cluster, EnvtestCluster):
        token = cluster.servers.stranger_token
        return cluster.servers.kubeconfig(folder / "stranger", token)
    assert isinstance(cluster, SimCluster)
    cluster.server.forbidden |= {(verb, "leases") for verb in ("get", "create", "update")}
    return cluster.kubeconfig


async def test_403_names_the_verb_and_the_role(cluster: Cluster, tmp_path: Path, caplog) -> None:
    async with racing(stranger(cluster, tmp_path)) as race:
        first = await race.start("first")
        await until(lambda: _error(first), "it fails")
        await asyncio.sleep(1)  # and fails
        error = str(first.elector.error)
        assert not first.leads

    assert error.startswith("may not get leases: ")
    assert "`kubectl auth can-i get leases -n default --as=" in error
    assert (
        "grant with `kubectl apply -k manifests/base` (its Role, which is in namespace dynsched: "
        "use --lease-namespace dynsched, or copy it to namespace default)"
        if isinstance(cluster, SimCluster)  # where it is the service account; else a person
        else "ask an administrator to bind a Role with it to stranger; manifests/base grants it "
    ) in error
    assert error.endswith("; a single replica may run --no-leader-elect")
    told = [record for record in caplog.records if record.name == "dynsched.kube.leader"]
    assert [record.levelname for record in told] == ["WARNING"]  # once


async def _error(candidate: Candidate) -> bool:
    return candidate.elector.error is not None


@pytest.mark.parametrize("verb", ["create", "update"])
async def test_403_on_one_verb_and_all_is_well_when_it_is_granted(
    sim: SimCluster, sim_race: Race, verb
) -> None:
    if verb == "update":
        _ = (await sim.post(LEASES, {"metadata": {"name": "dynsched"}, "spec": GIVEN_UP})).ok
    sim.server.forbidden = {(verb, "leases")}
    first = await sim_race.start("first")
    await until(lambda: _error(first), "it fails")
    assert str(first.elector.error).startswith(f"may not {verb} leases: ")

    sim.server.forbidden = set()
    await first.until()
    assert first.elector.error is None


async def test_a_namespace_that_is_not_there(cluster: Cluster, race: Race) -> None:
    first = await race.start("first", namespace="nowhere")
    await until(lambda: _error(first), "it fails")
    assert first.elector.error == (
        f"cannot create leases: {cluster.url} has no namespace nowhere; "
        "name one that exists with --lease-namespace"
    )


async def test_another_namespace(cluster: Cluster, race: Race) -> None:
    await cluster.create_namespace("ops")
    await race.leader(namespace="ops")
    assert await cluster.get_lease("dynsched") is None
    assert await cluster.get_lease("dynsched", "ops") is not None


@pytest.mark.parametrize("answer", ["{}", "[]", "null", '"x"', '{"metadata": {}}', "<html>"])
async def test_an_answer_that_is_no_lease_is_an_error_and_ends_nothing(
    sim: SimCluster, sim_race: Race, answer
) -> None:
    fault = sim.server.faults.answer(200, body=answer, resource="leases")
    first = await sim_race.start("first")
    await until(lambda: _error(first), "it fails")
    assert "answered" in str(first.elector.error)
    fault.remove()
    await first.until()


# --- what is late, lost, or away ---


async def test_an_api_server_that_is_away(sim: SimCluster, sim_race: Race, caplog) -> None:
    caplog.set_level(logging.INFO, "dynsched.kube.leader")
    first = await sim_race.leader()
    second = await sim_race.start("second")
    await asyncio.sleep(LOOK)

    await sim.server.down()
    await asyncio.sleep(LOOK)
    assert first.leads  # a short outage stops nothing
    assert "is the API server up?" in str(first.elector.error)
    await sim_race.clock.skip(TIMES.write_for)
    assert not first.leads
    assert first.elector.leader == second.elector.leader == "first"  # it has not run out yet
    await sim_race.clock.skip(TIMES.duration)
    assert first.elector.leader is second.elector.leader is None
    assert not first.leads
    assert not second.leads

    await sim.server.up()
    await until(lambda: _leads(first, second), "one of them leads again")
    assert [first.leads, second.leads].count(True) == 1
    said = [record.getMessage() for record in caplog.records if "the Lease" in record.msg]
    assert said[:3] == [
        "hold the Lease default/dynsched as first",
        (
            "first holds the Lease default/dynsched: nothing is written until it is free "
            "(we are second)"
        ),
        "no longer hold the Lease default/dynsched as first",
    ]


async def test_a_renewal_counts_from_before_it_was_sent(sim: SimCluster, sim_race: Race) -> None:
    # Others may have seen it for as long as its answer was under way.
    first = await sim_race.leader()
    slow = sim.server.faults.delay(1.0, times=1, resource="leases", verb="update")
    await until(lambda: _hit(slow), "it is under way")
    sim.server.faults.delay(60, resource="leases", verb="update")
    sim_race.clock.skipped += TIMES.write_for
    under_way = sim.server.requests.writes("leases")[-1]

    await until(lambda: _answered(under_way), "it is answered")
    await all_the_while(LOOK, lambda: not first.leads)
    assert under_way.status == 200


async def test_so_does_the_first_one(sim: SimCluster, sim_race: Race) -> None:
    slow = sim.server.faults.delay(1.0, times=1, resource="leases", verb="create")
    sim.server.faults.delay(60, resource="leases", verb="update")
    first = await sim_race.start("first")
    await until(lambda: _hit(slow), "it is under way")
    sim_race.clock.skipped += TIMES.write_for - 2
    await first.until()
    sim_race.clock.skipped += 2
    assert not first.leads


async def _answered(record: RequestRecord) -> bool:
    return bool(record.status)


async def _leads(*candidates: Candidate) -> bool:
    return any(candidate.leads for candidate in candidates)


async def _well(*candidates: Candidate) -> bool:
    """Whether everybody's last attempt succeeded. One may time out while the server starts."""
    return all(candidate.elector.error is None for candidate in candidates)


@pytest.mark.parametrize("verb", ["create", "update"])
async def test_an_answer_that_is_lost_after_the_write_was_done(
    sim: SimCluster, sim_race: Race, verb
) -> None:
    if verb == "create":
        fault = sim.server.faults.reset(after=True, times=1, resource="leases", verb=verb)
        first = await sim_race.leader()
    else:
        first = await sim_race.leader()
        fault = sim.server.faults.reset(after=True, times=1, resource="leases", verb=verb)
    await until(lambda: _hit(fault), "it is lost")
    lost = await spec_of(sim)
    await until(lambda: _renewed(sim, lost), "it is renewed", seconds=3)
    await first.until()
    spec = await spec_of(sim)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("first", 0)
    assert first.elector.error is None


async def _hit(fault: Any) -> bool:
    return bool(fault.hits)


async def test_one_that_stops_after_a_lost_answer_lets_go_all_the_same(
    sim: SimCluster, sim_race: Race
) -> None:
    elector = await sim_race.elector("first")
    await elector._attempt()
    fault = sim.server.faults.answer(503, after=True, times=1, resource="leases", verb="update")
    await elector._attempt()
    assert (fault.hits, elector.error is None) == (1, False)

    await elector._let_go()
    assert (await spec_of(sim))["leaseDurationSeconds"] == 1


async def test_one_that_stops_while_the_api_server_is_away_ends_soon(
    sim: SimCluster, sim_race: Race, caplog
) -> None:
    caplog.set_level(logging.INFO, "dynsched.kube.leader")
    first = await sim_race.leader()
    await sim.server.down()
    began = time.monotonic()
    await first.leave()
    assert time.monotonic() - began < 3
    assert not first.leads
    assert "the Lease is left to expire: " in caplog.text


async def test_a_server_that_says_wait_is_waited_for(sim: SimCluster, sim_race: Race) -> None:
    sim.server.faults.answer(429, times=1, retry_after=1, resource="leases")
    first = await sim_race.start("first")
    assert await first.until() > 0.9
    asked = [r for r in sim.server.requests if r.resource == "leases"]
    assert [record.status for record in asked[:2]] == [429, 404]


# --- clocks ---


async def test_a_machine_that_slept_wakes_up_as_no_leader(
    sim: SimCluster, sim_race: Race, monkeypatch
) -> None:
    first = await sim_race.leader(clock=boot_time)
    slept = 0.0
    real = time.clock_gettime

    def clock_gettime(which):
        # Only this one goes on while the machine sleeps.
        return real(which) + (slept if which == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", clock_gettime)
    assert first.leads
    slept = 3600.0
    assert not first.leads  # before any task had its turn


def test_the_clock_counts_the_time_since_boot() -> None:
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert boot_time() == pytest.approx(uptime, abs=1.0)
    assert leader._CLOCK == time.CLOCK_BOOTTIME


async def test_wall_clocks_that_stand_still_or_are_set_change_nothing(
    cluster: Cluster, race: Race
) -> None:
    wall = time.time()
    first = await race.leader(wall=lambda: wall)
    second = await race.start("second", wall=lambda: wall + 86_400.0)
    await asyncio.sleep(LOOK)
    wall -= 7200.0
    for _ in range(4):
        await race.clock.skip(TIMES.write_for - 2)
        assert (first.leads, second.leads) == (True, False)


# --- writes ---


def mark(node: dict[str, Any]) -> NodePatch:
    version = node["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": version, "labels": {"status": "presure"}}}
    return NodePatch(node["metadata"]["name"], Action.MARK, body, "because")


class Word:
    """Whether one may write, as it is now."""

    may_write = True


@asynccontextmanager
async def writing(cluster: Cluster, permission: Word) -> AsyncIterator[KubeClient]:
    client = KubeClient(await load_config(str(cluster.kubeconfig)), permission=permission)
    try:
        yield client
    finally:
        await client.close()


async def test_a_patch_that_had_to_wait_is_not_sent_when_the_lease_is_lost(sim: SimCluster) -> None:
    node = await sim.create_node(make_node("a"))
    word = Word()
    async with writing(sim, word) as client:
        refused = sim.server.faults.answer(429, times=1, retry_after=1, verb="patch")
        waiting = asyncio.create_task(client.patch(mark(node)))
        await until(lambda: _hit(refused), "it has to wait")
        word.may_write = False
        with pytest.raises(
            ClusterError, match="not sent, because this replica is no longer the leader"
        ):
            await waiting
        assert [write.status for write in await sim.writes() if write.manager == "dynsched"] == [
            429
        ]


async def test_a_patch_whose_connection_broke_is_not_sent_again_when_the_lease_is_lost(
    sim: SimCluster,
) -> None:
    # A machine that slept finds all its connections broken when it wakes up.
    node = await sim.create_node(make_node("a"))
    word = Word()
    async with writing(sim, word) as client:
        sim.server.faults.delay(0.5, times=1, verb="patch")
        broken = sim.server.faults.reset(verb="patch")
        writing_it = asyncio.create_task(client.patch(mark(node)))
        await asyncio.sleep(0.2)
        word.may_write = False
        with pytest.raises(
            ClusterError, match="not sent, because this replica is no longer the leader"
        ):
            await writing_it
        assert broken.hits == 1
    assert "status" not in (await sim.get_node("a"))["metadata"]["labels"]


async def test_reads_need_no_lease(cluster: Cluster) -> None:
    await cluster.create_node(make_node("a"))
    word = Word()
    word.may_write = False
    async with writing(cluster, word) as client:
        assert await client.read("a") is not None
        assert list(await client.list_nodes()) == ["a"]


def test_a_process_without_an_election_writes_by_its_users_word() -> None:
    assert SoleWriter().may_write
    assert not SoleWriter(may_write=False).may_write
    assert (SoleWriter().leader, SoleWriter().error) == (None, None)
