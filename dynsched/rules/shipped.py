"""The rules that come with dynsched: the file of manifests/base, to which shipped.yaml links."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from dynsched.rules.file import FixedRules
from dynsched.rules.parse import parse_rules

PATH: Final = Path(__file__).with_name("shipped.yaml")
CPU: Final = "node-cpu"
MEMORY: Final = "node-mem-usage"


def shipped_rules(*, by_metrics_server: bool = False) -> FixedRules:
    """``by_metrics_server``: the same thresholds for what metrics-server measures, at once, because
    it keeps no history in which `for` could have passed.
    """
    found = yaml.safe_load(PATH.read_bytes())
    if by_metrics_server:
        resources = {CPU: "cpu", MEMORY: "memory"}
        for rule in found["rules"]:
            del rule["expr"], rule["for"]
            rule |= {"source": "metrics-server", "resource": resources[rule["name"]]}
    return FixedRules(parse_rules(found))
