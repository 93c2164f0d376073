"""Label and field selectors, as the query string spells them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dynsched.sim.apiserver.status import bad_request

if TYPE_CHECKING:
    from dynsched.sim.apiserver.resources import Resource
    from dynsched.sim.apiserver.store import Entry

_Test = Callable[[Mapping[str, str]], bool]

_TOKEN: Final = re.compile(r"\s*(==|!=|[=!,()<>]|[^\s=!,()<>]+)")


@dataclass(frozen=True, slots=True)
class Selector:
    """What a list or a watch is narrowed to. An empty one lets everything through."""

    labels: tuple[_Test, ...] = ()
    fields: tuple[_Test, ...] = ()
    namespace: str = ""

    @property
    def selective(self) -> bool:
        """Whether a label or field selector was given (a namespace alone is none)."""
        return bool(self.labels or self.fields)

    @property
    def everything(self) -> bool:
        """Whether nothing can be left out."""
        return not (self.selective or self.namespace)

    def __call__(self, entry: Entry) -> bool:
        """Whether the stored object is selected."""
        if self.namespace and entry.namespace != self.namespace:
            return False
        return all(test(entry.labels) for test in self.labels) and all(
            test(entry.fields) for test in self.fields
        )


def parse(resource: Resource, query: Mapping[str, str], namespace: str = "") -> Selector:
    """The selector of a request; ApiError 400 with the real server's words when it is none."""
    return Selector(
        labels=tuple(parse_labels(query.get("labelSelector", ""))),
        fields=tuple(parse_fields(resource, query.get("fieldSelector", ""))),
        namespace=namespace,
    )


def parse_labels(text: str) -> list[_Test]:
    """Equality- and set-based requirements: ``a=b,c!=d,e in (f,g),!h,i``."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s+", "", text):
        raise bad_request(f"unable to parse requirement: found '{text}'")
    tests, position = [], 0
    while position < len(tokens):
        test, position = _requirement(tokens, position)
        tests.append(test)
        if position < len(tokens):
            if tokens[position] != "," or position + 1 == len(tokens):
                raise _unexpected(tokens, position, "',' or 'end of string'")
            position += 1
    return tests


def _unexpected(tokens: list[str], position: int, expected: str) -> Exception:
    found = tokens[position] if position < len(tokens) else ""
    return bad_request(f"unable to parse requirement: found '{found}', expected: {expected}")


def _requirement(tokens: list[str], at: int) -> tuple[_Test, int]:
    negated = tokens[at] == "!"
    at += negated
    if at >= len(tokens) or not _is_word(tokens[at]):
        raise _unexpected(tokens, at, "identifier")
    key, at = tokens[at], at + 1
    operator = tokens[at] if at < len(tokens) else ","
    if negated:
        return (lambda labels: key not in labels), at
    if operator in {"=", "==", "!="}:
        value = ""
        at += 1
        if at < len(tokens) and _is_word(tokens[at]):
            value, at = tokens[at], at + 1
        return _one_of(key, {value}, negate=operator == "!="), at
    if operator in {"in", "notin"}:
        values, at = _values(tokens, at + 1)
        return _one_of(key, values, negate=operator == "notin"), at
    if operator in {"<", ">"}:
        if at + 1 >= len(tokens):
            raise _unexpected(tokens, at + 1, "identifier")
        return _compared(key, operator, tokens[at + 1]), at + 2
    if operator != ",":
        raise _unexpected(tokens, at, "in, notin, =, ==, !=, gt, lt")
    return (lambda labels: key in labels), at


def _is_word(token: str) -> bool:
    return token not in {"=", "==", "!=", "!", ",", "(", ")", "<", ">"}


def _values(tokens: list[str], at: int) -> tuple[set[str], int]:
    if at >= len(tokens) or tokens[at] != "(":
        raise _unexpected(tokens, at, "'('")
    at += 1
    values: set[str] = set()
    expecting = True  # a value; an empty one is allowed: ``in (a,)``
    while at < len(tokens):
        word, at = tokens[at], at + 1
        if word == ")":
            return values | ({""} if expecting else set()), at
        if word == ",":
            values |= {""} if expecting else set()
            expecting = True
        elif _is_word(word) and expecting:
            values.add(word)
            expecting = False
        else:
            break
    raise _unexpected(tokens, at, "',', ')' or identifier")


def _one_of(key: str, values: set[str], *, negate: bool) -> _Test:
    if negate:  # a label that is not there is not equal to anything
        return lambda labels: labels.get(key) not in values
    return lambda labels: labels.get(key) in values


def _compared(key: str, operator: str, bound: str) -> _Test:
    try:
        limit = int(bound)
    except ValueError:
        raise bad_request(
            f"values[0][{key}]: Invalid value: \"{bound}\": for 'Gt', 'Lt' operators, the value"
            " must be an integer"
        ) from None

    def test(labels: Mapping[str, str]) -> bool:
        try:
            value = int(labels.get(key, ""))
        except ValueError:
            return False
        return value > limit if operator == ">" else value < limit

    return test


def parse_fields(resource: Resource, text: str) -> list[_Test]:
    """``name=value`` and ``name!=value`` on the fields that the resource offers."""
    tests = []
    for term in filter(None, text.split(",")):
        found = re.fullmatch(r"\s*([^=!]+?)\s*(!=|==?)\s*(.*?)\s*", term)
        if found is None:
            raise bad_request(f"invalid field selector: '{text}'; can't understand '{term}'")
        name, operator, value = found.groups()
        if name not in resource.fields:
            raise bad_request(f"field label not supported: {name}")
        tests.append(_field_test(name, value, negate=operator == "!="))
    return tests


def _field_test(name: str, value: str, *, negate: bool) -> _Test:
    if negate:
        return lambda fields: fields.get(name, "") != value
    return lambda fields: fields.get(name, "") == value
