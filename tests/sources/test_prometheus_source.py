"""The Prometheus source against a server that misbehaves in every way that was thought of."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from misbehaving_server import GOOD, MisbehavingServer, Reply, Seen, chunked, http, sends, vector

from dynsched.core.answers import AnswerLimit, answer_limit
from dynsched.core.errors import PastUnknownError
from dynsched.core.rules import Rule
from dynsched.loop import Source
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.sources.prometheus import source as source_module
from dynsched.sources.prometheus.failures import QueryFailedError
from dynsched.sources.prometheus.transport import Attempt

NOW = 1_800_000_000.0
SLACK = 0.7  # seconds over a deadline that a loaded machine may need


@contextlib.asynccontextmanager
async def source_at(
    url: str, seconds: float = 5.0, clock: Callable[[], float] = lambda: NOW, **options
) -> AsyncIterator[PrometheusSource]:
    source = PrometheusSource(PrometheusConfig(url, timeout=seconds, **options), clock=clock)
    try:
        yield source
    finally:
        await source.close()


async def threads_ended() -> bool:
    """Whether no query's thread is left, within a second."""
    until = time.monotonic() + 1
    while any(thread.name == "prometheus-query" for thread in threading.enumerate()):
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.01)
    return True


# --- good answers


async def test_a_vector_becomes_samples(server: MisbehavingServer) -> None:
    server.default = http(
        vector(({"instance": "a", "job": "n"}, "91.5"), ({"node": "b"}, "1e-05"), at=NOW - 2)
    )
    rule = Rule(name="cpu", expr="some_expr", threshold=80)
    async with source_at(server.url) as source:
        as_the_loop_sees_it: Source = source
        result = await as_the_loop_sees_it.query(rule)
    assert result.error is None
    assert [(s.labels, s.value, s.timestamp) for s in result.samples] == [
        ({"instance": "a", "job": "n"}, 91.5, NOW - 2),
        ({"node": "b"}, 1e-05, NOW - 2),
    ]
    assert 0 < result.duration < 5
    assert result.warnings == ()


async def test_a_rule_of_another_source_is_told_apart(server: MisbehavingServer) -> None:
    rule = Rule(name="mem", source="metrics-server", resource="memory", threshold=80)
    async with source_at(server.url) as source:
        assert "rule mem has no expr" in str((await source.query(rule)).error)
    assert server.seen == []


async def test_an_empty_vector_is_a_good_answer_without_samples(server: MisbehavingServer) -> None:
    server.default = http(vector())
    async with source_at(server.url) as source:
        result = await source.query_expr("x")
    assert (result.samples, result.error, result.warnings) == ((), None, ())


async def test_the_request(server: MisbehavingServer) -> None:
    async with source_at(server.url, 4.0) as source:
        await source.query_expr('up{job="a b"} > 0 & +1')
    [request] = server.seen
    assert (request.method, request.target) == ("POST", "/api/v1/query")
    assert request.form["query"] == 'up{job="a b"} > 0 & +1'
    assert set(request.form) == {"query", "timeout"}
    assert 3000 < int(request.form["timeout"].removesuffix("ms")) <= 3600


@pytest.mark.parametrize(
    ("suffix", "path"),
    [
        ("", "/api/v1/query"),
        ("/", "/api/v1/query"),
        ("/prometheus", "/prometheus/api/v1/query"),
        ("/select/0/prometheus/", "/select/0/prometheus/api/v1/query"),
    ],
)
async def test_a_path_prefix(server: MisbehavingServer, suffix: str, path: str) -> None:
    async with source_at(server.url + suffix) as source:
        assert (await source.query_expr("x")).error is None
    assert server.seen[0].path == path


async def test_a_long_expression_arrives_whole(server: MisbehavingServer) -> None:
    expr = " or ".join(f'up{{instance="{number}"}}' for number in range(5000))
    async with source_at(server.url) as source:
        await source.query_expr(expr)
    assert server.seen[0].form["query"] == expr


@pytest.mark.parametrize("status", [405, 501])
async def test_get_where_post_is_refused(server: MisbehavingServer, status: int) -> None:
    def reads_only(request: Seen, connection: socket.socket) -> None:
        good = request.method == "GET"
        connection.sendall(http(GOOD) if good else http("read only", status))

    server.default = reads_only
    async with source_at(server.url) as source:
        result = await source.query_expr('up{a="ä +"}')
    assert (result.error, len(result.samples)) == (None, 1)
    assert [request.method for request in server.seen] == ["POST", "GET"]
    assert {request.form["query"] for request in server.seen} == {'up{a="ä +"}'}


