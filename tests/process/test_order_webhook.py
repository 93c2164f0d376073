"""The order's webhook on real API servers, with mutating policies and without.

The webhook and the policies must change a pod in the same way, and no failure of the webhook may
refuse a pod.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from api_support import api_of
from certificates import Authority
from cluster import EnvtestCluster
from envtest import Envtest
from fake_prometheus import FakePrometheus
from manifest_support import Doc, Kubectl, make_namespace, order_component, shipped
from operator_support import until
from order_cases import (
    AFTER,
    ALL_BUT,
    BEFORE,
    BURSTS,
    EQUAL,
    GATES,
    GETS,
    GOT,
    LEVELS,
    NEW,
    OLD,
    OWNED,
    POOLS,
    PREFERRED,
    RELEASED,
    own_and_order,
    preferring,
    told,
    until_told,
)
from prometheus_support import free_port
from replica_support import metric
from scheduling_support import dynsched, make_pod, rules, set_loads
from store_support import Clock, make_store
from webhook_support import CONFIGURATIONS, at, certificate, configuration, configured

from dynsched.features.order.ranks import Order
from dynsched.features.order.resource import spec_of
from dynsched.features.order.status import LastOrder, OrderStatus
from dynsched.rules import keys
from dynsched.tools.policies import order_problems
from dynsched.util.formatting import format_time, parse_time
from dynsched.util.tls import TlsConfig
from dynsched.web.certificates import ServerTls
from dynsched.web.server import Address, WebServer
from dynsched.web.webhook import make_webhook_app

pytestmark = pytest.mark.slow

ORDER = "/apis/dynsched.io/v1/namespaces/default/nodeorders/dynsched"
POLICY, WEBHOOK, BOTH = "by-policy", "by-webhook", "by-both"
ASKS = {keys.AVOID_LABEL: "true"}
NAME = "kubernetes.io/metadata.name"
RULES = rules(order={"score": {"load": 1}})
DEFAULT = 10
"""Seconds that an API server waits for a webhook without timeoutSeconds; ours has one second."""


@pytest.fixture
async def cluster(envtest: Envtest, tmp_path: Path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as form:
        yield form


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


@pytest.fixture(scope="module")
def kubectl(envtest: Envtest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl; the policies are applied to two of three namespaces that ask for the order."""
    folder = tmp_path_factory.mktemp("order")
    docs = list(yaml.safe_load_all(order_component("default")))
    for doc in docs:
        if doc["kind"].endswith("Binding") and "paramRef" in doc.get("spec", {}):
            wanted = {"key": NAME, "operator": "In", "values": [POLICY, BOTH]}
            doc["spec"]["matchResources"] = {"namespaceSelector": {"matchExpressions": [wanted]}}
    docs += [make_namespace(name, **ASKS) for name in (POLICY, WEBHOOK, BOTH)]
    with Kubectl(envtest.kubeconfig(folder / "kubeconfig")) as found:
        found.apply(docs=docs)
        yield found


class Comparison:
    """Creates a pod in namespaces with the policies, with the webhook and with both."""

    def __init__(self, cluster: EnvtestCluster, status: OrderStatus) -> None:
        self._cluster = cluster
        self._status = status
        self.until = ""

    async def put_in_force(self, order: Order) -> None:
        self.until = format_time(time.time() + 55)
        spec = {**spec_of(order, 0.0), "until": self.until}
        body = {"apiVersion": keys.ORDER_API, "kind": "NodeOrder", "spec": spec}
        await self._cluster.delete(ORDER)
        place = ORDER.rpartition("/")[0]
        _ = (await self._cluster.post(place, body | {"metadata": {"name": keys.ORDER_NAME}})).ok
        self._status.in_force = LastOrder(order, time.time(), parse_time(self.until) or 0.0)

        pod, want = preferring("probe", GOT, OLD), None if order is EQUAL else self.until

        async def is_in_force() -> bool:
            return {await self._ends(name, pod) for name in (POLICY, WEBHOOK, BOTH)} == {want}

        await until(is_in_force, "the order is in force by each way")

    async def _ends(self, namespace: str, pod: Any) -> Any:
        made = (await self._cluster.post(self._path(namespace), pod, dryRun="All")).ok
        return made["metadata"].get("annotations", {}).get(keys.ORDER_ANNOTATION)

    def _path(self, namespace: str) -> str:
        return f"/api/v1/namespaces/{namespace}/pods"

    async def created(self, pod: Any) -> dict[str, Any]:
        """The created pod, which must be the same in all three namespaces.

        Without a token the second of the creation chooses the list, so it must be the same too.
        """
        while True:
            paths = map(self._path, (POLICY, WEBHOOK, BOTH))
            answers = await asyncio.gather(
                *(self._cluster.post(path, pod, dryRun="All") for path in paths)
            )
            pods = [answer.ok for answer in answers]
            if len({made["metadata"]["managedFields"][0]["time"] for made in pods}) == 1:
                return self._same(pods)

    async def released(self, name: str, pod: Any) -> dict[str, Any]:
        """The pod after its scheduling gates were removed."""
        pods = []
        for namespace in (POLICY, WEBHOOK):
            path, held = self._path(namespace), {**pod, "spec": {**pod["spec"]}}
            held["spec"]["schedulingGates"] = GATES
            _ = (await self._cluster.post(path, held)).ok
            less = {"spec": {"schedulingGates": GATES[:1]}}
            before = (await self._cluster.patch(f"{path}/{name}", less)).ok
            assert before["metadata"].get("annotations") == pod["metadata"].get("annotations")
            free = {"spec": {"schedulingGates": None}}
            pods.append((await self._cluster.patch(f"{path}/{name}", free)).ok)
            later = {"metadata": {"labels": {"a": "b"}}}  # now without gates
            changed = (await self._cluster.patch(f"{path}/{name}", later)).ok
            assert changed["spec"] == pods[-1]["spec"]
        return self._same(pods)

    def _same(self, pods: list[dict[str, Any]]) -> dict[str, Any]:
        texts = {
            json.dumps([made["spec"].get("affinity"), made["metadata"].get("annotations")])
            for made in pods
        }
        assert len(texts) == 1, texts
        return pods[0]


