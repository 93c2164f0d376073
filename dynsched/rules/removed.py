"""Keys of rules.yaml that older versions accepted.

They are ignored with a warning, so that an upgrade does not fail on a key that used to be valid.
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
"""What to use instead, keyed by the path of the key without list indices."""


def without_removed(data: Any) -> tuple[Any, tuple[RuleError, ...]]:
    """The content of a rules file without removed keys, and one warning for each of them."""
    warnings: list[RuleError] = []
    return _kept(data, (), warnings), tuple(warnings)


def _kept(data: Any, path: tuple[str | int, ...], warnings: list[RuleError]) -> Any:
    if isinstance(data, list):
        return [_kept(item, (*path, index), warnings) for index, item in enumerate(data)]
    if not isinstance(data, Mapping):
        return data
    kept = {}
    for key, value in data.items():
        here = (*path, str(key))
        instead = _REMOVED.get(tuple(part for part in here if isinstance(part, str)))
        if instead is None:
            kept[key] = _kept(value, here, warnings)
        else:
            warnings.append(RuleError(here, f"was removed in 0.3.0; instead: {instead}"))
    return kept
