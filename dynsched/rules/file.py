"""The rules file: read, and read again while the process runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from dynsched.rules.document import Document, YamlError, locate, read_documents
from dynsched.rules.lint import lint
from dynsched.rules.parse import DYNAMIC_SCHEDULER_KEY, parse_rules
from dynsched.rules.rule_errors import MAX_ERRORS, RuleError, RulesInvalidError
from dynsched.rules.rule_set import RuleSet
from dynsched.util.errors import ExpectedError
from dynsched.util.files import read_file, read_stream
from dynsched.util.formatting import one_line
from dynsched.util.threads import Aside, NotDoneError

MAX_BYTES: Final = 256 * 1024
"""Of a rules file. A hundred rules with long expressions have a tenth of it."""
READ_SECONDS: Final = 2.0
"""How long reading it may take: less than there is between a SIGTERM and the end."""
_MAX_LINE_LENGTH: Final = 600


class RulesFileError(ExpectedError):
    """A rules file that cannot be used: every error, one ``file:line:column: ...`` each."""

    def __init__(self, lines: Iterable[str]) -> None:
        # A file's name may be no Unicode; what it stands in must be JSON.
        self.lines = tuple(line.encode(errors="replace").decode() for line in lines)
        super().__init__("\n".join(self.lines))


@dataclass(frozen=True, slots=True)
class Remark:
    """Of a text: line and column (from 1) where they are known, and a message."""

    line: int | None
    column: int | None
    message: str

    def __str__(self) -> str:
        message = one_line(self.message, _MAX_LINE_LENGTH)
        return message if self.line is None else f"{self.line}:{self.column}: {message}"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text came to: rules (None where there are errors), and what lint says of them."""

    rule_set: RuleSet | None
    errors: tuple[Remark, ...] = ()
    warnings: tuple[Remark, ...] = ()


def load_rules(path: Path) -> RuleSet:
    """From a file or a pipe. RulesFileError with all that is wrong in it."""
    try:
        return _used(path, read_rules(read_stream(path, MAX_BYTES)))
    except OSError as error:
        raise unreadable(path, error, "name the file with --rules") from None


def read_rules(raw: bytes) -> Reading:
    """Raises nothing, whatever the content is."""
    try:
        documents = read_documents(raw.decode())
        if len(documents) > 1:
            problem = (
                "not YAML: expected a single document in the stream, but found another document"
            )
            return _refused(problem, documents[1].start, 1)
        return _rules_of(documents[0] if documents else Document())
    except YamlError as error:
        return _refused(str(error), error.line, error.column)
    except UnicodeDecodeError as error:
        return _refused(f"not UTF-8 text: {error.reason}")
    except Exception as error:  # noqa: BLE001 (a content that we did not think of is refused)
        kind = type(error).__name__
        return _refused(f"it cannot be read because of a bug in dynsched: {kind}: {error}")


def _refused(message: str, line: int | None = None, column: int | None = None) -> Reading:
    return Reading(None, (Remark(line, column, message),))


def unreadable(name: str | Path, error: OSError, remedy: str) -> RulesFileError:
    if isinstance(error, PermissionError):
        remedy = "check its permissions"
    return RulesFileError([f"{name}: {error.strerror or error}; {remedy}"])


class FixedRules:
    """Rules that do not change, for one pass."""

    error: str | None = None

    def __init__(self, rule_set: RuleSet) -> None:
        self.rule_set = rule_set

    def changed(self) -> bool:
        return False


class RulesFile:
    """A rules file that is read again and again. Made with a good file only (RulesFileError
    otherwise). ``rule_set`` is the last valid content; ``error`` says why the present content is
    refused. Both this and ``changed`` take READ_SECONDS at most, even if the path is a pipe or a
    device.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._aside: Aside[tuple[bytes, Reading]] = Aside("rules file")
        self._last: tuple[bytes, Reading] | None = None
        self.error: str | None = None
        self.rule_set = self._read()

    def changed(self) -> bool:
        """Read it again; whether there is a new ``rule_set``."""
        try:
            rule_set = self._read()
        except RulesFileError as error:
            self.error = str(error)
            return False
        recovered, self.error = self.error is not None, None
        # The new one also where they compare equal: it matters whether an empty section is present.
        before, self.rule_set = self.rule_set, rule_set
        return recovered or rule_set != before

    def _read(self) -> RuleSet:
        try:
            self._last = self._aside.call(partial(_read, self._path, self._last), READ_SECONDS)
        except NotDoneError:
            problem = f"not read within {READ_SECONDS:g}s; does the file system hang that it is on?"
            raise RulesFileError([f"{self._path}: {problem}"]) from None
        except OSError as error:
            raise unreadable(self._path, error, "name the file with --rules") from None
        return _used(self._path, self._last[1])


def _read(path: Path, last: tuple[bytes, Reading] | None) -> tuple[bytes, Reading]:
    raw = read_file(path, MAX_BYTES)
    if last is not None and last[0] == raw:  # a hostile one takes a second to be read as YAML
        return last
    return raw, read_rules(raw)


def _used(path: Path, reading: Reading) -> RuleSet:
    if reading.rule_set is None:
        raise RulesFileError(placed(path, remark) for remark in reading.errors)
    return reading.rule_set


def placed(name: str | Path, remark: Remark) -> str:
    """One line: ``rules.yaml:14:5: ...``, or without a place ``rules.yaml: ...``."""
    return f"{name}:{'' if remark.line is not None else ' '}{remark}"


def _rules_of(document: Document) -> Reading:
    rule_set, errors, are_more = None, document.duplicates, False
    try:
        rule_set = parse_rules(document.data)
    except RulesInvalidError as found:
        errors, are_more = (*errors, *found.errors), found.are_more
    if errors or rule_set is None:
        are_more = are_more or len(errors) > MAX_ERRORS
        last = (Remark(None, None, "and more errors"),) if are_more else ()
        return Reading(None, (*_located(document, errors[:MAX_ERRORS]), *last))
    warned = (
        RuleError(each.path or path_of_expr(document.data, each.index), each.message)
        for each in lint(rule_set)
    )
    return Reading(rule_set, warnings=_located(document, warned))


def path_of_expr(data: object, index: int) -> tuple[str | int, ...]:
    """Where the expression of the rule at ``index`` stands in a document, in either format."""
    if isinstance(data, Mapping) and DYNAMIC_SCHEDULER_KEY in data:
        return (DYNAMIC_SCHEDULER_KEY, list(data[DYNAMIC_SCHEDULER_KEY])[index], "Promsql")
    return ("rules", index, "expr")


def _located(document: Document, found: Iterable[RuleError]) -> tuple[Remark, ...]:
    remarks = sorted((*locate(document.root, error.path), str(error)) for error in found)
    return tuple(Remark(line, column, text) for line, column, text in remarks)
