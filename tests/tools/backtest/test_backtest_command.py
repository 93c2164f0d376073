"""`dynsched backtest` from the command line."""

import asyncio
import json
import re
import time
from pathlib import Path

import pytest
from builders import rule
from cluster import SimCluster
from command_line import call_of
from fake_prometheus import FakePrometheus

from dynsched_sim.examples import make_node

HOUR = ("--since", "1h", "--step", "30s")
CPU, MEM = rule("cpu", expr="cpu"), rule("mem", expr="mem")
TABLE = Path(__file__).with_name("compare.txt")

NO_PAST = {"name": "m", "source": "metrics-server", "resource": "cpu", "threshold": 80}


def rules(*given, **sections):
    """A rules file without a cap."""
    return {"guard": {"max_marked": "100%"}, "rules": list(given), **sections}


@pytest.fixture
async def call(tmp_path, capsys, sim: SimCluster):
    """Run `dynsched backtest` in a thread, on the nodes a and b: (exit code, stdout, stderr)."""
    await sim.create_nodes("a", "b")

    async def called(url, rules, *more):
        path = tmp_path / "rules.yaml"
        path.write_text(json.dumps(rules))  # JSON is YAML
        words = ["backtest", "--prom", url, "-r", path, "--kubeconfig", sim.kubeconfig, *more]
        return await asyncio.to_thread(call_of, capsys, *words)

    return called


@pytest.fixture
def reported(call):
    """The report of a run that succeeded."""

    async def reported(url, rules, *more):
        code, out, err = await call(url, rules, *more, "-o", "json")
        assert code == 0, err
        return json.loads(out)

    return reported


@pytest.fixture
def one_hot_node(prometheus: FakePrometheus) -> str:
    """Node ``a`` is hot for 10 minutes, cool for 5, then hot until now; ``b`` stays cool."""
    for since, load in ((7200, 10), (1500, 90), (900, 10), (600, 95)):
        prometheus.set(since, cpu={"a": load, "b": 20})
    return prometheus.url


async def test_marks_and_flaps_are_counted(reported, one_hot_node: str) -> None:
    report = await reported(one_hot_node, rules(CPU), *HOUR)
    (cpu,) = report["rules"]
    assert (cpu["marks"], cpu["flaps"], cpu["coverage"]) == (2, 1, 1.0)
    assert cpu["node_time_marked"] == pytest.approx(20 / 120, abs=0.01)
    assert cpu["median_mark_seconds"] == pytest.approx(600, abs=60)
    assert [node["node"] for node in report["nodes"]] == ["a", "b"]
    assert report["total"]["writes_per_day"] == pytest.approx(3 * 24, abs=1)


