"""Numbers and times as people and Kubernetes read them."""

import pytest

from dynsched.util.formatting import (
    format_micro_time,
    format_threshold,
    format_time,
    format_value,
    parse_time,
)


@pytest.mark.parametrize(
    ("value", "text", "threshold"),
    [
        (91.23456, "91.23", "91.23456"),
        (99.95, "99.95", "99.95"),
        (80.0, "80", "80"),
        (-3.5, "-3.5", "-3.5"),
        (0.0001234, "0.0001234", "0.0001234"),
        (1073741824.5, "1073741824", "1073741824.5"),
    ],
)
def test_a_value_is_rounded_and_a_threshold_is_shown_as_configured(value, text, threshold) -> None:
    assert (format_value(value), format_threshold(value)) == (text, threshold)


def test_a_time_is_formatted_in_utc_to_the_second_or_microsecond() -> None:
    assert format_value(None) == "?"
    assert format_time(0) == "1970-01-01T00:00:00Z"
    assert format_time(1795176120.9) == "2026-11-20T12:02:00Z"
    assert format_micro_time(1_795_176_120_000_000) == "2026-11-20T12:02:00.000000Z"
    assert format_micro_time(1_795_176_120_000_070) == "2026-11-20T12:02:00.000070Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-20T12:02:00Z", 1795176120.0),
        ("2026-11-20T13:02:00.500000+01:00", 1795176120.5),
        ("2026-11-20T12:02:00", None),  # without a time zone
        ("yesterday", None),
        ("", None),
        (None, None),
        (1795176120, None),
        ("0001-01-01T00:00:00Z", None),
        ("1970-01-01T00:00:00Z", 0.0),
        ("9999-12-31T23:59:59Z", None),
        ("0001-01-01T00:00:00+14:00", None),  # in UTC it is outside the years 1 to 9999
        ("9999-12-31T23:59:59-23:59", None),
    ],
)
def test_a_time_is_parsed_or_none(text: object, seconds: float | None) -> None:
    assert parse_time(text) == seconds
