"""Evaluates expressions with Prometheus itself, through `promtool test rules`."""

from collections.abc import Mapping
from pathlib import Path

import yaml
from programs import need, run


def check_values(
    folder: Path,
    series: Mapping[str, str],
    expected: Mapping[str, Mapping[str, float]],
    moment: str,
    interval: str = "1m",
) -> None:
    """Assert the values of each expression, by the labels of its results.

    ``series``: in promtool's notation, one value per ``interval``.
    """
    tests = [
        {
            "expr": f"round({expr}, 0.001)",  # ratios of floats are rarely exact
            "eval_time": moment,
            "exp_samples": [{"labels": k, "value": value} for k, value in values.items()],
        }
        for expr, values in expected.items()
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    case = {"interval": interval, "input_series": inputs, "promql_expr_test": tests}
    content = {"evaluation_interval": interval, "tests": [case]}
    path = folder / "unit.yml"
    path.write_text(yaml.safe_dump(content))
    done = run(need("promtool", "prometheus"), "test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
