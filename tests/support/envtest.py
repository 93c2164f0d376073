"""A real etcd and kube-apiserver (and, on request, kube-scheduler) for the tests.

The programs come from the folder in ``KUBEBUILDER_ASSETS``, the convention of controller-runtime.
All servers listen on free loopback ports and write below one folder; none outlives the test run.
"""

import ctypes
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prometheus_support import DIRECT, answers, becomes_ready, end, free_port

from dynsched_sim.apiserver.api_server import write_kubeconfig

AUDITED = ("nodes", "nodes/status", "pods", "pods/binding", "events")
AUDITED_VERBS = ("create", "update", "patch", "delete", "deletecollection")
_ATTEMPTS = 3  # another process may take a free port before we do
_PDEATHSIG = 1


class StartError(RuntimeError):
    """A server did not become ready; the message includes the end of its log."""


class Envtest:
    """The servers of one test session."""

    host = "127.0.0.1"
    admission_off = "ServiceAccount,TaintNodesByCondition"

    def __init__(
        self,
        assets: Path,
        folder: Path,
        *,
        audited: Sequence[str] = AUDITED_VERBS,
        flags: Sequence[str] = (),
    ) -> None:
        self._assets = assets
        self._flags = flags
        self._verbs = audited
        self.folder = folder
        self.token = secrets.token_hex(16)
        self.stranger_token = secrets.token_hex(16)
        self._scheduler_token = secrets.token_hex(16)
        self._running: list[subprocess.Popen[bytes]] = []
        self.url = ""
        self._etcd = ""
        self._of_apiserver: tuple[str, ...] = ()
        self.keeper = ThreadPoolExecutor(1, "envtest")
        """The thread that starts schedulers. A process ends with the thread that started it, and
        an event loop's threads end with the loop."""

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    @property
    def ca_file(self) -> Path:
        return self.folder / "certs" / "apiserver.crt"

    def ssl(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def start(self) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                self._start_etcd()
                self._start_apiserver()
            except StartError:
                self.stop()
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _start_etcd(self) -> None:
        client, peer = free_port(), free_port()
        self._etcd = f"http://127.0.0.1:{client}"
        peers = f"http://127.0.0.1:{peer}"
        process = self._spawn(
            "etcd",
            "--name=default",
            f"--data-dir={self.folder / f'etcd-{client}'}",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        )
        self._await(process, lambda: answers(f"{self._etcd}/health"))

    def _start_apiserver(self) -> None:
        port = free_port()
        self.url = f"https://{self.host}:{port}"
        self._write_credentials()
        self._of_apiserver = (
            f"--etcd-servers={self._etcd}",
            f"--bind-address={self.host}",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / 'certs'}",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--anonymous-auth=false",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            f"--service-account-key-file={self.folder / 'sa.key'}",
            f"--disable-admission-plugins={self.admission_off}",
            "--allow-privileged=true",
            "--profiling=false",
            f"--audit-policy-file={self.folder / 'audit.yaml'}",
            f"--audit-log-path={self.audit_log}",
            *self._flags,
        )
        self._run_apiserver()

    def _run_apiserver(self) -> None:
        process = self._spawn("kube-apiserver", *self._of_apiserver)
        self._await(process, self._ready)

    def _write_credentials(self) -> None:
        subprocess.run(
            ["openssl", "genrsa", "-out", str(self.folder / "sa.key"), "2048"],
            check=True,
            capture_output=True,
        )
        (self.folder / "tokens.csv").write_text(
            f'{self.token},admin,admin,"system:masters"\n'
            f'{self.stranger_token},stranger,stranger,""\n'
            f'{self._scheduler_token},system:kube-scheduler,scheduler,""\n'
        )
        audited = [
            {"group": "", "resources": list(AUDITED)},
            {"group": "coordination.k8s.io", "resources": ["leases"]},
            {"group": "events.k8s.io", "resources": ["events"]},
        ]
        rule = {"level": "Request", "verbs": list(self._verbs), "resources": audited}
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [rule, {"level": "None"}],
        }
        (self.folder / "audit.yaml").write_text(json.dumps(policy))

    def _ready(self) -> bool:
        written = self.ca_file.exists() and self.ca_file.stat().st_size  # created, then filled
        return bool(written) and answers(f"{self.url}/readyz", self.token, self.ssl())

    def kubeconfig(self, path: Path, token: str | None = None, url: str | None = None) -> Path:
        """Write a kubeconfig to ``path`` for the user of ``token``, by default the admin.

        ``url``: another address of the cluster.
        """
        cluster = {"server": url or self.url, "certificate-authority": str(self.ca_file)}
        return write_kubeconfig(path, "envtest", {"token": token or self.token}, cluster)

    def compact(self) -> None:
        """Compact etcd, so that only the current revision remains."""
        status = _post(f"{self._etcd}/v3/maintenance/status", {})
        revision = status["header"]["revision"]
        _post(f"{self._etcd}/v3/kv/compaction", {"revision": revision, "physical": True})

    def restart(self, number: int) -> None:
        """Stop the API server with this signal, and start it again."""
        self._stop(self._process("kube-apiserver"), number)
        self._run_apiserver()

    def _process(self, program: str) -> subprocess.Popen[bytes]:
        return next(p for p in self._running if Path(str(p.args[0])).name == program)  # type: ignore[index]

    def cpu(self, program: str) -> float:
        """CPU seconds that the program has used, from Linux's CPU clock of the process."""
        return time.clock_gettime(~self._process(program).pid << 3 | 2)

    def start_scheduler(self, config: Mapping[str, object] | None = None) -> Callable[[], None]:
        """Start a kube-scheduler; returns a function that stops it.

        ``config``: fields of a KubeSchedulerConfiguration, such as profiles and extenders.
        """
        port = free_port()
        kubeconfig = str(self.kubeconfig(self.folder / f"sched-{port}", self._scheduler_token))
        whole = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": kubeconfig},
            **(config or {}),
        }
        path = self.folder / f"sched-{port}.yaml"
        path.write_text(json.dumps(whole))
        process = self._spawn(
            "kube-scheduler",
            f"--config={path}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--authentication-tolerate-lookup-failure=true",
            "--profiling=false",
        )
        # Its certificate is self-signed; nothing secret is sent to it.
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        address = f"https://127.0.0.1:{port}/healthz"
        self._await(process, lambda: answers(address, "", unverified))
        return lambda: self._stop(process)

    def stop(self) -> None:
        """Stop all servers, the most recent first."""
        while self._running:
            self._stop(self._running[-1])

    def _stop(self, process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
        if process in self._running:
            self._running.remove(process)
            # One second is enough: no state has to survive, and an open watch would delay the end.
            end(process, number, 1)

    def _spawn(self, program: str, *flags: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{Path(program).name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(self._assets / program), *flags],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - no lock is taken in it
            )
        self._running.append(process)
        return process

    def _await(self, process: subprocess.Popen[bytes], is_ready: Callable[[], bool]) -> None:
        if not becomes_ready(process, is_ready):
            program = Path(str(process.args[0])).name  # type: ignore[index]
            log = (self.folder / f"{program}.log").read_text(errors="replace")
            raise StartError(f"{program} did not become ready:\n{log[-2000:]}")


def _die_with_parent() -> None:
    # So that no server survives, even if the test run is killed.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def _post(url: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
    request = urllib.request.Request(url, data=json.dumps(body).encode(), method="POST")
    with DIRECT.open(request, timeout=10) as answer:
        found: dict[str, dict[str, str]] = json.load(answer)
        return found


def assets() -> Path | None:
    """The folder in KUBEBUILDER_ASSETS; None if it is unset.

    StartError if it is set but a program is missing: a test run must not pass without the servers
    that the user asked for.
    """
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if named is None:
        return None
    programs = ("etcd", "kube-apiserver", "kube-scheduler")
    missing = [each for each in programs if not os.access(Path(named) / each, os.X_OK)]
    if missing:
        raise StartError(f"KUBEBUILDER_ASSETS={named}: no {', '.join(missing)} in it")
    return Path(named)