@pytest.fixture
async def comparison(cluster, kubectl, authority, tmp_path) -> AsyncIterator[Comparison]:
    folder, status = certificate(authority, tmp_path / "webhook"), OrderStatus()
    ticks = make_store(Clock())
    ticks.show_order(status, with_metrics=False)
    tls = ServerTls(TlsConfig(folder / "tls.crt", folder / "tls.key")).context
    async with WebServer(make_webhook_app(ticks), Address("127.0.0.1", 0), tls) as server:
        body = configuration(authority.cert, url=at(server.port))
        selector = body["webhooks"][0]["namespaceSelector"]["matchExpressions"]
        selector.append({"key": NAME, "operator": "In", "values": [WEBHOOK, BOTH]})
        async with configured(cluster, body):
            yield Comparison(cluster, status)
            await cluster.delete(ORDER)
            for name in (POLICY, WEBHOOK):  # the scheduler of another test module would place them
                await cluster.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)


def with_token(letters: str) -> dict[str, Any]:
    return {"volumes": [{"name": f"kube-api-access-{letters}zzz", "emptyDir": {}}]}


async def test_webhook_and_policies_change_a_pod_in_the_same_way(comparison) -> None:
    """Its affinity and annotations are equal byte for byte."""
    await comparison.put_in_force(POOLS)
    for metadata, more, want in GETS.values():
        pod = make_pod("app", **more)
        pod["metadata"] |= OWNED | metadata
        made = await comparison.created(pod)
        assert (keys.ORDER_ANNOTATION in made["metadata"].get("annotations", {})) is bool(want)
    for metadata, more, _ in BURSTS:
        for letters in ("bb", "bc", "z9", "99", "2k"):
            pod = make_pod("app", **more, **with_token(letters))
            pod["metadata"] |= metadata
            await comparison.created(pod)
        for name in ("a", "job-11", "job-12.a", "web-"):
            pod = make_pod(name.removesuffix("-"), **more)
            pod["metadata"] = {"generateName": name} if name[-1] == "-" else pod["metadata"]
            pod["metadata"] |= metadata
            await comparison.created(pod)
    for order in (LEVELS, ALL_BUT):
        await comparison.put_in_force(order)
        own = {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [
            {"key": "zone", "operator": "Exists"}]}}]}  # fmt: skip
        for affinity in (
            None,
            {},
            {"nodeAffinity": {}},
            {"podAffinity": {}},
            {"nodeAffinity": own},
        ):
            pod = make_pod("app", affinity=affinity)
            assert own_and_order(await comparison.created(pod))


async def test_webhook_and_policies_change_a_copied_pod_in_the_same_way(comparison) -> None:
    for order, number in ((LEVELS, len(NEW)), (EQUAL, 0)):
        await comparison.put_in_force(order)
        for name, (metadata, terms, want) in RELEASED.items():
            got = own_and_order(await comparison.created(preferring(name, metadata, terms)))
            assert order is EQUAL or got == want, name
            assert name != "both" or len(got) == len(BEFORE + AFTER) + number


async def test_webhook_and_policies_change_a_gated_pod_in_the_same_way_at_its_release(
    comparison,
) -> None:
    await comparison.put_in_force(LEVELS)
    for name, (metadata, terms, want) in RELEASED.items():
        pod = preferring(name, metadata, terms)
        assert own_and_order(await comparison.released(name, pod)) == want, name
    await comparison.put_in_force(EQUAL)
    assert own_and_order(await comparison.released("equal", preferring("equal", GOT, OLD))) == []


