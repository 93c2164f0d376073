"""From one inventory of the nodes to the next, only what changed is read again: the same result."""

from dataclasses import replace

from builders import rule, rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.engine.model import Node
from dynsched.engine.nodes.inventory import Inventory, take_inventory

RULES = rule_set(
    rule("all"),
    rule("some", selector="x=true"),
    guard={"pool_label": "x"},
    mark={"taint": "dynsched.io/pressure=true:PreferNoSchedule"},
)
TAINT = {"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}
EVIDENCE = '{"label":"status=presure","taint":null,"rules":[]}'
ADDRESSES = [f"10.0.0.{number}" for number in range(4)]


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    name = draw(st.sampled_from("abcde"))
    labels = draw(
        st.dictionaries(
            st.sampled_from(["status", "dynsched.io/ignore", "x"]),
            st.sampled_from(["presure", "true", "other"]),
        )
    )
    return Node(
        name,
        uid=draw(st.sampled_from(["1", "2"])),
        labels=labels,
        annotations={"dynsched.io/pressure": EVIDENCE} if draw(st.booleans()) else {},
        taints=(TAINT,) if draw(st.booleans()) else (),
        addresses=(("InternalIP", draw(st.sampled_from(ADDRESSES))),),
        allocatable=draw(st.sampled_from([{}, {"cpu": 4.0}, {"cpu": 8.0}])),
    )


def found(seen: Inventory) -> object:
    places: dict[str, str] = {}
    for text in (*"abcde", *ADDRESSES):
        at, why = seen.index.find(text)
        places[text] = why or seen.index.roster.names[at]
    columns = seen.columns
    of_nodes = {
        name: (
            columns.applies[:, place].tolist(),
            columns.may_mark[place],
            columns.kinds[columns.kind[place]],
            str(columns.capacity["cpu"][place]),
        )
        for name, place in columns.roster.indices.items()
    }
    assert columns.roster is seen.index.roster
    uids = dict(zip(columns.roster.names, columns.roster.uids, strict=True))
    assert uids == {name: node.uid for name, node in seen.nodes.items()}
    return replace(seen, index=None, columns=None), places, of_nodes


@steady(60)
@given(
    st.lists(
        st.tuples(st.lists(nodes(), max_size=3), st.sets(st.sampled_from("abcde"))), max_size=6
    )
)
def test_what_is_taken_over_is_what_a_new_look_finds(turns) -> None:
    known: dict[str, Node] = {}
    before = None
    for changed, gone in turns:
        known = {name: node for name, node in known.items() if name not in gone}
        known |= {node.name: node for node in changed}
        before = take_inventory(known, RULES, before)
        assert found(before) == found(take_inventory(known, RULES))
    other = rule_set(nodes={"selector": "x=other"})
    assert found(take_inventory(known, other, before)) == found(take_inventory(known, other))
