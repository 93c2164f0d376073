from typing import Any

import pytest

from dynsched.rules.labels import LabelMark, TaintMark, parse_label, parse_taint

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


NO_LABEL = "is not a label; write it like status=presure"
OWN = "has a meaning of its own; choose a label key that is yours"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *(
            (text, f"{text!r} {NO_LABEL}")
            for text in (
                *("", "status", "status=", "=presure", "a=b=c", "a = b", "a=b ", "-a=b", "a=b:c"),
                "a=ß",
            )
        ),
        *(
            (f"{key}=x", f"{key!r} {OWN}")
            for key in (
                "kubernetes.io/hostname",
                "node-role.kubernetes.io/master",
                "beta.kubernetes.io/arch",
                "k8s.io/a",
                "sub.domain.k8s.io/a",
                "dynsched.io/ignore",
            )
        ),
    ],
)
def test_no_label(text: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_label(text)
    assert str(caught.value) == why


def test_taints() -> None:
    hot = TaintMark("dynsched.io/hot", "")
    for text, taint in (
        ("dynsched.io/pressure=true:PreferNoSchedule", TAINT),
        ("dynsched.io/hot=:PreferNoSchedule", hot),
    ):
        assert (parse_taint(text), str(taint)) == (taint, text)
    assert parse_taint("dynsched.io/hot:PreferNoSchedule") == hot


NO_TAINT = "is not a taint; write it like dynsched.io/pressure=true:PreferNoSchedule"
FOREIGN = "must start with dynsched.io/, so that a taint of another owner is never taken for ours"
SOFT = "is not soft; only PreferNoSchedule is allowed"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"'' {NO_TAINT}"),
        ("dynsched.io/a=b", f"'dynsched.io/a=b' {NO_TAINT}"),
        ("dynsched.io/a=b c:PreferNoSchedule", f"'dynsched.io/a=b c:PreferNoSchedule' {NO_TAINT}"),
        ("dynsched.io/a=b:NoSchedule", f"effect 'NoSchedule' {SOFT}"),
        ("dynsched.io/a=b:NoExecute", f"effect 'NoExecute' {SOFT}"),
        ("dynsched.io/a=b:prefernoschedule", f"effect 'prefernoschedule' {SOFT}"),
        ("pressure=true:PreferNoSchedule", f"taint key 'pressure' {FOREIGN}"),
        ("notdynsched.io/a=b:PreferNoSchedule", f"taint key 'notdynsched.io/a' {FOREIGN}"),
    ],
)
def test_no_taint(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_taint(text)
    assert str(caught.value) == message


def raw(**changes: Any) -> dict[str, Any]:
    return {"key": TAINT.key, "value": "true", "effect": "PreferNoSchedule", **changes}


EMPTY = TaintMark(TAINT.key, "")


@pytest.mark.parametrize(
    ("mark", "taint", "same", "in_our_place"),
    [
        (TAINT, raw(), True, True),
        (TAINT, raw(timeAdded="2026-11-20T12:00:00Z"), True, True),
        (TAINT, raw(value="false"), False, True),
        (TAINT, raw(value=""), False, True),
        (TAINT, raw(effect="NoSchedule"), False, False),
        (TAINT, raw(key="dynsched.io/other"), False, False),
        (TAINT, {}, False, False),
        # the API server leaves an empty value out
        (EMPTY, {"key": TAINT.key, "effect": TAINT.effect}, True, True),
        (EMPTY, raw(value=""), True, True),
        (EMPTY, raw(value=None), True, True),
    ],
)
def test_whose_taint_it_is(mark, taint, *, same, in_our_place) -> None:
    assert (mark.is_same(taint), mark.stands_at(taint)) == (same, in_our_place)
