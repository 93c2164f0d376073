"""What the demo's Prometheus refuses; `demo/test_demo.py` tests its results."""

from pathlib import Path

import aiohttp
from source_support import source_at

import dynsched_sim
from dynsched.rules.file import load_rules
from dynsched.rules.rule_set import Rule
from dynsched_sim.load import DemoLoad
from dynsched_sim.prometheus_api import Machine, SimulatedPrometheus, serve


async def test_queries_other_than_the_demos_rules_are_refused_with_an_explanation() -> None:
    rules = load_rules(Path(dynsched_sim.__file__).with_name("demo-rules.yaml"))
    simulated = SimulatedPrometheus([Machine("worker-1", "10.0.0.1")], rules.rules, DemoLoad(1))
    async with serve(simulated.application()) as url, aiohttp.ClientSession() as session:
        other = await source_at(url).query(Rule(name="other", expr="up", threshold=1))
        assert other.samples == ()
        assert "this is the simulator of dynsched demo, not a Prometheus" in (other.error or "")
        async with session.get(f"{url}/api/v1/labels") as answer:
            assert answer.status == 400
            body = await answer.json()
        assert (body["status"], body["errorType"]) == ("error", "bad_data")
