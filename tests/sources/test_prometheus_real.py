"""The Prometheus source against a real Prometheus, to verify assumptions of the other tests."""

import time

import pytest

from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus import PrometheusSource

pytestmark = pytest.mark.slow


async def test_instant_vectors_are_read(source: PrometheusSource) -> None:
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
async def test_an_expression_without_a_vector_result_is_an_error(source, expr, message) -> None:
    result = await source.query_expr(expr)
    assert result.samples == ()
    assert message in str(result.error)
