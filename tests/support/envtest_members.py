"""More API servers of the one cluster of `envtest.py`: each on the same etcd, over a way of its own
that can be late or cut."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from envtest import Envtest, StartError, _get
from operator_support import until
from prometheus_support import free_port
from tcp_relay import Relay


@dataclass(frozen=True)
class Member:
    """An API server at ``url``, and its way to etcd."""

    url: str
    etcd: Relay


@asynccontextmanager
async def member(envtest: Envtest) -> AsyncIterator[Member]:
    """One more API server, ready; with the certificate, the users and the flags of the first."""
    flags = _flags(envtest)
    async with Relay(flags["--etcd-servers"]) as etcd:
        port = free_port()
        url = f"https://127.0.0.1:{port}"
        certificates = Path(flags.pop("--cert-dir"))
        flags |= {
            "--etcd-servers": f"http://127.0.0.1:{etcd.port}",
            "--secure-port": str(port),
            "--tls-cert-file": str(certificates / "apiserver.crt"),
            "--tls-private-key-file": str(certificates / "apiserver.key"),
        }
        process = envtest._spawn("kube-apiserver", *(f"{k}={v}" for k, v in flags.items()))
        try:

            async def ready() -> bool:
                if process.poll() is not None:
                    raise StartError("the second kube-apiserver ended; see its log")
                return await asyncio.to_thread(_get, f"{url}/readyz", envtest.token, envtest.ssl())

            await until(ready, "the second kube-apiserver", seconds=60)
            yield Member(url, etcd)
        finally:
            await asyncio.to_thread(envtest._stop, process)


def _flags(envtest: Envtest) -> dict[str, str]:
    """The flags of the API server that is running."""
    for process in envtest._running:
        program, *flags = [str(part) for part in process.args]  # type: ignore[union-attr]
        if Path(program).name == "kube-apiserver":
            return dict(flag.split("=", 1) for flag in flags)
    raise StartError("no kube-apiserver is running")


def kubeconfig_at(envtest: Envtest, url: str, path: Path) -> Path:
    """The admin's kubeconfig, for another address of the cluster."""
    config = json.loads(envtest.kubeconfig(path).read_text())
    config["clusters"][0]["cluster"]["server"] = url
    path.write_text(json.dumps(config))
    return path
