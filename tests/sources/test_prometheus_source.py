"""The Prometheus source against a server that misbehaves in many ways."""

import asyncio
import gzip
import json
import socket
import sys
from typing import Any

import pytest
from misbehaving_server import GOOD, MisbehavingServer, Reply, Seen, chunked, http, sends, vector
from operator_support import until
from programs import run
from prometheus_support import free_port
from source_support import ask, error_of, source_at

from dynsched.controller.queries import Source
from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus.decode import AnswerLimit, answer_limit
from dynsched.sources.prometheus.query_errors import READING, WAITING
from dynsched.util.errors import PastUnknownError

NOW = 1_800_000_000.0


def at_noon() -> float:
    return NOW


async def test_a_rule_is_sent_as_a_query_and_the_answer_gives_samples(
    server: MisbehavingServer,
) -> None:
    series = ({"instance": "a", "job": "n"}, "91.5"), ({"node": "b"}, "1e-05")
    server.default = http(vector(*series, at=NOW - 2))
    source = source_at(server.url, clock=at_noon, seconds=4)
    as_the_loop_sees_it: Source = source
    rule = Rule(name="cpu", expr='up{job="a b"} > 0 & +1', threshold=80)
    result = await as_the_loop_sees_it.query(rule)
    assert (result.error, result.warnings) == (None, ())
    assert [(s.labels, s.value, s.timestamp) for s in result.samples] == [
        ({"instance": "a", "job": "n"}, 91.5, NOW - 2),
        ({"node": "b"}, 1e-05, NOW - 2),
    ]
    [request] = server.seen
    assert (request.method, request.target) == ("POST", "/api/v1/query")
    assert request.form.keys() == {"query", "timeout"}
    assert request.form["query"] == rule.expr
    assert 0 < int(request.form["timeout"].removesuffix("ms")) <= 3600


def tree(kind: str, **more: object) -> dict:
    """A syntax node in an answer of Prometheus's parse_query API."""
    return {"type": kind, **more}


SELECTED = tree("matrixSelector", range=5_400_000, offset=60_000)
SUBQUERY = tree("subquery", range=600_000, offset=1000, expr=tree("call", args=[SELECTED]))
SUM = tree("aggregation", expr=tree("parenExpr", expr=SUBQUERY), param=None)
PLAIN = tree("vectorSelector", name="up", offset=0)


@pytest.mark.parametrize(
    ("data", "reach"),
    [
        (tree("binaryExpr", lhs=PLAIN, rhs=SUM), (61, 6000)),
        (PLAIN, (0, 0)),
        (tree("matrixSelector", range=0, offset=0), None),  # [5m*2], which is not computed there
        (tree("matrixSelector", range="5m"), None),
        ({"args": ["up"]}, None),
        ([], None),
    ],
)
async def test_the_reach_of_an_expression_is_taken_from_the_server(server, data, reach) -> None:
    server.default = http(json.dumps({"status": "success", "data": data}))
    assert await source_at(server.url).reach("rate(x[1.5h])") == reach
    assert server.seen[0].path == "/api/v1/parse_query"
    assert server.seen[0].form["query"] == "rate(x[1.5h])"
    server.default = http("no such page", 404)
    assert await source_at(server.url).reach("rate(x[1.5h])") is None


@pytest.mark.parametrize(("suffix", "prefix"), [("/", ""), ("/select/0/p/", "/select/0/p")])
async def test_the_url_may_have_a_path_and_the_expression_may_be_long(
    server, suffix, prefix
) -> None:
    expr = " or ".join(f'up{{instance="{number}"}}' for number in range(5000))
    assert (await ask(server.url + suffix, expr)).error is None
    assert server.seen[0].path == prefix + "/api/v1/query"
    assert server.seen[0].form["query"] == expr


async def test_get_is_used_if_post_is_rejected_and_the_next_query_tries_post_again(server) -> None:
    replies = iter([http("read only", 501), http(GOOD), http(GOOD)])
    server.default = lambda _, connection: connection.sendall(next(replies))
    source = source_at(server.url)
    for _ in range(2):
        result = await source.query_expr('up{a="ä +"}')
        assert (result.error, len(result.samples)) == (None, 1)
    assert [request.method for request in server.seen] == ["POST", "GET", "POST"]
    assert {request.form["query"] for request in server.seen} == {'up{a="ä +"}'}


