"""The series of `/metrics` for each node; their values are compared with a plain form in
`test_answers_from_columns`.
"""

from __future__ import annotations

from plain_answers import series_text
from prometheus_client.parser import text_string_to_metric_families
from snapshots import NOON, Scene, example
from store_support import Clock, make_store

from dynsched.core.model import Node
from dynsched.web.node_series import FAMILIES


def series(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """Name -> values of the labels -> value, of the metrics for each node."""
    ours = {name for name, _ in FAMILIES}
    return {
        family.name: {tuple(one.labels.values()): one.value for one in family.samples}
        for family in text_string_to_metric_families(text.decode())
        if family.name in ours
    }


async def test_while_ticks_are_overdue_or_where_they_are_turned_off_there_are_none() -> None:
    clock = Clock()
    snapshots, silent = make_store(clock), make_store(clock, node_series=False)
    assert series(b"".join(await snapshots.exposition())) == {}
    for store in (snapshots, silent):
        store.publish(example())
    for now, shown in ((30.0, True), (30.1, False)):
        clock.now = now
        assert bool(series(b"".join(await snapshots.exposition()))) is shown
    snapshots.publish(example())
    assert series(b"".join(await snapshots.exposition()))
    text = b"".join(await silent.exposition())
    assert b"dynsched_nodes" in text
    assert series(text) == {}


def test_a_rules_name_may_have_quotes_in_it() -> None:
    name = 'a "quoted" \\ name'
    scene = Scene({"rules": [{"name": name, "expr": "load", "threshold": 80}]}, [Node("n1")])
    found = series(series_text(scene.tick(NOON, **{name: {"n1": 40.0}})))
    assert found["dynsched_node_measured_load"] == {("n1", name): 40.0}