@pytest.fixture
async def before(before_136: Envtest, tmp_path: Path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(before_136, tmp_path) as form:
        await form.patch("/api/v1/namespaces/default", {"metadata": {"labels": ASKS}})
        yield form


@pytest.fixture
def token(before: EnvtestCluster) -> Iterator[str]:
    """A token of the service account that the component order-webhook creates."""
    with Kubectl(before.kubeconfig) as kubectl:
        kubectl.apply("-k", shipped("order-webhook"))
        yield kubectl.token("dynsched", "dynsched")


async def created(cluster: EnvtestCluster) -> tuple[float, list[list[str]] | None]:
    """Seconds that the creation of a pod took, and the nodes of its levels."""
    began = time.monotonic()
    levels = await told(cluster)
    return time.monotonic() - began, levels


async def test_pods_get_the_order_without_policies(before, token, authority, tmp_path) -> None:
    """Each of two replicas answers with the component's permissions and without writing an object.
    Renewed certificates are read.
    """
    folder = certificate(authority, tmp_path / "webhook")
    policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
    assert (await before.get(policies)).status == 404
    account = before.servers.kubeconfig(tmp_path / "kubeconfig-account", token)
    ports = free_port(), free_port()
    flags = [("--webhook-cert-dir", str(folder), "--webhook-addr", f"127.0.0.1:{port}",
              "--kubeconfig", str(account), "--lease-namespace", "dynsched")
             for port in ports]  # fmt: skip
    loads = {"hot": 95.0, "n0": 50.0, "n1": 60.0}
    async with FakePrometheus() as prometheus, api_of(before.kubeconfig) as api:
        await set_loads(before, prometheus, loads)
        ((what, fix),) = await order_problems(api)
        assert ("has no caBundle" in what, fix) == (True, "see docs/order.md#the-certificate")
        async with (
            dynsched(before, prometheus, tmp_path, RULES, *flags[0]) as first,
            dynsched(before, prometheus, tmp_path, RULES, *flags[1]) as second,
        ):
            for port, operator in zip(ports, (first, second), strict=True):
                await reach(before, configuration(authority.cert, url=at(port)))
                await until_told(before, [["n0"], ["n1"]], "pods get the order")
                assert await order_problems(api) == []
                answer = json.loads((await operator.get("/order"))[1])
                assert (answer["by"], answer["error"]) == ("webhook", None)
                assert answer["until"] > answer["written_at"]
                assert await operator.get("/status") == (200, "ok")
                assert await metric(operator, 'dynsched_order_writes_total{result="failed"}') == 0
            prometheus.set(load=loads | {"n0": 75.0})
            certificate(authority, folder, "renewed")
            await until_told(before, [["n1"], ["n0"]], "pods get the order")
            await second.stop()
            await until_told(before, None, "pods are created as always")
            assert "answered 403" not in first.log + second.log
            assert "TLS" not in first.log.replace("TLS: the certificate was read again", "")


async def reach(cluster: EnvtestCluster, body: Doc) -> None:
    """Put another address into the applied configuration, because Services do not work here."""
    path = f"{CONFIGURATIONS}/{keys.ORDER_POLICY}"
    client = body["webhooks"][0]["clientConfig"]
    found = (await cluster.get(path)).ok
    found["webhooks"][0]["clientConfig"] = client
    _ = (await cluster.put(path, found)).ok


async def _garbage(_request: web.Request) -> web.Response:
    return web.Response(text="<html>", content_type="text/html")


async def test_with_any_fault_of_the_webhook_pods_are_created_as_always(
    before, prometheus, authority, tmp_path
) -> None:
    folder = certificate(authority, tmp_path / "webhook")
    (tmp_path / "other").mkdir()
    foreign = Authority(tmp_path / "other", "other")
    tls = ServerTls(TlsConfig(folder / "tls.crt", folder / "tls.key")).context
    app = web.Application()
    app.router.add_post("/garbage", _garbage)
    await set_loads(before, prometheus, {"n0": 50.0, "n1": 60.0})
    port = free_port()
    flags = ("--webhook-cert-dir", str(folder), "--webhook-addr", f"127.0.0.1:{port}")
    async with (
        WebServer(app, Address("127.0.0.1", 0), tls) as odd,
        dynsched(before, prometheus, tmp_path, RULES, *flags) as operator,
    ):
        good = configuration(authority.cert, url=at(port))
        wrong = {
            "nobody listens": configuration(authority.cert, url=at(free_port())),
            "another CA": configuration(foreign.cert, url=at(port)),
            "garbage": configuration(authority.cert, url=f"{odd.url}/garbage"),
        }
        for what, body in wrong.items():
            async with configured(before, good):
                await until_told(before, [["n0"], ["n1"]], "pods get the order")
            async with configured(before, body):
                await until_told(before, None, "pods are created as always")
                took, levels = await created(before)
                assert (took < DEFAULT, levels) == (True, None), what
        async with configured(before, good):
            await until_told(before, [["n0"], ["n1"]], "pods get the order")
            os.kill(operator.process.pid, signal.SIGSTOP)
            try:
                for _ in range(3):
                    took, levels = await created(before)
                    assert (1 <= took < DEFAULT, levels) == (True, None)
            finally:
                os.kill(operator.process.pid, signal.SIGCONT)
            await until_told(before, [["n0"], ["n1"]], "pods get the order")
