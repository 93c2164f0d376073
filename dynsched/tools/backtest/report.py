"""Before and after dynsched began to act: overload, pods, writes and incidents, by day."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from dynsched.engine.columns import Bools, Floats
from dynsched.sources.prometheus import PrometheusSource
from dynsched.tools.backtest.engine import Record
from dynsched.tools.backtest.kube_state import LIMIT, first_moment
from dynsched.tools.backtest.summary import DAY
from dynsched.util.formatting import format_time

ROWS: Final = 31  # what fits on a sheet: of a longer time a row is several days
_STEP, _POINTS = 600.0, 10_000
_ACTS: Final = (
    "max(dynsched_marked_nodes) > 0 or max(dynsched_order_last_write_timestamp_seconds) > 0 "
    "or max(dynsched_extender_requests_total) > 0"
)
_DEEDS: Final[Mapping[str, str]] = {
    "writes": "sum(increase(dynsched_patches_total[1h])) / 3600",
    "not_seen_seconds": '(sum(dynsched_rule_readings{quality="ok"}) or vector(0)) == bool 0',
    "alert_seconds": 'group by (alertname) (ALERTS{alertname=~"Dynsched.+",alertstate="firing"})',
}
"""By their names in the report, what comes of them in a second."""
_PODS: Final = ("pods_placed", "pods_on_hot", "pods_with_room")


async def before_and_after(
    source: PrometheusSource, record: Record, regret: Mapping[str, Any], began: float
) -> dict[str, Any]:
    """``regret``: empty where nothing is known of pods; ``began``: Unix seconds, 0: ask for it. The
    day on which it began counts neither as before nor as after.
    """
    window, known, times = record.window, record.any_known & record.counted, record.window.times()
    today, hours = window.start // DAY, window.step / 3600
    names = [format_time(day * DAY)[:10] for day in np.arange(today, window.end // DAY + 1)]

    def by_day(moments: Floats, amounts: Any) -> Floats:
        days = (moments // DAY - today).astype(np.int64)
        return np.bincount(days, amounts, len(names)).astype(np.float64)

    columns = {
        "days": by_day(times, known.any(axis=1)) * hours / 24,
        "node_hours": by_day(times, known.sum(axis=1)) * hours,
        "node_hours_over": by_day(times, (record.over & known).sum(axis=1)) * hours,
        "load_hours": by_day(times, record.load) * hours,
    }
    placed = {one["day"]: one for one in regret.get("days", ())}
    for key in _PODS if regret else ():
        columns[key] = np.array([placed.get(day, {}).get(key, 0.0) for day in names])
    since = began or await first_moment(source, window, _ACTS)
    every = math.ceil(max(_STEP, window.step, (window.end - window.start) / _POINTS))
    first = min(max(window.start + every, since or math.inf), window.end)
    limits: list[str] = [*regret.get("limits", ())]
    alerts: dict[str, float] = {}
    is_scraped = await first_moment(source, window, "dynsched_build_info") is not None
    for name, expr in _DEEDS.items() if is_scraped else ():
        answer = await source.query_range(expr, first, window.end, every, limit=LIMIT)
        points = np.array([point for one in answer.series for point in one.points]).reshape(-1, 2)
        columns[name] = every * by_day(points[:, 0], points[:, 1])
        limits += [f"A part is missing: {answer.error}."] if answer.error else []
        named = {one.labels.get("alertname", ""): len(one.points) for one in answer.series}
        alerts |= {alert: every * count for alert, count in named.items() if alert}

    def period(name: str, days: Bools) -> dict[str, Any]:
        sums = {key: float(column[days].sum()) for key, column in columns.items()}

        def per(part: str, whole: str) -> float | None:
            return round(sums[part] / sums[whole], 6) if sums.get(whole) else None

        return {
            "period": name,
            **{key: round(sums[key], 2) for key in ("days", "node_hours", "node_hours_over")},
            "node_hours_over_per_day": per("node_hours_over", "days"),
            "share_over": per("node_hours_over", "node_hours"),
            "mean_load": per("load_hours", "node_hours"),
            "share_on_hot": per("pods_on_hot", "pods_placed"),
            **{key: round(sums[key]) if key in sums else None for key in (*_PODS, *_DEEDS)},
        }

    numbers = np.arange(len(names))
    day, length = (since or math.inf) // DAY - today, math.ceil(len(names) / ROWS)
    rows = [period(name, numbers // length == at) for at, name in enumerate(names[::length])]
    return {
        "began": None if since is None else format_time(since),
        "before": period("before", numbers < day),
        "after": period("after", numbers > day),
        "rows": [row for row in rows if row["days"]],
        "days_of_a_row": length,
        "alerts": alerts,
        "limits": limits,
    }
