"""The last accepted rules, stored in the cluster. A start whose rules file is refused uses them
(docs/operate.md).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from dynsched.kube.client import apply, merge
from dynsched.kube.failures import ApiRequest, in_namespace
from dynsched.kube.leader_writer import LeaderWriter
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys

CONFIG_MAPS: Final = "configmaps"
_KEY: Final = "rules.yaml"


class RulesConfigMap:
    """One ConfigMap in ``namespace``. Raises ClusterError."""

    def __init__(self, api: KubeApi, namespace: str, writer: LeaderWriter) -> None:
        self._api = api
        self._namespace = namespace
        self._writer = writer

    def __str__(self) -> str:
        return f"ConfigMap {self._namespace}/{keys.KEPT_RULES}"

    async def read(self) -> str | None:
        """The text of the rules file; None where none is kept."""
        answer = await self._api.call(self._call("get"), accept=(HTTPStatus.NOT_FOUND,))
        text: str | None = ((answer.body or {}).get("data") or {}).get(_KEY)
        return text

    async def write(self, text: str) -> None:
        """Apply the object, which creates it. Then send the text as a merge patch: an applied body
        is read as YAML, in which JSON must not have characters beyond U+FFFF.
        """
        call = self._call("patch")
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": keys.KEPT_RULES, "namespace": self._namespace},
        }
        await self._writer.write(self._api, call, **apply(body))
        await self._writer.write(self._api, call, **merge({"data": {_KEY: text}}))

    def _call(self, verb: str) -> ApiRequest:
        path = f"/api/v1{in_namespace(self._namespace)}/{CONFIG_MAPS}/{keys.KEPT_RULES}"
        return ApiRequest(verb, CONFIG_MAPS, path, keys.KEPT_RULES, self._namespace)
