"""rules.yaml is replaced again and again while callers ask as a kube-scheduler does."""

import asyncio
import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from operator_support import Operator, until
from scheduling_support import RULE, dynsched, rules, set_loads

pytestmark = pytest.mark.slow

LOADS = {"hot-0": 95.0, "hot-1": 93.0, "cool-0": 20.0, "cool-1": 30.0, "cool-2": 40.0}
EACH = 3
"""Questions that are answered under each state of the file, at least."""

WITHOUT = "without a section extender"
STATES: dict[str, Any] = {
    "linear": rules(extender={"profiles": {"default": {"score": {"load": 1}}}}),
    "rejects": rules(extender={"reject": ["load"]}),
    "not YAML": "rules: [",
    "relative": rules(
        extender={"profiles": {"default": {"score": {"load": 3}, "method": "relative"}}}
    ),
    "a bad value": rules(extender={"reject": ["none-such"]}, stale_after="soon"),
    WITHOUT: rules(),
    "requires a label": rules(extender={"require_label": "kubernetes.io/hostname"}),
    "deleted": None,
    "counts pods": rules(
        rules=[{**RULE, "by": "expected"}],
        extender={"profiles": {"default": {"score": {"load": 1}, "method": "relative"}}},
    ),
    "another rule": rules(
        rules=[{**RULE, "name": "other", "threshold": 90, "for": "5m"}],
        extender={"reject": ["other"], "profiles": {"none-such": {"score": {"other": 1}}}},
    ),
    "a rule that knows nothing": rules(
        rules=[{**RULE, "expr": "nothing"}], extender={"reject": ["load"]}
    ),
}
REFUSED = ("not YAML", "a bad value", "deleted")
HOT = {"hot-0", "hot-1"}


def write(path: Path, content: Any) -> None:
    """Replace the file as `kubectl` and editors do: the old one or the new one, never a half."""
    if content is None:
        path.unlink()
        return
    fresh = path.with_suffix(".new")
    fresh.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    fresh.replace(path)


async def at_work(operator: Operator, state: str) -> bool:
    """Whether a tick has gone by the file as it is now."""
    code, text = await operator.get("/status", "application/json")
    status = json.loads(text) if code in {200, 503} else {}
    if not status.get("tick") or (status["rules_error"] is not None) != (state in REFUSED):
        return False
    if state in REFUSED:
        return True
    loaded = json.loads((await operator.get("/rules"))[1])["extender"]
    section = STATES[state].get("extender", {})
    return bool(
        section.get("reject", []) == loaded["reject"]
        and section.get("require_label") == loaded["require_label"]
        and set(section.get("profiles", {})) == set(loaded["profiles"])
    )


class Callers:
    """They ask all the time, each as a scheduler does about one pod after the other."""

    def __init__(self, operator: Operator) -> None:
        self.url = f"http://{operator.address}"
        self.phase = WITHOUT
        self.scored = self.kept_off = 0
        self.enough = False

    async def ask(self, caller: int) -> None:
        async with aiohttp.ClientSession(self.url) as session:
            for number in itertools.count():
                if self.enough:
                    return
                meta = {"name": f"{caller}-{number}", "uid": f"uid-{caller}-{number}"}
                question = {"Pod": {"metadata": meta}, "Nodes": None, "NodeNames": [*LOADS]}
                for verb, check in (("filter", self.check_filter), ("prioritize", self.check)):
                    before = self.phase
                    async with session.post(f"/{verb}", json=question) as answer:
                        if answer.status == 404:  # `ignorable` then goes on without
                            assert any(WITHOUT in phase for phase in (before, self.phase))
                        else:
                            assert answer.status == 200
                            check(json.loads(await answer.text()), (before, self.phase))
                self.scored += 1

    def check_filter(self, said: Any, phases: tuple[str, str]) -> None:
        refused = said["FailedAndUnresolvableNodes"] or {}
        assert not said["Error"]
        assert not said["FailedNodes"]
        assert said["NodeNames"] == [name for name in LOADS if name not in refused]
        if phases == ("rejects", "rejects"):
            assert HOT.isdisjoint(said["NodeNames"])
            self.kept_off += 1

    def check(self, said: Any, _: tuple[str, str]) -> None:
        assert [entry["Host"] for entry in said] == [*LOADS]
        assert all(isinstance(entry["Score"], int) and 0 <= entry["Score"] <= 10 for entry in said)


async def test_every_question_is_answered_whatever_becomes_of_the_rules_file(
    sim, prometheus, tmp_path
) -> None:
    await set_loads(sim, prometheus, LOADS)
    async with dynsched(sim, prometheus, tmp_path, STATES[WITHOUT], "-s", "0.1") as operator:
        assert sim.server.requests.reads("pods") == []  # nobody asks: none is watched
        callers = Callers(operator)
        async with asyncio.TaskGroup() as tasks:
            for caller in range(4):
                tasks.create_task(callers.ask(caller))
            for state in (*STATES, "linear"):
                callers.phase = f"{callers.phase} -> {state}"
                write(tmp_path / "rules.yaml", STATES[state])
                await until(partial(at_work, operator, state), f"the file is taken up: {state}")
                callers.phase = state

                def asked(state: str = state, count: int = callers.scored + EACH) -> bool:
                    return callers.scored >= count and (state != "rejects" or callers.kept_off > 0)

                await until(asked, f"pods are asked about: {state}")
            callers.enough = True
    assert "Traceback" not in operator.log
