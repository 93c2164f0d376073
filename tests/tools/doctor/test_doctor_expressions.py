"""What is read of an expression: selectors, ranges, labels that are dropped; and within bounds."""

import pytest

from dynsched.tools.doctor.expressions import read

LABELS = ("node", "instance")


@pytest.mark.parametrize(
    ("expr", "culprit"),
    [
        ("up", None),
        ("sum(up)", "sum(up)"),
        ("sum by (job) (up) * 2", "sum by (job)(up)"),
        ("sum by (instance) (sum by (instance, job) (up))", None),
        ("max without (instance, node) (up)", "max without (instance, node)(up)"),
        ("topk(3, up)", None),
        ("a / on (job) b", "a / on (job) b"),
        ("a / on (job) group_left b", None),
        ("up and on () vector(1)", None),
        ("scalar(up) * a", None),
    ],
)
def test_the_part_that_drops_the_node_is_found(expr, culprit) -> None:
    assert read(expr).drops(LABELS) == culprit


def test_how_far_an_expression_looks_back_is_added_up() -> None:
    assert read("max_over_time(rate(a[5m] offset 1h)[1d:1m] offset 2h)").reach == (
        300 + 3600 + 86400 + 7200
    )


@pytest.mark.parametrize(
    "expr", ["(" * 2000 + "up" + ")" * 2000, " + ".join(["up"] * 1000), "up" + " " * 5000, "up{"]
)
def test_what_would_take_the_parser_too_long_is_not_given_to_it(expr) -> None:
    assert read(expr).unread