MANY = vector(*(({"instance": f"{n * n:x}"}, str(n)) for n in range(1000))).encode()
SPECIAL = ["nan", "inf", "-inf", "-0.0", "1000000.0"]


@pytest.mark.parametrize(
    ("reply", "values"),
    [
        (http(vector()), []),
        (http('{"status": "success", "data": {"resultType": "vector", "result": null}}'), []),
        (http(vector(*(({"i": v}, v) for v in ("NaN", "+Inf", "-Inf", "-0", "1e+06")))), SPECIAL),
        # Prometheus sends an answer in chunks if it is larger than 2 KiB after compression.
        (chunked(gzip.compress(MANY), Content_Encoding="gzip"), [f"{n}.0" for n in range(1000)]),
    ],
    ids=["empty", "null", "special values", "compressed in chunks"],
)
async def test_a_good_answer_is_read_in_each_form(server, reply, values) -> None:
    server.default = reply
    result = await ask(server.url)
    assert (result.error, result.warnings) == (None, ())
    assert [str(sample.value) for sample in result.samples] == values
    assert "gzip" in server.seen[0].headers["accept-encoding"]


async def test_warnings_are_kept_and_infos_are_not(server: MisbehavingServer) -> None:
    server.replies["partial"] = http(vector(({}, "1"), warnings=["store-2 is\ndown"]))
    server.replies["hint"] = http(vector(({}, "1"), infos=["metric might not be a counter"]))
    server.replies["cluster"] = http(vector(({}, "1"), isPartial=True))
    assert (await ask(server.url, "partial")).warnings == ("store-2 is down",)
    assert (await ask(server.url, "hint")).warnings == ()
    assert "isPartial" in (await ask(server.url, "cluster")).warnings[0]


async def test_a_native_histogram_is_left_out_and_the_other_series_are_kept(server) -> None:
    body = json.loads(vector(({"i": "a"}, "1"), ({"i": "b"}, "2")))
    odd = {"metric": {"i": "c"}, "histogram": [1000.0, {"count": "1"}]}
    body["data"]["result"].insert(1, odd)
    server.default = http(json.dumps(body))
    result = await ask(server.url)
    assert [(s.labels["i"], s.value) for s in result.samples] == [("a", 1.0), ("b", 2.0)]
    assert result.warnings == ("1 series left out: native histograms, not numbers",)
    body["data"]["result"] = [odd]
    server.default = http(json.dumps(body))
    assert "every series of the answer is a native histogram" in str((await ask(server.url)).error)


async def test_a_value_that_is_no_number_is_nan_and_the_others_are_kept(server) -> None:
    server.default = http(vector(({"i": "a"}, "0x1"), ({"i": "b"}, "2")))
    result = await ask(server.url)
    assert result.error is None
    assert [str(sample.value) for sample in result.samples] == ["nan", "2.0"]


@pytest.mark.parametrize(
    ("sample_at", "date", "expected"),
    [
        (NOW - 30, NOW, NOW - 30),  # the sample is old
        (NOW + 360, NOW + 360, NOW),  # the server's clock is ahead
        (NOW - 400, NOW - 360, NOW - 40),  # behind, and the sample is old
        (NOW + 0.9, NOW, NOW),  # Date has whole seconds only
        (NOW + 30, None, NOW),  # no Date
        *((NOW - 5, bad, NOW - 5) for bad in ("yesterday", "Fri, 99 Nov 2026 10:00:00 GMT")),
    ],
)
async def test_the_age_of_a_sample_is_measured_by_the_server_clock(
    server, sample_at, date, expected
) -> None:
    clock = {"Date": date} if isinstance(date, str) else {"date": date}
    server.default = http(vector(({}, "1"), at=sample_at), **clock)
    [sample] = (await ask(server.url, clock=at_noon)).samples
    assert sample.timestamp == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(
    ("value", "now", "behind"),
    [
        ([NOW + 5, f"{NOW - 25.5}"], NOW + 5, 30.5),  # VictoriaMetrics, whose clock is ahead
        ([NOW, f"{NOW + 3}"], NOW, 0.0),
        *((odd, NOW, 0.0) for odd in (None, [NOW, "NaN"], 503)),  # our clock is used
    ],
)
async def test_the_delay_of_the_server_is_added_to_the_age_of_samples(
    server, value, now, behind
) -> None:
    result = [{"metric": {}, "value": value}] if isinstance(value, list) else []
    fails = value == 503
    server.replies["vector(time())"] = plain("no", 503) if fails else data("vector", result)
    server.default = http(vector(({}, "1"), at=NOW - 1), date=NOW)
    source = source_at(server.url, clock=at_noon)
    clock, error = await source.ask_clock()
    assert (error is not None) == fails
    assert (clock.now, clock.behind) == (now, behind)
    [sample] = (await source.query_expr("load")).samples
    assert sample.timestamp == pytest.approx(NOW - 1 - behind, abs=0.001)


