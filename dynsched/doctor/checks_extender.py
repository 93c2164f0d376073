"""K3: whether the extender that rules.yaml configures is asked, by a running dynsched's metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from dynsched.core.rules import RuleSet
from dynsched.doctor.findings import Finding, NotChecked, Severity
from dynsched.web.client import ServerError, fetch_metrics

_REQUESTS: Final = "dynsched_extender_requests_total"


def ask_extender(server: str | None, rule_set: RuleSet) -> str | NotChecked | None:
    """The metrics of the running dynsched; None where there is no extender to be asked."""
    if not rule_set.has_extender:
        return None
    if server is None:
        return NotChecked("K3", "--server does not name a running dynsched")
    try:
        return fetch_metrics(server)
    except ServerError as error:
        return NotChecked("K3", str(error))


def check_extender(metrics: str) -> Iterator[Finding | NotChecked]:
    """K3 from the text of `/metrics`."""
    try:
        samples = [
            sample
            for family in text_string_to_metric_families(metrics)
            for sample in family.samples
        ]
    except ValueError as error:
        yield NotChecked("K3", f"its /metrics cannot be read: {error}")
        return
    asked = [each for each in samples if each.name == _REQUESTS]
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
