"""Durations in the simulated server's tables, as the real one writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dynsched.sim.apiserver.tables import age

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400
AGES = {
    -60: "<invalid>", -1: "0s", 0: "0s", 119: "119s", 120: "2m", 125: "2m5s",
    10 * MINUTE + 5: "10m", 179 * MINUTE: "179m", 3 * HOUR: "3h", 3 * HOUR + 5 * MINUTE: "3h5m",
    8 * HOUR + 5 * MINUTE: "8h", 47 * HOUR: "47h", 2 * DAY + 5 * HOUR: "2d5h",
    8 * DAY + 5 * HOUR: "8d", 729 * DAY: "729d", 2 * YEAR + 3 * DAY: "2y3d", 9 * YEAR + DAY: "9y",
}  # fmt: skip


def test_an_age_is_written_as_kubectl_writes_it() -> None:
    since = {s: (NOW - timedelta(seconds=s)).strftime("%Y-%m-%dT%H:%M:%SZ") for s in AGES}
    assert {seconds: age(text, NOW) for seconds, text in since.items()} == AGES
    assert age(None, NOW) == "<unknown>"
