"""What is read of an expression: selectors and ranges; and within bounds."""

import pytest

from dynsched.tools.doctor.expressions import read


def test_how_far_an_expression_looks_back_is_added_up() -> None:
    assert read("max_over_time(rate(a[5m] offset 1h)[1d:1m] offset 2h)").reach == (
        300 + 3600 + 86400 + 7200
    )


@pytest.mark.parametrize(
    "expr", ["(" * 2000 + "up" + ")" * 2000, " + ".join(["up"] * 1000), "up" + " " * 5000, "up{"]
)
def test_what_would_take_the_parser_too_long_is_not_given_to_it(expr) -> None:
    assert read(expr).unread
