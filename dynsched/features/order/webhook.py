"""Answers AdmissionReview v1: pods get the order from this process if the API server has no
admission policies for it (before Kubernetes 1.36, docs/order.md).

`order_patch` decides like manifests/base/order/policy.yaml and held.yaml. A test runs the same pods
through both.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from dynsched.features.order.ranks import Order
from dynsched.features.order.status import LastOrder
from dynsched.features.order.tiers import NodeList, PreferenceTier
from dynsched.rules import keys
from dynsched.util.formatting import format_time

VERSION: Final = "admission.k8s.io/v1"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
"""The key of the soft node affinity in a pod's specification."""
_COOLEST: Final = 100
"""The weight of an order's first term."""
_GROUP_OF_KUEUE: Final = "kueue.x-k8s.io/pod-group-name"
_SPREAD: Final = ("ReplicaSet", "StatefulSet", "ReplicationController")
"""Owners whose pods kube-scheduler spreads over nodes by itself."""
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_TOKEN: Final = re.compile(f"kube-api-access-([{_LETTERS}])([{_LETTERS}])[{_LETTERS}]{{3}}")
"""The volume of a service account token. The API server chooses the letters at random."""
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class ReviewError(ValueError):
    """The body is not an AdmissionReview v1. The message is one line."""


class _Owner(Struct, gc=False):
    kind: str = ""


class _Constraint(Struct, rename="camel", gc=False):
    topology_key: str = ""


class _Volume(Struct, gc=False):
    name: str = ""


class _Change(Struct, gc=False):
    time: datetime | None = None


class Metadata(Struct, rename="camel"):
    name: str = ""
    generate_name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] = []
    managed_fields: list[_Change] = []


class NodeAffinity(Struct):
    preferred: list[dict[str, Any]] = field(name=PREFERRED, default=[])


class Affinity(Struct, rename="camel"):
    node_affinity: NodeAffinity | None = None


class PodSpec(Struct, rename="camel"):
    node_name: str = ""
    node_selector: dict[str, str] = {}
    scheduling_gates: list[Raw] = []
    topology_spread_constraints: list[_Constraint] = []
    volumes: list[_Volume] = []
    affinity: Affinity | None = None


class Pod(Struct):
    """The fields that decide which preferences a pod gets."""

    metadata: Metadata = field(default_factory=Metadata)
    spec: PodSpec = field(default_factory=PodSpec)


class _Kind(Struct, gc=False):
    kind: str = ""


class _Request(Struct, rename="camel"):
    uid: str
    kind: _Kind = field(default_factory=_Kind)
    operation: str = ""
    object: Raw = Raw(b"null")
    old_object: Raw = Raw(b"null")


class _Review(Struct, rename="camel"):
    api_version: str
    kind: str
    request: _Request


_review = msgspec.json.Decoder(_Review)
_pod = msgspec.json.Decoder(Pod)
_encode: Final = msgspec.json.Encoder().encode


def answer_review(body: bytes, in_force: LastOrder | None, now: float) -> bytes:
    """The answer to the AdmissionReview in ``body``. It always allows the pod.

    Raises ReviewError if the body is not an AdmissionReview, or has another version.
    """
    try:
        review = _review.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReviewError(f"not an AdmissionReview: {error}") from None
    if (review.api_version, review.kind) != (VERSION, "AdmissionReview"):
        what = f"{review.api_version[:80]} {review.kind[:80]}"
        raise ReviewError(f"{what}: only {VERSION} AdmissionReview is supported")
    response: dict[str, Any] = {"uid": review.request.uid, "allowed": True}
    if in_force is not None and now < in_force.until:
        patch = _patch_for(review.request, in_force)
        if patch:
            encoded = base64.b64encode(_encode(patch)).decode()
            response |= {"patchType": "JSONPatch", "patch": encoded}
    return _encode({"apiVersion": VERSION, "kind": "AdmissionReview", "response": response})


def _patch_for(request: _Request, in_force: LastOrder) -> list[dict[str, Any]]:
    if request.kind.kind != "Pod" or request.operation not in ("CREATE", "UPDATE"):
        return []
    try:
        pod = _pod.decode(request.object)
        old = _pod.decode(request.old_object) if request.operation == "UPDATE" else None
    except (msgspec.DecodeError, RecursionError):  # a pod in an unknown format
        return []
    return order_patch(pod, old, in_force.order, format_time(in_force.until))


