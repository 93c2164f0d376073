"""TokenReview and SubjectAccessReview: the user of a token, and which paths that user may read."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from api_support import api_of, stranger
from cluster import Cluster, SimCluster
from reader_support import reader

from dynsched.kube.reviews import AccessReviews, User
from dynsched.kube.transport import ApiResponse
from dynsched.util.errors import ClusterError, ForbiddenError


@asynccontextmanager
async def reviews_of(kubeconfig: Path, audiences: Sequence[str] = ()) -> AsyncIterator[Any]:
    async with api_of(kubeconfig) as api:
        yield AccessReviews(api, audiences)


async def test_a_token_gives_its_user_who_may_read_the_paths_of_their_role(
    cluster: Cluster,
) -> None:
    ann = await reader(cluster, "/nodes", "/page/*")
    async with reviews_of(cluster.kubeconfig) as reviews:
        user = await reviews.user_of(ann.token)
        assert user.name == ann.user
        assert "system:authenticated" in user.groups
        paths = ("/nodes", "/page/data", "/page/", "/page", "/nodes/", "/nodes/a", "/", "/metrics")
        assert [await reviews.may_get(user, path) for path in paths] == [
            *(True, True, True),
            *(False, False, False, False, False),
        ]


async def test_a_permission_may_come_from_a_group(cluster: Cluster) -> None:
    ann = await reader(cluster)
    ann.user = f"group-of-{ann.user}"  # RBAC compares User subjects with user names only
    await ann.may_get("/rules")
    async with reviews_of(cluster.kubeconfig) as reviews:
        assert await reviews.may_get(User(ann.user), "/rules")
        assert not await reviews.may_get(User("bob", groups=("others",)), "/rules")


@pytest.mark.parametrize("token", ["nobodys", "a.b.c", "x" * 5000])
async def test_an_unknown_token_has_no_user(cluster: Cluster, token: str) -> None:
    async with reviews_of(cluster.kubeconfig) as reviews:
        assert await reviews.user_of(token) is None


async def test_a_token_must_be_for_one_of_the_audiences(cluster: Cluster) -> None:
    ann = await reader(cluster)
    ours = await ann.new_token(["dynsched"])
    async with (
        reviews_of(cluster.kubeconfig) as of_the_server,
        reviews_of(cluster.kubeconfig, ["dynsched", "another"]) as of_ours,
    ):
        assert (await of_the_server.user_of(ann.token)).name == ann.user
        assert await of_the_server.user_of(ours) is None
        assert (await of_ours.user_of(ours)).name == ann.user
        assert await of_ours.user_of(ann.token) is None


class Canned:
    """An API server that answers each call with the same status."""

    def __init__(self, **status: Any) -> None:
        self._status = status
        self.bodies: list[Any] = []

    async def call(self, _call: Any, *, body: Any, **_more: Any) -> ApiResponse:
        self.bodies.append(body)
        return ApiResponse(201, {"status": self._status})


FOUND = {"authenticated": True, "user": {"username": "ann"}}


@pytest.mark.parametrize(
    ("audiences", "status", "user"),
    [
        ([], FOUND, "ann"),
        ([], {**FOUND, "user": {}}, None),
        ([], {"user": FOUND["user"]}, None),
        (["dynsched"], {**FOUND, "audiences": ["dynsched"]}, "ann"),
        (["dynsched"], {**FOUND, "audiences": ["api"]}, None),
        (["dynsched"], FOUND, None),  # from a server that does not check audiences
    ],
)
async def test_a_user_needs_to_be_authenticated_and_named_and_for_our_audience(
    audiences, status, user
) -> None:
    found = await AccessReviews(Canned(**status), audiences).user_of("t")  # type: ignore[arg-type]
    assert found == (User(user) if user else None)


async def test_a_review_contains_all_data_of_the_user_and_denied_overrides_allowed() -> None:
    user = User("ann", "7", ("sre",), {"scope": ("a", "b")})
    for denied in (False, True):
        api = Canned(allowed=True, denied=denied)
        assert await AccessReviews(api).may_get(user, "/nodes") is not denied  # type: ignore[arg-type]
        assert api.bodies[0]["spec"] == {
            "user": "ann",
            "uid": "7",
            "groups": ["sre"],
            "extra": {"scope": ["a", "b"]},
            "nonResourceAttributes": {"path": "/nodes", "verb": "get"},
        }


async def test_without_permission_to_review_the_error_says_what_to_apply(cluster, tmp_path) -> None:
    may_not = {("create", each) for each in ("tokenreviews", "subjectaccessreviews")}
    remedy = (
        "or with that of the component that needs it"
        if isinstance(cluster, SimCluster)  # the user is the service account, otherwise a person
        else "bind a ClusterRole with it to stranger"
    )
    async with reviews_of(stranger(cluster, tmp_path, may_not)) as reviews:
        for review in (reviews.user_of("t"), reviews.may_get(User("ann"), "/")):
            with pytest.raises(ForbiddenError, match=remedy):
                await review


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_neither_an_error_nor_the_log_contains_a_token(sim, caplog, status) -> None:
    """Not even at debug level, although the API server's answer contains the token."""
    secret = "eyJ-a-secret-token"
    caplog.set_level(logging.DEBUG)
    if status != 200:
        sim.server.faults.answer(status)
    async with reviews_of(sim.kubeconfig) as reviews:
        with nullcontext() if status == 200 else pytest.raises(ClusterError) as caught:
            await reviews.user_of(secret)
    assert secret not in caplog.text
    if caught is not None:
        assert secret not in f"{caught.value!r} {caught.value.__cause__!r}"
