"""The rules file, read once or reloaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynsched.rules.parse import ParsedRules, read_rules
from dynsched.rules.rule_set import RuleSet
from dynsched.util.errors import ExpectedError
from dynsched.util.files import read_file, read_stream

MAX_BYTES: Final = 256 * 1024
"""Maximum size of a rules file. A hundred rules with long expressions take a tenth of it."""


class RulesFileError(ExpectedError):
    """Raised for an unusable rules file. ``lines`` are its errors: ``file:line:column: ...``."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


@dataclass(frozen=True)
class FixedRules:
    """Rules that are never reloaded, and the ``warnings`` about them, with line and column."""

    rule_set: RuleSet
    warnings: tuple[str, ...] = ()

    @property
    def in_force(self) -> RuleSet:
        """As in `RulesFile`."""
        return self.rule_set


def load_rules(path: Path, flag: str = "--rules") -> RuleSet:
    """Read rules from a file or a pipe. Raises RulesFileError with all errors.

    ``flag`` is the option that names the file.
    """
    return fixed_rules(path, flag).rule_set


def fixed_rules(path: Path, flag: str = "--rules") -> FixedRules:
    """Like `load_rules`, with the warnings."""
    try:
        return _usable(read_rules(str(path), read_stream(path, MAX_BYTES)))
    except OSError as error:
        raise unreadable(path, error, f"name the file with {flag}") from None


def unreadable(name: str | Path, error: OSError, remedy: str) -> RulesFileError:
    """The error for a file that cannot be read."""
    if isinstance(error, PermissionError):
        remedy = "check its permissions"
    return RulesFileError([f"{name}: {error.strerror or error}; {remedy}"])


class RulesFile:
    """A rules file that can be reloaded. ``rule_set`` is the last content that was accepted;
    ``error`` is why the current content is refused.

    If the first content is refused, RulesFileError is raised, unless it ``may_be_refused``. In that
    case no rules are in force, and ``rule_set`` is None.
    """

    def __init__(self, path: Path, *, may_be_refused: bool = False) -> None:
        self._path = path
        self._raw: bytes | None = None
        self._parsed = ParsedRules(str(path), None)
        self._refused: str | None = None
        """Why the content that was read last is refused, if the reason is a query."""
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
        """``rule_set``, for code that runs only if there is one."""
        assert self.rule_set is not None  # noqa: S101 (see above)
        return self.rule_set

    def read(self) -> RuleSet | None:
        """Read the file again. Returns valid rules that are not in force yet, for the caller to
        `accept` or `refuse`; None if there are none, or if they were refused before.
        """
        try:
            rule_set = self._read().rule_set
        except RulesFileError as error:
            self.error = str(error)
            return None
        if self._refused is not None:
            self.error = self._refused
            return None
        if self.error is None and rule_set == self.rule_set:
            # Equal rules may still differ in whether an empty section is present, which matters.
            self.accept()
            return None
        return rule_set

    def accept(self) -> None:
        """Put the rules that were read last in force."""
        found = _usable(self._parsed)
        self.error, self._refused = None, None
        self.rule_set, self.warnings = found.rule_set, found.warnings

    def refuse(self, errors: Mapping[str, str]) -> None:
        """Refuse the rules that were read last. ``errors`` has the problem of each rule's query."""
        rules = _usable(self._parsed).rule_set.rules
        self.error = self._refused = "\n".join(
            self._parsed.of_expr(index, errors[rule.name])
            for index, rule in enumerate(rules)
            if rule.name in errors
        )

    def _read(self) -> FixedRules:
        try:
            raw = read_file(self._path, MAX_BYTES)
        except OSError as error:
            raise unreadable(self._path, error, "name the file with --rules") from None
        if raw != self._raw:
            self._raw, self._parsed, self._refused = raw, read_rules(str(self._path), raw), None
        return _usable(self._parsed)


def _usable(parsed: ParsedRules) -> FixedRules:
    if parsed.rule_set is None:
        raise RulesFileError(parsed.errors)
    return FixedRules(parsed.rule_set, parsed.warnings)
