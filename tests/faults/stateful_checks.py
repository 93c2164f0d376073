"""The invariants that must hold after every tick and at the end."""

from collections.abc import Mapping

from stateful_model import (
    RECORD,
    conflict_on,
    is_eligible,
    marks_on,
    pool_of,
    pools_of,
    record_of,
    texts_of,
    texts_on,
)
from stateful_world import (
    MEDDLING,
    OUR_TEXTS,
    PASSING,
    Fault,
    Moment,
    World,
    foreign,
)

from dynsched.controller.node_writer import CONFLICT_RETRIES
from dynsched.core.guard import count_of
from dynsched.core.marks import Action, carried_parts, plan_prune
from dynsched.core.nodes import Node
from dynsched.rules.rule_set import RuleSet
from dynsched_sim.apiserver.resources import NODES


def check_tick(world: World, moment: Moment) -> None:
    """Check all invariants of one tick."""
    check_foreign(world)
    _check_who_wrote(moment)
    _check_each_write(moment)
    _check_cap(moment)
    _check_releases(moment)
    _check_what_is_published(moment)
    if moment.wrote_freely:
        _check_marks(moment)


def check_foreign(world: World) -> None:
    """Everything that is not ours is exactly as others wrote it."""
    entries = world.objects.store.entries(NODES)
    assert {entry.name for entry in entries} == world.others.keys()
    for entry in entries:
        if entry.version not in world.checked:
            world.checked.add(entry.version)
            assert foreign(entry.decode()) == foreign(world.others[entry.name]), entry.name


def _check_who_wrote(moment: Moment) -> None:
    api = moment.replica.api
    if not moment.leads:
        assert not api.attempts
        assert moment.before == moment.after
        assert {reason for _, reason in moment.posted} <= {"RulesReloaded", "RulesRefused"}
    leadership, writes = moment.tick.leadership, moment.tick.writes
    assert leadership.leading is moment.may_write
    assert leadership.dry_run is moment.replica.dry_run
    applied = {patch.node for patch in writes.applied}
    written = {each.patch.node for each in api.written}
    assert written - api.unwritten <= applied
    # A patch whose response was lost counts once the node shows it. If somebody else made the
    # same change, it cannot be known whose change it was.
    assert applied <= written or not moment.fresh_before or MEDDLING & api.struck
    assert {failure.node for failure in writes.failures if not failure.again} <= api.unwritten
    waiting = {failure.node for failure in writes.failures if failure.again}
    assert waiting <= {patch.node for patch in moment.tick.planned} - api.attempts.keys()
    if moment.fresh_before and Fault.DEMOTED not in api.struck:
        for name, attempts in api.attempts.items():
            if len(attempts) <= CONFLICT_RETRIES and {each.fault for each in attempts} <= PASSING:
                assert attempts[-1].error is None, f"{name} is left though it could be written"


def _check_each_write(moment: Moment) -> None:
    """Compare with the node at the moment of the write, however old the replica's view was."""
    mark = moment.rule_set.mark
    for written in moment.replica.api.written:
        before, after = written.before, written.after
        gained = texts_on(after) - texts_on(before)
        lost = texts_on(before) - texts_on(after)
        assert gained <= texts_of(mark)
        assert lost <= marks_on(before, mark)
        if marks_on(after, mark):
            assert is_eligible(before, moment.rule_set)
            assert not conflict_on(before, mark)
            assert texts_of(mark) <= texts_on(after)
            record = record_of(after)
            assert {record["label"], record["taint"]} - {None} == texts_of(mark)
        else:
            assert RECORD not in after.annotations
        if written.patch.action is Action.MARK:
            assert moment.is_hot(before.name)
            assert moment.decided_on[before.name].uid == before.uid
        if marks_on(before, mark) and not marks_on(after, mark):
            assert written.patch.action is Action.RELEASE


def _marked(nodes: Mapping[str, Node], names: set[str], rule_set: RuleSet) -> set[str]:
    return {name for name in names & nodes.keys() if marks_on(nodes[name], rule_set.mark)}


