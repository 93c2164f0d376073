"""One query per rule at a time; a hanging one delays neither other rules nor a tick."""

import asyncio

import pytest
from virtual_loop import VirtualLoop

from dynsched.controller.queries import Queries
from dynsched.core.samples import QueryResult, Sample
from dynsched.rules.rule_set import Rule

FAST = Rule(name="fast", expr="fast", threshold=80)
SLOW = Rule(name="slow", expr="slow", threshold=80)


class Source:
    """Returns a sample of the current time; the rule ``slow`` takes ``hangs`` seconds."""

    def __init__(self, hangs: float) -> None:
        self.hangs = hangs
        self.queried: list[str] = []

    async def query(self, rule: Rule) -> QueryResult:
        self.queried.append(rule.name)
        if rule is SLOW:
            await asyncio.sleep(self.hangs)
        now = asyncio.get_running_loop().time()
        return QueryResult((Sample({"node": "a"}, 1.0, now),))


@pytest.fixture
def virtual() -> VirtualLoop:
    return VirtualLoop()


Asked = list[tuple[float, dict[str, float | None], set[str]]]


async def ticks(queries: Queries, count: int) -> Asked:
    """For ``count`` ticks, 10 s apart: when its results were there, their timestamps by rule, and
    the rules with a new one.
    """
    loop, found = asyncio.get_running_loop(), []
    for number in range(count):
        await asyncio.sleep(10.0 * number - loop.time())
        answers = await queries.ask((FAST, SLOW), 8.0)
        taken = {n: a.samples[0].timestamp if a.samples else None for n, a in answers.items()}
        found.append((loop.time(), taken, {n for n, a in answers.items() if a.is_new}))
    await queries.close()
    return found


def test_a_hanging_query_delays_only_the_first_tick(virtual: VirtualLoop) -> None:
    source = Source(hangs=25.0)
    with asyncio.Runner(loop_factory=lambda: virtual) as runner:
        found = runner.run(ticks(Queries({"prometheus": source}), 5))
    assert found == [
        (8.0, {"fast": 0.0, "slow": None}, {"fast"}),
        (10.0, {"fast": 10.0, "slow": None}, {"fast"}),
        (20.0, {"fast": 20.0, "slow": None}, {"fast"}),
        (30.0, {"fast": 30.0, "slow": 25.0}, {"fast", "slow"}),
        (40.0, {"fast": 40.0, "slow": 25.0}, {"fast"}),
    ]
    assert [source.queried.count(rule) for rule in ("fast", "slow")] == [5, 2]


def test_a_rule_without_a_result_yet_has_failed(virtual: VirtualLoop) -> None:
    async def ask() -> QueryResult:
        queries = Queries({"prometheus": Source(hangs=60.0)})
        answers = await queries.ask((SLOW,), 8.0)
        await queries.close()
        return answers["slow"]

    with asyncio.Runner(loop_factory=lambda: virtual) as runner:
        answer = runner.run(ask())
    assert answer.error is not None
    assert answer.samples == ()


async def test_without_a_time_limit_all_results_are_awaited() -> None:
    queries = Queries({"prometheus": Source(hangs=0.05)})
    answers = await queries.ask((FAST, SLOW), None)
    assert [answer.error for answer in answers.values()] == [None, None]
