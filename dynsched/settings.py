"""What a process is told: flags and environment as one frozen value, and the rules file.

The only reader of rules files: an error gets its line and column here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from dynsched.core.rule_errors import RuleError, RulesInvalidError
from dynsched.core.rules import RuleSet, parse_rules
from dynsched.sources.prometheus import PrometheusConfig
from dynsched.web.bodies import MEMORY, MIB
from dynsched.web.tls import TlsConfig

EXTENDER_MEMORY: Final = MEMORY // MIB


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a process is told; ``interval`` in seconds. ``lease_namespace`` None is the
    pod's, or that of the kubeconfig's context. ``extender_memory``: MiB for the questions of
    schedulers that are under way.
    """

    prometheus: PrometheusConfig
    rules: Path = Path("rules.yaml")
    kubeconfig: Path | None = None
    interval: float = 10.0
    webaddr: str = ":9000"
    dry_run: bool = False
    leader_elect: bool = True
    lease_namespace: str | None = None
    bind: bool = False
    extender_memory: int = EXTENDER_MEMORY
    tls: TlsConfig | None = None


class RulesFileError(Exception):
    """A rules file that cannot be used: every error, one ``file:line:column: ...`` each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


class RulesFile:
    """A rules file that is looked at again and again: edited in place, replaced by a rename, or
    swapped behind a ConfigMap's symlinks.

    Made with a good file only (RulesFileError otherwise). ``rule_set`` is the last good content;
    ``error`` why the present content is refused, None when it is the one at work.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _fingerprint(path)
        self.rule_set = load_rules(path)
        self.error: str | None = None

    def changed(self) -> bool:
        """Look again; whether there is a new ``rule_set``. Reads the file only when it changed, or
        while it is refused: what kept it from being read may pass without a change of the file.
        """
        seen = _fingerprint(self._path)
        if seen == self._seen and self.error is None:
            return False
        self._seen = seen
        try:
            rule_set = load_rules(self._path)
        except RulesFileError as error:
            self.error = str(error)
            return False
        recovered, self.error = self.error is not None, None
        # Also where they compare equal: that a section is there tells something, though empty.
        before, self.rule_set = self.rule_set, rule_set
        return recovered or rule_set != before


def _fingerprint(path: Path) -> tuple[int, ...] | None:
    """What changes when the content does, in whichever way it is replaced; None: not there."""
    try:
        found = path.stat()  # of what the symlinks lead to
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def load_rules(path: Path, *, remedy: str = "name the file with --rules") -> RuleSet:
    """Read a rules file (either format). RulesFileError with all that is wrong in it; ``remedy``
    is what to do where there is no such file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        if isinstance(error, PermissionError):
            remedy = "check its permissions"
        raise RulesFileError([f"{path}: {error.strerror}; {remedy}"]) from None
    except UnicodeDecodeError as error:
        raise RulesFileError([f"{path}: not UTF-8 text: {error.reason}"]) from None
    root, data, errors = _compose(path, text)
    try:
        rule_set = parse_rules(data)
    except RulesInvalidError as error:
        errors += error.errors
    else:
        if not errors:
            return rule_set
    located = sorted((*_locate(root, error.path), str(error)) for error in errors)
    raise RulesFileError(f"{path}:{line}:{column}: {text}" for line, column, text in located)


def _compose(path: Path, text: str) -> tuple[yaml.Node | None, object, tuple[RuleError, ...]]:
    """The one document of a YAML text: its nodes (which know their place), its data, and which
    keys are there twice.
    """
    try:
        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
            # Before the data: to make it, merge keys are resolved in the nodes themselves.
            duplicates = tuple(_duplicate_keys(root, (), set()))
            return root, loader.construct_document(root) if root else None, duplicates
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        what = ", ".join(part for part in (error.context, error.problem) if part)
        line = "".join(text.splitlines()[mark.line : mark.line + 1]) if mark else ""
        if re.search(r"\bop:\s*>", line):
            what += '; an op with > needs quotes in YAML: ">="'
        raise RulesFileError([f"{where}: not YAML: {what}"]) from None
    except yaml.YAMLError as error:
        raise RulesFileError([f"{path}: not YAML: {' '.join(str(error).split())}"]) from None
    except ValueError as error:  # a date such as 2026-02-30
        raise RulesFileError([f"{path}: not YAML: a value cannot be read: {error}"]) from None
    except (LookupError, AttributeError):  # what PyYAML makes of `!!bool maybe`
        raise RulesFileError([f"{path}: not YAML: a value does not fit its tag"]) from None
    except RecursionError:
        raise RulesFileError([f"{path}: nested too deeply for a rules file"]) from None


def _duplicate_keys(
    node: yaml.Node | None, path: tuple[str | int, ...], seen: set[int]
) -> Iterable[RuleError]:
    """Keys that are there twice: YAML would take the last one and drop the other silently."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _duplicate_keys(item, (*path, index), seen)
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in keys and name != "<<":
                yield RuleError((*path, name), "this key is there twice")
            keys.add(name)
            yield from _duplicate_keys(value, (*path, name), seen)


def _locate(root: yaml.Node | None, path: tuple[str | int, ...]) -> tuple[int, int]:
    """Line and column (from 1) of a path's key, or of the nearest parent that is there.

    A key's last occurrence counts, as it does for YAML.
    """
    node, mark = root, root.start_mark if root else None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            entries = [pair for pair in node.value if pair[0].value == str(part)]
            key, node = entries[-1] if entries else (None, None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            key = node = node.value[part] if part < len(node.value) else None
        else:
            break
        if key is None:
            break
        mark = key.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
