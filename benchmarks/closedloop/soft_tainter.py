"""OpenShift's soft-tainter and the real descheduler, as programs that the user provides.

``soft-tainter`` and ``descheduler`` are in the folder KUBEBUILDER_ASSETS or on PATH.
SOFT_TAINTER_SOURCE names a checkout of openshift/cluster-kube-descheduler-operator, from which the
CRD, the recording rules and the policy (KubeVirtRelieveAndMigrate with nothing set) are read. The
changes to them: all durations and ranges are divided by ten; all nodes take part; and the plugin
KubevirtMigrationAware is off, because it is about virtual machines and missing in the descheduler
of kubernetes-sigs. Both programs run every 3 s, from the 30 s of
.tekton/integration-tests/configs/kdo-cr.yaml. The durations of soft-tainter's Lease and of its
retries (from 5 ms on) are hard-coded and stay as they are.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import yaml
from cluster import EnvtestCluster
from descheduler_support import IN_POD, in_pod
from envtest import Envtest
from operator_support import until
from programs import find_descheduler

from closedloop.faster import faster
from closedloop.modes import DESCHEDULER, SOFT_TAINTER, Doc, Mode

EVERY = 3
SOURCE = "SOFT_TAINTER_SOURCE"
_CRD = "manifests/kube-descheduler-operator.crd.yaml"
_RECORDED = "bindata/assets/kube-descheduler/prometheusrule.yaml"
_POLICY = "pkg/operator/testdata/assets/relieveAndMigrateDefaults.yaml"
_FOR_MACHINES = "KubevirtMigrationAware"
_NAMESPACE = "openshift-kube-descheduler-operator"
_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{_NAMESPACE}/leases/soft-tainter-lock"
_OBJECTS = f"/apis/operator.openshift.io/v1/namespaces/{_NAMESPACE}/kubedeschedulers"
_PROFILE = {"mode": "Automatic", "profiles": ["KubeVirtRelieveAndMigrate"]}
_ALONE = asyncio.Lock()
"""Only one soft-tainter can run at a time: its ports 6060 and 8080 cannot be configured."""


def missing(mode: Mode) -> list[str]:
    """The programs and files that the mode needs and that are missing on this machine."""
    found = [program for program in mode.beside if find_descheduler(program) is None]
    files = (_CRD, _RECORDED, _POLICY) if mode.beside else ()
    return found + [f"{SOURCE}/{file}" for file in files if not _file(file).is_file()]


def recorded(modes: Iterable[Mode], folder: Path) -> list[Path]:
    """Prometheus files with recording rules, if a mode needs them."""
    if not any(mode.beside for mode in modes):
        return []
    path = folder / "recorded.json"  # JSON is YAML
    path.write_text(json.dumps(faster(_read(_RECORDED)["spec"], None)))
    return [path]


def policy(url: str) -> Doc:
    """The policy of both programs, with Prometheus at ``url``."""
    found = _read(_POLICY)
    del found["nodeSelector"]
    found["metricsProviders"][0]["prometheus"]["url"] = url
    (profile,) = found["profiles"]
    plugins = profile["pluginConfig"]
    profile["pluginConfig"] = [each for each in plugins if each["name"] != _FOR_MACHINES]
    for point in profile["plugins"].values():
        point["enabled"] = [each for each in point["enabled"] or () if each != _FOR_MACHINES]
    return found


@asynccontextmanager
async def beside(
    programs: tuple[str, ...], cluster: EnvtestCluster, envtest: Envtest, url: str
) -> AsyncIterator[dict[str, int]]:
    """Run these programs, with Prometheus at ``url``; yields their process ids by name."""
    path = envtest.folder / "policy.json"
    path.write_text(json.dumps(policy(url)))
    flags = [f"--kubeconfig={cluster.kubeconfig}", f"--policy-config-file={path}"]
    more = {DESCHEDULER: ["--secure-port=0", f"--descheduling-interval={EVERY}s"]}
    async with AsyncExitStack() as stack:
        if SOFT_TAINTER in programs:
            await stack.enter_async_context(_ALONE)
            await _install(cluster)
        running = {name: _running(name, envtest, flags + more.get(name, [])) for name in programs}
        yield {name: await stack.enter_async_context(it) for name, it in running.items()}


@asynccontextmanager
async def _running(program: str, envtest: Envtest, flags: list[str]) -> AsyncIterator[int]:
    """Run the program with the files of a pod; without a token it does not use Prometheus."""
    token, log = envtest.folder / "no-token", envtest.folder / f"{program}.log"
    token.write_text("none")
    command = [*in_pod(envtest.ca_file, token), str(find_descheduler(program)), *flags]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=out, stderr=out, env=os.environ | IN_POD, cwd=envtest.folder
        )
    try:
        yield process.pid
    finally:
        if process.returncode is not None:
            raise RuntimeError(f"{program} ended:\n{log.read_text(errors='replace')[-2000:]}")
        process.kill()
        await process.wait()


async def _install(cluster: EnvtestCluster) -> None:
    """Create the CRD and the object from which soft-tainter reads its interval."""
    await cluster.delete(_LEASE)  # a killed soft-tainter still holds it
    await cluster.post("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
    await cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _read(_CRD))
    spec = {**_PROFILE, "managementState": "Managed", "deschedulingIntervalSeconds": EVERY}
    kind = {"apiVersion": "operator.openshift.io/v1", "kind": "KubeDescheduler"}
    body = {**kind, "metadata": {"name": "cluster"}, "spec": spec}

    async def is_there() -> bool:
        return (await cluster.post(_OBJECTS, body)).status in {201, 409}

    await until(is_there, "the KubeDescheduler object is there")


def _file(name: str) -> Path:
    return Path(os.environ.get(SOURCE) or os.devnull, name)


def _read(name: str) -> Doc:
    found: Doc = yaml.safe_load(_file(name).read_text())
    return found
