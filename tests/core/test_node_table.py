"""A node table that is built from the previous one, in which only changed nodes are read again."""

from collections.abc import Mapping

from builders import rule, rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.core.node_table import NodeTable
from dynsched.core.nodes import Node
from dynsched.rules.keys import EVIDENCE_ANNOTATION

RULES = rule_set(
    rule("all"),
    rule("some", selector="x=true"),
    guard={"pool_label": "x"},
    mark={"taint": "dynsched.io/pressure=true:PreferNoSchedule"},
)
OTHERS = rule_set(nodes={"selector": "x=other"})
TAINT = {"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}
RECORD = '{"label":"status=presure","taint":null,"rules":[]}'
ADDRESSES = [f"10.0.0.{number}" for number in range(4)]
NODES = st.builds(
    Node,
    name=st.sampled_from("abcde"),
    uid=st.sampled_from(["1", "2"]),
    labels=st.dictionaries(
        st.sampled_from(["status", "dynsched.io/ignore", "x"]),
        st.sampled_from(["presure", "true", "other"]),
    ),
    annotations=st.sampled_from([{}, {EVIDENCE_ANNOTATION: RECORD}]),
    taints=st.sampled_from([(), (TAINT,)]),
    addresses=st.sampled_from(ADDRESSES).map(lambda address: (("InternalIP", address),)),
)


def seen(table: NodeTable) -> object:
    found = [table.lookup.find(text) for text in (*"abcde", *ADDRESSES)]
    sizes = table.pool_sizes, table.open_sizes, table.pool_taints
    return table.entries, sizes, table.marked, table.groups, found


@steady(60)
@given(
    st.lists(
        st.tuples(
            st.lists(NODES, max_size=3),
            st.sets(st.sampled_from("abcde")),
            st.sampled_from([RULES, RULES, RULES, OTHERS]),
        ),
        max_size=6,
    )
)
def test_a_table_built_from_the_previous_one_equals_a_new_one(turns) -> None:
    known: Mapping[str, Node] = {}
    table: NodeTable | None = None
    for changed, gone, rules in turns:
        known = {name: node for name, node in known.items() if name not in gone}
        known |= {node.name: node for node in changed}
        table = NodeTable.of(known, rules, table)
        assert seen(table) == seen(NodeTable.of(known, rules))
