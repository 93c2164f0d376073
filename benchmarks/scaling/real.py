"""A real etcd and kube-apiserver with the nodes of the bench.

The programs come from ``KUBEBUILDER_ASSETS``. Nodes are created as a client would, with 32
concurrent calls: some hundred per second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from scaling.cluster import likeness, node_names

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))

from envtest import Envtest, assets

AT_A_TIME: Final = 32


@contextlib.asynccontextmanager
async def real_cluster(count: int, kubeconfig: Path) -> AsyncIterator[Envtest]:
    """Run servers with ``count`` nodes. SystemExit if the programs are missing."""
    found = assets()
    if found is None:
        raise SystemExit("set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver")
    with tempfile.TemporaryDirectory() as folder:
        servers = Envtest(found, Path(folder), audited=("patch",))
        try:
            servers.start()
            await fill(servers, count)
            servers.kubeconfig(kubeconfig)
            yield servers
        finally:
            servers.stop()


async def fill(servers: Envtest, count: int) -> None:
    """Create the nodes."""
    like = likeness()
    bodies = (msgspec.json.encode(like(name, n)) for n, name in enumerate(node_names(count)))
    headers = {"Authorization": f"Bearer {servers.token}", "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=AT_A_TIME, ssl=servers.ssl())
    async with aiohttp.ClientSession(servers.url, connector=connector, headers=headers) as session:
        await asyncio.gather(*(_create(session, bodies) for _ in range(AT_A_TIME)))


async def _create(session: aiohttp.ClientSession, bodies: Iterator[bytes]) -> None:
    for body in bodies:
        async with session.post("/api/v1/nodes", data=body) as answer:
            if answer.status != 201:
                raise RuntimeError(await answer.text())


def writes(servers: Envtest) -> list[float]:
    """The time of each patch of a node, in Unix seconds, from the server's audit log."""
    with contextlib.suppress(FileNotFoundError), servers.audit_log.open("rb") as log:
        calls = [json.loads(line) for line in log if line.endswith(b"\n")]
        return [
            datetime.fromisoformat(call["requestReceivedTimestamp"]).timestamp()
            for call in calls
            if call["objectRef"]["resource"] == "nodes"
        ]
    return []
