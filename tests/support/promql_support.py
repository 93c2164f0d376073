"""What Prometheus itself makes of expressions, by its `promtool test rules`."""

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
    """Each expression has these values by the labels of the result. ``series``: in promtool's
    notation, a value every interval.
    """
    tests = [
        {
            "expr": f"round({expr}, 0.001)",  # a ratio of floats is rarely whole
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
