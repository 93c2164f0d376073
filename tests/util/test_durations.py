import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.util.durations import format_duration, parse_duration, parse_seconds

GOOD = {
    "0": 0,
    "0s": 0,
    "30s": 30,
    "90m": 5400,
    "1h30m": 5400,
    "500ms": 0.5,
    "1m1ms": 60.001,
    "1y2w3d4h5m6s7ms": 31536000 + 2 * 604800 + 3 * 86400 + 4 * 3600 + 5 * 60 + 6 + 0.007,
    "007s": 7,
    "292y": 292 * 365 * 86400,
}
BAD = [
    "", " ", "5", "00", "-5s", "+5s", "1.5h", "5 s", " 5s", "5s ", "5s\n", "5S", "5sec", "s",
    "30m1h", "1h1h", "1ms1s", "1h-1m", "\u0665s", "two minutes",
]  # fmt: skip
LONG = ["293y", "9223372037s", "9" * 400 + "s", "9" * 5000 + "ms"]


@pytest.mark.parametrize(("text", "seconds"), GOOD.items())
def test_a_duration_is_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize("text", BAD + LONG)
def test_an_invalid_duration_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@pytest.mark.parametrize(("text", "seconds"), [("10", 10), ("1.5", 1.5), ("1", 1), ("1m", 60)])
def test_seconds_are_parsed_with_and_without_a_unit(text: str, seconds: float) -> None:
    assert parse_seconds(text, at_least=1) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "nan", "inf", "1.5h", "0", "-1", "0.9", "999ms", "1e300"]
)
def test_invalid_or_too_few_seconds_are_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_seconds(text, at_least=1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.0006, "1ms"), (59.9996, "1m"), (5400, "1h30m"), (93784.005, "1d2h3m4s5ms")],
)
def test_a_duration_is_formatted(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@steady(100)
@given(st.integers(0, 10**12))
def test_a_formatted_duration_parses_to_the_same_value(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-4)
