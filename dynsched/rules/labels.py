"""Labels, taints, label selectors, and the mark that is put on a node.

A selector has the syntax of ``kubectl get -l``: requirements joined by commas, each ``k=v``,
``k==v``, ``k!=v``, ``k in (a, b)``, ``k notin (a, b)``, ``k`` or ``!k``. ``!=`` and ``notin`` also
match an object without the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from dynsched.rules import keys

SOFT_EFFECT: Final = "PreferNoSchedule"
_RESERVED_DOMAIN: Final = re.compile(r"(?:.*\.)?(?:kubernetes|k8s)\.io")
_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_KEY: Final = rf"(?:{_DNS_LABEL}(?:\.{_DNS_LABEL})*/)?{_NAME}"
_VALUE: Final = rf"(?:{_NAME})?"
_KEY_RE: Final = re.compile(_KEY, re.ASCII)
_VALUE_RE: Final = re.compile(_VALUE, re.ASCII)
_REQUIREMENT: Final = re.compile(
    rf"""\s*(?:
        !\s*(?P<absent>{_KEY})
      | (?P<set_key>{_KEY})\s+(?P<set_op>in|notin)\s*\((?P<set>[^()]*)\)
      | (?P<key>{_KEY})\s*(?P<op>==|=|!=)\s*(?P<value>{_VALUE})
      | (?P<present>{_KEY})
    )\s*(?:,(?=\s*\S)|$)""",
    re.ASCII | re.VERBOSE,
)


def is_label_key(text: str) -> bool:
    """Whether the API server accepts a label key: an optional DNS subdomain, and a name of up to 63
    characters.
    """
    prefix, slash, _ = text.rpartition("/")
    return _KEY_RE.fullmatch(text) is not None and not (slash and len(prefix) > 253)  # noqa: PLR2004 (a DNS subdomain's limit)


def is_label_value(text: str) -> bool:
    """Whether the API server accepts a label value: up to 63 characters, or none."""
    return _VALUE_RE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class _Requirement:
    text: str
    key: str
    op: str  # in, notin, !, or empty if only the key is required
    values: frozenset[str] = field(default=frozenset(), repr=False)  # its order is not stable

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet this requirement."""
        value = labels.get(self.key)
        if self.op in ("", "!"):
            return (value is None) is (self.op == "!")
        return (value in self.values) is (self.op == "in")


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed selector; an empty one matches everything."""

    requirements: tuple[_Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet all requirements."""
        return self.unmet(labels) is None

    def unmet(self, labels: Mapping[str, str]) -> str | None:
        """The first requirement that these labels do not meet, or None if they meet all."""
        for requirement in self.requirements:
            if not requirement.matches(labels):
                return requirement.text
        return None

    def __str__(self) -> str:
        return ",".join(each.text for each in self.requirements)


def parse_selector(text: str) -> Selector:
    """Parse a selector as kubectl's ``-l`` does. Raises ValueError with a message of one line."""
    text = text.strip()
    requirements: list[_Requirement] = []
    position = 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise ValueError(
                f"{text[position:].lstrip()!r} is not a label selector; "
                "write it like pool=batch, zone in (a, b), !gpu"
            )
        requirements.append(_requirement(match))
        position = match.end()
    return Selector(tuple(requirements))


def _requirement(match: re.Match[str]) -> _Requirement:
    part = {name: found for name, found in match.groupdict().items() if found is not None}
    if "absent" in part or "present" in part:
        key = part.get("absent") or part["present"]
        return _Requirement(f"!{key}", key, "!") if "absent" in part else _Requirement(key, key, "")
    key, op = part.get("key") or part["set_key"], part.get("op") or part["set_op"]
    values = [part["value"]] if "value" in part else map(str.strip, part["set"].split(","))
    found = sorted(set(values))
    for value in found:
        if not is_label_value(value):
            raise ValueError(f"{value!r} is not a label value")
    op = "notin" if op in ("!=", "notin") else "in"
    shown = f"{key} {op} ({', '.join(found)})"
    if len(found) == 1:
        shown = f"{key}{'=' if op == 'in' else '!='}{found[0]}"
    return _Requirement(shown, key, op, frozenset(found))


@dataclass(frozen=True, slots=True)
class LabelMark:
    """A label; as text ``key=value``."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


@dataclass(frozen=True, slots=True)
class TaintMark:
    """A taint; as text ``key=value:effect``."""

    key: str
    value: str
    effect: str = SOFT_EFFECT

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"

    def is_same(self, taint: Mapping[str, Any]) -> bool:
        """Whether a raw taint has the same key, effect and value; an absent value is empty."""
        return self.shares_key_and_effect(taint) and (taint.get("value") or "") == self.value

    def shares_key_and_effect(self, taint: Mapping[str, Any]) -> bool:
        """Whether a raw taint has the same key and effect. A node can have only one such taint."""
        return taint.get("key") == self.key and taint.get("effect") == self.effect


@dataclass(frozen=True)
class Mark:
    """The label and the taint of a marked node; neither of them with ``mark: none``."""

    label: LabelMark | None
    taint: TaintMark | None = None

    @cached_property
    def texts(self) -> tuple[str | None, str | None]:
        """The label and the taint as text, as in the record on a node."""
        label, taint = self.label, self.taint
        return str(label) if label else None, str(taint) if taint else None

    @cached_property
    def is_none(self) -> bool:
        """Whether the rules have ``mark: none``, so that no node is ever written."""
        return self.label is None and self.taint is None

    def __str__(self) -> str:
        parts = (("label", self.label), ("taint", self.taint))
        return " and ".join(f"{kind} {mark}" for kind, mark in parts if mark) or "no mark"


def parse_label(text: str) -> LabelMark:
    """Parse ``key=value``. Raises ValueError if it is no label, or if its key is reserved."""
    key, _, value = text.partition("=")
    if not is_label_key(key) or not is_label_value(value) or not value:
        raise ValueError(f"{text!r} is not a label; write it like {keys.DEFAULT_LABEL}")
    domain, slash, _ = key.rpartition("/")
    if (slash and _RESERVED_DOMAIN.fullmatch(domain)) or key == keys.IGNORE_LABEL:
        raise ValueError(f"{key!r} has a meaning of its own; choose a label key that is yours")
    return LabelMark(key, value)


def parse_taint(text: str) -> TaintMark:
    """Parse ``key=value:PreferNoSchedule``. Raises ValueError for other effects or foreign keys."""
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


def own_taints(taints: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The taints that dynsched put there, according to their keys."""
    return tuple(t for t in taints if str(t.get("key", "")).startswith(keys.ANNOTATION_PREFIX))
