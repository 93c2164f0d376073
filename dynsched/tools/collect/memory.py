"""A node's `memory.available` as its kubelet computes it, from the text of the kernel's files.

    memory.available = capacity - working set
    working set      = usage - inactive file pages

Capacity is MemTotal. Usage is that of the root cgroup: a file in cgroup v1. In v2 the root has no
such file, and usage is the sum of its `anon` and `file` pages, which is what v1 counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Memory:
    """In bytes."""

    capacity: int
    working_set: int

    @property
    def available(self) -> int:
        """What is left until the node is full; never below 0."""
        return max(0, self.capacity - self.working_set)


def parse_capacity(meminfo: str) -> int:
    """MemTotal of /proc/meminfo, in bytes. ValueError."""
    found = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo, re.MULTILINE | re.ASCII)
    if found is None:
        raise ValueError("it has no MemTotal")
    return int(found[1]) * 1024


def parse_usage(text: str) -> int:
    """The number in memory.current or memory.usage_in_bytes. ValueError."""
    if not re.fullmatch(r"\d+\s*", text, re.ASCII):
        raise ValueError("it is not a number")
    return int(text)


def working_set_v1(usage: int, stat: str) -> int:
    """Of memory.usage_in_bytes and memory.stat (cgroup v1). ValueError."""
    return max(0, usage - _field(stat, "total_inactive_file"))


def working_set_v2(usage: int | None, stat: str) -> int:
    """Of memory.current, None at the root, and memory.stat (cgroup v2). ValueError."""
    if usage is None:
        usage = _field(stat, "anon") + _field(stat, "file")
    return max(0, usage - _field(stat, "inactive_file"))


def _field(stat: str, name: str) -> int:
    found = re.search(rf"^{name} (\d+)$", stat, re.MULTILINE | re.ASCII)
    if found is None:
        raise ValueError(f"it has no {name}")
    return int(found[1])
