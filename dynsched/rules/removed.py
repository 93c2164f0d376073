"""Keys of rules.yaml that older versions knew.

A file that has one is read without it and with a warning: an upgrade must not stop on a key that
used to be right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dynsched.rules.rule_errors import RuleError

_IN_0_3: Final = "was removed in 0.3.0; instead: "
_REMOVED: Final[Mapping[tuple[str, ...], str]] = {
    ("experiment",): "the recorded figures by day (docs/operate.md#figures-that-are-kept)",
    ("scale_down",): "nothing; pods keep the deletion costs that they have",
    ("guard", "bind_burst"): "nothing, because pods count from their binding on (`order`)",
    ("rules", "early"): "`by: expected` with a threshold of 65 to 70, or the order",
}
"""What to do instead, by the path of the key without indices of lists."""


def without_removed(data: Mapping[Any, Any]) -> tuple[dict[Any, Any], tuple[RuleError, ...]]:
    """The content of a rules file without removed keys, and one remark for each of those."""
    remarks: list[RuleError] = []
    return _kept(data, (), (), remarks), tuple(remarks)


def _kept(
    data: Mapping[Any, Any],
    names: tuple[str, ...],
    path: tuple[str | int, ...],
    remarks: list[RuleError],
) -> dict[Any, Any]:
    kept: dict[Any, Any] = {}
    for key, value in data.items():
        here, there = (*names, str(key)), (*path, str(key))
        if here in _REMOVED:
            remarks.append(RuleError(there, f"{_IN_0_3}{_REMOVED[here]}"))
        elif isinstance(value, Mapping):
            kept[key] = _kept(value, here, there, remarks)
        elif isinstance(value, list):
            kept[key] = [
                _kept(item, here, (*there, index), remarks) if isinstance(item, Mapping) else item
                for index, item in enumerate(value)
            ]
        else:
            kept[key] = value
    return kept
