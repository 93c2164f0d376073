import math
from itertools import permutations

import pytest
from builders import NOON, node, rule, rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.core.node_table import NodeTable
from dynsched.core.nodes import AddressLookup
from dynsched.core.samples import (
    Quality,
    Reading,
    Sample,
    SeveralSeries,
    Unmatched,
    match_samples,
)
from dynsched.rules.rule_set import Rule

NODES = [
    node(
        "worker-3",
        addresses={"InternalIP": "10.0.0.7", "Hostname": "host-3", "ExternalIP": "203.0.113.9"},
    ),
    node("worker-4", addresses={"InternalIP": "fd00::7", "Hostname": "worker-4"}),
    node("worker-5", addresses={"InternalIP": "192.168.0.1", "ExternalIP": "203.0.113.10"}),
    node("worker-6", addresses={"InternalIP": "192.168.0.1", "Hostname": "worker-3"}),
    node("ip-10-0-0-9.eu.internal"),
    node("worker-8", addresses={"InternalIP": "10.0.0.8", "ExternalIP": "10.0.0.8"}),
    node("winhost02", addresses={"InternalIP": "FD00:10::A", "Hostname": "WINHOST02"}),
    node(
        "worker-9",
        addresses={
            "InternalIP": "fd00:10::9",
            "InternalDNS": "Worker-9.internal.example",
            "ExternalDNS": "worker-9.example.com.",
        },
    ),
    node("worker-10", addresses={"InternalIP": "::ffff:10.0.0.10"}),
]
LOOKUP = AddressLookup(NODES)


def name_of(text: str, lookup: AddressLookup = LOOKUP) -> str | None:
    return lookup.find(text).node


STRANGERS = ("z1", "z2", "z3")


def one_rule(**options: object) -> Rule:
    return rule_set(rule(**options)).rules[0]


def samples(*labels_and_values: tuple[dict[str, str], float]) -> list[Sample]:
    return [Sample(labels, value, NOON) for labels, value in labels_and_values]


NAMED = {
    "worker-3": [
        *("worker-3", "worker-3:9100", "WORKER-3", "worker-3.", "host-3", "host-3:9100"),
        *("10.0.0.7", "10.0.0.7:9100", "203.0.113.9", "203.0.113.9:443"),
        *("::ffff:10.0.0.7", "[::ffff:a00:7]:9100"),
    ],
    "worker-4": ["fd00::7", "[fd00::7]", "[fd00::7]:9100"],
    "worker-5": ["203.0.113.10"],  # its InternalIP is shared with worker-6
    "worker-8": ["10.0.0.8:9100"],  # one address under two types
    "worker-9": [
        *("[FD00:10::9]", "[fd00:10:0:0:0:0:0:9]:9100", "fd00:0010::0009"),
        *("fd00:10::9%eth0", "[fd00:10::9%25eth0]:9100"),
        *(
            "worker-9.internal.example:9100",
            "worker-9.internal.example.",
            "worker-9.example.com:9100",
        ),
    ],
    "worker-10": ["10.0.0.10:9100"],
    "winhost02": ["WINHOST02:9182", "fd00:10::a"],
    "ip-10-0-0-9.eu.internal": ["ip-10-0-0-9.eu.internal:9100"],
    "": [
        *("10.0.0.70", "10.0.0", "10.0.0.7:", "10.0.0.7:http", "http://10.0.0.7:9100", ""),
        *("fd00::7:10", "fd00:10::9:9100"),  # without brackets, the last group is not a port
        *("worker-9.other.example", "worker-3.internal.example"),  # domains of no address
        "010.0.0.7",  # some parsers read leading zeros as octal
    ],
}


@pytest.mark.parametrize("name", NAMED)
def test_a_node_is_found_by_its_name_and_by_each_of_its_addresses(name) -> None:
    assert {text: name_of(text) for text in NAMED[name]} == dict.fromkeys(NAMED[name], name or None)


