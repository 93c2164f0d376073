"""K3: whether the extender that rules.yaml configures is asked, by a running dynsched's metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.finding import Finding, NotChecked, Severity
from dynsched.tools.running import Where, opened
from dynsched.util.errors import ExpectedError

_REQUESTS: Final = "dynsched_extender_requests_total"
_ASKS: Final = 8
"""How often a Service is asked before no replica behind it counts as called by a scheduler: each
request goes to any of them, and a scheduler keeps to one.
"""


def ask_extender(where: Where, rule_set: RuleSet) -> str | NotChecked | None:
    """The metrics of the running dynsched; None where there is no extender to be asked."""
    if not rule_set.has_extender:
        return None
    try:
        with opened(where) as running:
            metrics = running.metrics()
            for _ in range(_ASKS - 1 if where.server is None else 0):
                if any(each.value for each in _requests(metrics)):
                    break
                metrics = running.metrics()
            return metrics
    except (ExpectedError, ValueError) as error:
        return NotChecked("K3", f"no running dynsched says it: {error}")


def check_extender(metrics: str) -> Iterator[Finding | NotChecked]:
    """K3 from the text of `/metrics`."""
    try:
        asked = _requests(metrics)
    except ValueError as error:
        yield NotChecked("K3", f"its /metrics cannot be read: {error}")
        return
    if not asked:
        yield NotChecked("K3", f"its /metrics have no {_REQUESTS}; is it an older dynsched?")
    elif not any(each.value for each in asked):
        yield Finding(
            "K3",
            Severity.WARNING,
            "rules.yaml has a section extender, and no scheduler has asked since dynsched started",
            f"{_REQUESTS} is 0 for every verb",
            "name the extender in kube-scheduler's configuration (docs/extender.md); with several "
            "replicas, ask each",
        )


def _requests(metrics: str) -> list[Sample]:
    """The counts of requests, by verb. ValueError for a text that is not Prometheus's."""
    families = text_string_to_metric_families(metrics)
    return [each for family in families for each in family.samples if each.name == _REQUESTS]
