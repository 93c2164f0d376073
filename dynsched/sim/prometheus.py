"""A real Prometheus beside the simulation, that scrapes it every second."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Final

import aiohttp

from dynsched.sim.processes import Child, Workspace, free_port

START_SECONDS: Final = 30.0
"""Seconds after which a Prometheus that is not ready counts as broken."""
_ATTEMPTS: Final = 3
"""How often another free port is tried: another process may take the port before Prometheus."""
_POLL: Final = 0.1

_CONFIG: Final = """\
global:
  scrape_interval: {interval}
  scrape_timeout: {interval}
  evaluation_interval: 1h
scrape_configs:
  - job_name: nodes
    honor_labels: true  # one page holds all nodes; each series names its own instance
    static_configs:
      - targets: ["{target}"]
  - job_name: dynsched
    scrape_interval: 5s
    file_sd_configs:
      - files: ["{dynsched}"]
"""


class PrometheusFailedError(Exception):
    """Prometheus did not come up; the message ends with what it printed."""


def find_prometheus() -> str | None:
    """The path of the ``prometheus`` binary, if there is one on PATH."""
    return shutil.which("prometheus")


async def start_prometheus(
    workspace: Workspace, binary: str, target: str, *, interval: str = "1s"
) -> str:
    """Start ``binary`` to scrape ``target`` (``host:port``), wait until it is ready; its URL.
    `scrape_dynsched` adds dynsched itself.

    It ends with the workspace. PrometheusFailedError when it ends before it is ready.
    """
    config = workspace.folder / "prometheus.yml"
    text = _CONFIG.format(target=target, interval=interval, dynsched=_target_file(workspace))
    config.write_text(text, encoding="utf-8")
    for attempt in range(1, _ATTEMPTS + 1):
        port = free_port()
        child = await workspace.start(
            "prometheus",
            binary,
            f"--config.file={config}",
            f"--storage.tsdb.path={workspace.folder / 'prometheus-data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        )
        url = f"http://127.0.0.1:{port}"
        if await _ready(url, child):
            return url
        taken = "address already in use" in child.tail()
        if not taken or attempt == _ATTEMPTS:
            raise PrometheusFailedError(f"{binary} did not come up:\n{child.tail()}")
    raise AssertionError  # the last attempt returns or raises


def scrape_dynsched(workspace: Workspace, address: str) -> None:
    """Let the workspace's Prometheus scrape dynsched's own metrics at ``host:port`` from now on,
    with the labels that a PodMonitor gives. The port is not known when Prometheus starts.
    """
    target = {"targets": [address], "labels": {"namespace": "demo", "pod": "dynsched"}}
    path = _target_file(workspace)
    # Prometheus may read while this is written: it sees the whole file, or none.
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps([target]), encoding="utf-8")
    unfinished.rename(path)


def _target_file(workspace: Workspace) -> Path:
    return workspace.folder / "dynsched-targets.json"


async def _ready(url: str, child: Child) -> bool:
    """Whether it became ready; False when it ended instead, or took too long."""
    ended = asyncio.ensure_future(child.ended())
    try:
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
            while not ended.done():
                if await _answers(session, f"{url}/-/ready"):
                    return not ended.done()
                await asyncio.wait([ended], timeout=_POLL)
    except TimeoutError:
        pass
    finally:
        ended.cancel()
    return False


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.ok
    except aiohttp.ClientError:
        return False
