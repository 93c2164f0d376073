"""The Prometheus source against the real program: what the other tests take for granted of it."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import urllib.request
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import programs
import pytest
import pytest_asyncio
from certificates import Authority
from prometheus_support import Exporter, Process, RealPrometheus

from dynsched.core.model import QueryResult
from dynsched.core.rules import Rule
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def exporter() -> Iterator[Exporter]:
    with Exporter("load_percent 91.5\nodd NaN\nbroken +Inf\n") as running:
        yield running


@pytest.fixture(scope="session")
def prometheus(exporter: Exporter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    started = time.monotonic()

    def busy_seconds() -> str:
        # 40 % busy: what a counter of CPU seconds looks like on a node
        return f"busy_seconds_total {0.4 * (time.monotonic() - started)}\n"

    class Counting(Exporter):
        text = property(lambda _: exporter.text + busy_seconds(), lambda *_: None)

    with Counting() as counting:
        targets = [
            {"targets": [counting.target], "labels": {"node": "worker-1", "zone": "ä"}},
            {"targets": [exporter.target]},
        ]
        scrape = [{"job_name": "nodes", "static_configs": targets}]
        folder = tmp_path_factory.mktemp("prometheus")
        with RealPrometheus(folder, scrape, prefix="/prom") as running:
            running.wait_for("count_over_time(busy_seconds_total[3s]) >= 3")
            running.wait_for("load_percent", 2)
            yield running


@pytest_asyncio.fixture
async def source(prometheus: Process) -> AsyncIterator[PrometheusSource]:
    running = PrometheusSource(PrometheusConfig(prometheus.url + "/", timeout=10))
    yield running
    await running.close()


async def test_an_instant_vector(source: PrometheusSource, exporter: Exporter) -> None:
    result = await source.query(Rule(name="load", expr="load_percent", threshold=80))
    assert result.error is None
    assert result.warnings == ()
    assert [sample.value for sample in result.samples] == [91.5, 91.5]
    [named] = [sample for sample in result.samples if "node" in sample.labels]
    assert named.labels["node"] == "worker-1"
    assert named.labels["zone"] == "ä"
    assert {sample.labels["instance"] for sample in result.samples} >= {exporter.target}
    assert all(-2 < sample.timestamp - time.time() <= 0 for sample in result.samples)


async def test_a_rate_of_a_scraped_counter(source: PrometheusSource) -> None:
    result = await source.query_expr("100 * sum by (node) (rate(busy_seconds_total[3s]))")
    [sample] = result.samples
    assert sample.labels == {"node": "worker-1"}
    assert sample.value == pytest.approx(40, rel=0.2)


async def test_what_is_not_a_number_comes_as_it_is(source: PrometheusSource) -> None:
    results = await asyncio.gather(*(source.query_expr(expr) for expr in ("odd", "-broken")))
    assert [str(result.samples[0].value) for result in results] == ["nan", "-inf"]


async def test_no_series_is_a_good_answer(source: PrometheusSource) -> None:
    assert await answer(source, 'load_percent{job="none"}') == ((), None)
    assert await answer(source, "load_percent > 99") == ((), None)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("load_percent >", "HTTP 400 Bad Request: bad_data: invalid parameter"),
        ("load_percent >", "parse error: unexpected end of input"),
        ("sum by (", "1:9: parse error"),
        ("", "HTTP 400 Bad Request: bad_data: "),
        ("nosuchfunction(up)", 'unknown function with name "nosuchfunction"'),
        ("1 + 1", "the expression gives a scalar, which belongs to no node"),
        ('"text"', "the expression gives a string"),
        ("load_percent[1m]", "the expression gives a range of samples for each series"),
        (
            "load_percent / on (job) load_percent",
            "HTTP 422 Unprocessable Entity: execution: found duplicate series for the match group",
        ),
    ],
)
async def test_an_expression_that_gives_no_vector(
    source: PrometheusSource, expr: str, message: str
) -> None:
    samples, error = await answer(source, expr)
    assert samples == ()
    assert message in str(error)


async def test_the_wrong_path_prefix(prometheus: Process) -> None:
    source = PrometheusSource(PrometheusConfig(prometheus.url + "/prom"))
    assert "HTTP 404 Not Found: 404 page not found; nothing" in str((await answer(source, "up"))[1])
    await source.close()


async def test_a_range(source: PrometheusSource) -> None:
    now = time.time()
    spans = await source.query_range("load_percent or vector(7)", now - 600, now, 60)
    assert spans.error is None
    [constant] = [span for span in spans.series if span.labels == {}]
    assert [value for _, value in constant.points] == [7.0] * 11
    assert constant.points[0][0] == pytest.approx(now - 600, abs=0.002)
    assert constant.points[-1][0] == pytest.approx(now, abs=0.002)
    loads = [span.points for span in spans.series if span.labels.get("__name__") == "load_percent"]
    assert [points[-1][1] for points in loads] == [91.5, 91.5]
    assert "exceeded maximum resolution of 11,000 points" in str(
        (await source.query_range("up", 0, now, 1)).error
    )


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
        secret = {"username": "ali", "password": "open sesame"}
        right = PrometheusConfig(url, ca_file=authority.cert, **secret)
        assert [s.value for s in (await once(right, "vector(1)")).samples] == [1.0]
        wrong = PrometheusConfig(url, ca_file=authority.cert, username="ali", password="sesame!")
        assert "HTTP 401 Unauthorized: Unauthorized; it refuses" in str(
            (await once(wrong, "vector(1)")).error
        )
        unknown = PrometheusConfig(url, **secret)
        assert "TLS: its certificate is not trusted" in str((await once(unknown, "up")).error)
        plain = PrometheusConfig(running.url)
        assert re.search(
            "Client sent an HTTP request to an HTTPS server|or wants https://",
            str((await once(plain, "up")).error),
        )


async def test_a_query_that_outlasts_its_timeout(prometheus: Process) -> None:
    # The last of this Prometheus's tests: it goes on computing for seconds, and misses scrapes.
    heavy = "count_over_time((rate(busy_seconds_total[1m]))[50000m:10ms])"
    source = PrometheusSource(PrometheusConfig(prometheus.url, timeout=0.5))
    result = await source.query_expr(heavy)
    assert result.duration < 1.2
    # Prometheus's own words, if they come in time; else it is our deadline that speaks.
    told = str(result.error)
    assert "query timed out in" in told or "no answer within 0.5 s" in told
    await source.close()


async def answer(source: PrometheusSource, expr: str) -> tuple[tuple[object, ...], str | None]:
    result = await source.query_expr(expr)
    return result.samples, result.error


async def once(config: PrometheusConfig, expr: str) -> QueryResult:
    source = PrometheusSource(config)
    try:
        return await source.query_expr(expr)
    finally:
        await source.close()
