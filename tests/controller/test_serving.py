"""The servers of `dynsched run`: where clients need a certificate, where a token."""

import logging
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from certificates import Authority
from extender_support import World
from prometheus_support import free_port
from reader_support import bearer
from scenes import NOON, example
from store_support import Clock, make_store

from dynsched.controller.serving import serving
from dynsched.controller.settings import Settings
from dynsched.kube.reviews import User
from dynsched.sources.prometheus import PrometheusConfig
from dynsched.web.certificates import TlsConfig
from dynsched.web.server import ListenError

PROMETHEUS = PrometheusConfig("http://prometheus:9090")
ASKED = {"NodeNames": ["a"]}


class Everybody:
    """Accepts every token and lets every user read everything."""

    async def user_of(self, token: str) -> User | None:
        return User(token)

    async def may_get(self, _user: User, _path: str) -> bool:
        return True


def serve(reviews: Any = None, **more: Any) -> Any:
    snapshots = make_store(Clock(NOON + 125))
    snapshots.publish(example())
    settings = Settings(prometheus=PROMETHEUS, **{"webaddr": "127.0.0.1:0", **more})
    return serving(settings, snapshots, World().tick().asked, reviews)


async def status(method: str, url: str, context: ssl.SSLContext, **more: Any) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, ssl=context, **more) as answer,
    ):
        return answer.status


async def test_readers_need_a_token_and_only_the_scheduler_needs_a_certificate(tmp_path) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.issue("server", "IP:127.0.0.1")
    client = authority.issue("scheduler", "IP:127.0.0.1")
    reader = ssl.create_default_context(cafile=authority.cert)
    scheduler = ssl.create_default_context(cafile=authority.cert)
    scheduler.load_cert_chain(client.cert, client.key)
    own = f"127.0.0.1:{free_port()}"
    async with serve(
        Everybody(),
        extender_addr=own,
        tls=TlsConfig(Path(pair.cert), Path(pair.key)),
        extender_client_ca=Path(authority.cert),
    ) as server:
        assert await status("GET", f"{server.url}/nodes", reader) == 401
        assert await status("GET", f"{server.url}/nodes", reader, headers=bearer("t")) == 200
        assert await status("POST", f"https://{own}/filter", reader, json=ASKED) == 403
        assert await status("POST", f"https://{own}/filter", scheduler, json=ASKED) == 200
        assert await status("POST", f"{server.url}/filter", scheduler, json=ASKED) == 404


async def test_with_a_client_ca_for_all_readers_need_a_certificate_and_a_token(tmp_path) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.issue("server", "IP:127.0.0.1")
    tls = TlsConfig(Path(pair.cert), Path(pair.key), Path(authority.cert))
    without = ssl.create_default_context(cafile=authority.cert)
    known = ssl.create_default_context(cafile=authority.cert)
    known.load_cert_chain(pair.cert, pair.key)
    async with serve(Everybody(), tls=tls) as server:
        url = f"{server.url}/nodes"
        assert await status("GET", url, without, headers=bearer("t")) == 403
        assert await status("GET", url, known) == 401
        assert await status("GET", url, known, headers=bearer("t")) == 200
        assert await status("GET", f"{server.url}/healthz", without) == 200


async def test_tokens_over_plain_http_cause_a_warning(tmp_path, caplog) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.issue("server", "IP:127.0.0.1")
    with caplog.at_level(logging.WARNING):
        async with serve(Everybody()):
            pass  # nobody else can read loopback traffic
        async with serve(Everybody(), webaddr=":0", tls=TlsConfig(Path(pair.cert), Path(pair.key))):
            pass
        async with serve(None, webaddr=":0"):
            pass
        assert caplog.text == ""
        async with serve(Everybody(), webaddr=":0"):
            pass
    assert "--web-auth without --tls-cert" in caplog.text


async def test_the_error_for_an_address_in_use_names_its_flag() -> None:
    async with serve() as server:
        with pytest.raises(ListenError, match="; give another --extender-addr"):
            async with serve(extender_addr=f"127.0.0.1:{server.port}"):
                pass
