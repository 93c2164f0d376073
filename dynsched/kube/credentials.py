"""The credentials of this process at the API server: one provider for all clients."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Final

from dynsched.kube.kubeconfig import KubeConfig, load_config
from dynsched.util.errors import KubeConfigError

logger = logging.getLogger(__name__)

MIN_GAP: Final = 5.0
"""Seconds between two loads at least: an exec plugin is a process each time."""
_TIMEOUT: Final = 60.0
"""Seconds that a reload may take. An exec plugin that hangs is then run again."""


class CredentialProvider:
    """Loads the kubeconfig again when its credentials have expired or were refused. All clients
    wait for the same reload, so that an exec plugin runs once for all of them.

    The package's ``refresh_api_key_hook`` is not used: it renews tokens, but neither client
    certificates nor the CA.
    """

    def __init__(self, config: KubeConfig, *, min_gap: float = MIN_GAP) -> None:
        self.config = config
        self._min_gap = min_gap
        self._loaded_at = time.monotonic()
        self._reload: asyncio.Task[None] | None = None

    async def current(self, refused: KubeConfig | None = None) -> KubeConfig:
        """The credentials to send; loaded again if they have expired or log in as ``refused``.
        Where that fails, or is too soon, they are the former ones.
        """
        is_refused = refused is not None and self.config.logs_in_as(refused)
        if is_refused or self.config.has_expired:
            if self._reload is None or self._reload.done():
                if time.monotonic() - self._loaded_at < self._min_gap:
                    return self.config
                self._reload = asyncio.create_task(self._load_again(), name="credentials")
            await asyncio.shield(self._reload)  # one client's timeout is not the others'
        return self.config

    async def _load_again(self) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                self.config = await self.config.reload()
        except (KubeConfigError, TimeoutError) as error:  # also of a certificate without its key
            # The former ones may still be good; if they are not, the server will say so.
            why = str(error) or f"not within {_TIMEOUT:g} s"
            logger.warning("credentials could not be read again: %s", why)
        finally:
            self._loaded_at = time.monotonic()


async def load_credentials(
    kubeconfig: Path | str | None = None, context: str | None = None
) -> CredentialProvider:
    """Raises KubeConfigError."""
    return CredentialProvider(await load_config(kubeconfig, context))