def _check_cap(moment: Moment) -> None:
    """No mark is added beyond the cap, whichever writes succeed, in whatever order."""
    if not moment.wrote_freely:
        return
    rule_set = moment.rule_set
    pools = pools_of(moment.before.values(), rule_set)
    # A mark counts even if it is due for removal because its node must not be marked any more.
    marked: dict[str, set[str]] = {pool: set() for pool in pools}
    for name, stored in moment.before.items():
        if marks_on(stored, rule_set.mark):
            marked.setdefault(pool_of(stored, rule_set.guard), set()).add(name)
    for written in moment.replica.api.written:
        before, after = written.before, written.after
        pool = pool_of(before, rule_set.guard)
        if pool not in pools:
            continue
        if marks_on(after, rule_set.mark) and before.name not in marked[pool]:
            marked[pool].add(before.name)
            cap = count_of(rule_set.guard.max_marked, len(pools[pool]))
            assert len(marked[pool]) <= cap, f"{marked[pool]} in pool {pool!r}, of at most {cap}"
        elif not marks_on(after, rule_set.mark):
            marked[pool].discard(before.name)


def _check_releases(moment: Moment) -> None:
    """Only a few at a time, and at least one if any is due."""
    if not moment.wrote_freely:
        return
    rule_set = moment.rule_set
    pools = pools_of(moment.before.values(), rule_set)
    possible = {name for names in pools.values() for name in names}
    before = _marked(moment.before, possible, rule_set)
    gone = before - _marked(moment.after, possible, rule_set)
    allowed = max(1, count_of(rule_set.guard.max_releases, len(before)))
    assert len(gone) <= allowed, f"{gone} were released at once, of at most {allowed}"
    if moment.undone:
        return
    over = any(
        len(before & names) > count_of(rule_set.guard.max_marked, len(names))
        for names in pools.values()
    )
    cool = {name for name in before if not moment.is_hot(name)}
    assert gone or not (cool or over), f"none is released of {cool or before}"


def _check_what_is_published(moment: Moment) -> None:
    """The published marks are those in the cluster, if the replica's watch was up to date."""
    entries, rule_set = moment.evaluation.table.entries, moment.rule_set
    assert entries.keys() <= moment.decided_on.keys()
    assert entries.keys() == moment.evaluation.alerts.keys() == moment.evaluation.pressures.keys()
    if not moment.fresh_after or moment.replica.dry_run:
        return
    for name, entry in entries.items():
        stored, mark = moment.after[name], entry.mark
        found = {text.partition(" ")[2] for text in carried_parts(mark, rule_set.mark)}
        assert found == marks_on(stored, rule_set.mark), name
        assert mark.marked is bool(found), name
        assert (mark.ineligible is None) is is_eligible(stored, rule_set), name
        assert (mark.conflict is not None) is conflict_on(stored, rule_set.mark), name


def _check_marks(moment: Moment) -> None:
    """Every mark has a reason: a firing rule, a delayed release, or a failed write."""
    mark = moment.rule_set.mark
    for name, stored in moment.after.items():
        if name in moment.undone:
            continue
        ours = marks_on(stored, mark)
        if not ours:
            assert RECORD not in stored.annotations, name
            continue
        assert is_eligible(stored, moment.rule_set), name
        assert not conflict_on(stored, mark), name
        if moment.is_hot(name):
            assert ours == texts_of(mark), name
        else:  # an older mark stays as it is until its release
            assert marks_on(moment.before[name], mark), name
            assert "release delayed" in moment.evaluation.decision.limited[name]


def check_rest(world: World, moment: Moment) -> None:
    """At rest the marked nodes are hot ones, all of them or as many as the cap allows."""
    rule_set = moment.rule_set
    pools = pools_of(moment.after.values(), rule_set)
    for pool, names in pools.items():
        hot = {name for name in names if moment.is_hot(name)}
        marked = _marked(moment.after, names, rule_set)
        assert marked <= hot
        assert len(marked) == min(len(hot), count_of(rule_set.guard.max_marked, len(names)))
        assert (pool in moment.evaluation.decision.capped) is (marked != hot)
    possible = {name for names in pools.values() for name in names}
    assert not _marked(moment.after, moment.after.keys() - possible, rule_set)
    check_foreign(world)


def check_prune(world: World) -> None:
    """`prune` leaves the nodes as if dynsched had never run.

    Marks that cannot be recognized as ours (their record was destroyed by hand, or they were set
    by hand) are removed by `prune` with the rules that name them.
    """
    mark = world.rule_set.mark
    for patch in plan_prune(world.all_stored().values(), mark):
        world.objects.patch("nodes", patch.node, dict(patch.body))
    check_foreign(world)
    for name, stored in world.all_stored().items():
        assert RECORD not in stored.annotations, name
        left = texts_on(stored) & OUR_TEXTS
        assert left <= (world.strays[name] | world.former_labels) - texts_of(mark), name
    assert plan_prune(world.all_stored().values(), mark) == []
