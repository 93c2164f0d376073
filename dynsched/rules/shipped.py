"""The rules that come with dynsched. shipped.yaml is a link to the file in manifests/base."""

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
    """The shipped rules. With ``by_metrics_server``, their thresholds apply to what metrics-server
    measures, without `for`, because it keeps no history in which that could have passed.
    """
    found = yaml.safe_load(PATH.read_bytes())
    if by_metrics_server:
        resources = {CPU: "cpu", MEMORY: "memory"}
        for rule in found["rules"]:
            del rule["expr"], rule["for"]
            rule |= {"source": "metrics-server", "resource": resources[rule["name"]]}
    return FixedRules(parse_rules(found))
