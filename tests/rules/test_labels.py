"""Labels and taints as the API server accepts them, and selectors as kubectl reads them."""

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from properties import steady

from dynsched.rules.labels import (
    LabelMark,
    TaintMark,
    is_label_key,
    is_label_value,
    parse_label,
    parse_selector,
    parse_taint,
)

TAINT = TaintMark("dynsched.io/pressure", "true")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("status=presure", LabelMark("status", "presure")),
        ("example.com/load=HIGH_1.0", LabelMark("example.com/load", "HIGH_1.0")),
        ("notkubernetes.io/a=b", LabelMark("notkubernetes.io/a", "b")),
    ],
)
def test_a_valid_label_is_parsed(text: str, label: LabelMark) -> None:
    assert parse_label(text) == label
    assert str(label) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "status", "status=", "=presure", "a=b=c", "a = b", "-a=b", "a=ß"),
        *("kubernetes.io/hostname=x", "sub.domain.k8s.io/a=x", "dynsched.io/ignore=x"),
    ],
)
def test_an_invalid_or_reserved_label_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text.removesuffix("=x")))):
        parse_label(text)


def test_a_valid_taint_is_parsed() -> None:
    hot = TaintMark("dynsched.io/hot", "")
    for text, taint in (
        ("dynsched.io/pressure=true:PreferNoSchedule", TAINT),
        ("dynsched.io/hot=:PreferNoSchedule", hot),
    ):
        assert (parse_taint(text), str(taint)) == (taint, text)
    assert parse_taint("dynsched.io/hot:PreferNoSchedule") == hot


@pytest.mark.parametrize(
    "text",
    [
        *("", "dynsched.io/a=b", "dynsched.io/a=b c:PreferNoSchedule", "dynsched.io/a=b:NoExecute"),
        *("pressure=true:PreferNoSchedule", "notdynsched.io/a=b:PreferNoSchedule"),
    ],
)
def test_an_invalid_hard_or_foreign_taint_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"PreferNoSchedule|must start with dynsched\.io/"):
        parse_taint(text)


def raw(**changes: Any) -> dict[str, Any]:
    return {"key": TAINT.key, "value": "true", "effect": "PreferNoSchedule", **changes}


@pytest.mark.parametrize(
    ("mark", "taint", "same", "same_key_and_effect"),
    [
        (TAINT, raw(timeAdded="2026-11-20T12:00:00Z"), True, True),
        (TAINT, raw(value="false"), False, True),
        (TAINT, raw(effect="NoSchedule"), False, False),
        (TAINT, raw(key="dynsched.io/other"), False, False),
        # the API server omits an empty value
        (TaintMark(TAINT.key, ""), {"key": TAINT.key, "effect": TAINT.effect}, True, True),
    ],
)
def test_a_taint_is_compared_with_the_mark(mark, taint, *, same, same_key_and_effect) -> None:
    assert (mark.is_same(taint), mark.shares_key_and_effect(taint)) == (same, same_key_and_effect)


NAME63 = "a" * 63


@pytest.mark.parametrize(
    ("text", "is_key", "is_value"),
    [
        ("A-b_c.9", True, True),
        (NAME63, True, True),
        (NAME63 + "a", False, False),
        ("a.b-c.d/" + NAME63, True, False),
        (".".join(["a" * 62] * 4) + "/x", True, False),  # 251 characters before the slash
        (".".join([*["a" * 62] * 4, "aa"]) + "/x", False, False),  # 254
        ("a/b/c", False, False),
        ("a_b/c", False, False),
        ("", False, True),
        ("-a", False, False),
        ("a.", False, False),
        ("a\n", False, False),
        ("\u0665", False, False),
    ],
)
def test_which_text_is_a_valid_label_key_or_value(
    text: str, *, is_key: bool, is_value: bool
) -> None:
    assert (is_label_key(text), is_label_value(text)) == (is_key, is_value)


NODES = ({"pool": "batch"}, {"pool": "web", "zone": "a"}, {}, {"pool": ""})
# For each selector, whether it matches each of NODES.
MEANING = {
    "  ": "yes yes yes yes",
    "pool": "yes yes no yes",
    "! pool": "no no yes no",
    " pool = batch ": "yes no no no",
    "pool==batch": "yes no no no",
    "pool=": "no no no yes",
    "pool!=batch": "no yes yes yes",
    "pool in (batch,)": "yes no no yes",
    "pool in(batch)": "yes no no no",
    "pool notin (batch, web)": "no no yes yes",
    "pool!=batch,!zone": "no no yes yes",
    "pool in (web, batch), zone in (a, b)": "no yes no no",
    "!node.example/pool": "yes yes yes yes",
    "in": "no no no no",
}


@pytest.mark.parametrize(("text", "expected"), MEANING.items())
def test_a_selector_matches_as_in_kubectl(text: str, expected: str) -> None:
    selector = parse_selector(text)
    assert ["yes" if selector.matches(labels) else "no" for labels in NODES] == expected.split()
    assert parse_selector(str(selector)) == selector


def test_the_first_unmet_requirement_is_returned() -> None:
    selector = parse_selector("pool in (web, batch), zone notin (b), !gpu")
    for more, unmet in (
        ({"cores": "5"}, None),
        ({"pool": "x"}, "pool in (batch, web)"),
        ({"zone": "b"}, "zone!=b"),
        ({"gpu": "1"}, "!gpu"),
    ):
        assert selector.unmet({"pool": "web", "zone": "a"} | more) == unmet


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *((text, text) for text in ("a=b=c", "a b", "a in (b))", "a>=1", "a>1", "!a=b", "/a")),
        *((text, text) for text in ("a,", ",a")),
        ("a,,b", ",b"),
        ("pool=batch, zone i (a)", "zone i (a)"),
        ("zone in (a, b c)", "b c"),
    ],
)
def test_an_invalid_selector_is_an_error_that_quotes_it(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(named))):
        parse_selector(text)


@steady(200)
@given(st.text("ab=!, ()innot/.\n-<>19", max_size=30))
@example("a" * 5000)
@example("a." * 2000 + "!")
def test_any_text_is_a_selector_or_a_clear_error(text: str) -> None:
    try:
        selector = parse_selector(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 (both outcomes are correct)
    else:
        assert selector.matches({"a": "b"}) in (True, False)
