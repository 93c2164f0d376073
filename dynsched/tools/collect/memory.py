"""A node's `memory.available` as its kubelet computes it, from the text of the kernel's files.

    memory.available = capacity - working set
    working set      = usage - inactive file pages

Capacity is MemTotal. Usage is that of the root cgroup: a file in cgroup v1. In v2 the root has no
such file, and usage is the sum of its `anon` and `file` pages, which is what v1 counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIB: Final = 1024 * 1024
_KUBERNETES: Final = ("kubepods*", "kubelet*")
"""Cgroups below a root that is a node's, though not the machine's: a node in a container."""


class CollectError(Exception):
    """The memory could not be read, or not be pushed; one line for a person."""


@dataclass(frozen=True, slots=True)
class Memory:
    """In bytes."""

    capacity: int
    working_set: int

    @property
    def available(self) -> int:
        """What is left until the node is full; never below 0."""
        return max(0, self.capacity - self.working_set)


def read_memory(cgroup_root: Path, meminfo: Path) -> Memory:
    """The node's memory, by cgroup v2 or v1, whichever is there. Raises CollectError."""
    v1 = cgroup_root / "memory"
    capacity = _number(meminfo, r"MemTotal:\s+(\d+) kB", "MemTotal") * 1024
    if (cgroup_root / "cgroup.controllers").exists():
        return Memory(capacity, _working_set_v2(cgroup_root))
    if (v1 / "memory.usage_in_bytes").exists():
        _require_node(v1, is_machine=(v1 / "cgroup.sane_behavior").exists())
        usage = _number(v1 / "memory.usage_in_bytes", r"(\d+)", "number")
        return Memory(capacity, max(0, usage - _pages(v1, "total_inactive_file")))
    raise CollectError(
        f"{cgroup_root}: neither cgroup v2 nor the memory controller of v1; is it mounted? "
        "--cgroup-root names another place"
    )


def _working_set_v2(root: Path) -> int:
    current = root / "memory.current"
    if current.exists():  # not at the machine's root
        _require_node(root, is_machine=False)
        usage = _number(current, r"(\d+)", "number")
    else:
        usage = _pages(root, "anon") + _pages(root, "file")
    return max(0, usage - _pages(root, "inactive_file"))


def _require_node(root: Path, *, is_machine: bool) -> None:
    """CollectError for the cgroup of a container: it holds the memory of this process alone, which
    must not be pushed as that of the node.
    """
    if not is_machine and not any(next(root.glob(name), None) for name in _KUBERNETES):
        raise CollectError(
            f"{root} is the cgroup of a container, not of the node; mount the host's "
            "/sys/fs/cgroup, and name the place with --cgroup-root"
        )


def _pages(root: Path, name: str) -> int:
    return _number(root / "memory.stat", rf"{name} (\d+)", name)


def _number(path: Path, line: str, name: str) -> int:
    """What a file of the kernel has in the one line of this form."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise CollectError(f"{path}: {error.strerror}") from error
    found = re.search(rf"^{line}$", text, re.MULTILINE | re.ASCII)
    if found is None:
        raise CollectError(f"{path}: it has no {name}")
    return int(found[1])
