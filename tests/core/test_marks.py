from __future__ import annotations

from typing import Any

import pytest

from dynsched.core.labels import LabelMark, Mark, TaintMark, parse_label, parse_taint

LABEL = LabelMark("status", "presure")
TAINT = TaintMark("dynsched.io/pressure", "true")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("status=presure", LABEL),
        ("dynsched.io/pressure=true", LabelMark("dynsched.io/pressure", "true")),
        ("example.com/load=HIGH_1.0", LabelMark("example.com/load", "HIGH_1.0")),
        ("notkubernetes.io/a=b", LabelMark("notkubernetes.io/a", "b")),
        ("k8s=io", LabelMark("k8s", "io")),
    ],
)
def test_labels(text: str, label: LabelMark) -> None:
    assert parse_label(text) == label
    assert str(label) == text


@pytest.mark.parametrize(
    "text", ["", "status", "status=", "=presure", "a=b=c", "a = b", "a=b ", "-a=b", "a=b:c", "a=ß"]
)
def test_no_label(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_label(text)
    assert str(caught.value) == f"{text!r} is not a label; write it like status=presure"


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes.io/hostname",
        "node-role.kubernetes.io/master",
        "beta.kubernetes.io/arch",
        "k8s.io/a",
        "sub.domain.k8s.io/a",
        "dynsched.io/ignore",
    ],
)
def test_labels_with_a_meaning_of_their_own(key: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_label(f"{key}=x")
    assert str(caught.value) == (
        f"{key!r} has a meaning of its own; choose a label key that is yours"
    )


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("dynsched.io/pressure=true:PreferNoSchedule", TAINT),
        ("dynsched.io/hot=:PreferNoSchedule", TaintMark("dynsched.io/hot", "")),
    ],
)
def test_taints(text: str, taint: TaintMark) -> None:
    assert parse_taint(text) == taint
    assert str(taint) == text


def test_a_taint_without_a_value_needs_no_equals_sign() -> None:
    assert parse_taint("dynsched.io/hot:PreferNoSchedule") == TaintMark("dynsched.io/hot", "")


NO_TAINT = "is not a taint; write it like dynsched.io/pressure=true:PreferNoSchedule"
FOREIGN = "must start with dynsched.io/, so that a taint of another owner is never taken for ours"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"'' {NO_TAINT}"),
        (
            "dynsched.io/a=b",
            f"'dynsched.io/a=b' {NO_TAINT}",
        ),
        (
            "dynsched.io/a=b c:PreferNoSchedule",
            f"'dynsched.io/a=b c:PreferNoSchedule' {NO_TAINT}",
        ),
        (
            "dynsched.io/a=b:NoSchedule",
            "effect 'NoSchedule' is not soft; only PreferNoSchedule is allowed",
        ),
        (
            "dynsched.io/a=b:NoExecute",
            "effect 'NoExecute' is not soft; only PreferNoSchedule is allowed",
        ),
        (
            "dynsched.io/a=b:prefernoschedule",
            "effect 'prefernoschedule' is not soft; only PreferNoSchedule is allowed",
        ),
        (
            "pressure=true:PreferNoSchedule",
            f"taint key 'pressure' {FOREIGN}",
        ),
        (
            "notdynsched.io/a=b:PreferNoSchedule",
            f"taint key 'notdynsched.io/a' {FOREIGN}",
        ),
    ],
)
def test_no_taint(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_taint(text)
    assert str(caught.value) == message


def raw(**changes: Any) -> dict[str, Any]:
    return {"key": TAINT.key, "value": "true", "effect": "PreferNoSchedule", **changes}


@pytest.mark.parametrize(
    ("taint", "same", "in_our_place"),
    [
        (raw(), True, True),
        (raw(timeAdded="2026-11-20T12:00:00Z"), True, True),
        (raw(value="false"), False, True),
        (raw(value=""), False, True),
        (raw(effect="NoSchedule"), False, False),
        (raw(key="dynsched.io/other"), False, False),
        ({}, False, False),
    ],
)
def test_whose_taint_it_is(taint: dict[str, Any], *, same: bool, in_our_place: bool) -> None:
    assert TAINT.is_same(taint) is same
    assert TAINT.stands_at(taint) is in_our_place


@pytest.mark.parametrize("value", [{}, {"value": ""}, {"value": None}])
def test_the_api_server_leaves_an_empty_value_out(value: dict[str, Any]) -> None:
    mark = TaintMark("dynsched.io/hot", "")
    assert mark.is_same({"key": mark.key, "effect": mark.effect, **value})


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (Mark(LABEL), "label status=presure"),
        (Mark(None, TAINT), "taint dynsched.io/pressure=true:PreferNoSchedule"),
        (
            Mark(LABEL, TAINT),
            "label status=presure and taint dynsched.io/pressure=true:PreferNoSchedule",
        ),
    ],
)
def test_a_mark_in_words(mark: Mark, text: str) -> None:
    assert str(mark) == text