async def test_the_table_equals_the_golden_file(
    call, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    end = 1_699_999_200
    for since, load in ((7200, 10), (1500, 90), (900, 10), (600, 95)):
        # 15 s off the steps, so the test's duration does not change the result.
        prometheus.set(time.time() - end + since + 15, cpu={"a": load, "b": 20})
    other = tmp_path / "other.yaml"
    trial = rule("trial", expr="cpu", threshold=15, shadow=True)
    other.write_text(json.dumps(rules({**CPU, "keep_firing_for": "10m"}, trial)))
    alone = (prometheus.url, rules(CPU, MEM), *HOUR, "--until", f"{end}")
    both = (*alone, "--compare", str(other))
    lines = [line.rstrip() for each in (alone, both) for line in (await call(*each))[1].split("\n")]
    assert lines == TABLE.read_text().split("\n")
    _, out, _ = await call(*both, "-o", "json")
    (changed,) = json.loads(out)["difference"]
    assert (changed["node"], changed["marks_before"], changed["marks_after"]) == ("a", 2, 1)


async def test_a_rule_by_expected_is_replayed_with_measured_values(reported, one_hot_node) -> None:
    expected = {**CPU, "by": "expected"}
    report = [await reported(one_hot_node, rules(each), *HOUR) for each in (CPU, expected)]
    assert report[0]["rules"] == report[1]["rules"]


async def test_the_clusters_nodes_decide_which_are_eligible(
    reported, prometheus: FakePrometheus, sim: SimCluster
) -> None:
    for number, name in enumerate("cd"):
        await sim.create_node(make_node(name, number))
    await sim.patch_node("d", {"metadata": {"labels": {"dynsched.io/ignore": "true"}}})
    await sim.patch_node("b", {"metadata": {"labels": {"kind": "other"}}})
    prometheus.set(7200, cpu={"a": 90, "b": 90, "d": 99, "gone": 99})
    report = await reported(prometheus.url, rules({**CPU, "selector": "kind!=other"}), *HOUR)
    assert {node["node"]: node["marks"] for node in report["nodes"]} == {"a": 1, "b": 0, "c": 0}
    assert report["node_count"] == 4
    assert report["rules"][0]["coverage"] == 0.5  # a of a and c: b is not selected
    assert any("no node now has the name or address gone" in note for note in report["notes"])


async def test_a_history_shorter_than_the_window_is_reported_first(
    reported, prometheus: FakePrometheus
) -> None:
    prometheus.set(1740, cpu={"a": 90, "b": 20})
    report = await reported(prometheus.url, rules(CPU), "--since", "7d", "--step", "60s")
    assert report["notes"][0].startswith("The history begins at ")
    (cpu,) = report["rules"]
    assert cpu["marks"] == 1
    for part in (cpu, report["total"], report["nodes"][0]):
        assert part["coverage"] == pytest.approx(29 / 10080, abs=2e-4)


async def test_the_window_ends_at_the_time_of_prometheus(reported, prometheus) -> None:
    behind = (time.time() - 86_400) // 10_000 * 10_000  # the fake writes six digits
    prometheus.set(110_000, cpu={"a": 90, "b": 20}, **{"vector(time())": {"x": behind}})
    report = await reported(prometheus.url, rules(CPU), *HOUR)
    assert report["until"].startswith(time.strftime("%Y-%m-%dT%H", time.gmtime(behind)))
    assert report["rules"][0]["coverage"] == 1.0


async def test_a_note_says_that_metrics_server_keeps_no_history(reported, prometheus) -> None:
    prometheus.set(7200, cpu={"a": 90})
    notes = (await reported(prometheus.url, rules(CPU, NO_PAST), *HOUR))["notes"]
    assert "Rule m: source metrics-server keeps no history" in notes[0]


async def test_refused_and_partial_results_are_reported_and_do_not_affect_other_rules(
    call, prometheus: FakePrometheus
) -> None:
    prometheus.set(7200, cpu={"a": 90, "b": 20}, mem={"a": 90})
    prometheus.failing = {"cpu": 403}
    code, _, err = await call(prometheus.url, rules(CPU), *HOUR)
    assert (code, "HTTP 403" in err) == (1, True)
    assert "no part of the history could be had" in err
    prometheus.failing = {"mem": 422}
    code, out, err = await call(prometheus.url, rules(CPU, MEM), *HOUR, "-o", "json")
    report = json.loads(out)
    assert code == 0
    assert [one["coverage"] for one in report["rules"]] == [1.0, 0.0]
    assert any("Rule mem: no data from" in note and "422" in note for note in report["notes"])
    prometheus.failing, prometheus.warnings = {}, ["store 3 unavailable"]
    _, out, _ = await call(prometheus.url, rules(CPU), *HOUR, "-o", "json")
    (note,) = json.loads(out)["notes"]
    assert "answers were partial" in note
    assert "store 3 unavailable" in note


async def test_the_step_grows_if_there_would_be_too_many_samples(reported, prometheus) -> None:
    prometheus.set(7200, cpu={"a": 50}, **{"count(\ncpu\n)": {"x": 400_000}})
    report = await reported(prometheus.url, rules(CPU), *HOUR)
    assert report["step_seconds"] == 90
    assert report["notes"] == [
        "The step is 1m30s instead of 30s, to stay within 20,000,000 samples."
    ]


@pytest.mark.parametrize(
    ("rule_given", "flags", "expected"),
    [
        (CPU, ("--kubeconfig", "none"), "1 .*none: no such file"),
        (NO_PAST, HOUR, "1 .*no history to replay"),
        (CPU, ("--compare", "none.yaml"), "1 .*none.yaml: No such file.*--compare"),
        *(
            (CPU, (*HOUR, "--until", text), "2 .*--until.*how long ago")
            for text in ("noon", "-5", "1e300", "1969-12-31T00:00:00Z")
        ),
        *((CPU, (*HOUR, "--since", text), "2 .*--since") for text in ("x", "nan", "1e300")),
        (CPU, ("--step", "0"), "2 .*--step"),
        (CPU, ("-o", "html"), "2 .*'table', 'json'"),
    ],
)
async def test_an_impossible_replay_is_an_error_without_a_traceback(
    call, prometheus: FakePrometheus, rule_given, flags, expected
) -> None:
    code, _, err = await call(prometheus.url, rules(rule_given), *flags)
    assert re.match(expected, f"{code} {err}", re.DOTALL)
    assert "Traceback" not in err
