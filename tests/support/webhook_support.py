"""The shipped webhook configuration of the order, for an API server on this machine."""

import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from certificates import Authority
from cluster import EnvtestCluster
from manifest_support import COMPONENTS, Doc, load_all

from dynsched.rules import keys

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def configuration(ca: str | bytes, **client: Any) -> Doc:
    """The shipped configuration. ``ca``: a file or its content. ``client``: ``url`` or
    ``service``, how the API server reaches the webhook.
    """
    (found,) = load_all(COMPONENTS / "order-webhook/webhook.yaml")
    content = ca if isinstance(ca, bytes) else Path(ca).read_bytes()
    bundle = base64.b64encode(content).decode()
    found["webhooks"][0]["clientConfig"] = {"caBundle": bundle, **client}
    return found


def at(port: int) -> str:
    return f"https://127.0.0.1:{port}/webhook/order"


def certificate(authority: Authority, folder: Path, name: str = "webhook") -> Path:
    """Write a certificate for this machine, with the file names of a mounted TLS Secret."""
    folder.mkdir(exist_ok=True)
    pair = authority.issue(name, "IP:127.0.0.1")
    shutil.copy(pair.cert, folder / "tls.crt")
    shutil.copy(pair.key, folder / "tls.key")
    return folder


@asynccontextmanager
async def configured(cluster: EnvtestCluster, body: Doc) -> AsyncIterator[None]:
    """Register the webhook until the block ends. The API server takes it up a moment later."""
    _ = (await cluster.post(CONFIGURATIONS, body)).ok
    try:
        yield
    finally:
        _ = (await cluster.delete(f"{CONFIGURATIONS}/{keys.ORDER_POLICY}")).ok