@pytest.mark.parametrize(
    ("addresses", "text", "shared_by"),
    [
        (["10.1.1.1", "10.1.1.1"], "10.1.1.1:9100", "10.1.1.1: n0 and n1"),
        (["10.1.1.1"] * 3, "10.1.1.1", "10.1.1.1: n0, n1 and n2"),
        (["fd00::1", "FD00:0:0::1"], "fd00::1", "fd00::1: n0 and n1"),
        (["FD01::1"] * 300, "[fd01:0::1]:443", "fd01::1: n0, n1, n10 and 297 more"),
    ],
)
def test_an_address_that_several_nodes_share_identifies_none_of_them(
    addresses: list[str], text: str, shared_by: str
) -> None:
    """All nodes behind one gateway have the gateway's ExternalIP."""
    lookup = AddressLookup(
        node(f"n{number}", addresses={"InternalIP": f"fd09::{number}", "ExternalIP": shared})
        for number, shared in enumerate(addresses)
    )
    assert lookup.find(text) == (None, f"more than one node has the address {shared_by}")
    assert name_of("[fd09::001]:9100", lookup) == "n1"


def test_a_shared_address_belongs_to_the_only_ready_node() -> None:
    """A kubelet that restarts with another --hostname-override leaves its old Node object behind.
    Samples with its address then matched no node.
    """
    gone = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    address = {"InternalIP": "10.0.0.7"}
    nodes = [node("old", addresses=address, taints=[gone]), node("new", addresses=address)]
    assert AddressLookup(nodes).find("10.0.0.7:9100") == ("new", "")
    rules = rule_set()
    table = NodeTable.of({each.name: each for each in nodes}, rules)
    both = {"old": node("old", addresses=address), "new": nodes[1]}
    after = NodeTable.of(both, rules, table)  # the old node is ready again
    assert after.lookup.find("10.0.0.7:9100").node is None


@pytest.mark.parametrize(
    ("option", "labels", "name"),
    [
        (None, {"node": "worker-3"}, "worker-3"),
        (None, {"instance": "10.0.0.7:9100"}, "worker-3"),
        (None, {"node": "worker-3", "instance": "[fd00::7]:9100"}, "worker-3"),
        ("instance", {"node": "worker-3", "instance": "[fd00::7]:9100"}, "worker-4"),
        ("kubernetes_node", {"kubernetes_node": "worker-4", "node": "worker-3"}, "worker-4"),
    ],
)
def test_which_label_names_the_node(option: str | None, labels: dict[str, str], name: str) -> None:
    matched = match_samples(one_rule(node_label=option), samples((labels, 91.0)), LOOKUP)
    assert matched.readings == {name: Reading(91.0, NOON, Quality.OK)}
    assert (matched.unmatched, matched.several) == ((), None)


@pytest.mark.parametrize(
    ("option", "labels", "value", "reason"),
    [
        (None, {}, "", "the sample has no label node or instance"),
        (None, {"job": "a"}, "", "the sample has no label node or instance"),
        ("host", {"node": "worker-3"}, "", "the sample has no label host"),
        (None, {"node": "gone"}, "gone", "no node has this name or address"),
        (None, {"node": "x", "instance": "10.0.0.7"}, "x", "no node has this name or address"),
        (
            None,
            {"instance": "192.168.0.1:9100"},
            "192.168.0.1:9100",
            "more than one node has the address 192.168.0.1: worker-5 and worker-6",
        ),
    ],
)
def test_unmatched_samples_are_listed_in_an_order_that_does_not_depend_on_the_answer(
    option, labels, value, reason
) -> None:
    found = [
        (labels, 99.0),
        ({"node": "worker-4", "host": "worker-4"}, 50.0),
        *(({"node": name, "host": name}, 1.0) for name in STRANGERS[::-1]),
    ]
    gone = [Unmatched("cpu", each, "no node has this name or address") for each in STRANGERS]
    for order in permutations(found):
        matched = match_samples(one_rule(node_label=option), samples(*order), LOOKUP)
        assert matched.unmatched == (Unmatched("cpu", value, reason), *gone)
        assert matched.readings == {"worker-4": Reading(50.0, NOON, Quality.OK)}


NAN, INF = math.nan, math.inf


ONE = {"instance": "10.0.0.7:9100", "job": "node"}
OTHER = {"instance": "[fd00::7]:9100", "job": "node", "cluster": "mine"}


