"""Client certificates and CAs that are replaced while the process runs."""

import base64
import json
import shutil
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from api_support import api_of, kubeconfig, takes_up
from certificates import Authority, Pair

from dynsched.kube.client import KubeClient
from dynsched.kube.failures import SetupError
from dynsched.kube.kubeconfig import KubeConfigError, load_config

pytestmark = pytest.mark.slow

EMPTY = {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}


class ApiServer:
    """Knows clients by the names in their certificates, and ``accepted`` of them."""

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
async def client(server: ApiServer, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """With the first certificate, in files."""
    shutil.copy(server.ca.cert, tmp_path / "ca.pem")
    write_kubeconfig(tmp_path / "k", server, user_by_files(server.ca.issue("first"), tmp_path))
    async with api_of(tmp_path / "k", KubeClient) as found:
        yield found


@pytest.mark.parametrize("user_by", [user_by_files, user_by_data, user_by_plugin])
async def test_a_renewed_client_certificate_is_taken_up_when_the_former_one_is_refused(
    server, tmp_path, client, user_by
) -> None:
    write_kubeconfig(tmp_path / "k", server, user_by(server.ca.issue("first"), tmp_path))
    assert await client.list_nodes() == {}
    server.accepted = {"second"}  # the connection is open, and the former certificate expired
    with pytest.raises(SetupError, match="401"):
        await client.list_nodes()
    write_kubeconfig(tmp_path / "k", server, user_by(server.ca.issue("second"), tmp_path))
    await takes_up(client)


async def test_a_certificate_without_its_key_yet_is_not_taken_up(server, tmp_path, client) -> None:
    renewed = server.ca.issue("second")
    shutil.copy(renewed.cert, tmp_path / "tls.crt")
    server.accepted = {"second"}
    with pytest.raises(SetupError, match="401"):
        await client.list_nodes()
    shutil.copy(renewed.key, tmp_path / "tls.key")
    await takes_up(client)


async def test_a_file_that_is_no_certificate_is_one_line(server, tmp_path, client) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    config = await load_config(str(tmp_path / "k"))
    with pytest.raises(KubeConfigError) as refused:
        KubeClient(config)
    assert str(tmp_path / "ca.pem") in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_ca_that_was_rotated_is_taken_up(server, tmp_path, client) -> None:
    server.kept_open = False
    assert await client.list_nodes() == {}
    second = Authority(tmp_path, "second-ca")
    server.rotate(second)
    with pytest.raises(SetupError, match="certificate is not trusted"):
        await client.list_nodes()
    shutil.copy(second.cert, tmp_path / "ca.pem")
    await takes_up(client)
