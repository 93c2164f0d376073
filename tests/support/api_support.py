"""An API as dynsched has it, of a kubeconfig, for as long as a test needs it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dynsched.kube.config import load_config
from dynsched.kube.transport import KubeApi


@asynccontextmanager
async def api_of(kubeconfig: Path, kind: type[KubeApi] = KubeApi) -> AsyncIterator[Any]:
    """``kind``: StreamingApi for those who watch."""
    api = kind(await load_config(str(kubeconfig)))
    try:
        yield api
    finally:
        await api.close()
