"""More API servers of the one cluster of `envtest.py`: each on the same etcd, over a way of its own
that can be late or cut."""

import asyncio
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
    flags = dict(flag.split("=", 1) for flag in envtest._commands["kube-apiserver"])
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
