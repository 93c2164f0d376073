"""`dynsched collect`: reads a node's memory.available from the kernel's files, and pushes it.

The value is computed as in the kubelet, which evicts pods based on it: MemTotal minus the working
set, which is the root cgroup's usage without inactive file pages. In cgroup v1, the usage is a
file. In v2, it is the sum of the root's `anon` and `file` pages, which is what v1 counted.
"""

from __future__ import annotations

import http.client
import logging
import re
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, push_to_gateway

from dynsched.util.connection_errors import Cause, find_failure, no_answer
from dynsched.util.durations import format_duration
from dynsched.util.errors import ExpectedError
from dynsched.util.proxies import opener, proxy_for, through

logger = logging.getLogger(__name__)

METRIC: Final = "k8_node_cgroups_mem_available"
_JOB: Final = "CollectK8sCgroupsMem"
DEFAULT_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
TIMEOUT: Final = 5.0
MIB: Final = 1024 * 1024
_KUBERNETES: Final = ("kubepods*", "kubelet*")
"""Child cgroups that show that a root is a node's. The root of a node that runs in a container is
not the machine's."""


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """The options of `dynsched collect`."""

    pushgateway: str
    ip: str
    node: str | None = None
    interval: float = 30.0
    cgroup_root: Path = DEFAULT_CGROUP_ROOT
    meminfo: Path = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Memory:
    """In bytes."""

    capacity: int
    working_set: int

    @property
    def available(self) -> int:
        return max(0, self.capacity - self.working_set)


def read_memory(cgroup_root: Path, meminfo: Path) -> Memory:
    """The node's memory, from cgroup v2 or v1, whichever is mounted. Raises ExpectedError."""
    v1 = cgroup_root / "memory"
    capacity = _number(meminfo, r"MemTotal:\s+(\d+) kB", "MemTotal") * 1024
    if (cgroup_root / "cgroup.controllers").exists():
        return Memory(capacity, _working_set_v2(cgroup_root))
    if (v1 / "memory.usage_in_bytes").exists():
        _require_node(v1, is_machine=(v1 / "cgroup.sane_behavior").exists())
        usage = _number(v1 / "memory.usage_in_bytes", r"(\d+)", "number")
        return Memory(capacity, max(0, usage - _pages(v1, "total_inactive_file")))
    raise ExpectedError(
        f"{cgroup_root}: neither cgroup v2 nor the memory controller of v1; is it mounted? "
        "Set another path with --cgroup-root"
    )


def _working_set_v2(root: Path) -> int:
    current = root / "memory.current"
    if current.exists():  # the machine's root cgroup has no such file
        _require_node(root, is_machine=False)
        usage = _number(current, r"(\d+)", "number")
    else:
        usage = _pages(root, "anon") + _pages(root, "file")
    return max(0, usage - _pages(root, "inactive_file"))


def _require_node(root: Path, *, is_machine: bool) -> None:
    """Raise ExpectedError for the cgroup of a container: its memory is that of this process alone,
    and must not be pushed as the node's.
    """
    if not is_machine and not any(next(root.glob(name), None) for name in _KUBERNETES):
        raise ExpectedError(
            f"{root} is the cgroup of a container, not of the node; mount the host's "
            "/sys/fs/cgroup, and set the mount path with --cgroup-root"
        )


def _pages(root: Path, name: str) -> int:
    return _number(root / "memory.stat", rf"{name} (\d+)", name)


def _number(path: Path, line: str, name: str) -> int:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ExpectedError(f"{path}: {error.strerror}") from error
    found = re.search(rf"^{line}$", text, re.MULTILINE | re.ASCII)
    if found is None:
        raise ExpectedError(f"{path}: it has no {name}")
    return int(found[1])


def collect_once(options: CollectOptions) -> Memory:
    """Read and push. Raises ExpectedError."""
    memory = read_memory(options.cgroup_root, options.meminfo)
    push(options, memory)
    return memory


def collect_until_stopped(options: CollectOptions) -> None:
    """Read and push until SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    every = format_duration(round(options.interval))
    logger.info("pushing to %s every %s", options.pushgateway, every)
    while not stop.is_set():
        try:
            collect_once(options)
        except ExpectedError as error:
            logger.error("%s", error)  # noqa: TRY400 (an expected error needs no traceback)
        stop.wait(options.interval)
    logger.info("stopped")


def push(options: CollectOptions, memory: Memory) -> None:
    """Replace this node's group on the Pushgateway. Raises ExpectedError."""
    where, by = f"cannot push to {options.pushgateway}", ""
    try:
        by = through(proxy_for(options.pushgateway))
        registry = CollectorRegistry()
        labels = {"ip": options.ip} | ({"node": options.node} if options.node else {})
        gauge = Gauge(
            METRIC, "memory.available as the kubelet computes it, in MiB", labels, registry=registry
        )
        gauge.labels(**labels).set(memory.available / MIB)
        push_to_gateway(
            options.pushgateway,
            job=_JOB,
            registry=registry,
            grouping_key={"instance": options.node or options.ip},
            timeout=TIMEOUT,
            handler=_send,
        )
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ExpectedError(f"{where}: {_why(error)}{by}") from error


def _send(
    url: str, method: str, timeout: float | None, headers: Sequence[tuple[str, str]], data: bytes
) -> Callable[[], None]:
    """A handler for `push_to_gateway`. The default one would choose proxies by Python's rules."""
    request = urllib.request.Request(url, data, dict(headers), method=method)  # noqa: S310 (http or https: the command's flag is checked)

    def send() -> None:
        opener(proxy_for(url)).open(request, timeout=timeout).close()

    return send


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"it answered {error.code} {error.reason}; is this a Pushgateway?"
    found = find_failure(error)
    if found is None:
        return str(error) or type(error).__name__
    return no_answer(TIMEOUT) if found.cause is Cause.TIMEOUT else str(found)
