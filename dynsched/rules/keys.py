"""Every label, annotation and taint key, name and reason that dynsched publishes.

Published keys must never change: users match on them, and old marks carry them.
Change nothing here without a decision record in ``docs/decisions/``.
"""

from __future__ import annotations

from typing import Final

DEFAULT_LABEL: Final = "status=presure"
"""The default mark. The misspelling is deliberate: existing workloads match it."""

ANNOTATION_PREFIX: Final = "dynsched.io/"
"""Annotations under this prefix are ours; all others are never touched."""

EVIDENCE_ANNOTATION: Final = "dynsched.io/pressure"
"""Compact JSON on a marked node: the firing rules with value, threshold and ``since``, and what was
put on the node."""

IGNORE_LABEL: Final = "dynsched.io/ignore"
"""A node with ``dynsched.io/ignore=true`` is never eligible."""

AVOID_LABEL: Final = "dynsched.io/avoid-pressure"
"""``true`` on a namespace: its new pods get the preferences of docs/order.md.
``false`` on a pod, as a label or an annotation: this pod does not get them."""

AVOID_POLICY: Final = "dynsched-avoid-pressure"
"""Name of the MutatingAdmissionPolicy that gives pods the soft affinity, and of its binding."""

ORDER_API: Final = "dynsched.io/v1"
ORDER_NAME: Final = "dynsched"
"""Name of the NodeOrder object that has the order of the nodes (docs/order.md)."""

ORDER_POLICY: Final = "dynsched-order"
"""Name of the MutatingAdmissionPolicy that gives pods the order, of its binding and its Role."""

HELD_POLICY: Final = "dynsched-order-held"
"""Name of the MutatingAdmissionPolicy that gives pods the order when their last scheduling gate is
removed."""

ORDER_ANNOTATION: Final = "dynsched.io/order"
"""Annotation of a pod that got the order: until when this order was in force."""

CONTROL_PLANE_LABELS: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
"""A node that carries one of these keys (any value) is control plane."""

VIRTUAL_LABELS: Final = (
    ("eks.amazonaws.com/compute-type", "fargate"),
    ("type", "virtual-kubelet"),
)
"""A node with one of these labels is not a machine: pods do not share its load."""

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
"""Kubernetes's label for the hostname, which is usually, but not always, the node's name."""

FIELD_MANAGER: Final = "dynsched"
"""``fieldManager`` of every write, and the component of every Event."""

REASON_PRESSURED: Final = "Pressured"
REASON_RELIEVED: Final = "Relieved"
REASON_REPAIRED: Final = "MarkRepaired"
REASON_CONFLICT: Final = "MarkConflict"
REASON_DISPUTED: Final = "MarkDisputed"
REASON_CLUSTER_HOT: Final = "ClusterHot"
REASON_RULES_RELOADED: Final = "RulesReloaded"
REASON_RULES_REFUSED: Final = "RulesRefused"
REASON_QUERY_FAILED: Final = "QueryFailed"
