"""Keys of rules.yaml that older versions knew.

A file that has one is read without it and with a warning: an upgrade must not stop on a key that
used to be right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dynsched.rules.rule_errors import RuleError

_REMOVED: Final[Mapping[tuple[str, ...], str]] = {
    ("experiment",): "the recorded figures by day (docs/operate.md#figures-that-are-kept)",
    ("scale_down",): "nothing; a pod keeps its deletion cost until it ends",
    ("guard", "bind_burst"): "nothing, because pods count from their binding on (`order`)",
    ("rules", "early"): "`by: expected` with a threshold of 65 to 70, or the order",
}
"""What to do instead, by the path of the key without indices of lists."""


def without_removed(data: Any) -> tuple[Any, tuple[RuleError, ...]]:
    """The content of a rules file without removed keys, and one remark for each of those."""
    remarks: list[RuleError] = []
    return _kept(data, (), remarks), tuple(remarks)


def _kept(data: Any, path: tuple[str | int, ...], remarks: list[RuleError]) -> Any:
    if isinstance(data, list):
        return [_kept(item, (*path, index), remarks) for index, item in enumerate(data)]
    if not isinstance(data, Mapping):
        return data
    kept = {}
    for key, value in data.items():
        here = (*path, str(key))
        instead = _REMOVED.get(tuple(part for part in here if isinstance(part, str)))
        if instead is None:
            kept[key] = _kept(value, here, remarks)
        else:
            remarks.append(RuleError(here, f"was removed in 0.3.0; instead: {instead}"))
    return kept
