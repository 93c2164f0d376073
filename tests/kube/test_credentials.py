"""Tokens, client certificates and CAs that are replaced while the process runs."""

import asyncio
import base64
import json
import shutil
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from api_support import ExecPlugin, kubeconfig
from certificates import Authority, Pair
from cluster import SimCluster

from dynsched.kube.client import KubeClient
from dynsched.kube.credentials import CredentialProvider, load_credentials
from dynsched.kube.failures import SetupError
from dynsched.kube.kubeconfig import load_config
from dynsched.util.errors import KubeConfigError

pytestmark = pytest.mark.slow

EMPTY = {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}


class ApiServer:
    """Identifies clients by the names in their certificates, and accepts those in ``accepted``."""

    def __init__(self, folder: Path) -> None:
        self.ca = Authority(folder, "ca")
        self.accepted = {"first"}
        self.kept_open = True
        self.context: ssl.SSLContext = self.ca.server(self._own(self.ca), clients=self.ca.cert)
        self.runner = web.ServerRunner(web.Server(self._answer))

    def _own(self, ca: Authority) -> Pair:
        return ca.issue("server", "IP:127.0.0.1")

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.runner.addresses[0][1]}"

    def rotate(self, ca: Authority) -> None:
        """Serve a certificate of another authority, to new connections."""
        pair = self._own(ca)
        self.context.load_cert_chain(pair.cert, pair.key)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert")
        good = peer["subject"][0][0][1] in self.accepted
        answer = web.json_response(EMPTY if good else {}, status=200 if good else 401)
        if not self.kept_open:
            answer.force_close()
        return answer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    found = ApiServer(tmp_path)
    await found.runner.setup()
    await web.TCPSite(found.runner, "127.0.0.1", 0, ssl_context=found.context).start()
    yield found
    await found.runner.cleanup()


def user_by_files(pair: Pair, folder: Path) -> dict[str, Any]:
    shutil.copy(pair.cert, folder / "tls.crt")
    shutil.copy(pair.key, folder / "tls.key")
    return {"client-certificate": str(folder / "tls.crt"), "client-key": str(folder / "tls.key")}


def user_by_data(pair: Pair, _: Path) -> dict[str, Any]:
    return {
        "client-certificate-data": base64.b64encode(Path(pair.cert).read_bytes()).decode(),
        "client-key-data": base64.b64encode(Path(pair.key).read_bytes()).decode(),
    }


def user_by_plugin(pair: Pair, folder: Path) -> dict[str, Any]:
    version = "client.authentication.k8s.io/v1"
    status = {
        "clientCertificateData": Path(pair.cert).read_text(),
        "clientKeyData": Path(pair.key).read_text(),
    }
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    (folder / "credential").write_text(json.dumps(credential))
    program = f"print(open({str(folder / 'credential')!r}).read())"
    plugin = {"apiVersion": version, "command": sys.executable, "args": ["-c", program]}
    return {"exec": {**plugin, "interactiveMode": "Never"}}


def write_kubeconfig(path: Path, server: ApiServer, user: dict[str, Any]) -> None:
    ca = {"certificate-authority": str(path.parent / "ca.pem")}
    kubeconfig(path, server.url, user=user, **ca)


@pytest.fixture
def file(server: ApiServer, tmp_path: Path) -> Path:
    """A kubeconfig with the first certificate, in files."""
    shutil.copy(server.ca.cert, tmp_path / "ca.pem")
    write_kubeconfig(tmp_path / "k", server, user_by_files(server.ca.issue("first"), tmp_path))
    return tmp_path / "k"


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[Path, int], Any]]:
    """Connects clients that share their credentials, without a minimum time between reloads."""
    async with AsyncExitStack() as opened:

        async def make(file: Path, count: int = 1) -> list[KubeClient]:
            credentials = CredentialProvider(await load_config(file), min_gap=0.0)
            clients = [KubeClient(credentials) for _ in range(count)]
            for client in clients:
                opened.push_async_callback(client.close)
            return clients

        yield make


@pytest.mark.parametrize("user_by", [user_by_files, user_by_data, user_by_plugin])
async def test_all_clients_use_a_renewed_certificate_once_the_old_one_is_rejected(
    server, tmp_path, file, connect, user_by
) -> None:
    write_kubeconfig(file, server, user_by(server.ca.issue("first"), tmp_path))
    clients = await connect(file, 2)
    assert [await client.list_nodes() for client in clients] == [{}, {}]
    server.accepted = {"second"}  # the old certificate expires while the connections are open
    with pytest.raises(SetupError, match="401"):
        await clients[0].list_nodes()
    write_kubeconfig(file, server, user_by(server.ca.issue("second"), tmp_path))
    assert [await client.list_nodes() for client in clients] == [{}, {}]


async def test_certificates_given_as_data_leave_no_files(
    server, tmp_path, file, connect, monkeypatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    write_kubeconfig(file, server, user_by_data(server.ca.issue("first"), tmp_path))
    [client] = await connect(file)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert await client.list_nodes() == {}
    await client.config.reload()


async def test_a_renewed_certificate_is_not_used_before_its_key_is_there(
    server, tmp_path, file, connect
) -> None:
    [client] = await connect(file)
    renewed = server.ca.issue("second")
    shutil.copy(renewed.cert, tmp_path / "tls.crt")
    server.accepted = {"second"}
    with pytest.raises(SetupError, match="401"):
        await client.list_nodes()
    shutil.copy(renewed.key, tmp_path / "tls.key")
    assert await client.list_nodes() == {}


async def test_a_rotated_ca_is_used(server, tmp_path, file, connect) -> None:
    server.kept_open = False
    [client] = await connect(file)
    assert await client.list_nodes() == {}
    second = Authority(tmp_path, "second-ca")
    server.rotate(second)
    with pytest.raises(SetupError, match="certificate is not trusted"):
        await client.list_nodes()
    shutil.copy(second.cert, tmp_path / "ca.pem")
    assert await client.list_nodes() == {}


async def test_a_file_without_a_certificate_is_a_one_line_error(tmp_path, file) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(KubeConfigError) as refused:
        await load_credentials(file)
    assert str(tmp_path / "ca.pem") in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_rejected_token_is_read_again(tmp_path, connect) -> None:
    async with SimCluster(tmp_path, token="first-secret") as sim:
        [client] = await connect(sim.kubeconfig)
        assert await client.list_nodes() == {}
        sim.server.token = "second-secret"
        with pytest.raises(SetupError, match=r"401.*not accepted") as refused:
            await client.list_nodes()
        assert "secret" not in str(refused.value)
        sim.server.kubeconfig(sim.kubeconfig)
        assert await client.list_nodes() == {}


async def test_an_exec_plugin_runs_once_for_all_clients(tmp_path, connect) -> None:
    """At the start, after its expiry, and after a 401; also if a call ends before the plugin."""
    async with SimCluster(tmp_path, token="first-secret") as sim:
        plugin = ExecPlugin(tmp_path, sim, lasts=2.0)
        clients = await connect(plugin.kubeconfig, 5)

        async def list_by_all() -> None:
            calls = (client.list_nodes() for client in clients * 4)
            assert await asyncio.gather(*calls) == [{}] * 20

        await list_by_all()
        assert len(plugin.runs) == 1
        await asyncio.sleep(2.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.0):
                await clients[0].list_nodes()
        await list_by_all()
        assert len(plugin.runs) == 2
        sim.server.token = plugin.token = "second-secret"
        await list_by_all()
        assert len(plugin.runs) == 3
