"""What is wrong in a rules file, in words for the person who wrote it."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from dynsched.util.formatting import one_line

MAX_ERRORS: Final = 100
"""The most errors that are reported at once. They go into a log line, an Event and `/status`, and
more of them would not help the reader."""
_LINE: Final = 60
"""Characters of the file's own text in a message: one line of a terminal holds them."""
_MESSAGE: Final = 400


@dataclass(frozen=True, slots=True)
class RuleError:
    """One thing wrong: where (``("rules", 2, "for")``), and what with what to do."""

    path: tuple[str | int, ...]
    message: str

    @property
    def where(self) -> str:
        text = ""
        for part in self.path:
            if isinstance(part, int):
                text += f"[{part}]"
            else:
                name = part if len(part) <= _LINE and part.isprintable() else shown(part)
                text += f".{name}" if text else name
        return text

    def __str__(self) -> str:
        message = one_line(self.message, _MESSAGE)
        return f"{self.where}: {message}" if self.path else message


class RulesInvalidError(Exception):
    """Rules that cannot be used; ``errors`` are all that were found, in one go, up to MAX_ERRORS.
    ``more`` is how many there are beyond those.
    """

    def __init__(self, errors: Sequence[RuleError], more: int = 0) -> None:
        self.errors = tuple(errors[:MAX_ERRORS])
        self.more = more + len(errors) - len(self.errors)
        super().__init__("; ".join(map(str, self.errors)))


def problem(message: str) -> PydanticCustomError:
    # As a placeholder's value: braces of a PromQL expression are then only text.
    return PydanticCustomError("rule", "{message}", {"message": message})


def explain(error: ValidationError, known_keys: Collection[str]) -> tuple[list[RuleError], int]:
    """The errors of a validation in our words, up to MAX_ERRORS, and how many there are beyond
    those; ``known_keys`` feed the suggestions.
    """
    found = [
        details
        for details in error.errors(include_url=False)
        # Only a consequence: the field that it depends on has an error of its own.
        if details["type"] != "default_factory_not_called"
    ]
    told = [
        RuleError(
            tuple(part for part in details["loc"] if part != "[key]"),
            _message(details, known_keys),
        )
        for details in found[:MAX_ERRORS]
    ]
    return told, len(found) - len(told)


def _message(details: ErrorDetails, known_keys: Collection[str]) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(details["loc"], known_keys)
    words = _WORDS.get(kind)
    return words(value, context) if words else details["msg"]


_OF_PROMETHEUS: Final = {
    "groups": "this is Prometheus's own format; write `rules`, each with `name`, `expr` without "
    "its comparison, and `threshold`",
    "alert": "write `name`, and the comparison of `expr` as `op` and `threshold`",
    "record": "write `name`; nothing is recorded here",
    "labels": "remove it: the mark of a node is set once, under `mark`",
    "annotations": "remove it",
}
"""Keys of Prometheus's own rules files, which are what one copies from."""


def _unknown_key(loc: Sequence[str | int], known_keys: Collection[str]) -> str:
    key = str(loc[-1])
    place = tuple(part for part in loc[:-1] if isinstance(part, str))
    if key in _OF_PROMETHEUS and place in ((), ("rules",)):
        return f"unknown key; {_OF_PROMETHEUS[key]}"
    close = difflib.get_close_matches(key, known_keys, n=1)
    return f"unknown key; did you mean {close[0]!r}?" if close else "unknown key; remove it"


_REPR: Final = reprlib.Repr()
"""Bounded: YAML's aliases can make a small file huge."""
_REPR.maxstring = _REPR.maxother = _LINE


def _not_a(what: str) -> Callable[[Any, Mapping[str, Any]], str]:
    return lambda value, _context: f"{shown(value)} is not {what}"


def shown(value: object) -> str:
    text = _REPR.repr(value)
    return text if len(text) <= _LINE else f"{text[: _LINE - 3]}..."


_PLAIN_NUMBER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")


def _not_a_number(value: object, _context: Mapping[str, Any]) -> str:
    number = value.strip().removesuffix("%").rstrip() if isinstance(value, str) else ""
    if not _PLAIN_NUMBER.fullmatch(number):
        return f"{shown(value)} is not a number"
    if number == value:
        return f"{shown(value)} is text, not a number; drop the quotes"
    return f"{shown(value)} is not a number; write {number}"


def _not_one_of(value: object, context: Mapping[str, Any]) -> str:
    # Of an unquoted > YAML makes a block of text: an empty one, or one that ends in a line break.
    if ">" in context["expected"] and isinstance(value, str) and (not value or value[-1] == "\n"):
        return '> needs quotes in YAML: ">"'
    return f"{shown(value)} is not {context['expected']}"


_WORDS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], str]]] = {
    "missing": lambda _value, _context: "is missing",
    "rule": lambda _value, context: str(context["message"]),
    "literal_error": _not_one_of,
    "float_type": _not_a_number,
    "float_parsing": _not_a_number,
    "finite_number": _not_a("a finite number"),
    "greater_than_equal": lambda value, context: f"{shown(value)} is below {context['ge']:g}",
    "less_than_equal": lambda value, context: f"{shown(value)} is above {context['le']}",
    "bool_type": _not_a("true or false"),
    "string_type": _not_a("text; put it into quotes"),
    "string_pattern_mismatch": lambda _value, _context: (
        "is empty, or too long, or begins or ends with a space"
    ),
    "tuple_type": _not_a("a list"),
    "mapping_type": _not_a("a mapping"),
    "dict_type": _not_a("a mapping"),
    "model_type": _not_a("a mapping"),
    "string_too_long": lambda _value, context: f"is longer than {context['max_length']} characters",
    "too_long": lambda _value, context: f"has more than {context['max_length']} entries",
    "too_short": lambda _value, _context: "is empty: there must be at least one rule",
    "invalid_key": lambda value, _context: f"the key {shown(value)} is not text",
    "is_instance_of": _not_a("text; put it into quotes"),
    "dataclass_type": _not_a("text; put it into quotes"),
}
