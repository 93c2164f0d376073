"""The rules file: rules that stay, or that are read again and again."""

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
"""The size of a rules file. A hundred rules with long expressions take a tenth of it."""


class RulesFileError(ExpectedError):
    """A rules file that cannot be used: every error, one ``file:line:column: ...`` each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


@dataclass(frozen=True)
class FixedRules:
    """Rules that do not change, for one pass; ``warnings``: what is odd in them, with its place."""

    rule_set: RuleSet
    warnings: tuple[str, ...] = ()

    @property
    def in_force(self) -> RuleSet:
        """As in `RulesFile`."""
        return self.rule_set


def load_rules(path: Path, flag: str = "--rules") -> RuleSet:
    """From a file or a pipe, which ``flag`` names. RulesFileError with all that is wrong in it."""
    return fixed_rules(path, flag).rule_set


def fixed_rules(path: Path, flag: str = "--rules") -> FixedRules:
    """As `load_rules`, with the warnings."""
    try:
        return _usable(read_rules(str(path), read_stream(path, MAX_BYTES)))
    except OSError as error:
        raise unreadable(path, error, f"name the file with {flag}") from None


def unreadable(name: str | Path, error: OSError, remedy: str) -> RulesFileError:
    """The error for a file that the system does not let us read."""
    if isinstance(error, PermissionError):
        remedy = "check its permissions"
    return RulesFileError([f"{name}: {error.strerror or error}; {remedy}"])


class RulesFile:
    """A rules file that is read again and again. ``rule_set`` is the last content that was
    accepted; ``error`` says why the present one is refused.

    A first content that is refused raises RulesFileError, unless it ``may_be_refused``: then no
    rules are in force, and ``rule_set`` is None.
    """

    def __init__(self, path: Path, *, may_be_refused: bool = False) -> None:
        self._path = path
        self._raw: bytes | None = None
        self._parsed = ParsedRules(str(path), None)
        self._refused: str | None = None
        """Why what was read last is refused, if it is for a query."""
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
            rule_set = self._read().rule_set
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
        found = _usable(self._parsed)
        self.error, self._refused = None, None
        self.rule_set, self.warnings = found.rule_set, found.warnings

    def refuse(self, errors: Mapping[str, str]) -> None:
        """Refuse what was read last: by the name of a rule, what is wrong with its query."""
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
