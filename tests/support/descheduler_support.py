"""The real descheduler, with the policy that is shipped, on a real API server.

It takes its service account's files from a fixed place, so it runs in a mount namespace in which
they are there.
"""

import copy
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from envtest import Envtest
from fake_prometheus import FakePrometheus
from manifest_support import COMPONENTS, Doc, Kubectl
from programs import ROOT, find_descheduler, lacking

COMPONENT = COMPONENTS / "descheduler"
NAMESPACE = "dynsched-descheduler"
POLICY: Doc = yaml.safe_load((COMPONENT / "policy.yaml").read_text())
BY_VERDICT: Doc = POLICY["profiles"][0]["pluginConfig"][1]["args"]
QUERY: str = BY_VERDICT["metricsUtilization"]["prometheus"]["query"]
BY_LOAD: Doc = yaml.safe_load((ROOT / "docs/examples/descheduler/by-load.yaml").read_text())
"""Args of LowNodeUtilization, as BY_VERDICT of the shipped policy."""
INTERVAL = "2s"
"""Of the cycles, in place of the shipped five minutes."""
_PATIENCE = 40.0
NO_CLIENT = "prometheus client not initialized"
"""Said in the first cycle, most often: a client is made beside it."""
END_OF_CYCLE = '"Number of evictions/requests"'
EVICTED = re.compile(r'"Evicted pod".*? pod="[^/"]+/([^"]+)"')
_FILES = "/run/secrets/kubernetes.io/serviceaccount"
_ENTER = f"""\
mount -t tmpfs tmpfs /run && mkdir -p {_FILES} && cp "$1" {_FILES}/ca.crt && cp "$2" {_FILES}/token
shift 2
exec "$@"
"""
_UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
IN_POD = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
"""By these variables a program believes that it runs in a pod."""


def in_pod(ca: Path, token: Path) -> list[str]:
    """What starts a command, which follows, where the files of a pod's account are these two."""
    return [*_UNSHARE, "sh", "-c", _ENTER, "sh", str(ca), str(token)]


def need_descheduler() -> str:
    """The program's path. As `lacking` without it, or without mount namespaces."""
    found = find_descheduler()
    if found is None:
        lacking("no descheduler: set DESCHEDULER, or put it into KUBEBUILDER_ASSETS")
    if subprocess.run([*_UNSHARE, "true"], check=False, capture_output=True).returncode:
        lacking("the descheduler needs a mount namespace, and this machine gives none")
    return found


class Verdicts(FakePrometheus):
    """A Prometheus that answers the policy's query alone."""

    def show(self, values: Mapping[str, float], args: Doc = BY_VERDICT) -> None:
        """What it answers from now on to the query of these args."""
        self.set(**{args["metricsUtilization"]["prometheus"]["query"]: values})

    def _instant(self, expr: str, now: float) -> Iterator[dict[str, Any]]:
        for sample in super()._instant(expr, now):
            yield {**sample, "metric": {"instance": sample["metric"]["node"]}}


@dataclass(frozen=True)
class Run:
    """What one cycle of the descheduler did."""

    evicted: list[str]
    """The names of the pods."""
    log: str


class Descheduler:
    """Runs it with the rights of its own account, by the shipped policy."""

    def __init__(self, program: str, envtest: Envtest, token: str, folder: Path) -> None:
        self._program = program
        self._ca = envtest.ca_file
        self._token = folder / "token"
        self._token.write_text(token)
        self._kubeconfig = envtest.kubeconfig(folder / "kubeconfig-descheduler", token)
        self._folder = folder

    def cycle(self, url: str, cycles: int = 1, args: Doc = BY_VERDICT) -> Run:
        """So many cycles in which it has a client for Prometheus, at ``url``; then it is ended."""
        content = copy.deepcopy(POLICY)
        content["profiles"][0]["pluginConfig"][1]["args"] = args
        content["metricsProviders"][0]["prometheus"]["url"] = url
        path = self._folder / "policy.yaml"
        path.write_text(yaml.safe_dump(content))
        command = [self._program, f"--kubeconfig={self._kubeconfig}", "--v=3", "--secure-port=0"]
        command += [f"--policy-config-file={path}", f"--descheduling-interval={INTERVAL}"]
        process = subprocess.Popen(
            [*in_pod(self._ca, self._token), *command],
            env=os.environ | IN_POD,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self._folder,
        )
        watchdog = threading.Timer(_PATIENCE, process.kill)  # nobody who reads its log waits longer
        watchdog.start()
        log = ""
        try:
            for line in process.stdout or ():
                log += line
                if log.count(END_OF_CYCLE) >= cycles + log.count(NO_CLIENT):
                    return Run(EVICTED.findall(log), log)
            raise AssertionError(f"the descheduler ended before the end of the cycle:\n{log}")
        finally:
            watchdog.cancel()
            process.kill()
            process.communicate()


def install(kubectl: Kubectl) -> str:
    """The component's account and rights, as long as kubectl's context; a token of the account."""
    for name in ("namespace", "serviceaccount", "rbac", "secret"):
        kubectl.apply("-f", COMPONENT / f"{name}.yaml")
    account = ("-n", NAMESPACE, "create", "token", "dynsched-descheduler", "--duration=8h")
    return kubectl(*account).strip()
