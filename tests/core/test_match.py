from __future__ import annotations

import math

import pytest
from builders import NOON, node, rule, rule_set

from dynsched.core.match import index_nodes, match_samples
from dynsched.core.model import Quality, Reading, Sample, Unmatched
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
        pytest.param("WORKER-3", None, id="capitals"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_how_a_node_may_be_named(text: str, name: str | None) -> None:
    assert INDEX.find(text) == name


@pytest.mark.parametrize("text", ["192.168.0.1", "192.168.0.1:9100"])
def test_an_address_of_two_nodes_names_neither(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        INDEX.find(text)
    assert str(caught.value) == "more than one node has the address 192.168.0.1"


def test_an_address_of_three_nodes_names_none() -> None:
    index = index_nodes([node(name, addresses={"InternalIP": "10.1.1.1"}) for name in "abc"])
    with pytest.raises(ValueError, match=r"more than one node has the address 10\.1\.1\.1"):
        index.find("10.1.1.1")


def test_a_name_counts_before_another_nodes_hostname() -> None:
    assert INDEX.find("worker-3") == "worker-3"


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
    readings, unmatched = match_samples(one_rule(node_label=option), samples((labels, 91.0)), INDEX)
    assert readings == {name: Reading(name, 91.0, NOON)}
    assert unmatched == []


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
            "more than one node has the address 192.168.0.1",
        ),
    ],
)
def test_what_matches_nothing_is_told(
    option: str | None, labels: dict[str, str], value: str, reason: str
) -> None:
    readings, unmatched = match_samples(
        one_rule(node_label=option),
        samples((labels, 99.0), ({"node": "worker-4", "host": "worker-4"}, 50.0)),
        INDEX,
    )
    assert unmatched == [Unmatched("cpu", value, reason)]
    assert readings == {"worker-4": Reading("worker-4", 50.0, NOON)}


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
    readings, unmatched = match_samples(
        one_rule(op=op), samples(*(({"node": "worker-3"}, value) for value in values)), INDEX
    )
    assert readings == {"worker-3": Reading("worker-3", worst, NOON, quality)}
    assert unmatched == []


@pytest.mark.parametrize("count", [1, 2])
def test_nan_is_invalid_and_never_zero(count: int) -> None:
    readings, _ = match_samples(one_rule(), samples(*[({"node": "worker-3"}, NAN)] * count), INDEX)
    (reading,) = readings.values()
    assert reading.quality is Quality.INVALID
    assert math.isnan(reading.value)


def test_the_sample_keeps_its_own_time() -> None:
    late = Sample({"node": "worker-3"}, 1.0, NOON - 240)
    readings, _ = match_samples(one_rule(), [late], INDEX)
    assert readings["worker-3"].timestamp == NOON - 240


def test_no_nodes_and_no_samples() -> None:
    assert match_samples(one_rule(), [], index_nodes([])) == ({}, [])
