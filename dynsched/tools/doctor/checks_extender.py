"""K3: whether the extender that rules.yaml configures is asked, by a running dynsched's metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.finding import Finding, NotChecked, findings, warning
from dynsched.tools.running import Running, Where, opened
from dynsched.util.errors import ExpectedError

_REQUESTS: Final = "dynsched_extender_requests_total"
_ASKS: Final = 8
"""How often a Service is asked before no replica behind it counts as called by a scheduler: each
request goes to any of them, and a scheduler keeps to one.
"""


def check_extender(where: Where, rule_set: RuleSet) -> Iterator[Finding | NotChecked]:
    """Nothing where there is no extender to be asked."""
    if not rule_set.has_extender:
        return
    try:
        with opened(where) as running:
            asks = _ASKS if where.server is None else 1
            is_asked = any(_is_asked(running) for _ in range(asks))
    except (ExpectedError, ValueError) as error:
        yield NotChecked("K3", None, f"no running dynsched says it: {error}")
        return
    if not is_asked:
        told = warning(
            "rules.yaml has a section extender, and no scheduler has asked since dynsched started",
            f"{_REQUESTS} is 0 for every verb",
            "name the extender in kube-scheduler's configuration (docs/extender.md); with several "
            "replicas, ask each",
        )
        yield from findings("K3", [told])


def _is_asked(running: Running) -> bool:
    """ValueError for what are not the metrics of a dynsched."""
    text = running.ask("/metrics").body.decode(errors="replace")
    families = text_string_to_metric_families(text)
    counts = [each for family in families for each in family.samples if each.name == _REQUESTS]
    if not counts:
        raise ValueError(f"its /metrics have no {_REQUESTS}; is it an older dynsched?")
    return any(each.value for each in counts)
