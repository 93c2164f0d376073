"""As much of PromQL as it takes to see which operators of an expression leave series out, and over
which time it looks back.

No parser of the whole grammar: of what this one does not understand nothing is said, and Prometheus
itself says what is wrong. (Of the packages for it, promql-parser is kept; an expression of 2,000
characters takes it 167 MB, and four times that when it is twice as long. `dynsched doctor`, which
runs once and says what it did not read, uses it within bounds.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

MAX_DEPTH: Final = 100
"""Expressions inside each other, beyond which one is not looked into."""

COMPARISONS: Final = frozenset({"==", "!=", ">", "<", ">=", "<="})
BINDING: Final = {
    "or": 1,
    "and": 2,
    "unless": 2,
    **dict.fromkeys(COMPARISONS, 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%", "atan2"), 5),
    "^": 6,
}
"""The operators between two parts, and how tightly each binds."""
_MATCHING: Final = frozenset(
    {"on", "ignoring", "group_left", "group_right", "fill", "fill_left", "fill_right"}
)
_GROUPING: Final = frozenset({"by", "without"})
_SIGNS: Final = ("+", "-")

_STRING: Final = r""" "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | `[^`]*` """
_TOKEN: Final = re.compile(
    rf"""
      (?P<skip>\s+|\#[^\n]*)
    | (?P<string>{_STRING})
    | (?P<number>(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[A-Za-z0-9]*)
    | (?P<word>[A-Za-z_:][A-Za-z0-9_:]*)
    | (?P<matchers>\{{(?:{_STRING}|[^"'`{{}}])*\}})
    | (?P<range>\[(?:{_STRING}|[^"'`\[\]])*\])
    | (?P<sign>==|!=|>=|<=|[-+*/%^><(),@])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A part of an expression, which ends at ``end`` in the text.

    ``operator``: that of a binary one (which stands at ``at``; ``is_bool``: with ``bool``); the
    name of a function or an aggregation (``is_grouped``: it has ``by`` or ``without``); ``same``
    for brackets, signs (``is_negated``: a minus), ranges and offsets; else empty. ``word``: what a
    selector or a number begins with.
    """

    end: int
    operator: str = ""
    parts: tuple[Expression, ...] = ()
    is_bool: bool = False
    is_grouped: bool = False
    is_scalar: bool = False
    is_negated: bool = False
    word: str = ""
    at: int = 0
    height: int = 1


class NotUnderstoodError(ValueError):
    """No PromQL, or PromQL that is not known here."""


class _Token(NamedTuple):
    kind: str
    text: str
    end: int


def parse(text: str) -> Expression:
    parser = _Parser(text)
    found = parser.binary(1)
    if parser.token.kind != "end":
        raise NotUnderstoodError(parser.token.text)
    return found


def ranges(text: str) -> tuple[str, ...]:
    """The ranges of an expression, as they are written: ``2m``; of a subquery the whole one.
    NotUnderstoodError when it is not understood.
    """
    found = (token.text[1:-1] for token in _tokens(text) if token.kind == "range")
    return tuple(written.partition(":")[0].strip() for written in found)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotUnderstoodError(text[position : position + 20])
        position = match.end()
        if match.lastgroup != "skip":
            # Words of the grammar may be written in capitals; names of metrics are not compared.
            yield _Token(match.lastgroup or "", match[0], position)
    yield _Token("end", "", position)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = tuple(_tokens(text))
        self._place = 0
        self._depth = 0

    @property
    def token(self) -> _Token:
        return self._tokens[self._place]

    def binary(self, least: int) -> Expression:
        """Operands, joined by operators that bind at least so tightly."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotUnderstoodError("nested too deeply")
        left = self._operand()
        while (binds := BINDING.get(self._word_or_sign(), 0)) >= least:
            operator, at = self._word_or_sign(), self.token.end - len(self.token.text)
            self._place += 1
            is_bool = self._takes("bool")
            while self._word_or_sign() in _MATCHING:
                self._place += 1
                self._skip_brackets()
            right = self.binary(binds if operator == "^" else binds + 1)
            left = self._made(operator, (left, right), is_bool=is_bool, at=at)
        self._depth -= 1
        return left

    def _made(
        self,
        operator: str,
        parts: tuple[Expression, ...],
        *,
        is_bool: bool = False,
        is_grouped: bool = False,
        is_negated: bool = False,
        at: int = 0,
    ) -> Expression:
        height = 1 + max((part.height for part in parts), default=0)
        if height > MAX_DEPTH:
            raise NotUnderstoodError("nested too deeply")
        kept = operator == "same" or operator in BINDING
        is_scalar = all(part.is_scalar for part in parts) if kept else operator in _SCALARS
        end = self._tokens[self._place - 1].end
        return Expression(
            end, operator, parts, is_bool, is_grouped, is_scalar, is_negated, at=at, height=height
        )

    def _operand(self) -> Expression:
        if self._word_or_sign() in _SIGNS:
            negates = self._next().text == "-"
            return self._made("same", (self.binary(BINDING["^"]),), is_negated=negates)
        if self._takes("("):
            inner = self.binary(1)
            self._require(")")
            found = self._made("same", (inner,))
        else:
            found = self._atom()
        return self._with_modifiers(found)

    def _atom(self) -> Expression:
        token = self._next()
        if token.kind in ("number", "string", "matchers"):
            is_number = token.kind == "number"
            return Expression(token.end, is_scalar=is_number, word=token.text)
        if token.kind != "word":
            raise NotUnderstoodError(token.text or "it ends too early")
        if token.text.lower() in ("inf", "nan"):
            return Expression(token.end, is_scalar=True, word=token.text)
        is_grouped = self._takes_grouping()
        if self._takes("("):
            parts = self._arguments()
            is_grouped = self._takes_grouping() or is_grouped
            return self._made(token.text.lower(), parts, is_grouped=is_grouped)
        if is_grouped:
            raise NotUnderstoodError(f"{token.text} has nothing to aggregate")
        if self.token.kind == "matchers":
            return Expression(self._next().end, word=token.text)
        return Expression(token.end, word=token.text)

    def _arguments(self) -> tuple[Expression, ...]:
        parts: list[Expression] = []
        while not self._takes(")"):
            parts.append(self.binary(1))
            if not self._takes(","):
                self._require(")")
                break
        return tuple(parts)

    def _with_modifiers(self, found: Expression) -> Expression:
        """A range, ``offset`` and ``@`` change when something is asked, not what."""
        while True:
            if self.token.kind == "range":
                self._place += 1
            elif self._takes("offset") or self._takes("@"):
                while self._word_or_sign() in _SIGNS:
                    self._place += 1
                self._next()
                self._skip_brackets()  # @ start()
            else:
                return found
            found = self._made("same", (found,))

    def _takes_grouping(self) -> bool:
        if self._word_or_sign() not in _GROUPING:
            return False
        self._place += 1
        self._skip_brackets()
        return True

    def _skip_brackets(self) -> None:
        if self._takes("("):
            while not self._takes(")"):
                self._next()

    def _word_or_sign(self) -> str:
        return self.token.text.lower() if self.token.kind in ("word", "sign") else ""

    def _takes(self, text: str) -> bool:
        if self._word_or_sign() != text:
            return False
        self._place += 1
        return True

    def _require(self, text: str) -> None:
        if not self._takes(text):
            raise NotUnderstoodError(f"{text} is missing")

    def _next(self) -> _Token:
        token = self.token
        if token.kind == "end":
            raise NotUnderstoodError("it ends too early")
        self._place += 1
        return token


_SCALARS: Final = frozenset({"scalar", "time", "pi"})
"""Functions that give one number, without labels."""