@pytest.mark.parametrize(
    ("labels", "option", "holder"),
    [
        ([{"node": "worker-4", "exported_node": "worker-3"}], None, "exported_node"),
        ([{"node": "worker-3", "exported_node": "worker-3"}], None, ""),
        (
            [{"instance": "10.0.0.7:9091", "exported_instance": "10.0.0.8"}],
            None,
            "exported_instance",
        ),
        # The target's label matches no node, but the exporter's own label does.
        (
            [{"instance": "10.9.9.9:8080", "exported_instance": "10.0.0.8"}],
            None,
            "exported_instance",
        ),
        ([{"Hostname": "dcgm-x", "host": "worker-3"}], "Hostname", "host"),
        ([{"host": "worker-3"}, {"host": "worker-4"}], None, "host"),
        # A label that names no more nodes than the rule's label does not count.
        ([{"node": "worker-3", "peer": "worker-4"}, {"node": "x", "peer": "y"}], None, ""),
        ([{"node": "worker-3", "exported_job": "worker-4"}], None, ""),
    ],
)
def test_the_label_that_should_name_the_node_is_found(labels, option, holder) -> None:
    found = samples(*((each, 1.0) for each in labels))
    assert match_samples(one_rule(node_label=option), found, LOOKUP).holder == holder


@pytest.mark.parametrize(
    ("labels", "differ"),
    [
        # Two clusters in one Prometheus: the last series counted, without a warning.
        ([{**ONE, "cluster": "mine"}, {**ONE, "cluster": "theirs"}, OTHER], ("cluster",)),
        (
            [
                {"node": "worker-3", "cpu": "0"},
                {"node": "worker-3", "cpu": "1"},
                {"node": "worker-3", "cpu": "1", "mode": "idle"},
                {"instance": "10.0.0.7:9100", "cpu": "1"},
                {"node": "worker-4", "zone": "a"},
            ],
            ("cpu", "instance", "mode", "node"),
        ),
        ([{"node": "worker-3", "pod": "a"}, {"node": "worker-3", "cpu": "1"}], ("cpu", "pod")),
    ],
)
def test_several_series_of_a_node_are_reported_with_all_labels_in_which_they_differ(
    labels: list[dict[str, str]], differ: tuple[str, ...]
) -> None:
    for order in permutations(labels):  # all share one lookup, which must not keep old series
        several = match_samples(one_rule(), samples(*((e, 1.0) for e in order)), LOOKUP).several
        assert several == SeveralSeries("cpu", 1, "worker-3", differ)


GARBAGE = (-1200.0, -6.0, 501.0, 808334905.0)


@pytest.mark.parametrize(
    ("options", "invalid", "ok"),
    [
        ({"resource": "cpu"}, GARBAGE, (-4.9, 0.0, 100.0, 499.0)),
        ({"resource": "cpu", "threshold": 0.8}, (-0.06, 5.1, 80.0), (-0.04, 4.9)),
        ({"resource": "memory", "full_at": 16e9}, (-1e9, 9e10), (0.0, 7e10)),
        ({"source": "metrics-server", "resource": "cpu", "expr": None}, GARBAGE, (120.0,)),
        ({"full_at": 100}, GARBAGE, (99.0,)),
        ({"expr": "(1 - avg by (instance) (idle)) * 100"}, GARBAGE, (99.0,)),
        ({"expr": "100 * load or 0 * other"}, GARBAGE, (99.0,)),
        ({"expr": "max by (node) (load * 100) * on (node) busy"}, GARBAGE, (99.0,)),
        ({"expr": "100 - (avg by (instance) (idle) * 100)"}, GARBAGE, (99.0,)),
        ({"expr": "100 * sum by (node) (used) / sum by (node) (size)"}, GARBAGE, (99.0,)),
        ({"expr": "clamp_max(max_over_time((load * 100)[5m:]), 1e9)"}, GARBAGE, (99.0,)),
        ({"expr": "load * 100 > 0", "threshold": 1}, GARBAGE, (0.5, 8.0, 100.0)),
        ({"expr": "free * 100", "op": "<", "threshold": 20}, (-1200.0, 8e8), (-30.0, 300.0)),
        # These are not known to be percent, so any finite value is possible.
        ({}, (NAN, INF, -INF), (*GARBAGE, 99.0)),
        ({"expr": "load * 100 - 60"}, (NAN,), GARBAGE),
        ({"expr": "100 / load"}, (NAN,), GARBAGE),
        ({"expr": "load * 100 > bool 60"}, (NAN,), GARBAGE),
        ({"expr": "sum by (node) (load * 100)"}, (NAN,), GARBAGE),
        ({"expr": "sum_over_time((load * 100)[1h:])"}, (NAN,), GARBAGE),
        ({"expr": "100 * load +"}, (NAN,), GARBAGE),
        ({"resource": "memory", "op": "<"}, (NAN,), GARBAGE),
    ],
)
def test_an_impossible_load_is_invalid(options, invalid, ok) -> None:
    def quality(value: float, *others: float) -> Quality:
        """The quality of a node's reading if its series have these values."""
        found = samples(*(({"node": "worker-3"}, each) for each in (value, *others)))
        return match_samples(one_rule(**options), found, LOOKUP).readings["worker-3"].quality

    assert [quality(value) for value in invalid] == [Quality.INVALID] * len(invalid)
    assert [quality(value) for value in ok] == [Quality.OK] * len(ok)
    assert quality(invalid[0], ok[0], invalid[-1]) is Quality.OK