def matrix(series: list[Any], **more: Any) -> str:
    data = {"resultType": "matrix", "result": series}
    return json.dumps({"status": "success", "data": data, **more})


async def test_a_range_query_gives_series(server: MisbehavingServer) -> None:
    result = [
        {"metric": {"i": "a"}, "values": [[1000, "1"], [1010, "NaN"], [1020.5, "3"]]},
        {"metric": {"i": "c"}, "histograms": [[1000, {}]]},
    ]
    server.default = http(matrix(result, warnings=["half"]))
    server.replies["vector"] = http(GOOD)
    server.replies["bad"] = http(error_body("bad_data", "exceeded maximum resolution"), 400)
    source = source_at(server.url)
    spans = await source.query_range("x", 1000.0, 1020.5, 10)
    assert "of type 'vector'" in str((await source.query_range("vector", 1, 2, 1)).error)
    bad = await source.query_range("bad", 1, 2, 1)
    assert (bad.series, "exceeded maximum resolution" in str(bad.error)) == ((), True)
    assert server.seen[0].path == "/api/v1/query_range"
    form = server.seen[0].form
    assert (form["start"], form["end"], form["step"]) == ("1000.000", "1020.500", "10.000")
    assert spans.error is None
    assert [span.labels for span in spans.series] == [{"i": "a"}]
    assert [point[0] for point in spans.series[0].points] == [1000, 1010, 1020.5]
    assert [w.partition(":")[0] for w in spans.warnings] == ["half", "1 series left out"]


def error_body(kind: str, text: str) -> str:
    return json.dumps({"status": "error", "errorType": kind, "error": text})


def plain(text: str, status: int) -> bytes:
    return http(text, status, content_type="text/plain")


def to(location: str) -> bytes:
    return http("", 302, Location=location)


def data(kind: str, result: Any = ()) -> bytes:
    return http(json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}))


PARSE = 'invalid parameter "query": 1:5: parse error: unexpected end of input'
LOGIN = "<!DOCTYPE html><html><head><title>\n Sign in &amp; go </title></head>"
GATEWAY = "<html><head><title>502 Bad Gateway</title></head></html>"
TIMED_OUT = "query timed out in expression evaluation"
NOT_ITS_JSON = "the answer is JSON, but not Prometheus's"
SECURE = "HTTP request to an HTTPS server."
BROKE = "the connection broke while reading the answer"
BAD: list[tuple[Reply | bytes, str]] = [
    (http(error_body("bad_data", PARSE), 400), f"HTTP 400 Bad Request: bad_data: {PARSE}"),
    (plain("no", 401), "401 Unauthorized: no; set a bearer token (--prom-bearer-token-file), "),
    (http("", 403), "HTTP 403 Forbidden; these credentials are not allowed to query"),
    (plain("404 page not found", 404), "answers /api/v1/query there; check the URL's path prefix"),
    (http("", 405), "HTTP 405 Method Not Allowed"),
    (http("slow down", 429, Retry_After="1"), "slow down; it limits the request rate"),
    (http(GATEWAY, 502), "502 Bad Gateway: an HTML page titled '502 Bad Gateway'; a proxy in"),
    (http(error_body("timeout", TIMED_OUT), 503), f"503 Service Unavailable: timeout: {TIMED_OUT}"),
    (http(error_body("execution", "no luck")), ": execution: no luck"),
    (to("http://me:pass@sso.x/in?state=abc"), "302: it redirects to sso.x/in, which is not"),
    (http(LOGIN), "no JSON but an HTML page titled 'Sign in &amp; go'; is the URL right, or"),
    (http(GOOD[:-9]), "is damaged JSON (Input data was truncated); was it cut"),
    (http(b"\0" * 50), "the answer is no JSON but binary data"),
    (http("", 204), "HTTP 204 No Content"),
    (http('{"status": "maybe"}'), "the answer's status is 'maybe'"),
    (http('{"status": "success"}'), NOT_ITS_JSON),
    (data("scalar", [1, "0"]), "of type 'scalar'; give a vector with a sample for each node"),
    (data("streams"), "the result is of type 'streams'"),
    (plain(f"Client sent an {SECURE}\n", 400), f"{SECURE}; write https:// in its URL"),
    (data("vector", [{"metric": {"a": 7}, "value": [1, "7"]}]), NOT_ITS_JSON),
    (http(GOOD, length=5000), BROKE),
    *((chunked(GOOD.encode(), 40)[:-end], BROKE) for end in (5, 20)),
    (sends(), "the connection broke while waiting for the answer"),
    (sends(b"SSH-2.0-OpenSSH_9\r\n"), "what answers there does not speak HTTP"),
    (sends(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 99999), "does not speak HTTP"),
    (http(b"no gzip", Content_Encoding="gzip"), "the request failed while reading the answer"),
]


