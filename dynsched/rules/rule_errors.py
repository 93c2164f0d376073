"""Errors in a rules file, worded for the person who wrote it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from dynsched.util.formatting import one_line

_MAX_QUOTE: Final = 60
"""Maximum number of characters that a message quotes from the file."""
_MAX_MESSAGE: Final = 400


@dataclass(frozen=True, slots=True)
class RuleError:
    """One error: its path, as ``("rules", 2, "for")``, and what is wrong and what to do."""

    path: tuple[str | int, ...]
    message: str

    @property
    def where(self) -> str:
        """The path as text: ``rules[2].for``."""
        text = ""
        for part in self.path:
            if isinstance(part, int):
                text += f"[{part}]"
            else:
                text += f".{part}" if text else part
        return text

    def __str__(self) -> str:
        message = one_line(self.message, _MAX_MESSAGE)
        return f"{self.where}: {message}" if self.path else message


MAX_ERRORS: Final = 100
"""Maximum number of errors reported at once: they go into a log line, an Event and `/status`."""


class RulesInvalidError(Exception):
    """Raised for rules that cannot be used. ``errors`` are the first MAX_ERRORS."""

    def __init__(self, errors: Iterable[RuleError]) -> None:
        self.errors = tuple(islice(errors, MAX_ERRORS))
        super().__init__("; ".join(map(str, self.errors)))


def problem(message: str) -> PydanticCustomError:
    """The error for a validator to raise, with a ``message`` for people."""
    # The message is a placeholder's value, so that braces of a PromQL expression are only text.
    return PydanticCustomError("rule", "{message}", {"message": message})


Keys = Mapping[str, Collection[str]]
"""The known keys of each mapping in a rules file, keyed by its path without names of profiles."""


def explain(error: ValidationError, known_keys: Keys) -> Iterator[RuleError]:
    """The errors of a validation in our words, with suggestions from ``known_keys``."""
    for details in error.errors(include_url=False):
        # Skip a mere consequence: the field that this one depends on has an error already.
        if details["type"] != "default_factory_not_called":
            path = tuple(part for part in details["loc"] if part != "[key]")
            yield RuleError(path, _message(details, known_keys))


def _message(details: ErrorDetails, known_keys: Keys) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(details["loc"], known_keys)
    # An unquoted > starts a YAML block scalar, which is empty or ends in a line break.
    is_block = isinstance(value, str) and (not value or value[-1] == "\n")
    if kind == "literal_error" and ">" in context["expected"] and is_block:
        return '> needs quotes in YAML: ">"'
    words = _WORDS.get(kind)
    if words is None:
        return str(details["msg"])
    quoted = words is _NO_NUMBER and isinstance(value, str) and value[:1].isdigit()
    hint = "; write it in digits, without quotes and unit" if quoted else ""
    return words.format(value=shown(value), **context) + hint


_PROMETHEUS_KEYS: Final = {
    "groups": "this is Prometheus's own format; write `rules`, each with `name`, `expr` without "
    "its comparison, and `threshold`",
    "alert": "write `name`, and the comparison of `expr` as `op` and `threshold`",
    "record": "write `name`; nothing is recorded here",
    "labels": "remove it: the mark of a node is set once, under `mark`",
    "annotations": "remove it",
    "query": "write `expr`",
}
"""Keys of Prometheus's own rules files and pages, from which users copy."""


def _unknown_key(loc: Sequence[str | int], known_keys: Keys) -> str:
    key = str(loc[-1])
    place = tuple(part for part in loc[:-1] if isinstance(part, str))
    if key in _PROMETHEUS_KEYS and place in ((), ("rules",)):
        return f"unknown key; {_PROMETHEUS_KEYS[key]}"
    home = next((path for path, keys in known_keys.items() if path and key in keys), None)
    if home is not None:
        return f"unknown key here; its place is under `{home}`"
    close = difflib.get_close_matches(key, known_keys[".".join(place[:2])], n=1)
    return f"unknown key; did you mean {close[0]!r}?" if close else "unknown key; remove it"


def shown(value: object) -> str:
    """A value from a file, as text of limited length."""
    text = repr(value)
    return text if len(text) <= _MAX_QUOTE else f"{text[: _MAX_QUOTE - 3]}..."


_NO_NUMBER: Final = "{value} is not a number"
_NO_TEXT: Final = "{value} is not text; put it into quotes"
_NO_MAPPING: Final = "{value} is not a mapping"
_WORDS: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "rule": "{message}",
    "literal_error": "{value} is not {expected}",
    "float_type": _NO_NUMBER,
    "float_parsing": _NO_NUMBER,
    "finite_number": "{value} is not a finite number",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "{value} is below {ge:g}",
    "less_than_equal": "{value} is above {le}",
    "bool_type": "{value} is not true or false",
    "string_type": _NO_TEXT,
    "string_pattern_mismatch": "is empty, or too long, or begins or ends with a space",
    "tuple_type": "{value} is not a list",
    "mapping_type": _NO_MAPPING,
    "dict_type": _NO_MAPPING,
    "model_type": _NO_MAPPING,
    "too_long": "has more than {max_length} entries",
    "too_short": "is empty: there must be at least one rule",
    "invalid_key": "the key {value} is not text",
    "is_instance_of": _NO_TEXT,
    "dataclass_type": _NO_TEXT,
}
