"""Pod names as Kubernetes generates them, with the workload that each belongs to."""

from collections.abc import Mapping
from typing import Final

PODS: Final[Mapping[str, str]] = {
    "web-5d9c7b9d4f-x2x4p": "web",  # a Deployment
    "web-front-6b8f7c5d9-zzq9k": "web-front",
    "web-front-server-6b8f7c5d9-zzq9k": "web-front-server",
    "db-0": "db",  # a StatefulSet
    "my-database-12": "my-database",
    "agent-x2x4p": "agent",  # a DaemonSet or a Job
    "node-exporter-x2x4p": "node-exporter",
    "kube-flannel-ds-9xk4b": "kube-flannel-ds",
    "report-28912345-bc7dz": "report",  # a CronJob
    "nightly-report-28912345-bc7dz": "nightly-report",
    "alone": "alone",  # no controller
    "two-words": "two-words",
    "etcd-control-plane": "etcd-control-plane",
}
