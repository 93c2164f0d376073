"""What an experiment showed, from Prometheus alone: each block's values, without its wash-out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dynsched.engine.columns import Bools, Floats
from dynsched.engine.experiment import default_wash_out, is_on
from dynsched.engine.load.expected import KnownPods
from dynsched.rules.rule_set import RuleSet
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.tools.backtest.gathering import server_time
from dynsched.tools.backtest.rendering import Section, columns
from dynsched.tools.experiment.analysis import FEWEST, effect_of
from dynsched.util.durations import format_duration
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import format_threshold, format_time

Json = dict[str, Any]

LOOKED_BACK: Final = 28 * 86_400.0
_AT_ONCE: Final = 86_400.0
"""Seconds of the past that one query is about: within it the server keeps all samples."""
_STEPS: Final = 60  # moments of a block at which an expression is asked for
_BEFORE: Final = "offset 1s"
"""At the very end of a block the next one has begun. (Servers with a cache shift moments that are
no multiples of the step.)"""
_PLACED: Final = "dynsched_pods_placed_total"
_COLUMNS: Final = columns(
    *("OUTCOME outcome", "ON on", "OFF off", "ON LESS OFF effect", "FROM low", "TO high"),
    "MORE blocks_more",
)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """An even number of blocks, by their numbers since 1970; seconds."""

    source: PrometheusSource
    numbers: range
    block: float
    measured: int

    async def ask(self, expr: str, label: str = "") -> dict[str, Floats]:
        """By the value of ``label``, that of the expression at the end of each block; NaN where
        there is none. In it ``{range}`` is what is measured, ``{steps}`` that for a subquery.
        """
        found: dict[str, Floats] = {}
        step = max(1, min(30, self.measured // _STEPS))
        expr = expr.replace("{steps}", f"[{self.measured}s:{step}s] {_BEFORE}")
        expr = expr.replace("{range}", f"[{self.measured}s] {_BEFORE}")
        at_once = max(1, int(_AT_ONCE // self.block))
        for first in self.numbers[::at_once]:
            last = min(first + at_once, self.numbers.stop)
            moments = (first + 1) * self.block, last * self.block, self.block
            answer = await self.source.query_range(expr, *moments)
            if answer.error is not None:
                raise ExpectedError(answer.error)
            for one in answer.series:
                nothing = np.full(len(self.numbers), np.nan)
                column = found.setdefault(one.labels.get(label, ""), nothing)
                for moment, value in one.points:
                    column[round(moment / self.block) - 1 - self.numbers.start] = value
        return found


async def experiment(
    config: PrometheusConfig, rule_set: RuleSet, since: float | None, precision: float
) -> Json:
    """The report; ExpectedError says why nothing can be told. ``since``: Unix seconds; None:
    LOOKED_BACK before the end. ``precision``: as a share of what is off.
    """
    if (rules := rule_set.experiment) is None:
        raise ExpectedError("the rules file has no section `experiment`; see docs/experiment.md")
    source = PrometheusSource(config)
    try:
        end = min(await server_time(source), rules.until)
        begin = end - LOOKED_BACK if since is None else since
        over = f"[{max(1, round(end - begin))}s:5m]"
        expr = f"quantile_over_time(0.5, max(dynsched_pods_median_life_seconds){over})"
        lives = (await source.query_range(expr, end, end, 1.0)).series
        life = lives[0].points[-1][1] if lives else None
        wash_out = rules.wash_out
        if wash_out is None:
            wash_out = default_wash_out(rule_set, KnownPods(median_life=life))
        if max(wash_out + 2, life or 0.0) >= rules.block:
            raise ExpectedError(
                f"half of the pods live longer than {_told(life)}, and the first {_told(wash_out)} "
                f"of a block are not measured: a block of {_told(rules.block)} is too short, for "
                "what one arm places burdens the other one. Set a longer experiment.block"
            )
        numbers = range(*(2 * int(moment // (2 * rules.block)) for moment in (begin, end)))
        blocks = _Blocks(source, numbers, rules.block, round(rules.block - wash_out) - 1)
        on = np.array([is_on(rules, number) for number in numbers], np.bool_)
        counts = await _counting(blocks, rule_set.fingerprint, on)
        outcomes = []
        for name, expr in _outcomes(rule_set).items():
            values = (await blocks.ask(expr)).get("", np.full(len(on), np.nan))
            found = effect_of(values[counts & on], values[counts & ~on])
            told: Json = dict.fromkeys(("on", "off", "effect", "low", "high", "blocks_more"))
            if found is not None:
                told = {key: round(value, 6) for key, value in found._asdict().items()}
                wanted = precision * abs(found.off)
                told["blocks_more"] = found.blocks_more(wanted) if wanted else None
            outcomes.append({"outcome": name, **told})
    finally:
        await source.close()
    first, last = np.flatnonzero(counts)[[0, -1]].tolist()
    return {
        "since": format_time(numbers[first] * rules.block),
        "until": format_time((numbers[last] + 1) * rules.block),
        "block_seconds": rules.block,
        "wash_out_seconds": wash_out,
        "pods_median_life_seconds": life,
        "blocks": int(counts.sum()),
        "precision": precision,
        "outcomes": outcomes,
    }


async def _counting(blocks: _Blocks, digest: str, on: Bools) -> Bools:
    """Which blocks count: both of a pair, whose arms dynsched had as the seed gives them."""
    expr = "avg_over_time(max by (rules) (dynsched_experiment_arm){steps})"
    found = await blocks.ask(expr, "rules")
    arm = found.pop(digest, np.full(len(on), np.nan))
    if found:
        last = max(np.flatnonzero(~np.isnan(other))[-1].item() for other in found.values())
        raise ExpectedError(
            "other rules than those in this file were in force too, at last in the block until "
            f"{format_time((blocks.numbers[last] + 1) * blocks.block)}: their blocks cannot be "
            "compared. Give the file that was in force then, or begin later with --since"
        )
    counts = np.repeat((arm == on)[::2] & (arm == on)[1::2], 2)
    if (pairs := int(counts.sum()) // 2) < FEWEST:
        raise ExpectedError(
            f"there are {pairs} blocks an arm in which the experiment went on and dynsched was "
            f"scraped, and it takes {FEWEST}: wait for {2 * (FEWEST - pairs)} blocks more"
        )
    return counts


def _outcomes(rule_set: RuleSet) -> dict[str, str]:
    """By its name, which value of a block is asked for."""
    over = {
        f"% of node-time over {rule.name}": "100 * avg_over_time(avg((\n"
        f"{rule.expr}\n) {rule.op} bool {format_threshold(rule.threshold)}){{steps}})"
        for rule in rule_set.asked_rules
        if rule.expr is not None
    }
    hot = f'sum(increase({_PLACED}{{node_state="hot"}}{{range}}))'
    throttled = 'container_cpu_cfs_throttled_seconds_total{container!=""}{range}'
    return over | {
        "% of pods placed on hot nodes": f"100 * {hot} / (sum(increase({_PLACED}{{range}})) > 0)",
        "writes to nodes an hour": "3600 * sum(rate(dynsched_patches_total{range}))",
        "CPU seconds throttled an hour": f"3600 * sum(rate({throttled}))",
    }


def sections(report: Json) -> list[Section]:
    """The report for people."""
    block, wash_out, life = (
        _told(report[f"{key}_seconds"]) for key in ("block", "wash_out", "pods_median_life")
    )
    what = (
        f"{report['blocks']} blocks of {block}, half of them with marks and the order on, from "
        f"{report['since']} to {report['until']}; the first {wash_out} of each are left out. Half "
        f"of the pods live longer than {life}."
    )
    how = (
        "95 % intervals by randomization within pairs of blocks (docs/experiment.md). MORE: how "
        f"many blocks until an interval reaches {report['precision']:.0%} of OFF to each side."
    )
    outcomes = report["outcomes"]
    unsure = [each["outcome"] for each in outcomes if (each["low"] or 0) * (each["high"] or 0) <= 0]
    said = [f"No difference is shown in: {', '.join(unsure)}."] if unsure else []
    return [Section("Experiment", [what, how, *said], _COLUMNS, outcomes)]


def _told(seconds: float | None) -> str:
    return "(not known)" if seconds is None else format_duration(round(seconds))
