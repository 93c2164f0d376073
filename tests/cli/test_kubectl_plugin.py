"""A real kubectl runs the plugin and its completion."""

import pytest
from cluster import Cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(sim) -> Cluster:
    """The simulated one: what a real API server does here, is seen in another module."""
    return sim


async def test_it_is_the_same_program_under_the_name_that_was_typed(kubectl, pages) -> None:
    code, out, _ = await kubectl("dynsched", "why", "--help")
    assert (code, out.startswith("Usage: kubectl dynsched why ")) == (0, True)
    code, out, errors = await kubectl("dynsched", "why", "worker-2")
    assert (code, "worker-2 is marked" in out) == (0, True)
    assert errors.startswith("From cluster sim (http://")
    _, listed, errors = await kubectl("plugin", "list")
    assert "kubectl-dynsched" in listed
    assert "not executable" not in errors  # another copy on PATH is also warned of
    code, _, errors = await kubectl("dynsched", "--context", "production", "nodes")
    assert (code, "No such option '--context'" in errors) == (2, True)


async def test_kubectl_completes_commands_flags_and_nodes(kubectl, pages) -> None:
    async def completed(*words: str) -> tuple[list[str], str]:
        code, out, _ = await kubectl("__complete", "dynsched", *words)
        assert code == 0
        *lines, directive = out.splitlines()
        return [line.partition("\t")[0] for line in lines], directive

    commands, directive = await completed("")
    assert ({"doctor", "nodes", "plan", "why"} <= {*commands}, directive) == (True, ":4")
    assert await completed("why", "worker-") == (["worker-1", "worker-2", "worker-3"], ":4")
    assert await completed("plan", "--rules", "") == ([], ":0")  # the shell offers files
