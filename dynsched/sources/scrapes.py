"""How often the target is scraped that a rule's samples come from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from dynsched.engine.model import Sample
from dynsched.rules.rule_set import Rule

SCRAPES_OVER: Final = 600.0
"""Seconds over which scrapes are counted."""

Ask = Callable[[str, str], Awaitable[Sequence[Sample] | None]]
"""An expression and the label that names the node -> samples; None when the query failed."""


async def scrape_interval(ask: Ask, rule: Rule) -> float | None:
    """In seconds; None when it is not known. That of the target which has the label by which the
    rule's samples name their node.
    """
    for sample in (await ask(rule.expr or "", rule.node_labels[-1]) or ())[:1]:
        for label in rule.node_labels:
            value = sample.labels.get(label)
            if value is not None:
                return await _interval_of(ask, label, value)
    return None


async def _interval_of(ask: Ask, label: str, value: str) -> float | None:
    quoted = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    target, over = f'up{{{label}="{quoted}"}}', f"{SCRAPES_OVER:.0f}s"
    # A target that is younger was scraped seldom within the time, and not at a long interval.
    expr = f"max(count_over_time({target}[{over}]) and {target} offset {over})"
    samples = await ask(expr, label) or ()
    counts = [sample.value for sample in samples if sample.value > 1]
    return SCRAPES_OVER / counts[0] if counts else None
