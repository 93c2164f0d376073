"""Selectors mean what they mean to ``kubectl get -l``."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from properties import steady

from dynsched.rules.labels import is_label_key, is_label_value, parse_selector

A = {"pool": "batch"}
B = {"pool": "web", "zone": "a"}
BARE: dict[str, str] = {}
EMPTY = {"pool": ""}

# selector: does it match A, B, BARE, EMPTY?
MEANING = {
    "": "yes yes yes yes",
    "  ": "yes yes yes yes",
    "pool": "yes yes no yes",
    "!pool": "no no yes no",
    "! pool": "no no yes no",
    "pool=batch": "yes no no no",
    "pool==batch": "yes no no no",
    " pool = batch ": "yes no no no",
    "pool=": "no no no yes",
    "pool!=batch": "no yes yes yes",
    "pool != ": "yes yes yes no",
    "pool in (batch, web)": "yes yes no no",
    "pool in (batch,)": "yes no no yes",
    "pool in ()": "no no no yes",
    "pool in(batch)": "yes no no no",
    "pool notin (batch)": "no yes yes yes",
    "pool notin (batch, web)": "no no yes yes",
    "pool,zone": "no yes no no",
    "pool!=batch,!zone": "no no yes yes",
    "pool in (web, batch), zone in (a, b)": "no yes no no",
    "pool=batch,pool=web": "no no no no",
    "zone notin (b),pool notin (batch)": "no yes yes yes",
    "node.example/x,!example/y": "no no no no",
    "!node.example/pool": "yes yes yes yes",
    "in": "no no no no",
    "notin": "no no no no",
    "pool>1": "no no no no",
}


@pytest.mark.parametrize(("text", "expected"), MEANING.items())
def test_meaning(text: str, expected: str) -> None:
    selector = parse_selector(text)
    found = ["yes" if selector.matches(labels) else "no" for labels in (A, B, BARE, EMPTY)]
    assert found == expected.split()
    assert parse_selector(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("cores>4", "5", True),
        ("cores>4", "4", False),
        ("cores>4", "40", True),  # as numbers, and not as text
        ("cores<40", "5", True),
        ("cores < 40", "40", False),
        ("cores>4,cores<8", "6", True),
        ("cores>4", "", False),
        ("cores<4", "1x", False),
        ("cores<4", "3.5", False),
        ("cores>004", "05", True),
        ("cores>9223372036854775806", "9223372036854775807", True),
        ("cores>1", "9223372036854775808", False),  # beyond 64 bits it is no number to Go
    ],
)
def test_integers_are_compared_as_labels_parse_does(text: str, value: str, expected: bool) -> None:
    assert parse_selector(text).matches({"cores": value}) is expected
    assert not parse_selector(text).matches({})


def test_the_first_requirement_that_is_not_met_is_named() -> None:
    selector = parse_selector("pool in (web, batch), zone notin (b), !gpu")
    assert selector.unmet({"pool": "web", "zone": "a"}) is None
    assert selector.unmet({"gpu": "1"}) == "pool in (batch, web)"
    assert selector.unmet({"pool": "web", "zone": "b"}) == "zone!=b"
    assert selector.unmet({"pool": "web", "gpu": "1"}) == "!gpu"
    assert parse_selector("cores > 4").unmet({"cores": "2"}) == "cores>4"


NO_SELECTOR = [
    "=", "a=b=c", "a b", "a in b", "a in (b", "a in (b))", "a in ((b))", "a>=1", "a>", "a>x",
    "a>1.5", "a>-1", "a>+1", "!a>1", "a === b", "!a=b", "(a)", "a=b c", "-a", "a=-b",
    "Upper.example/a", "/a", "a/",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *((text, text) for text in NO_SELECTOR),
        ("pool=batch, zone i (a)", "zone i (a)"),
        *((text, text.strip()) for text in ("a,", "a , ", "a=b,\n", "a,,b", ",a", "a, ,", "a=b,,")),
        ("zone in (a, b c)", "b c"),
        ("cores<9223372036854775808", "9223372036854775808"),
    ],
)
def test_no_selector(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(named))):
        parse_selector(text)


NAME63 = "a" * 63


@pytest.mark.parametrize(
    ("text", "is_key", "is_value"),
    [
        ("status", True, True),
        ("A-b_c.9", True, True),
        ("1.2_3-x", True, True),
        (NAME63, True, True),
        (NAME63 + "a", False, False),
        ("dynsched.io/pressure", True, False),
        ("a.b-c.d/" + NAME63, True, False),
        (".".join(["a" * 62] * 4) + "/x", True, False),  # 251 characters before the slash
        (".".join([*["a" * 62] * 4, "aa"]) + "/x", False, False),  # 254
        ("a/b/c", False, False),
        ("a_b/c", False, False),
        ("a=b", False, False),
        ("", False, True),
        ("-a", False, False),
        ("a-", False, False),
        ("a.", False, False),
        ("a\n", False, False),
        ("ä", False, False),
        ("\u0665", False, False),
        ("a b", False, False),
    ],
)
def test_label_keys_and_values(text: str, *, is_key: bool, is_value: bool) -> None:
    assert (is_label_key(text), is_label_value(text)) == (is_key, is_value)


@steady(200)
@given(st.text("ab=!, ()innot/.\n-<>19", max_size=30))
@example("a" * 5000)
@example("a." * 2000 + "!")
def test_any_text_is_a_selector_or_a_clear_error(text: str) -> None:
    try:
        selector = parse_selector(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 (either end is right)
    else:
        assert selector.matches({"a": "b"}) in (True, False)