@pytest.mark.parametrize(("reply", "message"), BAD, ids=[message for _, message in BAD])
async def test_a_bad_answer_is_one_clear_error_and_affects_no_other_query(
    server: MisbehavingServer, reply: Reply | bytes, message: str
) -> None:
    server.replies["bad"] = reply
    source = source_at(server.url)
    before, bad = await asyncio.gather(*(source.query_expr(expr) for expr in ("good", "bad")))
    after = await source.query_expr("also good")
    assert bad.samples == ()
    assert bad.error is not None
    assert bad.error.startswith(f"Prometheus at {server.url}: ")
    assert message in bad.error
    assert "\n" not in bad.error
    assert len(bad.error) < 600
    assert [len(result.samples) for result in (before, after)] == [1, 1]
    methods = [request.method for request in server.seen if request.form["query"] == "bad"]
    assert methods == (["POST", "GET"] if "405" in message else ["POST"])  # there is no retry


@pytest.mark.parametrize(
    ("reply", "refused"),
    [
        (http(error_body("bad_data", PARSE), 400), True),
        (http(error_body("422", PARSE), 422), True),  # VictoriaMetrics
        *((data(kind), True) for kind in ("scalar", "string", "matrix")),
        (data("streams"), False),
        (http(error_body("unavailable", "starting"), 503), False),
        (plain(f"Client sent an {SECURE}\n", 400), False),
        (plain("<html><title>400 Bad Request</title></html>", 400), False),
    ],
)
async def test_a_result_is_refused_only_if_the_query_itself_is_wrong(
    server, reply, refused
) -> None:
    """A wrong URL does not mean that the rules are wrong."""
    server.replies["bad"] = reply
    assert (await source_at(server.url).query_expr("bad")).refused is refused


async def test_a_redirect_is_not_read_and_sends_no_credentials_elsewhere(server) -> None:
    with MisbehavingServer() as other:
        head = http("", 307, length=1 << 40, Location=f"{other.url}/api/v1/query")
        server.default = endless(server, head, b"x" * 65536)
        assert "not followed" in await error_of(server.url, bearer_token="s3cret-token")
        assert other.seen == []


def endless(server: MisbehavingServer, head: bytes, more: bytes, pause: float = 0) -> Reply:
    """A reply that never ends. With a ``pause``, each piece arrives within any read timeout."""

    def reply(_: Seen, connection: socket.socket) -> None:
        connection.sendall(head)
        while not server.stopped.wait(pause):
            connection.sendall(more)

    return reply


async def test_an_answer_larger_than_the_limit_is_an_error(server: MisbehavingServer) -> None:
    bomb = gzip.compress(b" " * (200 << 20), 1)  # 200 MiB in less than 1 MiB
    server.replies["bomb"] = http(bomb, Content_Encoding="gzip")
    server.replies["bomb in chunks"] = chunked(bomb, 65536, Content_Encoding="gzip")
    server.replies["endless"] = endless(server, b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536)
    for expr in server.replies:
        error = await error_of(server.url, expr, limit=AnswerLimit(12, 1000, 1 << 20))
        wanted = "the answer is larger than 1 MiB, in a cluster of 12 nodes; aggregate it by the"
        assert wanted in error


