"""Conversion of a rule's value to a load in percent."""

from typing import Any

import pytest
from builders import rule, rule_set

from dynsched.core.percent import load_percent

METRICS_SERVER = {"source": "metrics-server", "resource": "cpu", "expr": None}


@pytest.mark.parametrize(
    ("options", "value", "expected"),
    [
        ({"threshold": 80}, 23.0, 23.0),
        ({"threshold": 80}, -5.0, 0.0),
        ({"threshold": 0.8}, 0.23, 23.0),
        ({"threshold": 16}, 8.0, 8.0),
        ({"threshold": 16, "full_at": 20}, 8.0, 40.0),
        ({"threshold": 400}, 250.0, 50.0),
        ({"threshold": 80}, 1e308, 500.0),
        ({"threshold": 1024, "op": "<"}, 1024.0, 80.0),
        ({"threshold": 1024, "op": "<"}, 4096.0, 50.0),
        ({"threshold": 1024, "op": "<"}, 0.0, 100.0),
        ({"threshold": 1024, "op": "<"}, -7.0, 100.0),
        ({"threshold": 0, "op": "<"}, 0.0, 100.0),
        ({"threshold": 0.5, **METRICS_SERVER}, 8.0, 8.0),
    ],
)
def test_a_value_is_converted_to_load(
    options: dict[str, Any], value: float, expected: float
) -> None:
    (found,) = rule_set(rule(**options)).rules
    assert load_percent(found, value) == pytest.approx(expected)