async def test_a_post_that_was_refused_once_is_tried_again(server: MisbehavingServer) -> None:
    replies = iter([http("the proxy starts", 405), http(GOOD), http(GOOD)])
    server.default = lambda _, connection: connection.sendall(next(replies))
    async with source_at(server.url) as source:
        for _ in range(2):
            assert (await source.query_expr("x")).error is None
    assert [request.method for request in server.seen] == ["POST", "GET", "POST"]


async def test_special_values_come_as_they_are(server: MisbehavingServer) -> None:
    server.default = http(vector(*(({"i": v}, v) for v in ("NaN", "+Inf", "-Inf", "-0", "1e+06"))))
    async with source_at(server.url) as source:
        result = await source.query_expr("x")
    assert [str(sample.value) for sample in result.samples] == [
        "nan",
        "inf",
        "-inf",
        "-0.0",
        "1000000.0",
    ]


async def test_warnings_make_an_answer_partial_and_infos_do_not(server: MisbehavingServer) -> None:
    server.replies["partial"] = http(vector(({}, "1"), warnings=["store-2 is\ndown"]))
    server.replies["hint"] = http(vector(({}, "1"), infos=["metric might not be a counter"]))
    server.replies["cluster"] = http(vector(({}, "1"), isPartial=True))
    async with source_at(server.url) as source:
        assert (await source.query_expr("partial")).warnings == ("store-2 is down",)
        assert (await source.query_expr("hint")).warnings == ()
        assert "isPartial" in (await source.query_expr("cluster")).warnings[0]


async def test_one_odd_series_does_not_cost_the_others(server: MisbehavingServer) -> None:
    body = json.loads(vector(({"i": "a"}, "1"), ({"i": "b"}, "abc"), ({"i": "c"}, "1_0")))
    body["data"]["result"] += [
        {"metric": {"i": "d"}, "histogram": [1000.0, {"count": "1"}]},
        {"metric": {"i": "e"}, "value": [1000.0, 7]},
        {"metric": {"i": "f"}},
        "not even an object",
        {"metric": {"i": "g"}, "value": [1001, "2"]},
    ]
    server.default = http(json.dumps(body))
    async with source_at(server.url) as source:
        result = await source.query_expr("x")
    assert [(s.labels["i"], s.value) for s in result.samples] == [("a", 1.0), ("g", 2.0)]
    told = "\n".join(result.warnings)
    assert """2 series left out: the value is not a number, as in {i="b"} 'abc'""" in told
    assert '1 series left out: a native histogram, not a number, as in {i="d"}' in told
    assert 'Expected `str`, got `int` - at `$.value[1]`), as in {i="e"}' in told
    assert '1 series left out: no value, as in {i="f"}' in told
    assert "as in one whose labels cannot be read" in told


async def test_a_compressed_answer(server: MisbehavingServer) -> None:
    server.default = http(gzip.compress(GOOD.encode()), Content_Encoding="gzip")
    async with source_at(server.url) as source:
        assert (await source.query_expr("x")).samples[0].value == 91.5
    assert "gzip" in server.seen[0].headers["accept-encoding"]


async def test_a_large_answer_compressed_and_in_chunks(server: MisbehavingServer) -> None:
    """Prometheus sends it so as soon as it is larger than 2 KiB when it is compressed."""
    body = vector(*(({"instance": f"{n * n:x}"}, str(n)) for n in range(1000)))
    answer = chunked(gzip.compress(body.encode()), Content_Encoding="gzip")
    assert len(answer) > 4096
    server.default = answer
    server.replies["bare"] = chunked(body.encode())
    server.replies["damaged"] = chunked(b"no gzip", Content_Encoding="gzip")
    async with source_at(server.url) as source:
        for expr in ("compressed", "bare"):
            result = await source.query_expr(expr)
            assert (result.error, len(result.samples)) == (None, 1000)
        damaged = await source.query_expr("damaged")
        assert "the answer's compression is damaged" in str(damaged.error)


# --- time


@pytest.mark.parametrize(
    ("sample_at", "date", "age", "expected"),
    [
        (NOW, NOW, None, NOW),
        (NOW - 30, NOW, None, NOW - 30),  # truly old
        (NOW + 360, NOW + 360, None, NOW),  # the server's clock is ahead
        (NOW - 360, NOW - 360, None, NOW),  # or behind
        (NOW - 400, NOW - 360, None, NOW - 40),  # behind, and the sample is old
        (NOW + 0.9, NOW, None, NOW),  # Date has whole seconds only
        (NOW, NOW, "90", NOW - 90),  # a cache in between
        (NOW - 30, None, None, NOW - 30),  # no Date
        (NOW + 30, None, None, NOW),
    ],
)
async def test_the_age_of_a_sample_is_taken_by_the_servers_clock(
    server: MisbehavingServer,
    sample_at: float,
    date: float | None,
    age: str | None,
    expected: float,
) -> None:
    more = {"Age": age} if age else {}
    server.default = http(vector(({}, "1"), at=sample_at), date=date, **more)
    async with source_at(server.url) as source:
        [sample] = (await source.query_expr("x")).samples
    assert sample.timestamp == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize("ahead", [0.0, 300.0, -300.0])
