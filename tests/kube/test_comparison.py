"""What is concluded from a list: tables, and any history that is watched late or put back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from properties import steady

from dynsched.engine.model import Node
from dynsched.kube.client import Listing, Seen
from dynsched.kube.cluster import is_older
from dynsched.kube.resync import Comparison, compare, has_reached


def node(version: str, uid: str = "u") -> Node:
    return Node("a", uid=uid, resource_version=version)


def listing(version: str, **nodes: tuple[str, str]) -> Listing:
    return Listing(version, {name: Seen(*seen) for name, seen in nodes.items()})


def found(
    known: Node | None, listed: Listing, undated: Sequence[str] = ()
) -> tuple[set[str], set[str], set[str]]:
    """What is gone, what is late, and what is impossible."""
    result = compare({"a": known} if known else {}, listed, undated)
    return set(result.gone), set(result.late), set(result.impossible)


NOTHING: set[str] = set()
A = {"a"}


@pytest.mark.parametrize(
    ("known", "listed", "expected"),
    [
        (node("5"), listing("9", a=("u", "5")), (NOTHING, NOTHING, NOTHING)),
        (node("5"), listing("9", a=("u", "7")), (NOTHING, A, NOTHING)),
        (None, listing("9", a=("u", "7")), (NOTHING, A, NOTHING)),
        (node("5"), listing("9"), (A, NOTHING, NOTHING)),
        (node("5"), listing("9", a=("v", "7")), (A, A, NOTHING)),
        (node("7"), listing("9", a=("v", "7")), (A, A, NOTHING)),
        # The list is older than what is known: it cannot know.
        (node("12"), listing("9"), (NOTHING, NOTHING, NOTHING)),
        (node("12"), listing("9", a=("u", "7")), (NOTHING, NOTHING, NOTHING)),
        (node("12"), listing("9", a=("v", "7")), (NOTHING, NOTHING, NOTHING)),
        # Up to 9 the node was at 7 last; whoever knows it at 8 knows another history.
        (node("8"), listing("9", a=("u", "7")), (NOTHING, NOTHING, A)),
        (node("9"), listing("9", a=("u", "7")), (NOTHING, NOTHING, A)),
        (node("8"), listing("9", a=("v", "7")), (A, NOTHING, A)),
        # Numbers, not texts.
        (node("10"), listing("11", a=("u", "9")), (NOTHING, NOTHING, A)),
        (node("9"), listing("11", a=("u", "10")), (NOTHING, A, NOTHING)),
    ],
)
def test_one_node(known, listed, expected) -> None:
    assert found(known, listed) == expected


@pytest.mark.parametrize("version", ["5", "7", "8", "12"])
def test_a_version_that_may_be_of_another_history_says_nothing(version) -> None:
    assert found(node(version), listing("9"), A) == (A, NOTHING, NOTHING)
    assert found(node(version), listing("9", a=("u", "7")), A) == (NOTHING, A, NOTHING)
    assert found(node(version), listing("9", a=("v", "7")), A) == (A, A, NOTHING)


@pytest.mark.parametrize("version", ["", "x1", "-5", "1.5"])
def test_versions_that_are_no_numbers_say_nothing_but_names_and_uids_do(version) -> None:
    assert found(node(version), listing(version, a=("u", "7"))) == (NOTHING, NOTHING, NOTHING)
    assert found(node(version), listing(version)) == (A, NOTHING, NOTHING)
    assert found(node(version), listing(version, a=("v", version)))[0] == A


@dataclass(frozen=True)
class History:
    """What etcd went through: after each write, all nodes as they were. The n-th is version n."""

    states: Sequence[Mapping[str, Seen]]

    def after(self, writes: Sequence[tuple[str, str]]) -> History:
        states = list(self.states)
        for name, what in writes:
            nodes = dict(states[-1])
            version = str(len(states))
            if what == "delete":
                nodes.pop(name, None)
            elif what == "make" or name not in nodes:
                nodes[name] = Seen(f"uid-{version}-{what}", version)
            else:
                nodes[name] = Seen(nodes[name].uid, version)
            states.append(nodes)
        return History(states)

    def known(self, at: int) -> dict[str, Node]:
        nodes = self.states[at].items()
        return {name: Node(name, uid=s.uid, resource_version=s.version) for name, s in nodes}

    def listed(self, at: int) -> Listing:
        return Listing(str(at), self.states[at])


WRITES = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["make", "change", "delete"])), max_size=12
)
AT = st.integers(0, 100)


@steady(300)
@given(WRITES, AT, AT)
def test_within_one_history_nothing_is_impossible_and_nothing_that_lives_is_dropped(
    writes, seen, asked
) -> None:
    history = History([{}]).after(writes)
    seen, asked = seen % len(history.states), asked % len(history.states)
    known, listed = history.known(seen), history.listed(asked)
    result = compare(known, listed)
    assert not result.impossible
    for name, uid in result.gone.items():
        # That node is gone for good: its uid never comes again.
        assert all(s[name].uid != uid for s in history.states[asked:] if name in s)
    if seen == asked:
        assert result == Comparison({}, {}, ())
    if seen < asked:
        after = {name: s for name, s in known.items() if name not in result.gone}
        assert set(result.late) == {
            name for name, s in listed.nodes.items() if not has_reached(after.get(name), s)
        }


@steady(300)
@given(WRITES, AT, WRITES, WRITES)
def test_after_a_restore_what_is_known_wrongly_is_found_or_was_given_the_same_version(
    writes, backup, lost, since
) -> None:
    """Once the versions have overtaken the old ones: until then the list's version tells."""
    before = History([{}]).after(writes)
    backup = backup % len(before.states)
    known = before.after(lost).known(len(before.states) + len(lost) - 1)
    now = History(before.states[: backup + 1]).after(since)
    listed = now.listed(len(now.states) - 1)
    overtaken = all(not is_older(listed.version, each.resource_version) for each in known.values())
    event(f"overtaken: {overtaken}")
    if not overtaken:
        return
    result = compare(known, listed)
    after = {name: each for name, each in known.items() if name not in result.gone}
    told = {*result.late, *result.impossible}
    for name in {*after, *listed.nodes} - told:
        assert after[name].resource_version == listed.nodes[name].version
        assert after[name].uid == listed.nodes[name].uid
