"""The demo's cluster that dynsched watches; its new pods get the order."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dynsched.features.order.webhook import PREFERRED
from dynsched.rules import keys
from dynsched.rules.labels import parse_label
from dynsched.rules.rule_set import RuleSet
from dynsched.rules.shipped import shipped_rules
from dynsched.util.formatting import parse_time
from dynsched_sim.apiserver.api_server import ApiServer
from dynsched_sim.apiserver.objects import Write
from dynsched_sim.apiserver.resources import NODE_ORDERS
from dynsched_sim.examples import make_node, make_pod
from dynsched_sim.load import DemoLoad
from dynsched_sim.prometheus_api import Machine, SimulatedPrometheus

HOME: Final = "dynsched"
"""The namespace of the NodeOrder."""
_SHOP: Final = "shop"


class OrderedCluster:
    """Nodes `worker-01` and so on, and the pods on them; the load starts with the constructor."""

    def __init__(self, api: ApiServer, nodes: int, load: DemoLoad, rules: RuleSet) -> None:
        self._objects, self._label = api.objects, parse_label(keys.DEFAULT_LABEL)
        machines = []
        width = max(2, len(str(nodes)))
        for index in range(nodes):
            body = make_node(f"worker-{index + 1:0{width}}", index)
            api.objects.create("nodes", body)
            addresses = {entry["type"]: entry["address"] for entry in body["status"]["addresses"]}
            machines.append(Machine(body["metadata"]["name"], addresses["InternalIP"]))
        self.nodes = [machine.name for machine in machines]
        labels = {keys.AVOID_LABEL: "true"}
        api.objects.create("namespaces", {"metadata": {"name": _SHOP, "labels": labels}})
        self.load, self._names = load, dict[int, str]()
        self.marked = list[str]()
        answered = (*rules.rules, *shipped_rules().rule_set.rules)  # the latter for `dynsched top`
        self.prometheus = SimulatedPrometheus(machines, answered, load)
        self.go_on()
        self.hottest = max(zip(load.ordered.cpu, self.nodes, strict=True))[1]

    def go_on(self) -> None:
        """Advance to the present: delete the pods that ended and create their replacements."""
        self._change_pods()
        self.marked = [node for node in self.nodes if self._has_mark(node)]

    def order(self) -> Mapping[str, Any] | None:
        """The ``spec`` of the NodeOrder."""
        found = self._objects.store.get(NODE_ORDERS, HOME, keys.ORDER_NAME)
        return None if found is None else found.decode()["spec"]

    def _has_mark(self, node: str) -> bool:
        label = self._label
        return self._objects.find("nodes", node).labels.get(label.key) == label.value

    def _change_pods(self) -> None:
        ended, new = self.load.go_on(self.prometheus.age)
        for pod in ended:
            self._objects.delete("pods", self._names.pop(pod.number), _SHOP)
        for pod in new:
            body = make_pod(pod.workload, pod.number)
            self._give_order(body, pod.number)
            name = self._names[pod.number] = self._objects.create("pods", body, _SHOP).name
            node = self.load.place(pod, _wanted(body, self.nodes))
            target = {"metadata": {"name": name}, "target": {"name": self.nodes[node]}}
            self._objects.bind(name, _SHOP, target, Write(subresource="binding"))

    def _give_order(self, pod: dict[str, Any], number: int) -> None:
        """Do what manifests/base/order/policy.yaml does to a ReplicaSet's pod."""
        order = self.order() or {"lists": {}}
        lists = order["lists"].get("", ())
        levels = lists[number % len(lists)]["levels"] if lists else ()
        if levels and time.time() < (parse_time(order["until"]) or 0.0):
            pod["metadata"]["annotations"] = {keys.ORDER_ANNOTATION: order["until"]}
            pod["spec"]["affinity"] = {"nodeAffinity": {PREFERRED: [*map(_term, levels)]}}


def _term(level: Mapping[str, Any]) -> Mapping[str, Any]:
    operator, names = ("In", "nodes") if "nodes" in level else ("NotIn", "allBut")
    wanted = {"key": keys.HOSTNAME_LABEL, "operator": operator, "values": level[names]}
    return {"weight": level["weight"], "preference": {"matchExpressions": [wanted]}}


def _wanted(pod: Mapping[str, Any], nodes: Sequence[str]) -> Sequence[float]:
    """Per node, the sum of the weights of the pod's preferences that it matches, as in
    kube-scheduler.
    """
    terms = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED, ())
    found = [(term["weight"], term["preference"]["matchExpressions"][0]) for term in terms]
    return [
        sum(weight for weight, it in found if (it["operator"] == "In") == (node in it["values"]))
        for node in nodes
    ]
