"""Which lists of candidates are remembered."""

import json

from msgspec import Raw

from dynsched.web.extender.candidates import CandidateLists


def listed(count: int, zone: int = 0) -> Raw:
    names = [f"ip-10-{zone}-{n // 250}-{n % 250}.eu-west-1.compute.internal" for n in range(count)]
    return Raw(json.dumps(names).encode())


def test_two_lists_of_all_nodes_are_remembered_however_many_there_are() -> None:
    lists, nodes = CandidateLists(), 40_000
    asked = [listed(nodes), listed(nodes, zone=1)]
    first = [lists.of(raw, 2 * nodes) for raw in asked]
    assert all(lists.of(raw, 2 * nodes) is known for raw, known in zip(asked, first, strict=True))


def test_other_lists_take_their_place() -> None:
    lists, nodes = CandidateLists(), 10_000
    first = lists.of(listed(nodes), nodes)
    for zone in range(1, 8):
        lists.of(listed(nodes, zone), nodes)
    assert lists.of(listed(nodes), nodes) is not first
