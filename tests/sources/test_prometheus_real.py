"""The Prometheus source against the real program: what the other tests take for granted of it."""

import ssl
import time
import urllib.request
from base64 import b64encode
from pathlib import Path

import programs
import pytest
from certificates import Authority
from prometheus_support import RealPrometheus
from source_support import ask, error_of

from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus import PrometheusSource

pytestmark = pytest.mark.slow


async def test_instant_vectors(source: PrometheusSource) -> None:
    result = await source.query(Rule(name="load", expr="load_percent", threshold=80))
    assert (result.error, result.warnings) == (None, ())
    assert [sample.value for sample in result.samples] == [91.5, 91.5]
    by_node = {sample.labels.get("node"): sample.labels for sample in result.samples}
    assert by_node["worker-1"]["zone"] == "ä"
    assert by_node[None]["instance"] == "10.0.0.1:9100"
    assert all(sample.timestamp <= time.time() for sample in result.samples)
    rate = await source.query_expr("100 * sum by (node) (rate(busy_seconds_total[2m]))")
    [sample] = rate.samples
    assert (sample.labels, sample.value) == ({"node": "worker-1"}, pytest.approx(40))
    for expr, values in (
        ("odd", ["nan"]),
        ("-broken", ["-inf"]),
        ('load_percent{job="none"}', []),
        ("load_percent > 99", []),
    ):
        result = await source.query_expr(expr)
        assert (result.error, [str(s.value) for s in result.samples]) == (None, values)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("load_percent >", "HTTP 400 Bad Request"),
        ("sum by (", "1:9: parse error"),
        ("1 + 1", "of type 'scalar'"),
        ("load_percent[1m]", "of type 'matrix'"),
        (
            "load_percent / on (job) load_percent",
            "HTTP 422",
        ),
    ],
)
async def test_an_expression_that_gives_no_vector(source, expr, message) -> None:
    result = await source.query_expr(expr)
    assert result.samples == ()
    assert message in str(result.error)


async def test_tls_and_basic_authentication(tmp_path: Path) -> None:
    programs.need("openssl", "openssl")
    authority = Authority(tmp_path, "ca")
    pair = authority.issue("prometheus", "IP:127.0.0.1")
    web = tmp_path / "web.yml"
    web.write_text(
        f"tls_server_config: {{cert_file: {pair.cert}, key_file: {pair.key}}}\n"
        # "open sesame"
        "basic_auth_users: {ali: $2b$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy}\n"
    )

    class Guarded(RealPrometheus):
        def is_ready(self, address: str) -> bool:
            request = urllib.request.Request(f"https://{address}/-/ready")
            request.add_header("Authorization", "Basic " + b64encode(b"ali:open sesame").decode())
            context = ssl.create_default_context(cafile=authority.cert)
            with urllib.request.urlopen(request, timeout=2, context=context) as response:
                return bool(response.status == 200)

    with Guarded(tmp_path / "p", options=[f"--web.config.file={web}"]) as running:
        url = running.url.replace("http://", "https://")
        ours = {"ca_file": authority.cert, "username": "ali", "password": "open sesame"}
        assert [s.value for s in (await ask(url, "vector(1)", **ours)).samples] == [1.0]
        for told, error in (
            ({**ours, "password": "sesame!"}, "HTTP 401"),
            ({**ours, "ca_file": None}, "is not trusted"),
        ):
            assert error in await error_of(url, **told)
        assert "https://" in await error_of(running.url)