SERIES = st.builds(
    Sample,
    st.fixed_dictionaries(
        {"node": st.sampled_from(["worker-3", "WORKER-3", "worker-4"])},
        optional={"cluster": st.sampled_from("ab"), "cpu": st.sampled_from("01")},
    ),
    st.sampled_from([0.0, 70.0, 80.0, 95.0, NAN, INF, -INF]),
    st.sampled_from([NOON - 400, NOON - 300, NOON - 10, NOON]),
)


@steady(300)
@given(
    found=st.lists(SERIES, max_size=8),
    op=st.sampled_from([">", ">=", "<", "<="]),
    order=st.randoms(use_true_random=False),
)
def test_the_worst_fresh_sample_of_a_node_counts_whatever_their_order(found, op, order) -> None:
    """The worst sample that is valid and fresh counts; otherwise the latest valid one; otherwise
    the latest invalid one, which is never replaced by zero. The sample keeps its own time.
    """
    rules, since = one_rule(op=op), NOON - 300
    shuffled = order.sample(found, len(found))
    one = match_samples(rules, found, LOOKUP, fresh_since=since)
    assert one.several == match_samples(rules, shuffled, LOOKUP, fresh_since=since).several
    assert one.unmatched == ()
    of_nodes: dict[str | None, list[Sample]] = {}
    for each in found:
        of_nodes.setdefault(name_of(each.labels["node"]), []).append(each)
    readings = one.readings
    assert readings.keys() == of_nodes.keys()
    sign = 1 if op[0] == ">" else -1
    for name, of_node in of_nodes.items():
        reading = readings[str(name)]
        valid = [e for e in of_node if math.isfinite(e.value)]
        fresh = [e for e in valid if e.timestamp >= since]
        assert (reading.quality is Quality.OK) == bool(valid)
        if fresh:
            best = max(fresh, key=lambda e: (sign * e.value, e.timestamp))
        elif valid:
            best = max(valid, key=lambda e: (e.timestamp, sign * e.value))
        else:
            assert reading.taken == max(e.timestamp for e in of_node)
            assert not math.isfinite(reading.value)
            continue
        assert (reading.value, reading.taken) == (best.value, best.timestamp)


@pytest.mark.parametrize("name", ["10.0.0.7", "fd00::7"])
def test_a_left_behind_node_that_is_named_after_its_address_does_not_keep_it(name: str) -> None:
    gone = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    old, new = (node(each, addresses={"InternalIP": name}) for each in (name, "new"))
    left = node(name, addresses={"InternalIP": name}, taints=[gone])
    assert AddressLookup([left, new]).find(f"[{name}]:9100") == ("new", "")
    assert AddressLookup([old, new]).find(name) == (name, "")
    twice = [left, new, node("newer", addresses={"InternalIP": name})]
    assert AddressLookup(twice).find(name) == (name, "")
