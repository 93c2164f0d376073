"""What is read of an expression: selectors and ranges; and within bounds."""

import pytest

from dynsched.tools.doctor.expressions import read


@pytest.mark.parametrize(
    "expr", ["(" * 2000 + "up" + ")" * 2000, " + ".join(["up"] * 1000), "up" + " " * 5000, "up{"]
)
def test_what_would_take_the_parser_too_long_is_not_given_to_it(expr) -> None:
    assert read(expr).unread
