"""Answers of the API server without an end are not read to their end."""

import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from api_support import api_of, kubeconfig
from misbehaving_server import MisbehavingServer, Reply, Seen
from watch_support import hasten, watching

from dynsched.engine.load.recent import RecentPods
from dynsched.engine.model import Action, NodePatch
from dynsched.kube.client import KubeClient
from dynsched.kube.leader import Leases
from dynsched.kube.pod_watch import PodWatch
from dynsched.kube.transport import MAX_OF_A_LIST, MAX_OF_AN_OBJECT, KubeApi
from dynsched.util.errors import ClusterError
from dynsched_sim.examples import make_node

CHUNK = b"10000\r\n" + b" " * 2**16 + b"\r\n"
BUFFERED = 16 * 2**20
"""What the sockets and the client's buffers hold at the most."""
PATCH = NodePatch("a", Action.MARK, {"metadata": {"resourceVersion": "7"}}, "it is hot")


def endless(sent: list[int], status: str = "200 OK", most: int = 2**30) -> Reply:
    """A Reply that goes on until the client closes; ``sent`` gets the number of bytes."""

    def reply(_: Seen, connection: socket.socket) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        count = 0
        try:
            while count < most:
                connection.sendall(CHUNK)
                count += len(CHUNK)
        finally:
            sent.append(count)

    return reply


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    with MisbehavingServer() as running:
        yield running


@pytest.fixture
async def client(server: MisbehavingServer, tmp_path: Path) -> AsyncIterator[KubeClient]:
    async with api_of(kubeconfig(tmp_path / "kubeconfig", server.url), KubeClient) as found:
        yield found


@pytest.mark.parametrize(
    ("ask", "most"),
    [
        (lambda client: client.patch(PATCH), MAX_OF_AN_OBJECT),
        (lambda client: client.read("a"), MAX_OF_AN_OBJECT),
        (lambda client: Leases(client, "dynsched").read(), MAX_OF_AN_OBJECT),
        (lambda client: client.listing(), MAX_OF_A_LIST),
    ],
    ids=["patch", "read", "lease", "list"],
)
async def test_an_answer_without_an_end_is_one_clear_error_and_is_asked_for_once(
    server, client, ask, most
) -> None:
    sent: list[int] = []
    server.default = endless(sent)
    with pytest.raises(ClusterError, match=rf"too large \(more than {most // 2**20} MiB\)"):
        await ask(client)
    assert len(server.seen) == 1
    await client.close()
    server.__exit__()
    assert sum(sent) < most + BUFFERED


async def test_an_error_without_an_end_is_told_by_its_status(server, client) -> None:
    server.default = endless([], "409 Conflict")
    with pytest.raises(ClusterError, match="changed since it was read"):
        await client.patch(PATCH)


async def test_a_line_of_a_watch_without_an_end(server, client) -> None:
    server.default = endless([])
    api = KubeApi(client.config)
    with pytest.raises(ClusterError, match="too large"):
        await PodWatch(api, RecentPods()).follow("1")
    await api.close()


@pytest.mark.parametrize(("verb", "most"), [("list", MAX_OF_A_LIST), ("watch", MAX_OF_AN_OBJECT)])
async def test_the_watch_of_nodes_is_begun_again_after_an_answer_that_is_too_large(
    sim, monkeypatch, caplog, verb, most
) -> None:
    hasten(monkeypatch)
    await sim.create_node(make_node("a", 0))
    async with watching(sim.kubeconfig) as running:
        await running.follows(sim)
        fault = sim.server.faults.answer(
            200, body=" " * (most + 2**20), verb=verb, resource="nodes", times=1
        )
        if verb == "list":
            running.watch.begin_anew()
        else:
            sim.server.drop_watches("end")
        # By the log: on a busy machine the trouble may be over before anybody asks for it.
        await running.until(lambda: "too large" in caplog.text)
        assert fault.hits == 1
        await sim.create_node(make_node("b", 1))
        await running.until(lambda: running.names() == {"a", "b"})
