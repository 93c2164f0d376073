"""`dynsched collect`: what this node's kubelet evicts by, pushed to a Pushgateway.

One gauge, `k8_node_cgroups_mem_available`, in the form of the script that it replaces: job
`CollectK8sCgroupsMem`, label `ip`, in MiB (which that script called MB).
"""

from __future__ import annotations

import http.client
import logging
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Gauge, push_to_gateway

from dynsched.tools.collect.memory import MIB, CollectError, Memory, read_memory
from dynsched.util.connection_errors import Cause, find_failure, no_answer
from dynsched.util.durations import format_duration
from dynsched.util.logs import LoggedKinds
from dynsched.util.proxies import opener, proxy_for, through

logger = logging.getLogger(__name__)

METRIC: Final = "k8_node_cgroups_mem_available"
DEFAULT_JOB: Final = "CollectK8sCgroupsMem"
DEFAULT_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
DEFAULT_MEMINFO: Final = Path("/proc/meminfo")
TIMEOUT: Final = 5.0
"""Seconds that a push may take."""


@dataclass(frozen=True, slots=True)
class Collect:
    """The options of `dynsched collect`. ``interval`` in seconds; ``ip`` None: the address from
    which this machine reaches the Pushgateway; ``node`` None: the label `node` is omitted.
    """

    pushgateway: str
    ip: str | None = None
    node: str | None = None
    job: str = DEFAULT_JOB
    interval: float = 30.0
    cgroup_root: Path = DEFAULT_CGROUP_ROOT
    meminfo: Path = DEFAULT_MEMINFO


def collect_once(order: Collect) -> tuple[Memory, str]:
    """Read and push; what was read, and the label ``ip``. Raises CollectError."""
    memory = read_memory(order.cgroup_root, order.meminfo)
    return memory, push(order, memory)


def collect_until_stopped(order: Collect) -> None:
    """Read and push every ``interval``, until SIGTERM or SIGINT. What fails is logged, once for
    as long as it fails in the same way, and tried again.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    told, is_first = LoggedKinds(), True
    due = time.monotonic()
    while not stop.is_set():
        try:
            memory, _ = collect_once(order)
        except CollectError as error:
            if told.is_new("collect", str(error)):
                logger.error("%s", error)  # noqa: TRY400 (it is expected, and one line tells all)
        else:
            if told.forget("collect") or is_first:
                is_first = False
                every = format_duration(round(order.interval))
                what = f"{memory.available / MIB:.0f} MiB available"
                logger.info("%s; pushing to %s every %s", what, order.pushgateway, every)
        due = max(due + order.interval, time.monotonic())
        stop.wait(due - time.monotonic())
    logger.info("stopped")


def push(order: Collect, memory: Memory) -> str:
    """Replace this node's group on the Pushgateway, and no other's; the label ``ip``. Raises
    CollectError.
    """
    where, by = f"cannot push to {order.pushgateway}", ""
    try:
        by = through(proxy_for(order.pushgateway))
        ip = order.ip or _own_address(order.pushgateway)
        registry = CollectorRegistry()
        labels = {"ip": ip} | ({"node": order.node} if order.node else {})
        gauge = Gauge(
            METRIC, "memory.available as the kubelet computes it, in MiB", labels, registry=registry
        )
        gauge.labels(**labels).set(memory.available / MIB)
        push_to_gateway(
            order.pushgateway,
            job=order.job,
            registry=registry,
            grouping_key={"instance": order.node or ip},
            timeout=TIMEOUT,
            handler=_send,
        )
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CollectError(f"{where}: {_why(error)}{by}") from error
    return ip


def _send(
    url: str, method: str, timeout: float | None, headers: Sequence[tuple[str, str]], data: bytes
) -> Callable[[], None]:
    """What `push_to_gateway` sends by: its own handler would take proxies by Python's rules."""
    request = urllib.request.Request(url, data, dict(headers), method=method)  # noqa: S310 (http or https: the command's flag is checked)

    def send() -> None:
        opener().open(request, timeout=timeout).close()

    return send


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"it answered {error.code} {error.reason}; is this a Pushgateway?"
    found = find_failure(error)
    if found is None:
        return str(error) or type(error).__name__
    return no_answer(TIMEOUT) if found.cause is Cause.TIMEOUT else str(found)


def _own_address(url: str) -> str:
    """The address of this machine on its way to ``url``; nothing is sent. OSError, ValueError."""
    parts = urlsplit(url)
    if parts.hostname is None:
        raise ValueError("it is not a URL")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM)
    family, kind, _, _, address = found[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