async def test_the_past_is_that_of_our_clock_whatever_the_servers_says(
    server: MisbehavingServer, ahead: float
) -> None:
    """Each value is the moment, by our clock, at which the server had it."""

    def past(request: Seen, connection: socket.socket) -> None:
        start, end, step = (float(request.form[key]) for key in ("start", "end", "step"))
        values = []
        while start <= min(end, NOW + ahead):
            values.append([start, str(start - ahead)])
            start += step
        series = [{"metric": {"node": "a"}, "values": values}]
        data = {"resultType": "matrix", "result": series}
        body = json.dumps({"status": "success", "data": data})
        connection.sendall(http(body, date=NOW + ahead))

    server.default = past
    rule = Rule(name="cpu", expr="cpu", threshold=80)
    async with source_at(server.url) as source:
        for end in (NOW - 60, NOW - 15):  # two parts of one past
            [series] = await source.history(rule, end - 45, end, 15)
            assert series.points == tuple((end - age, end - age) for age in (45, 30, 15, 0))
    assert len(server.seen) == (3 if ahead else 2)


@pytest.mark.parametrize("date", ["yesterday", "Fri, 99 Nov 2026 10:00:00 GMT", "", "0"])
async def test_a_damaged_date_is_as_none(server: MisbehavingServer, date: str) -> None:
    server.default = http(vector(({}, "1"), at=NOW - 5), Date=date, Age="soon")
    async with source_at(server.url) as source:
        [sample] = (await source.query_expr("x")).samples
    assert sample.timestamp == NOW - 5


# --- bad answers: each beside good queries on the same source


def resets(_: Seen, connection: socket.socket) -> None:
    connection.sendall(http(GOOD, length=1000)[:-10])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def error_body(kind: str, text: str) -> str:
    return json.dumps({"status": "error", "errorType": kind, "error": text})


