"""The real descheduler with the shipped policy, on a real API server.

It reads its service account's files from a fixed path, so it runs in a mount namespace that has
them there.
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
"""Arguments of LowNodeUtilization, like BY_VERDICT from the shipped policy."""
INTERVAL = "2s"
"""Descheduling interval, instead of the five minutes that are shipped."""
_PATIENCE = 40.0
NO_CLIENT = "prometheus client not initialized"
"""Logged in most first cycles, because the client is created concurrently."""
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
"""With these variables a program believes that it runs in a pod."""


def in_pod(ca: Path, token: Path) -> list[str]:
    """A prefix for a command, to run it with these files in place of a pod's account."""
    return [*_UNSHARE, "sh", "-c", _ENTER, "sh", str(ca), str(token)]


def need_descheduler() -> str:
    """The program's path. Without it or mount namespaces, the test ends as in `lacking`."""
    found = find_descheduler()
    if found is None:
        lacking("no descheduler: set DESCHEDULER, or put it into KUBEBUILDER_ASSETS")
    if subprocess.run([*_UNSHARE, "true"], check=False, capture_output=True).returncode:
        lacking("the descheduler needs a mount namespace, and this machine allows none")
    return found


class Verdicts(FakePrometheus):
    """A Prometheus that answers only the query of the policy."""

    def show(self, values: Mapping[str, float], args: Doc = BY_VERDICT) -> None:
        """Set the answer to the query of these arguments."""
        self.set(**{args["metricsUtilization"]["prometheus"]["query"]: values})

    def _instant(self, expr: str, now: float) -> Iterator[dict[str, Any]]:
        for sample in super()._instant(expr, now):
            yield {**sample, "metric": {"instance": sample["metric"]["node"]}}


@dataclass(frozen=True)
class Run:
    """The result of some cycles of the descheduler."""

    evicted: list[str]
    """Names of the evicted pods."""
    log: str


class Descheduler:
    """Runs the descheduler with its own account's permissions and the shipped policy."""

    def __init__(self, program: str, envtest: Envtest, token: str, folder: Path) -> None:
        self._program = program
        self._ca = envtest.ca_file
        self._token = folder / "token"
        self._token.write_text(token)
        self._kubeconfig = envtest.kubeconfig(folder / "kubeconfig-descheduler", token)
        self._folder = folder

    def cycle(self, url: str, cycles: int = 1, args: Doc = BY_VERDICT) -> Run:
        """Run until this many cycles had a Prometheus client, at ``url``, and then kill it."""
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
        watchdog = threading.Timer(_PATIENCE, process.kill)  # reading the log has no timeout
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
    """Apply the component's account and permissions, which are removed with kubectl's context.

    Returns a token of the account.
    """
    for name in ("namespace", "serviceaccount", "rbac", "secret"):
        kubectl.apply("-f", COMPONENT / f"{name}.yaml")
    account = ("-n", NAMESPACE, "create", "token", "dynsched-descheduler", "--duration=8h")
    return kubectl(*account).strip()
