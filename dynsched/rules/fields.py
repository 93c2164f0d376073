"""The types of values in rules.yaml: how each is parsed, and its limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer

from dynsched.rules.rule_errors import problem, shown
from dynsched.util.durations import format_duration, parse_duration

T = TypeVar("T")

MAX_RULES: Final = 100
"""Each rule is a query at every tick and an alert on every node. The record on a node names all the
rules that fire there, and the API server accepts no more than 256 KiB of annotations."""
MAX_NODES: Final = 1_000_000


def read_by(parse: Callable[[str], T]) -> BeforeValidator:
    """A validator that parses text with ``parse``, whose ValueError becomes the message.

    Non-string values pass through. Mappings are rejected, because pydantic would build the
    dataclass without parsing it.
    """

    def validate(value: object) -> object:
        if isinstance(value, Mapping):
            raise problem(f"{shown(value)} is not text; put it into quotes")
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except ValueError as error:
            raise problem(str(error)) from None

    return BeforeValidator(validate)


def _duration(value: object) -> object:
    if value == 0 and not isinstance(value, bool):
        return 0.0
    if isinstance(value, (int, float)):
        raise problem(f"{shown(value)} has no unit; write it like 30s, 2m or 1h30m")
    if not isinstance(value, str):
        raise problem(f"{shown(value)} is not a duration; write it like 30s, 2m or 1h30m")
    return value


@dataclass(frozen=True, slots=True)
class IntOrPercent:
    """A number of nodes, or a share of them (``amount`` is then 0..1)."""

    amount: float
    is_share: bool = False

    def __str__(self) -> str:
        return f"{self.amount * 100:g}%" if self.is_share else f"{self.amount:.0f}"


def _limit(value: object) -> object:
    if isinstance(value, IntOrPercent):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NODES:
        return IntOrPercent(value)
    share = re.fullmatch(r"(\d+(?:\.\d+)?)%", value, re.ASCII) if isinstance(value, str) else None
    if share and float(share[1]) <= 100:  # noqa: PLR2004 (per cent)
        return IntOrPercent(float(share[1]) / 100, is_share=True)
    raise problem(f"{shown(value)} is neither a share (0% to 100%) nor a number of nodes")


AsText: Final = PlainSerializer(str)
"""Serialises a value as it is written in a file."""
Duration = Annotated[
    float, read_by(parse_duration), BeforeValidator(_duration), PlainSerializer(format_duration)
]
PositiveDuration = Annotated[Duration, Field(gt=0)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Weight = Annotated[Number, Field(ge=0, le=1000)]
Expr = Annotated[str, Field(strict=True, pattern=r"\S")]
Key = Annotated[str, Field(strict=True, pattern=r"\S")]
Name = Annotated[str, Field(strict=True, pattern=r"^\S(.{0,98}\S)?$")]
NodeLimit = Annotated[IntOrPercent, BeforeValidator(_limit), AsText]

SourceName = Literal["prometheus", "metrics-server"]
NEEDS: Final[Mapping[SourceName, Literal["expr", "resource"]]] = {
    "prometheus": "expr",
    "metrics-server": "resource",
}
"""Per source, the field of a rule that the source is queried with."""
