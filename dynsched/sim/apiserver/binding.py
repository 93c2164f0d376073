"""``pods/binding``: a pod gets its node, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynsched.sim.apiserver import resources, status, strategy
from dynsched.sim.apiserver.objects import Objects, Write, Written


def bind(
    objects: Objects, name: str, namespace: str, binding: Mapping[str, Any], how: Write
) -> Written:
    """Give the pod the Binding's target as its node; the pod as stored. Whether there is a node of
    that name is not asked, as in the real server. ApiError: 404 where there is no such pod, 409
    where it is another one, has a node already or is being deleted.
    """
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if metadata.get("name") != name:
        raise status.bad_request("name in URL does not match name in Binding object")
    if not target.get("name"):
        raise status.internal("target.name: Required value")
    entry = objects.find(resources.PODS, name, namespace)
    strategy.require_uid(resources.PODS, entry, metadata.get("uid", ""))
    pod = entry.decode()
    if "deletionTimestamp" in pod["metadata"]:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
        raise status.conflict(resources.PODS, name, why, subresource="binding")
    spec = pod.setdefault("spec", {})
    if spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        raise status.conflict(resources.PODS, name, why, subresource="binding")
    spec["nodeName"] = target["name"]
    return objects.replace(resources.PODS, name, pod, namespace, how)
