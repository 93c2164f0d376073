"""The mark: what we put on a node, and how it is written in rules.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dynsched.core import keys
from dynsched.core.selector import is_label_key, is_label_value

SOFT_EFFECT: Final = "PreferNoSchedule"
_RESERVED_DOMAIN: Final = re.compile(r"(?:.*\.)?(?:kubernetes|k8s)\.io")


@dataclass(frozen=True, slots=True)
class LabelMark:
    """The label that marks a node."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


@dataclass(frozen=True, slots=True)
class TaintMark:
    """The soft taint that marks a node."""

    key: str
    value: str
    effect: str = SOFT_EFFECT

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"

    def is_same(self, taint: Mapping[str, Any]) -> bool:
        """Whether a raw taint is ours: key, value and effect all equal."""
        return self.stands_at(taint) and (taint.get("value") or "") == self.value

    def stands_at(self, taint: Mapping[str, Any]) -> bool:
        """Whether a raw taint holds our place: the API server allows one a key and effect."""
        return taint.get("key") == self.key and taint.get("effect") == self.effect


@dataclass(frozen=True, slots=True)
class Mark:
    """What marks a node: a label, a soft taint, or both (at least one)."""

    label: LabelMark | None
    taint: TaintMark | None = None

    def __str__(self) -> str:
        parts = []
        if self.label:
            parts.append(f"label {self.label}")
        if self.taint:
            parts.append(f"taint {self.taint}")
        return " and ".join(parts)


def parse_label(text: str) -> LabelMark:
    """``key=value`` -> LabelMark; ValueError with the reason."""
    key, _, value = text.partition("=")
    if not is_label_key(key) or not is_label_value(value) or not value:
        raise ValueError(f"{text!r} is not a label; write it like {keys.DEFAULT_LABEL}")
    domain, slash, _ = key.rpartition("/")
    if (slash and _RESERVED_DOMAIN.fullmatch(domain)) or key == keys.IGNORE_LABEL:
        raise ValueError(f"{key!r} has a meaning of its own; choose a label key that is yours")
    return LabelMark(key, value)


def parse_taint(text: str) -> TaintMark:
    """``dynsched.io/key=value:PreferNoSchedule`` -> TaintMark; ValueError with the reason."""
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    if not is_label_key(key) or not is_label_value(value):
        raise ValueError(
            f"{text!r} is not a taint; write it like dynsched.io/pressure=true:{SOFT_EFFECT}"
        )
    if effect != SOFT_EFFECT:
        raise ValueError(f"effect {effect!r} is not soft; only {SOFT_EFFECT} is allowed")
    if not key.startswith(keys.ANNOTATION_PREFIX):
        raise ValueError(
            f"taint key {key!r} must start with {keys.ANNOTATION_PREFIX}, "
            "so that a taint of another owner is never taken for ours"
        )
    return TaintMark(key, value, effect)
