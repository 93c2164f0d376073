"""Which workload a pod belongs to, by its name alone.

The kubelets' metrics name a pod and its namespace, not what made it. The names that controllers
give begin with the workload's: a Deployment's pod is ``web-5d9c7b9d4f-x2x4p``, a CronJob's
``report-28912345-x2x4p`` (minutes since 1970), a DaemonSet's or Job's ``agent-x2x4p``, a
StatefulSet's ``db-0``.
"""

from __future__ import annotations

import re
from typing import Final

_RANDOM: Final = "[bcdfghjklmnpqrstvwxz2456789]"
"""What Kubernetes makes random names and hashes of: no vowels, so that they are no words. By that
``node-exporter-x2x4p`` is a pod of ``node-exporter``, and not of ``node``."""

POD_NAME: Final = f"(.+?)(?:-(?:{_RANDOM}{{6,10}}|[0-9]{{8,10}}))?-(?:{_RANDOM}{{5}}|[0-9]+)"
"""The first group of a match of the whole name is the workload's name. RE2, which Prometheus uses,
and ``re`` read it in the same way."""

_POD_NAME: Final = re.compile(POD_NAME)


def workload_of(namespace: str, pod: str) -> str:
    """``namespace/workload``; of a pod that no controller named, with its own name."""
    match = _POD_NAME.fullmatch(pod)
    return f"{namespace}/{match[1] if match else pod}"
