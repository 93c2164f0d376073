"""Numbers as people read them."""

import pytest

from dynsched.core.formatting import format_threshold, format_value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (91.23456, "91.23"),
        (80.0, "80"),
        (-3.5, "-3.5"),
        (0.0001234, "0.0001234"),
        (1073741824.5, "1073741824"),
        (None, "?"),
    ],
)
def test_a_value_is_short_and_never_in_powers_of_ten(value, text) -> None:
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(80.0, "80"), (0.25, "0.25"), (1073741824.0, "1073741824"), (99.95, "99.95")],
)
def test_a_threshold_is_shown_as_it_was_configured(value, text) -> None:
    assert format_threshold(value) == text
