"""What the simulated API server does wrong on request, and what it remembers. That it answers and
delays as ordered is what the tests of the faults' victims begin with.
"""

import aiohttp
import pytest
from cluster import NODES, SimCluster

from dynsched_sim.examples import make_node

PATCH = {"metadata": {"labels": {"status": "presure"}}}


def labels(sim: SimCluster) -> dict[str, str]:
    found: dict[str, str] = sim.server.objects.get("nodes", "a")["metadata"]["labels"]
    return found


async def test_a_connection_can_be_cut_before_or_after_the_write(sim: SimCluster) -> None:
    await sim.create_node(make_node("a"))
    for after in (False, True):
        sim.server.faults.reset(after=after, verb="patch", times=1)
        with pytest.raises(aiohttp.ClientError):
            await sim.patch(f"{NODES}/a", PATCH)
        assert ("status" in labels(sim)) is after
        last = sim.server.requests.writes("nodes")[-1]
        assert (last.verb, last.status) == ("patch", 0)
    assert (await sim.patch(f"{NODES}/a", PATCH)).status == 200


async def test_the_server_can_be_away_and_come_back_with_everything(sim: SimCluster) -> None:
    await sim.create_node(make_node("a"))
    start = str(sim.server.store.version)
    async with sim.watch(NODES, resourceVersion=start) as watch:
        await sim.server.down()
        with pytest.raises(aiohttp.ClientError):
            await watch.next()
    with pytest.raises(aiohttp.ClientConnectorError):
        await sim.get(NODES)
    await sim.server.up()
    assert sim.server.url == sim.url
    assert (await sim.get_node("a"))["metadata"]["name"] == "a"


async def test_an_answer_can_be_ordered_for_what_is_named_so_many_times(sim: SimCluster) -> None:
    for name in "ab":
        await sim.create_node(make_node(name))
    faults = sim.server.faults
    fault = faults.answer(429, verb="patch", name="a", times=1, retry_after=1)
    answer = await sim.patch(f"{NODES}/a", PATCH)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    assert (answer.body["kind"], answer.body["reason"]) == ("Status", "TooManyRequests")
    assert ("status" in labels(sim), fault.hits) == (False, 1)
    faults.answer(504, verb="patch", name="a", message="etcd is away", after=True)
    assert (await sim.patch(f"{NODES}/a", PATCH)).body["message"] == "etcd is away"
    assert labels(sim)["status"] == "presure"
    assert (await sim.patch(f"{NODES}/b", PATCH)).status == 200
    faults.answer(503, body="<html>no backend</html>", path="/version")
    assert (await sim.get("/version")).text == "<html>no backend</html>"


@pytest.mark.parametrize(("how", "codes"), [("end", []), ("gone", [410])])
async def test_watches_can_be_ended(sim: SimCluster, how: str, codes: list[int]) -> None:
    async with sim.watch(NODES) as watch:
        await sim.create_node(make_node("a"))
        assert (await watch.next() or {})["type"] == "ADDED"
        assert sim.server.drop_watches(how) == 1
        assert [event["object"]["code"] for event in await watch.rest()] == codes
