"""manifests/components/monitoring, parsed for the tests, and the metrics that dynsched exposes."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from manifest_support import COMPONENTS, Doc, load_all
from scenes import example, expected_example, known_pods

from dynsched.core.tick import Tick
from dynsched.features.order.ranks import compute_order
from dynsched.features.order.status import LastOrder, OrderStatus
from dynsched.web.metrics import Metrics
from dynsched.web.node_series import node_series
from dynsched.web.page.past import PlacedOn

FOLDER: Final = COMPONENTS / "monitoring"
DASHBOARD: Final[Doc] = json.loads((FOLDER / "dashboard.json").read_text())
(RULE,) = load_all(FOLDER / "prometheusrule.yaml")
_RULES: Final[list[Doc]] = [rule for group in RULE["spec"]["groups"] for rule in group["rules"]]
ALERTS: Final = [rule for rule in _RULES if "alert" in rule]
RECORDS: Final = [rule for rule in _RULES if "record" in rule]

_VALUES: Final = re.compile(r"label_values\((.+), (\w+)\)")

CHOSEN: Final[Mapping[str, str]] = {
    "$cluster": ".*",
    "$namespace": ".*",
    "$node": ".*",
    "$rule": "node-cpu",
    "$__rate_interval": "10s",
    "$__range": "1m",
    # Steps of a subquery are aligned to whole minutes, and a test does not wait for one.
    ":1m]": ":1s]",
}


def panels() -> Iterator[Doc]:
    """The dashboard's panels without its rows."""
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def variables() -> dict[str, Doc]:
    """The dashboard's variables by name."""
    return {each["name"]: each for each in DASHBOARD["templating"]["list"]}


def queries(chosen: Mapping[str, str] = CHOSEN) -> list[str]:
    """The dashboard's queries as Grafana sends them: those of panels, then those of variables."""
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    for variable in variables().values():
        if variable["type"] == "query":
            values = _VALUES.fullmatch(variable["query"]["query"])
            assert values is not None, variable["name"]
            found.append(f"group by ({values[2]}) ({values[1]})")
    return [_replaced(expr, chosen) for expr in found]


def exposed() -> set[str]:
    """The names of all series in `/metrics`."""
    text = "".join(metrics_texts().values())
    return set(re.findall(r"^(\w+)(?:\{| )", text, re.MULTILINE))


def metrics_texts(pods: int = 0) -> dict[str, str]:
    """`/metrics` of two installations, by namespace: "plain" without and "expected" with a pod
    watch. In the latter, ``pods`` pods were placed on nodes of each kind.
    """
    watching = Metrics()
    watching.placed(dict.fromkeys(PlacedOn, pods))
    order = compute_order(example().evaluation, known_pods())
    assert order is not None
    written = LastOrder(order, time.time(), time.time() + 28)
    ordering = Metrics()
    ordering.order = OrderStatus(order, known_pods(), written)
    expected = replace(expected_example(), pods=known_pods())
    return {"plain": _text(example(), ordering), "expected": _text(expected, watching)}


def _text(tick: Tick, metrics: Metrics) -> str:
    metrics.observe(tick)
    return metrics.exposition().decode() + node_series(tick)


def _replaced(expr: str, chosen: Mapping[str, str]) -> str:
    # Longest names first, so that a name is not replaced inside a longer one.
    for name in sorted(chosen, key=len, reverse=True):
        expr = expr.replace(name, chosen[name])
    assert "$" not in expr
    return expr


def quick(spec: Mapping[str, Any]) -> Doc:
    """The rules with all groups evaluated every second, and subqueries with one-second steps."""
    text = json.dumps(spec).replace("[1d:1m]", "[1d:1s]")
    found: Doc = json.loads(text)
    for group in found["groups"]:
        group["interval"] = "1s"
    return found
