"""The rules file: rules that stay, or that are read again and again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynsched.rules.reading import NOT_READ, Reading, Remark, at_expr, read_rules
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
    warnings: tuple[str, ...] = ()

    @property
    def in_force(self) -> RuleSet:
        """As in `RulesFile`."""
        return self.rule_set


class RulesFile:
    """A rules file that is read again and again. ``rule_set`` is the last content that was
    accepted, and ``text`` its text; ``error`` says why the present one is refused, ``warnings``
    what is odd in it, with its place.

    A first content that is refused raises RulesFileError, unless it ``may_be_refused``: then no
    rules are in force, and ``rule_set`` is None.
    """

    def __init__(self, path: Path, *, may_be_refused: bool = False) -> None:
        self._path = path
        self._last: tuple[bytes, Reading] = b"", NOT_READ
        self._refused: str | None = None
        """Why what was read last is refused, if it is for a query."""
        self.text: str | None = None
        self.error: str | None = None
        self.warnings: tuple[str, ...] = ()
        self.rule_set: RuleSet | None = None
        try:
            self._read()
        except RulesFileError as error:
            if not may_be_refused:
                raise
            self.error = str(error)
        else:
            self.accept()

    @property
    def in_force(self) -> RuleSet:
        """``rule_set``, for what runs only once there is one."""
        assert self.rule_set is not None  # noqa: S101 (see above)
        return self.rule_set

    def read(self) -> RuleSet | None:
        """Read it again. Valid rules that are not in force yet: `accept` or `refuse` them; None
        where there are none, or where these were refused before.
        """
        try:
            rule_set = self._read()
        except RulesFileError as error:
            self.error = str(error)
            return None
        if self._refused is not None:
            self.error = self._refused
            return None
        if self.error is None and rule_set == self.rule_set:
            # They may still differ: it matters whether an empty section is present.
            self.accept()
            return None
        return rule_set

    def accept(self) -> None:
        """Put in force what was read last."""
        raw, reading = self._last
        self.error, self._refused, self.rule_set = None, None, reading.rule_set
        self.text = raw.decode()  # last: who finds it in another thread finds its rules too

    def refuse(self, errors: Mapping[str, str]) -> None:
        """Refuse what was read last: by the name of a rule, what is wrong with its query."""
        reading = self._last[1]
        names = [] if reading.rule_set is None else [rule.name for rule in reading.rule_set.rules]
        remarks = (
            at_expr(reading.document, at, errors[name])
            for at, name in enumerate(names)
            if name in errors
        )
        self.error = self._refused = "\n".join(placed(self._path, remark) for remark in remarks)

    def _read(self) -> RuleSet:
        try:
            raw = read_file(self._path, MAX_BYTES)
        except OSError as error:
            raise unreadable(self._path, error, "name the file with --rules") from None
        if self._last[0] != raw or self._last[1] is NOT_READ:
            self._last, self._refused = (raw, read_rules(raw)), None
        reading = self._last[1]
        rule_set = _used(self._path, reading)
        self.warnings = _warnings(self._path, reading)
        return rule_set


def _used(path: Path, reading: Reading) -> RuleSet:
    if reading.rule_set is None:
        raise RulesFileError(placed(path, remark) for remark in reading.errors)
    return reading.rule_set


def _warnings(path: Path, reading: Reading) -> tuple[str, ...]:
    return tuple(placed(path, remark) for remark in reading.warnings)


def placed(name: str | Path, remark: Remark) -> str:
    """One line: ``rules.yaml:14:5: ...``, or without a place ``rules.yaml: ...``."""
    return f"{name}:{'' if remark.line is not None else ' '}{remark}"