def order_patch(pod: Pod, old: Pod | None, order: Order, until: str) -> list[dict[str, Any]]:
    """The JSON patch that gives a pod the order; empty if the pod needs no change. ``old``: the pod
    before an update.
    """
    tiers = _list_of(pod, order) if _takes_part(pod, old) else None
    own, had_one = _own_terms(pod)
    if tiers is None or not (tiers or had_one):
        return []
    preferred = [*own, *map(_term, tiers)]
    annotation = f"/metadata/annotations/{keys.ORDER_ANNOTATION.replace('/', '~1')}"
    if not tiers:  # all nodes are equally good
        first: dict[str, Any] = {"op": "remove", "path": annotation}
    elif pod.metadata.annotations is None:
        first = _add("/metadata/annotations", {keys.ORDER_ANNOTATION: until})
    else:
        first = _add(annotation, until)
    affinity = pod.spec.affinity
    if affinity is None:
        second = _add("/spec/affinity", {"nodeAffinity": {PREFERRED: preferred}})
    elif affinity.node_affinity is None:
        second = _add("/spec/affinity/nodeAffinity", {PREFERRED: preferred})
    else:
        second = _add(f"/spec/affinity/nodeAffinity/{PREFERRED}", preferred)
    return [first, second]


def _add(path: str, value: object) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def _takes_part(pod: Pod, old: Pod | None) -> bool:
    metadata, spec = pod.metadata, pod.spec
    annotations = metadata.annotations or {}
    if "false" in (metadata.labels.get(keys.AVOID_LABEL), annotations.get(keys.AVOID_LABEL)):
        return False
    if any(owner.kind == "DaemonSet" for owner in metadata.owner_references):
        return False
    if old is not None:
        return bool(old.spec.scheduling_gates) and not spec.scheduling_gates
    is_deferred = spec.scheduling_gates or metadata.labels.get(_GROUP_OF_KUEUE)
    return not (spec.node_name or is_deferred)


def _list_of(pod: Pod, order: Order) -> NodeList | None:
    """The list of its pool that the pod gets, chosen at random; None if the pool has no list."""
    selected = pod.spec.node_selector.get(order.pool_label or "", "")
    pool = selected if selected in order.lists else ""
    lists = order.lists.get(pool, ())
    if not _is_spread(pod):
        lists += order.overflow_lists.get(pool, ())
    return lists[_number(pod) % len(lists)] if lists else None


def _is_spread(pod: Pod) -> bool:
    if pod.spec.topology_spread_constraints:
        by = [each.topology_key for each in pod.spec.topology_spread_constraints]
        return keys.HOSTNAME_LABEL in by
    return any(owner.kind in _SPREAD for owner in pod.metadata.owner_references)


def _number(pod: Pod) -> int:
    for volume in pod.spec.volumes:
        if found := _TOKEN.fullmatch(volume.name):
            return 27 * _LETTERS.index(found[1]) + _LETTERS.index(found[2])
    metadata = pod.metadata
    name = f"00{metadata.name or metadata.generate_name}".replace("-", "")
    created = metadata.managed_fields[0].time if metadata.managed_fields else None
    second = created.second if created else 0
    return second + 11 + _DIGITS.find(name[-1]) + 10 * _DIGITS.find(name[-2])


def _term(tier: PreferenceTier) -> dict[str, Any]:
    operator = "NotIn" if tier.all_but else "In"
    wanted = {"key": keys.HOSTNAME_LABEL, "operator": operator, "values": tier.nodes}
    return {"weight": tier.weight, "preference": {"matchExpressions": [wanted]}}


def _own_terms(pod: Pod) -> tuple[list[dict[str, Any]], bool]:
    """The pod's preferences without those of an earlier order, and whether it had an earlier order.

    An order's terms are appended to the pod's own, and the first has weight 100. So the last term
    with weight 100 is the first of the order.
    """
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    present = affinity.preferred if affinity else []
    weights = [_weight(each) for each in present]
    if keys.ORDER_ANNOTATION not in (pod.metadata.annotations or {}) or _COOLEST not in weights:
        return present, False
    first = len(weights) - 1 - weights[::-1].index(_COOLEST)
    rest = zip(present[first:], weights[first:], strict=True)
    return [*present[:first], *(term for term, weight in rest if not weight)], True


def _weight(term: Mapping[str, Any]) -> Any:
    """The weight of a term that looks like one of an order; 0 for other terms."""
    preference = term.get("preference", {})
    is_ours = is_by_name(preference.get("matchExpressions", ()))
    return term.get("weight") if is_ours and not preference.get("matchFields") else 0


def is_by_name(expressions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the expressions are like those of an order: one In or NotIn of host names."""
    found = [(each.get("key"), each.get("operator") in ("In", "NotIn")) for each in expressions]
    return found == [(keys.HOSTNAME_LABEL, True)]
