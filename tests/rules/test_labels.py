import re
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


@pytest.mark.parametrize(
    "text",
    [
        *("", "status", "status=", "=presure", "a=b=c", "a = b", "a=b ", "-a=b", "a=b:c", "a=ß"),
        "kubernetes.io/hostname=x",
        "node-role.kubernetes.io/master=x",
        "beta.kubernetes.io/arch=x",
        "k8s.io/a=x",
        "sub.domain.k8s.io/a=x",
        "dynsched.io/ignore=x",
    ],
)
def test_no_label(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text.removesuffix("=x")))):
        parse_label(text)


def test_taints() -> None:
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
        "",
        "dynsched.io/a=b",
        "dynsched.io/a=b c:PreferNoSchedule",
        "dynsched.io/a=b:NoSchedule",
        "dynsched.io/a=b:NoExecute",
        "dynsched.io/a=b:prefernoschedule",
        "pressure=true:PreferNoSchedule",
        "notdynsched.io/a=b:PreferNoSchedule",
    ],
)
def test_no_taint(text: str) -> None:
    with pytest.raises(ValueError, match=r"PreferNoSchedule|must start with dynsched\.io/"):
        parse_taint(text)


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
