from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Mapping
from ipaddress import IPv4Address, IPv6Address
from itertools import permutations
from typing import cast

import numpy as np
import pytest
from builders import NOON, node, rule, rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.core.columns import Vector
from dynsched.core.formatting import canonical
from dynsched.core.match import Matched, index_nodes, match_samples
from dynsched.core.model import Quality, Reading, Sample, SeveralSeries, Unmatched
from dynsched.core.rules import Rule

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
INDEX = index_nodes(NODES)


def one_rule(**options: object) -> Rule:
    return rule_set(rule(**options)).rules[0]


def samples(*labels_and_values: tuple[dict[str, str], float]) -> list[Sample]:
    return [Sample(labels, value, NOON) for labels, value in labels_and_values]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param("worker-3", "worker-3", id="name"),
        pytest.param("worker-3:9100", "worker-3", id="name and port"),
        pytest.param("10.0.0.7", "worker-3", id="InternalIP"),
        pytest.param("10.0.0.7:9100", "worker-3", id="InternalIP and port"),
        pytest.param("host-3", "worker-3", id="Hostname"),
        pytest.param("host-3:9100", "worker-3", id="Hostname and port"),
        pytest.param("203.0.113.9", "worker-3", id="ExternalIP"),
        pytest.param("203.0.113.9:443", "worker-3", id="ExternalIP and port"),
        pytest.param("fd00::7", "worker-4", id="bare v6"),
        pytest.param("[fd00::7]", "worker-4", id="v6 in brackets"),
        pytest.param("[fd00::7]:9100", "worker-4", id="v6 and port"),
        pytest.param("203.0.113.10", "worker-5", id="the address that is not shared"),
        pytest.param("ip-10-0-0-9.eu.internal:9100", "ip-10-0-0-9.eu.internal", id="FQDN"),
        pytest.param("10.0.0.8:9100", "worker-8", id="one address under two types"),
        pytest.param("10.0.0.70", None, id="longer"),
        pytest.param("10.0.0", None, id="shorter"),
        pytest.param("10.0.0.7:", None, id="no port after the colon"),
        pytest.param("10.0.0.7:http", None, id="a port by name"),
        pytest.param("fd00::7:10", None, id="another v6 address whose last group is all digits"),
        pytest.param("http://10.0.0.7:9100", None, id="a URL"),
        pytest.param("WORKER-3", "worker-3", id="capitals"),
        pytest.param("WINHOST02:9182", "winhost02", id="capitals and port"),
        pytest.param("fd00:10::a", "winhost02", id="a v6 address that the node has in capitals"),
        pytest.param("[FD00:10::9]", "worker-9", id="v6 in capitals"),
        pytest.param("[fd00:10:0:0:0:0:0:9]:9100", "worker-9", id="v6 that is not compressed"),
        pytest.param("fd00:0010::0009", "worker-9", id="v6 with zeros in front"),
        pytest.param("fd00:10::9%eth0", "worker-9", id="v6 with a zone"),
        pytest.param("[fd00:10::9%25eth0]:9100", "worker-9", id="v6 with a zone as in a URL"),
        pytest.param("::ffff:10.0.0.7", "worker-3", id="v4 inside of v6"),
        pytest.param("[::ffff:a00:7]:9100", "worker-3", id="v4 inside of v6, in hex"),
        pytest.param("10.0.0.10:9100", "worker-10", id="v4, where the node has it inside of v6"),
        pytest.param("worker-9.internal.example:9100", "worker-9", id="InternalDNS"),
        pytest.param("worker-9.example.com:9100", "worker-9", id="ExternalDNS"),
        pytest.param("worker-9.internal.example.", "worker-9", id="fully qualified, with the dot"),
        pytest.param("worker-3.", "worker-3", id="a name with the dot"),
        pytest.param("worker-9.other.example", None, id="another domain"),
        pytest.param("worker-3.internal.example", None, id="a domain that no address says"),
        pytest.param("fd00:10::9:9100", None, id="v6 and a port without brackets: another address"),
        pytest.param("010.0.0.7", None, id="v4 with zeros in front, which is octal for some"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_how_a_node_may_be_named(text: str, name: str | None) -> None:
    assert INDEX.find(text) == name


@pytest.mark.parametrize("text", ["192.168.0.1", "192.168.0.1:9100"])
def test_an_address_of_two_nodes_names_neither(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        INDEX.find(text)
    assert str(caught.value) == (
        "more than one node has the address 192.168.0.1: worker-5 and worker-6"
    )


def test_an_address_of_three_nodes_names_none() -> None:
    index = index_nodes([node(name, addresses={"InternalIP": "10.1.1.1"}) for name in "abc"])
    with pytest.raises(
        ValueError, match=r"more than one node has the address 10\.1\.1\.1: a, b and c$"
    ):
        index.find("10.1.1.1")


def test_of_many_nodes_that_share_an_address_a_few_are_named() -> None:
    """All nodes behind one gateway have its ExternalIP."""
    names = [f"n{number:03}" for number in range(300)]
    index = index_nodes(
        [
            node(name, addresses={"InternalIP": f"fd00::{name[1:]}", "ExternalIP": "FD01::1"})
            for name in names
        ]
    )
    with pytest.raises(ValueError, match=r"address fd01::1: n000, n001, n002 and 297 more$"):
        index.find("[fd01:0::1]:443")
    assert index.find("[fd00::007]:9100") == "n007"


def test_one_address_in_two_spellings_is_shared() -> None:
    index = index_nodes(
        [
            node("a", addresses={"InternalIP": "fd00::1"}),
            node("b", addresses={"InternalIP": "FD00:0:0::1"}),
        ]
    )
    with pytest.raises(ValueError, match="more than one node has the address fd00::1: a and b"):
        index.find("fd00::1")


@pytest.mark.parametrize("text", ["worker-3", "Worker-3:9100"])
def test_a_name_counts_before_another_nodes_hostname(text: str) -> None:
    assert INDEX.find(text) == "worker-3"


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
    matched = match_samples(one_rule(node_label=option), samples((labels, 91.0)), INDEX)
    assert matched == Matched({name: Reading(name, 91.0, NOON)}, [])


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
def test_what_matches_nothing_is_told(
    option: str | None, labels: dict[str, str], value: str, reason: str
) -> None:
    matched = match_samples(
        one_rule(node_label=option),
        samples((labels, 99.0), ({"node": "worker-4", "host": "worker-4"}, 50.0)),
        INDEX,
    )
    assert matched.unmatched == [Unmatched("cpu", value, reason)]
    assert matched.readings == {"worker-4": Reading("worker-4", 50.0, NOON)}


def test_what_matches_nothing_is_told_in_an_order_of_its_own() -> None:
    strangers = [({"node": name}, 1.0) for name in ("x", "z", "y")] + [({"job": "a"}, 1.0)]
    told = [
        match_samples(one_rule(), samples(*order), INDEX).unmatched
        for order in permutations(strangers)
    ]
    assert [entry.value for entry in told[0]] == ["", "x", "y", "z"]
    assert all(each == told[0] for each in told)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("op", "values", "worst", "quality"),
    [
        (">", [50.0, 90.0, 70.0], 90.0, Quality.OK),
        ("<", [50.0, 90.0, 70.0], 50.0, Quality.OK),
        (">", [NAN, 40.0], 40.0, Quality.OK),
        (">", [40.0, NAN], 40.0, Quality.OK),
        (">", [INF, 40.0, -INF], 40.0, Quality.OK),
        ("<", [-INF, 40.0], 40.0, Quality.OK),
        (">", [INF], INF, Quality.INVALID),
        (">", [-INF], -INF, Quality.INVALID),
        (">", [0.0, -3.0], 0.0, Quality.OK),
    ],
)
def test_the_worst_valid_sample_of_a_node_counts(
    op: str, values: list[float], worst: float, quality: Quality
) -> None:
    matched = match_samples(
        one_rule(op=op), samples(*(({"node": "worker-3"}, value) for value in values)), INDEX
    )
    assert matched.readings == {"worker-3": Reading("worker-3", worst, NOON, quality)}
    assert matched.unmatched == []


@pytest.mark.parametrize("count", [1, 2])
def test_nan_is_invalid_and_never_zero(count: int) -> None:
    matched = match_samples(one_rule(), samples(*[({"node": "worker-3"}, NAN)] * count), INDEX)
    (reading,) = matched.readings.values()
    assert reading.quality is Quality.INVALID
    assert math.isnan(reading.value)


def test_the_sample_keeps_its_own_time() -> None:
    late = Sample({"node": "worker-3"}, 1.0, NOON - 240)
    matched = match_samples(one_rule(), [late], INDEX)
    assert matched.readings["worker-3"].timestamp == NOON - 240


def test_no_nodes_and_no_samples() -> None:
    assert match_samples(one_rule(), [], index_nodes([])) == Matched({}, [])


# Several series for one node


def test_two_series_of_a_node_are_told_with_the_labels_in_which_they_differ() -> None:
    """Two clusters in one Prometheus: whichever came last counted, in silence."""
    found = [
        Sample({"instance": "10.0.0.7:9100", "job": "node", "cluster": "mine"}, 40.0, NOON),
        Sample({"instance": "10.0.0.7:9100", "job": "node", "cluster": "theirs"}, 95.0, NOON),
        Sample({"instance": "[fd00::7]:9100", "job": "node", "cluster": "mine"}, 20.0, NOON),
    ]
    for order in permutations(found):
        matched = match_samples(one_rule(), order, INDEX)
        assert {name: each.value for name, each in matched.readings.items()} == {
            "worker-3": 95.0,
            "worker-4": 20.0,
        }
        assert matched.several == SeveralSeries("cpu", 1, "worker-3", ("cluster",))


def test_every_label_that_differs_is_told() -> None:
    labels = [
        {"node": "worker-3", "cpu": "0"},
        {"node": "worker-3", "cpu": "1"},
        {"node": "worker-3", "cpu": "1", "mode": "idle"},
        {"instance": "10.0.0.7:9100", "cpu": "1"},
        {"node": "worker-4", "zone": "a"},
    ]
    for order in permutations(labels):
        several = match_samples(one_rule(), samples(*((e, 1.0) for e in order)), INDEX).several
        assert several == SeveralSeries("cpu", 1, "worker-3", ("cpu", "instance", "mode", "node"))


@pytest.mark.parametrize("op", [">", "<"])
def test_a_fresh_sample_counts_before_a_worse_one_that_is_stale(op: str) -> None:
    hot, cool = (95.0, 20.0) if op == ">" else (20.0, 95.0)
    old = NOON - 301
    found = [
        Sample({"node": "worker-3", "cluster": "a"}, hot, old),
        Sample({"node": "worker-3", "cluster": "b"}, cool, NOON - 10),
    ]
    for order in permutations(found):
        matched = match_samples(one_rule(op=op), order, INDEX, fresh_since=NOON - 300)
        assert matched.readings["worker-3"].value == cool
        stale = match_samples(one_rule(op=op), order, INDEX, fresh_since=NOON)
        assert stale.readings["worker-3"].timestamp == NOON - 10


def test_series_of_each_core_are_read_once() -> None:
    """An expression without an aggregation: as many series as the nodes have cores."""
    nodes = [node(f"n{number}") for number in range(20)]
    index = index_nodes(nodes)
    labels = [{"node": each.name, "cpu": str(cpu)} for each in nodes for cpu in range(64)]
    labels += [{"node": f"of another cluster {number}"} for number in range(20)]
    read: Counter[Hashable] = Counter()

    def labels_of(key: Hashable) -> Mapping[str, str]:
        read[key] += 1
        return labels[cast("int", key)]

    for turn in range(4):
        order = random.Random(turn).sample(range(len(labels)), len(labels))
        values = np.array([float(number % 64) for number in order])
        vector = Vector(order, labels_of, values, np.full(len(order), NOON))
        matched = match_samples(one_rule(), vector, index)
        assert {name: each.value for name, each in matched.readings.items()} == dict.fromkeys(
            (each.name for each in nodes), 63.0
        )
        assert matched.several == SeveralSeries("cpu", 20, "n0", ("cpu",))
        assert len(matched.unmatched) == 20
        if turn == 0:
            read.clear()
    assert set(read) <= set(range(20 * 64, 20 * 64 + 20))


def test_a_series_that_is_gone_is_not_told_of() -> None:
    index = index_nodes(NODES)
    for labels, differ in (
        ([{"node": "worker-3", "pod": "a"}, {"node": "worker-3", "pod": "b"}], ("pod",)),
        ([{"node": "worker-3", "cpu": "0"}, {"node": "worker-3", "cpu": "1"}], ("cpu",)),
        ([{"node": "worker-3", "pod": "a"}, {"node": "worker-3", "cpu": "1"}], ("cpu", "pod")),
    ):
        several = match_samples(one_rule(), samples(*((e, 1.0) for e in labels)), index).several
        assert several == SeveralSeries("cpu", 1, "worker-3", differ)


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
def test_the_order_of_the_answer_never_counts(
    found: list[Sample], op: str, order: random.Random
) -> None:
    rules = one_rule(op=op)
    shuffled = order.sample(found, len(found))
    one, other = (
        match_samples(rules, each, INDEX, fresh_since=NOON - 300) for each in (found, shuffled)
    )
    assert one.several == other.several
    assert one.readings.keys() == other.readings.keys()
    for name, reading in one.readings.items():
        again = other.readings[name]
        assert (reading.quality, reading.timestamp) == (again.quality, again.timestamp)
        if reading.quality is not Quality.OK:
            continue
        assert reading.value == again.value
        of_node = [each for each in found if INDEX.find(each.labels["node"]) == name]
        fresh = [e.value for e in of_node if math.isfinite(e.value) and e.timestamp >= NOON - 300]
        if fresh:
            assert reading.value == (max(fresh) if op[0] == ">" else min(fresh))


# Spellings


@st.composite
def spelled(draw: st.DrawFn, address: IPv4Address | IPv6Address) -> str:
    """One address, as some exporter may write it, with or without a port."""
    if isinstance(address, IPv4Address):
        text = draw(st.sampled_from([str(address), f"::ffff:{address}"]))
        if ":" in text and draw(st.booleans()):
            text = IPv6Address(text).exploded
    else:
        groups = [group.lstrip("0") or "0" for group in address.exploded.split(":")]
        text = draw(st.sampled_from([str(address), address.exploded, ":".join(groups)]))
    if ":" in text:
        text = draw(st.sampled_from([text, text.upper()]))
        text += draw(st.sampled_from(["", "%eth0", "%25en1"]))
    port = draw(st.sampled_from(["", ":9100"]))
    brackets = ":" in text and (port or draw(st.booleans()))
    return f"[{text}]{port}" if brackets else f"{text}{port}"


@steady(300)
@given(data=st.data(), address=st.ip_addresses(), other=st.ip_addresses())
def test_an_address_finds_its_node_however_it_is_spelled_and_no_other(
    data: st.DataObject, address: IPv4Address | IPv6Address, other: IPv4Address | IPv6Address
) -> None:
    kept = data.draw(spelled(address)).partition(":9100")[0].strip("[]").partition("%")[0]
    index = index_nodes([node("n1", addresses={"InternalIP": kept})])
    assert index.find(data.draw(spelled(address))) == "n1"
    if other != address and getattr(other, "ipv4_mapped", None) != address:
        assert index.find(data.draw(spelled(other))) is None


@steady(300)
@given(st.text(max_size=30) | st.from_regex(r"[\[\]:.%0-9a-fA-F]{0,40}", fullmatch=True))
def test_any_text_is_looked_up_without_an_error(text: str) -> None:
    assert index_nodes([node("n1", addresses={"Hostname": text})]).find(text) in ("n1", None)
    if not text.endswith(".."):
        assert canonical(canonical(text)) == canonical(text)
