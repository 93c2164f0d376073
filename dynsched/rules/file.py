"""The rules file: rules that stay, or that are read again and again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynsched.rules.reading import Reading, Remark, read_rules
from dynsched.rules.rule_set import RuleSet
from dynsched.util.errors import ExpectedError
from dynsched.util.files import read_file, read_stream

MAX_BYTES: Final = 256 * 1024
"""The size of a rules file. A hundred rules with long expressions take a tenth of it."""


class RulesFileError(ExpectedError):
    """A rules file that cannot be used: every error, one ``file:line:column: ...`` each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def load_rules(path: Path, flag: str = "--rules") -> RuleSet:
    """From a file or a pipe, which ``flag`` names. RulesFileError with all that is wrong in it."""
    return fixed_rules(path, flag).rule_set


def fixed_rules(path: Path, flag: str = "--rules") -> FixedRules:
    """As `load_rules`, with the warnings."""
    try:
        reading = read_rules(read_stream(path, MAX_BYTES))
    except OSError as error:
        raise unreadable(path, error, f"name the file with {flag}") from None
    return FixedRules(_used(path, reading), warnings=_warnings(path, reading))


def unreadable(name: str | Path, error: OSError, remedy: str) -> RulesFileError:
    """The error for a file that the system does not let us read."""
    if isinstance(error, PermissionError):
        remedy = "check its permissions"
    return RulesFileError([f"{name}: {error.strerror or error}; {remedy}"])


@dataclass(frozen=True)
class FixedRules:
    """Rules that do not change, for one pass."""

    rule_set: RuleSet
    error: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def in_force(self) -> RuleSet:
        """As in `RulesFile`."""
        return self.rule_set

    def changed(self) -> bool:
        """Never."""
        return False


class RulesFile:
    """A rules file that is read again and again. ``rule_set`` is the last valid content, and
    ``text`` its text; ``error`` says why the present one is refused, ``warnings`` what is odd in
    it, with its place.

    A first content that is refused raises RulesFileError, unless it ``may_be_refused``: then no
    rules are in force, and ``rule_set`` is None.
    """

    def __init__(self, path: Path, *, may_be_refused: bool = False) -> None:
        self._path = path
        self._last: tuple[bytes, Reading] | None = None
        self.text: str | None = None
        self.error: str | None = None
        self.warnings: tuple[str, ...] = ()
        self.rule_set: RuleSet | None = None
        try:
            self.rule_set, self.text = self._read()
        except RulesFileError as error:
            if not may_be_refused:
                raise
            self.error = str(error)

    @property
    def in_force(self) -> RuleSet:
        """``rule_set``, for what runs only once there is one."""
        assert self.rule_set is not None  # noqa: S101 (see above)
        return self.rule_set

    def changed(self) -> bool:
        """Read it again: is there a new ``rule_set``?"""
        try:
            rule_set, text = self._read()
        except RulesFileError as error:
            self.error = str(error)
            return False
        recovered, self.error = self.error is not None, None
        # The new one also where they compare equal: it matters whether an empty section is present.
        before, self.rule_set = self.rule_set, rule_set
        self.text = text  # last: who finds it in another thread finds its rules too
        return recovered or rule_set != before

    def _read(self) -> tuple[RuleSet, str]:
        try:
            raw = read_file(self._path, MAX_BYTES)
        except OSError as error:
            raise unreadable(self._path, error, "name the file with --rules") from None
        if self._last is None or self._last[0] != raw:
            self._last = raw, read_rules(raw)
        reading = self._last[1]
        rule_set = _used(self._path, reading)
        self.warnings = _warnings(self._path, reading)
        return rule_set, raw.decode()


def _used(path: Path, reading: Reading) -> RuleSet:
    if reading.rule_set is None:
        raise RulesFileError(placed(path, remark) for remark in reading.errors)
    return reading.rule_set


def _warnings(path: Path, reading: Reading) -> tuple[str, ...]:
    return tuple(placed(path, remark) for remark in reading.warnings)


def placed(name: str | Path, remark: Remark) -> str:
    """One line: ``rules.yaml:14:5: ...``, or without a place ``rules.yaml: ...``."""
    return f"{name}:{'' if remark.line is not None else ' '}{remark}"
