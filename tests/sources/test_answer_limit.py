"""How large an answer may be."""

import pytest

from dynsched.sources.prometheus.decode import answer_limit


@pytest.mark.parametrize("nodes", [1, 300, 5_000, 65_000, 200_000])
@pytest.mark.parametrize("rules", [1, 3, 20, 200])
def test_a_sample_a_node_always_fits(nodes: int, rules: int) -> None:
    limit = answer_limit(nodes, rules)
    assert limit.series >= 2 * nodes
    assert limit.size >= 2_000 * nodes


@pytest.mark.parametrize("rules", [1, 3, 20, 200])
def test_a_small_clusters_rules_share_what_the_container_has_room_for(rules: int) -> None:
    limit = answer_limit(100, rules)
    assert rules * limit.series <= max(50_000, rules * 200)
    assert rules * limit.size <= max(8 << 20, rules * 204_800)


def test_an_expression_that_forgot_to_aggregate_does_not_fit() -> None:
    assert answer_limit(300, 1).series < 300 * 32 * 8
    assert answer_limit(5_000, 1).series < 5_000 * 32


def test_no_nodes_and_no_rules_leave_room_for_one_answer() -> None:
    assert answer_limit(0, 0).series == 50_000
