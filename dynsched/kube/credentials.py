"""The credentials of this process for the API server. All clients share one provider."""

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
"""Minimum seconds between two loads, because each may start an exec plugin."""
_TIMEOUT: Final = 60.0
"""Maximum seconds for a reload. The next reload starts a hanging exec plugin again."""


class CredentialProvider:
    """Reloads the kubeconfig when its credentials have expired or were refused. All clients share
    a reload, so that an exec plugin runs once for all of them.

    The ``refresh_api_key_hook`` of the `kubernetes` package is not used: it renews tokens, but
    neither client certificates nor the CA.
    """

    def __init__(self, config: KubeConfig, *, min_gap: float = MIN_GAP) -> None:
        self.config = config
        self._min_gap = min_gap
        self._loaded_at = time.monotonic()
        self._reload: asyncio.Task[None] | None = None

    async def current(self, refused: KubeConfig | None = None) -> KubeConfig:
        """The credentials to send. They are reloaded if they have expired or log in as ``refused``.
        If the reload fails or is too soon, the previous ones are returned.
        """
        is_refused = refused is not None and self.config.logs_in_as(refused)
        if is_refused or self.config.has_expired:
            if self._reload is None or self._reload.done():
                if time.monotonic() - self._loaded_at < self._min_gap:
                    return self.config
                self._reload = asyncio.create_task(self._load_again(), name="credentials")
            await asyncio.shield(self._reload)  # a client's timeout must not cancel it for others
        return self.config

    async def _load_again(self) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                self.config = await self.config.reload()
        except (KubeConfigError, TimeoutError) as error:  # also for a certificate without key
            # The previous ones may still be valid; if not, the server refuses them.
            why = str(error) or f"not within {_TIMEOUT:g} s"
            logger.warning("the credentials could not be reloaded: %s", why)
        finally:
            self._loaded_at = time.monotonic()


async def load_credentials(
    kubeconfig: Path | str | None = None, context: str | None = None
) -> CredentialProvider:
    """Raises KubeConfigError."""
    return CredentialProvider(await load_config(kubeconfig, context))