PARSE_ERROR = 'invalid parameter "query": 1:5: parse error: unexpected end of input'
LOGIN = "<!DOCTYPE html><html><head><title>\n Sign in &amp; go </title></head>"
BAD: dict[str, tuple[Reply | bytes, str]] = {
    "parse error": (
        http(error_body("bad_data", PARSE_ERROR), 400),
        "HTTP 400 Bad Request: bad_data: " + PARSE_ERROR,
    ),
    "401": (
        http("no", 401, content_type="text/plain"),
        "HTTP 401 Unauthorized: no; set a bearer token (--prom-bearer-token-file), basic",
    ),
    "403": (http("", 403), "HTTP 403 Forbidden; these credentials are not allowed to query"),
    "404": (
        http("404 page not found", 404, content_type="text/plain"),
        "nothing answers /api/v1/query there; check the URL's path prefix",
    ),
    "405": (http("", 405), "HTTP 405 Method Not Allowed; neither POST nor GET is allowed"),
    "422": (
        http(error_body("execution", "found duplicate series"), 422),
        "execution: found duplicate series; the expression cannot be evaluated as it is",
    ),
    "429": (http("slow down", 429, Retry_After="1"), "slow down; it limits the request rate"),
    "500": (http(error_body("internal", "disk"), 500), "HTTP 500 Internal Server Error: internal"),
    "502": (
        http("<html><head><title>502 Bad Gateway</title></head></html>", 502),
        "HTTP 502 Bad Gateway: an HTML page titled '502 Bad Gateway'; a proxy in between cannot",
    ),
    "503": (
        http(error_body("timeout", "query timed out in expression evaluation"), 503),
        "503 Service Unavailable: timeout: query timed out in expression evaluation",
    ),
    "a status that nobody knows": (
        b"HTTP/1.1 599 Hm\r\nContent-Length: 0\r\n\r\n",
        "HTTP 599",
    ),
    "error in a 200": (http(error_body("execution", "no luck")), ": execution: no luck"),
    "error in a 200 without text": (http('{"status": "error"}'), "an error without a text"),
    "redirect to a login": (
        http("", 302, Location="http://me:pass@sso.example/login?state=abc"),
        "HTTP 302: it redirects to http://sso.example/login, which is not followed",
    ),
    "redirect to its own slash": (http("", 301, Location="/x/"), "HTTP 301: it redirects to /x/,"),
    "redirect to nowhere": (http("", 302), "HTTP 302: it redirects to nowhere"),
    "redirect to nonsense": (http("", 302, Location="http://[::"), "it redirects to nowhere"),
    "HTML": (
        http(LOGIN, content_type="text/html"),
        "no JSON but an HTML page titled 'Sign in &amp; go'; is the URL right, or is this a login",
    ),
    "text": (http("Prometheus is Ready.\n"), "the answer is no JSON but Prometheus is Ready."),
    "truncated JSON": (http(GOOD[:-9]), "is damaged JSON (Input data was truncated); was it cut"),
    "invalid UTF-8": (
        http(GOOD.encode().replace(b'"a"', b'"\xff\xfe"')),
        "no series of the answer can be used",
    ),
    "NUL bytes": (http(b"\0" * 50), "the answer is no JSON but binary data"),
    "empty": (http(""), "the answer is empty"),
    "204": (http("", 204), "the answer is empty"),
    "other JSON": (http('{"kind": "Status"}'), "JSON, but not Prometheus's (Object missing requir"),
    "a JSON list": (http("[1, 2]"), "the answer is JSON, but not Prometheus's"),
    "a JSON string": (http('"ok"'), "the answer is JSON, but not Prometheus's"),
    "another status": (http('{"status": "maybe"}'), "the answer's status is 'maybe'"),
    "no data": (http('{"status": "success"}'), "the answer is JSON, but not Prometheus's"),
    "result of another shape": (
        http('{"status": "success", "data": {"resultType": "vector", "result": {}}}'),
        "the answer is JSON, but not Prometheus's",
    ),
    "scalar": (
        http('{"status": "success", "data": {"resultType": "scalar", "result": [1, "0"]}}'),
        "a scalar, which belongs to no node; give a vector with a sample for each node, as in `su",
    ),
    "string": (
        http('{"status": "success", "data": {"resultType": "string", "result": [1, "0"]}}'),
        "the expression gives a string",
    ),
    "matrix": (
        http('{"status": "success", "data": {"resultType": "matrix", "result": []}}'),
        "a range of samples for each series; put rate(...), avg_over_time(...)",
    ),
    "streams": (
        http('{"status": "success", "data": {"resultType": "streams", "result": []}}'),
        "the result has the unknown type 'streams'",
    ),
    "plain HTTP to a server of TLS": (
        http("Client sent an HTTP request to an HTTPS server.\n", 400, content_type="text/plain"),
        "to an HTTPS server.; write https:// in its URL",
    ),
    "binary data": (
        http(b"\x1f\x8b\x08\x00\x00\xc3\xa9"),
        "the answer is no JSON but binary data; ",
    ),
    "only odd series": (
        http(vector(({"i": "a"}, "")).encode()),
        """can be used: 1 series left out: the value is not a number, as in {i="a"} ''""",
    ),
    "cut short": (http(GOOD, length=5000), "the connection broke while reading the answer"),
    "reset inside the body": (resets, "the connection broke while reading the answer"),
    "closed without an answer": (sends(), "the connection broke while waiting for the answer"),
    "no HTTP": (sends(b"SSH-2.0-OpenSSH_9\r\n"), "what answers there does not speak HTTP"),
    "endless header": (sends(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 99999), "does not speak HTTP"),
    "damaged compression": (
        http(b"no gzip", Content_Encoding="gzip"),
        "the answer's compression is damaged",
    ),
}


@pytest.mark.parametrize(("reply", "message"), BAD.values(), ids=BAD.keys())
async def test_a_bad_answer_is_one_clear_error_and_harms_no_other_query(
    server: MisbehavingServer, reply: Reply | bytes, message: str
) -> None:
    server.replies["bad"] = reply
    async with source_at(server.url) as source:
        before, bad, after = await asyncio.gather(
            *(source.query_expr(expr) for expr in ("good", "bad", "also good"))
        )
        assert await threads_ended()
    assert bad.samples == ()
    assert bad.error is not None
    assert bad.error.startswith(f"Prometheus at {server.url}: ")
    assert message in bad.error
    assert "\n" not in bad.error
    assert len(bad.error) < 600
    assert [len(result.samples) for result in (before, after)] == [1, 1]
    asked = [request.method for request in server.seen if request.form["query"] == "bad"]
    assert asked == (["POST", "GET"] if "405" in message else ["POST"])  # nothing is asked again