async def test_a_rule_that_does_not_aggregate_fails_without_affecting_others(server) -> None:
    cores = [{"instance": str(core % 5), "cpu": str(core)} for core in range(11)]
    server.replies["bad"] = http(vector(*((labels, "1") for labels in cores)))
    past = [{"metric": labels, "values": [[1, "2"]]} for labels in cores]
    server.replies["past"] = http(matrix(past))
    server.replies["ten"] = http(vector(*((labels, "1") for labels in cores[:10])))
    rule = Rule(name="cpu", expr="bad", threshold=80)
    source = source_at(server.url, limit=AnswerLimit(5, 10, 1 << 20))
    result, ten = await asyncio.gather(source.query(rule), source.query_expr("ten"))
    with pytest.raises(PastUnknownError, match="has more than 10 series"):
        await source.history(Rule(name="cpu", expr="past", threshold=80), 1, 2, 1)
    assert (result.samples, ten.error, len(ten.samples)) == ((), None, 10)
    assert result.error == (
        f"Prometheus at {server.url}: the answer has more than 10 series, in a cluster of 5 "
        "nodes; aggregate it by the label that names the node, as in `sum by (instance) (...)`, or "
        "select only this cluster's series"
    )


@pytest.mark.parametrize(("nodes", "rules"), [(0, 1), (300, 20), (65_000, 200)])
def test_the_limit_allows_two_series_per_node_and_small_clusters_share_the_memory(
    nodes, rules
) -> None:
    limit = answer_limit(nodes, rules)
    assert limit.series >= 2 * nodes
    assert limit.size >= 2_000 * nodes
    assert rules * limit.series <= max(50_000, 2 * nodes * rules)
    assert rules * limit.size <= max(8 << 20, 2048 * nodes * rules)


async def test_a_refused_connection_is_a_clear_error() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert await error_of(url) == (
        f"Prometheus at {url}: connection refused; is it running there, and is the port right?"
    )


@pytest.mark.parametrize(
    ("head", "more", "phase"),
    [
        (b"", b"", WAITING),
        (b"HTTP/1.1 200 OK\r\nA: ", b" ", WAITING),
        (http("{", length=99), b"", READING),
        (b"HTTP/1.1 200 OK\r\n\r\n" + GOOD.encode(), b" ", READING),
        (http("", 500, length=9999), b" ", READING),
    ],
    ids=["hangs", "drips headers", "hangs in the body", "drips the body", "drips an error"],
)
async def test_a_slow_answer_ends_at_the_timeout_and_affects_no_other_query(
    server, head, more, phase
) -> None:
    server.replies["slow"] = endless(server, head, more, 0.05)
    source = source_at(server.url)
    slow = asyncio.create_task(source.query_expr("slow"))
    assert len((await source.query_expr("good")).samples) == 1
    slow.cancel()
    result = await source_at(server.url, seconds=0.8).query_expr("slow")
    assert result.samples == ()
    assert f"{server.url}: no answer within 0.8 s ({phase})" in str(result.error)
    assert 0.7 < result.duration < 60  # the reply itself never ends


async def test_queries_that_wait_for_a_thread_end_at_their_own_timeout(server) -> None:
    server.replies["hang"] = server.hang
    source = source_at(server.url, slots=2, seconds=0.5)
    hanging = [asyncio.create_task(source.query_expr("hang")) for _ in range(2)]
    await asyncio.sleep(0)  # they occupy both threads
    waits = await source.query_expr("good")
    assert waits.error is None or "no answer within 0.5 s" in waits.error
    assert all(f"({WAITING})" in str(result.error) for result in await asyncio.gather(*hanging))

    async def is_answered() -> bool:
        return (await source.query_expr("good")).error is None

    await until(is_answered, "both threads are free again")


HANGING_RESOLVER = """
import asyncio, socket, time
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
socket.getaddrinfo = lambda *_, **__: time.sleep(3600)
async def main():
    source = PrometheusSource(PrometheusConfig("http://prometheus:9090", timeout=0.3))
    print((await source.query_expr("x")).error)
asyncio.run(main())
"""


def test_a_hanging_resolver_blocks_neither_the_query_nor_the_exit() -> None:
    done = run(sys.executable, "-c", HANGING_RESOLVER)
    assert "no answer within 0.3 s (while " in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


async def test_an_unexpected_exception_fails_one_query_and_is_logged(server, caplog) -> None:
    times = iter([1.0])

    def broken() -> float:
        try:
            return next(times)
        except StopIteration:
            raise KeyError from None

    source = source_at(server.url, clock=broken)
    assert (await source.query_expr("x")).error is None
    result = await source.query_expr("x")
    assert "please report its log: KeyError" in str(result.error)
    assert "KeyError" in caplog.text
