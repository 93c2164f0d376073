"""Users with bearer tokens and permissions on paths, in both forms of the cluster."""

from collections.abc import Sequence
from uuid import uuid4

from cluster import Cluster, SimCluster
from sim_readers import API_AUDIENCE

_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Reader:
    """A service account with a token; ``user`` is its RBAC user name."""

    def __init__(self, cluster: Cluster, account: str) -> None:
        self._cluster = cluster
        self._account = account
        self.user = f"system:serviceaccount:default:{account}"
        self.token = ""

    async def new_token(self, audiences: Sequence[str] = ()) -> str:
        """A new token, for the API server or for other audiences."""
        if isinstance(self._cluster, SimCluster):
            token = f"token-{uuid4().hex}"
            self._cluster.readers.tokens[token] = self.user, audiences or [API_AUDIENCE]
            return token
        spec = {"spec": {"audiences": list(audiences), "expirationSeconds": 600}}
        answer = await self._cluster.post(f"{_ACCOUNTS}/{self._account}/token", spec)
        found: str = answer.ok["status"]["token"]
        return found

    async def may_get(self, *paths: str) -> None:
        """Allow it to get these paths."""
        if isinstance(self._cluster, SimCluster):
            self._cluster.readers.paths.setdefault(self.user, []).extend(paths)
            return
        name = f"reader-{uuid4().hex}"
        role = {"metadata": {"name": name}, "rules": [{"nonResourceURLs": paths, "verbs": ["get"]}]}
        _ = (await self._cluster.post(f"{_RBAC}/clusterroles", role)).ok
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": self.user}],
        }
        _ = (await self._cluster.post(f"{_RBAC}/clusterrolebindings", binding)).ok


async def reader(cluster: Cluster, *paths: str) -> Reader:
    """A new reader that may get ``paths``."""
    account = f"reader-{uuid4().hex[:8]}"
    if not isinstance(cluster, SimCluster):
        _ = (await cluster.post(_ACCOUNTS, {"metadata": {"name": account}})).ok
    found = Reader(cluster, account)
    found.token = await found.new_token()
    if paths:
        await found.may_get(*paths)
    return found


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