async def test_an_answer_larger_than_the_limit_is_not_kept(server: MisbehavingServer) -> None:
    def endless(_: Seen, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not server.stopped.is_set():
            connection.sendall(b" " * 65536)

    bomb = gzip.compress(b" " * (200 << 20), 1)  # 200 MiB in less than one
    server.replies["bomb"] = http(bomb, Content_Encoding="gzip")
    server.replies["bomb in chunks"] = chunked(bomb, 65536, Content_Encoding="gzip")
    server.replies["endless"] = endless
    config = PrometheusConfig(server.url, timeout=10)
    source = PrometheusSource(config, limit=lambda: AnswerLimit(12, 1000, 1 << 20))
    for expr in ("bomb", "bomb in chunks", "endless"):
        result = await source.query_expr(expr)
        wanted = "the answer is larger than 1 MiB, in a cluster of 12 nodes; aggregate it by the"
        assert wanted in str(result.error)
        assert result.duration < 5
    await source.close()


def series_without_end(server: MisbehavingServer, tail: str) -> Reply:
    """As Prometheus streams an answer: a series for each core and mode of each node."""

    def reply(_: Seen, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        kind = "matrix" if "values" in tail else "vector"
        connection.sendall(
            b'{"status":"success","data":{"resultType":"%b","result":[' % kind.encode()
        )
        for node in itertools.count():
            labels = (
                f'{{"metric":{{"cpu":"{core}","instance":"10.0.{node >> 8}.{node & 255}:9100",'
                f'"job":"node-exporter","metric":"x","mode":"user"}},{tail}}},'
                for core in range(256)
            )
            connection.sendall("".join(labels).encode())
            if server.stopped.is_set():
                return

    return reply


@pytest.mark.parametrize("node_label", [None, "kubernetes_node"])
async def test_a_rule_that_forgets_to_aggregate_fails_alone_as_its_series_come_in(
    server: MisbehavingServer, node_label: str | None
) -> None:
    server.replies["bad"] = series_without_end(server, '"value":[1,"2"]')
    server.replies["past"] = series_without_end(server, '"values":[[1,"2"],[2,"2"]]')
    bad, past = (
        Rule(name="cpu", expr=expr, threshold=80, node_label=node_label) for expr in ("bad", "past")
    )
    config = PrometheusConfig(server.url)
    source = PrometheusSource(config, limit=lambda: answer_limit(300, 10))
    result, good = await asyncio.gather(source.query(bad), source.query_expr("good"))
    assert result.samples == ()
    label = node_label or "instance"
    assert result.error == (
        f"Prometheus at {server.url}: the answer has more than 5,000 series, in a cluster of 300 "
        f"nodes; aggregate it by the node, as in `sum by ({label}) (...)`, or select only this "
        "cluster's series"
    )
    assert (good.error, len(good.samples)) == (None, 1)
    with pytest.raises(PastUnknownError, match="has more than 5,000 series"):
        await source.history(past, 1, 2, 1)
    await source.close()


async def test_series_are_counted_however_the_json_is_spaced(server: MisbehavingServer) -> None:
    server.default = http(vector(*(({"i": str(n)}, "1") for n in range(11))))
    config = PrometheusConfig(server.url)
    source = PrometheusSource(config, limit=lambda: AnswerLimit(5, 10, 1 << 20))
    assert "the answer has more than 10 series, in" in str((await source.query_expr("x")).error)
    server.default = http(vector(*(({"metric": str(n)}, "1") for n in range(10))))
    assert len((await source.query_expr("x")).samples) == 10
    await source.close()


async def test_65000_nodes_have_a_sample_each(server: MisbehavingServer) -> None:
    name = "node-of-a-large-cluster-{:05d}.region-1.compute.internal"
    server.default = http(
        vector(*(({"instance": name.format(n), "job": "x" * 80}, "91.5") for n in range(65_000)))
    )
    config = PrometheusConfig(server.url, timeout=20)
    source = PrometheusSource(config, limit=lambda: answer_limit(65_000, 20))
    result = await source.query_expr("x")
    assert (result.error, len(result.samples)) == (None, 65_000)
    await source.close()


async def test_answers_are_parsed_one_after_the_other(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_vector, parsing, most = source_module.read_vector, 0, 0

    def slowly(*arguments: Any) -> Any:
        nonlocal parsing, most
        parsing += 1
        most = max(most, parsing)
        time.sleep(0.05)
        parsing -= 1
        return read_vector(*arguments)

    monkeypatch.setattr(source_module, "read_vector", slowly)
    server.default = http(vector(({"instance": "a"}, "91.5")))
    async with source_at(server.url) as source:
        results = await asyncio.gather(*(source.query_expr("x") for _ in range(4)))
    assert [len(result.samples) for result in results] == [1] * 4
    assert most == 1


async def test_an_answer_that_cannot_be_parsed_does_not_hold_up_the_next(
    server: MisbehavingServer,
) -> None:
    server.replies["bad"] = http(b'{"status":"success","data":{"resultType":"vector","result":[{')
    server.replies["good"] = http(vector(({"instance": "a"}, "91.5")))
    async with source_at(server.url) as source:
        assert (await source.query_expr("bad")).error is not None
        assert len((await source.query_expr("good")).samples) == 1


PEAK_OF_LARGE_ANSWERS = """
import asyncio, re, sys
from dynsched.core.answers import answer_limit
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.plumbing.malloc import share_heap
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
async def main(url, rules):
    share_heap()
    config = PrometheusConfig(url, timeout=30)
    source = PrometheusSource(config, limit=lambda: answer_limit(300, rules))
    await source.query_expr("good")
    before = peak()
    results = await asyncio.gather(*(source.query_expr("bad") for _ in range(rules)))
    results += await asyncio.gather(*(source.query_range("past", 1, 2, 1) for _ in range(rules)))
    assert all("aggregate it by" in str(result.error) for result in results)
    print(peak() - before)
    await source.close()
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("rules", [1, 20])
def test_rules_that_forget_to_aggregate_leave_the_process_far_below_its_limit(
    server: MisbehavingServer, rules: int
) -> None:
    server.replies["bad"] = series_without_end(server, '"value":[1700000000.123,"20.5"]')
    points = ",".join(f'[{1700000000 + n}.123,"20.5"]' for n in range(100))
    server.replies["past"] = series_without_end(server, f'"values":[{points}]')
    program = [sys.executable, "-c", PEAK_OF_LARGE_ANSWERS, server.url, str(rules)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    # The process takes 90 MB of 256 when all is well: see benchmarks/scale.py for 5,000 nodes.
    assert float(done.stdout) < 40


PEAK_OF_ONE_ANSWER = """
import asyncio, re, sys
from dynsched.core.answers import answer_limit
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
async def main(url):
    config = PrometheusConfig(url, timeout=30)
    source = PrometheusSource(config, limit=lambda: answer_limit(5, 1))
    await source.query_expr("good")
    before = peak()
    print((await source.query_expr("bad")).error)
    print(peak() - before)
    await source.close()
asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("field", "item", "count", "reason"),
    [
        ("result", "{}", 2_500_000, "is made of more than"),
        ("result", "1", 1_000_000, "are not in Prometheus's form"),
        ("warnings", "[]", 1_000_000, "None"),
        ("error", "{}", 1_000_000, "None"),
    ],
)
def test_an_answer_of_a_million_small_parts_costs_no_more_memory_than_one_of_series(
    server: MisbehavingServer, field: str, item: str, count: int, reason: str
) -> None:
    items = "[" + ",".join([item] * count) + "]"
    result = items if field == "result" else "[]"
    said = "" if field == "result" else f'"{field}":{items},'
    body = '{"status":"success",%s"data":{"resultType":"vector","result":%s}}'
    server.replies["bad"] = http(body % (said, result))
    program = [sys.executable, "-c", PEAK_OF_ONE_ANSWER, server.url]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    error, peak = done.stdout.splitlines()
    assert reason in error
    assert float(peak) < 100


async def test_the_endless_body_of_a_redirect_is_not_read(server: MisbehavingServer) -> None:
    def endless(_: Seen, connection: socket.socket) -> None:
        connection.sendall(http("", 302, length=1 << 40, Location="/login"))
        while not server.stopped.is_set():
            connection.sendall(b"x" * 65536)

    server.default = endless
    async with source_at(server.url) as source:
        result = await source.query_expr("x")
    assert "it redirects to /login" in str(result.error)
    assert result.duration < 1


async def test_a_redirect_takes_no_credential_anywhere(server: MisbehavingServer) -> None:
    with MisbehavingServer() as other:
        server.default = http("", 307, Location=f"{other.url}/api/v1/query")
        async with source_at(server.url, bearer_token="s3cret-token") as source:
            assert "not followed" in str((await source.query_expr("x")).error)
        assert other.seen == []


# --- no connection


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


async def test_connection_refused() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with source_at(url) as source:
        result = await source.query_expr("x")
    assert result.error == (
        f"Prometheus at {url}: connection refused; is it running there, and is the port right?"
    )


async def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with source_at("http://prometheus.invalid:9090") as source:
        result = await source.query_expr("x")
    assert result.error == (
        "Prometheus at http://prometheus.invalid:9090: cannot resolve its host name "
        "(Name or service not known); check the name and the DNS"
    )


async def test_a_connection_by_a_proxy_of_the_environment(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    async with source_at("http://prometheus.invalid:9090") as source:
        assert (await source.query_expr("x")).error is None
        assert server.seen[0].target == "http://prometheus.invalid:9090/api/v1/query"
        monkeypatch.setenv("http_proxy", f"http://user:pass@127.0.0.1:{free_port()}")
        error = str((await source.query_expr("x")).error)
    assert "connection refused" in error
    assert "through the proxy that the environment sets" in error
    assert "pass" not in error


# --- deadlines


def drips(server: MisbehavingServer, head: bytes, drop: bytes = b" ") -> Reply:
    """Each byte comes in good time, the whole never."""

    def reply(_: Seen, connection: socket.socket) -> None:
        connection.sendall(head)
        while not server.stopped.wait(0.1):
            connection.sendall(drop)

    return reply


DEADLINES: dict[str, tuple[Callable[[MisbehavingServer], Reply], str]] = {
    "hangs": (lambda server: server.hang, "while waiting for the"),
    "hangs in the body": (
        lambda server: drips(server, http("{", length=99), b""),
        "while reading the answer",
    ),
    "drips headers": (lambda server: drips(server, b"HTTP/1.1 200 OK\r\nA: "), "while waiting"),
    "drips the body": (
        lambda server: drips(server, http("", length=9999)),
        "while reading the answer",
    ),
    "drips without a length": (
        lambda server: drips(server, b"HTTP/1.1 200 OK\r\n\r\n" + GOOD.encode()),
        "while reading the answer",
    ),
    "drips the body of an error": (
        lambda server: drips(server, http("", 500, length=9999)),
        "while reading the answer",
    ),
}


@pytest.mark.parametrize(("make", "phase"), DEADLINES.values(), ids=DEADLINES.keys())
async def test_a_slow_server_costs_its_own_query_the_timeout_and_not_more(
    server: MisbehavingServer, make: Callable[[MisbehavingServer], Reply], phase: str
) -> None:
    server.replies["slow"] = make(server)
    async with source_at(server.url, 0.6) as source:
        slow, good = await asyncio.gather(source.query_expr("slow"), source.query_expr("good"))
        assert await threads_ended(), "the thread must not stay with the server"
    assert 0.5 <= slow.duration < 0.6 + SLACK
    assert slow.samples == ()
    assert f"{server.url}: no answer within 0.6 s (" in str(slow.error)
    assert phase in str(slow.error)
    assert good.duration < 0.5
    assert len(good.samples) == 1
    assert len(server.seen) == 2


async def test_a_server_that_never_accepts() -> None:
    with socket.socket() as listener, contextlib.ExitStack() as fillers:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):  # its queue is full: further packets are dropped, as by a firewall
            filler = fillers.enter_context(socket.socket())
            filler.settimeout(0)
            filler.connect_ex(listener.getsockname())
        async with source_at(f"http://127.0.0.1:{listener.getsockname()[1]}", 0.9) as source:
            result = await source.query_expr("x")
            assert await threads_ended()
    assert "(while connecting); is the address right, and does a firewall" in str(result.error)
    assert result.duration < 0.9 + SLACK


def test_a_connection_made_too_late_is_shut_down_at_once() -> None:
    attempt = Attempt(5)
    attempt.abort("too late")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        attempt.watch(ours)
        assert theirs.recv(1) == b""
        attempt.close()
    with pytest.raises(QueryFailedError, match="too late"):
        attempt.remaining()


async def test_two_slow_queries_take_the_time_of_one(server: MisbehavingServer) -> None:
    def slowly(_: Seen, connection: socket.socket) -> None:
        time.sleep(0.5)
        connection.sendall(http(GOOD))

    server.default = slowly
    started = time.monotonic()
    async with source_at(server.url) as source:
        results = await asyncio.gather(*(source.query_expr(str(n)) for n in range(4)))
    assert all(result.error is None for result in results)
    assert time.monotonic() - started < 0.95


async def test_more_queries_than_slots_wait_inside_their_own_deadline(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolves = threading.Event()
    resolve = socket.getaddrinfo

    def late(*args: Any, **more: Any) -> Any:  # nothing can end a thread that waits here
        resolves.wait(10)
        return resolve(*args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", late)
    config = PrometheusConfig(server.url, timeout=0.5)
    source = PrometheusSource(config, max_concurrency=2)
    started = time.monotonic()
    results = await asyncio.gather(*(source.query_expr("x") for _ in range(5)))
    assert time.monotonic() - started < 0.5 + SLACK
    assert sum("(while connecting)" in str(result.error) for result in results) == 2
    assert sum("not asked within 0.5 s: 2 queries" in str(result.error) for result in results) == 3
    resolves.set()
    assert await threads_ended()
    assert (await source.query_expr("good")).error is None  # every slot is free again
    await source.close()


async def test_a_cancelled_query_lets_its_thread_and_slot_go(server: MisbehavingServer) -> None:
    server.replies["hang"] = server.hang
    source = PrometheusSource(PrometheusConfig(server.url), max_concurrency=1)
    task = asyncio.create_task(source.query_expr("hang"))
    while not server.seen:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await threads_ended()
    assert (await source.query_expr("good")).error is None
    await source.close()


async def test_close_ends_what_is_under_way_and_refuses_the_rest(server: MisbehavingServer) -> None:
    server.replies["hang"] = server.hang
    source = PrometheusSource(PrometheusConfig(server.url, timeout=30))
    task = asyncio.create_task(source.query_expr("hang"))
    while not server.seen:
        await asyncio.sleep(0.01)
    started = time.monotonic()
    await source.close()
    assert "dynsched is stopping" in str((await task).error)
    assert time.monotonic() - started < SLACK
    assert await threads_ended()
    assert "dynsched is stopping" in str((await source.query_expr("x")).error)
    await source.close()


HANGING_RESOLVER = """
import asyncio, socket, sys, time
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.sources.prometheus.failures import QueryFailedError
from dynsched.sources.prometheus.transport import Attempt
socket.getaddrinfo = lambda *_, **__: time.sleep(60)
async def main():
    source = PrometheusSource(PrometheusConfig("http://prometheus:9090", timeout=0.3))
    print((await source.query_expr("x")).error)
    await source.close()
asyncio.run(main())
"""


def test_a_resolver_that_hangs_holds_up_neither_the_query_nor_the_exit() -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", HANGING_RESOLVER],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert time.monotonic() - started < 8
    assert "no answer within 0.3 s (while connecting)" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_process_out_of_threads_says_so(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with source_at(server.url) as source:
        with monkeypatch.context() as patched:
            patched.setattr(
                threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("no more"))
            )
            result = await source.query_expr("x")
        assert "not asked: no more; raise the limit of processes" in str(result.error)
        assert (await source.query_expr("x")).error is None


async def test_a_defect_costs_one_query_and_shows_no_text(
    server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("s3cret")

    async with source_at(server.url) as source:
        with monkeypatch.context() as patched:
            patched.setattr("dynsched.sources.prometheus.transport.Client.ask", broken)
            result = await source.query_expr("x")
        assert (await source.query_expr("x")).error is None
    assert "defect in dynsched, please report it: KeyError in test_" in str(result.error)
    assert "KeyError" in caplog.text
    assert "s3cret" not in caplog.text + str(result.error)


# --- ranges


async def test_a_range(server: MisbehavingServer) -> None:
    result = [
        {"metric": {"i": "a"}, "values": [[1000, "1"], [1010, "NaN"], [1020.5, "3"]]},
        {"metric": {"i": "b"}, "values": [[1000, "x"], [1010, "2"]]},
        {"metric": {"i": "c"}, "histograms": [[1000, {}]]},
    ]
    data = {"resultType": "matrix", "result": result}
    server.default = http(json.dumps({"status": "success", "data": data, "warnings": ["half"]}))
    async with source_at(server.url) as source:
        spans = await source.query_range("x", 1000.0, 1020.5, 10)
    [request] = server.seen
    assert request.path == "/api/v1/query_range"
    assert (request.form["start"], request.form["end"]) == ("1000.000", "1020.500")
    assert request.form["step"] == "10.000"
    assert spans.error is None
    assert [span.labels for span in spans.series] == [{"i": "a"}, {"i": "b"}]
    assert [point[0] for point in spans.series[0].points] == [1000, 1010, 1020.5]
    assert spans.series[1].points == ((1010, 2.0),)
    assert [w.partition(":")[0] for w in spans.warnings] == [
        "half",
        "1 series left out",
        "1 series left out",
    ]


async def test_a_failed_range(server: MisbehavingServer) -> None:
    server.replies["vector"] = http(GOOD)
    server.replies["bad"] = http(error_body("bad_data", "exceeded maximum resolution"), 400)
    async with source_at(server.url) as source:
        assert "instant vector" in str((await source.query_range("vector", 1, 2, 1)).error)
        bad = await source.query_range("bad", 1, 2, 1)
    assert "bad_data: exceeded maximum resolution" in str(bad.error)
    assert bad.series == ()
