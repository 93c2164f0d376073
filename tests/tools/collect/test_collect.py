"""`dynsched collect` computes memory.available like the kubelet and pushes it."""

import asyncio
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from misbehaving_server import MisbehavingServer, http, sends
from operator_support import until
from prometheus_client.parser import text_string_to_metric_families
from prometheus_support import Pushgateway, free_port

from dynsched.cli.commands import cli
from dynsched.tools.collect import MIB, CollectOptions, Memory, push, read_memory
from dynsched.util.errors import ExpectedError

GIB = 1024 * MIB
METRIC = "k8_node_cgroups_mem_available"

# /proc/meminfo of a node with 16 GiB, including lines that could be mistaken for MemTotal.
MEMINFO = """\
MemTotal:       16777216 kB
MemFree:         1048576 kB
MemAvailable:    9437184 kB
SwapTotal:             0 kB
HugePages_Total:       0
"""
V1_STAT = """\
cache 1
inactive_file 7
hierarchical_memory_limit 9223372036854771712
total_cache 5368709120
total_rss 6442450944
total_inactive_file 3221225472
total_active_file 2147483648
"""
V2_STAT = """\
anon 6442450944
file 5368709120
kernel 900000000
file_mapped 123
inactive_anon 8
inactive_file 3221225472
active_file 2147483648
"""


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def v1(folder: Path, usage: object = 11 * GIB, **more: str) -> Path:
    files = {"memory.usage_in_bytes": f"{usage}\n", "memory.stat": V1_STAT}
    files |= {"cgroup.sane_behavior": "0\n"} | more
    return tree(folder / "v1", {f"memory/{name}": text for name, text in files.items()})


def v2(folder: Path, **more: str) -> Path:
    files = {"cgroup.controllers": "cpu memory\n", "memory.stat": V2_STAT}
    return tree(folder / "v2", files | {name.replace("__", "/"): t for name, t in more.items()})


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(MEMINFO)
    return path


def test_the_working_set_is_usage_less_inactive_file(tmp_path: Path, meminfo: Path) -> None:
    node_in_a_container = {"memory.current": f"{10 * GIB}\n", "kubelet.slice__x": ""}
    for root, used in (
        (v1(tmp_path / "a"), 8),  # the total_ values count, those of the whole hierarchy
        (v2(tmp_path / "b"), 8),  # the machine's root cgroup has no usage file
        (v2(tmp_path / "c", **node_in_a_container), 7),
        # v2 is mounted too, without the memory controller
        (tree(v1(tmp_path / "d"), {"unified/cgroup.controllers": "\n"}), 8),
    ):
        memory = read_memory(root, meminfo)
        assert memory == Memory(capacity=16 * GIB, working_set=used * GIB), root
        assert memory.available == (16 - used) * GIB
    assert read_memory(v1(tmp_path / "e", 5), meminfo).working_set == 0


def test_a_containers_own_cgroup_is_not_mistaken_for_the_nodes(
    tmp_path: Path, meminfo: Path
) -> None:
    old, new = v1(tmp_path), v2(tmp_path, **{"memory.current": "1000000\n"})
    (old / "memory/cgroup.sane_behavior").unlink()
    for root in (old, new):
        with pytest.raises(ExpectedError, match="the cgroup of a container, not of the node"):
            read_memory(root, meminfo)


def test_an_unreadable_file_is_an_error_that_names_it(tmp_path: Path, meminfo: Path) -> None:
    new, old = {"cgroup.controllers": ""}, {"memory.stat": "inactive_file 1\n"}
    for root, reason in (
        (tree(tmp_path / "a", {"x": ""}), "neither cgroup v2 nor the memory controller of v1; is"),
        (tree(tmp_path / "b", new), "memory.stat: No such file or directory"),
        (tree(tmp_path / "c", new | {"memory.stat": ""}), "memory.stat: it has no anon"),
        (v1(tmp_path / "d", "max"), "memory.usage_in_bytes: it has no number"),
        (v1(tmp_path / "e", **old), "memory.stat: it has no total_inactive_file"),
    ):
        with pytest.raises(ExpectedError, match=reason) as caught:
            read_memory(root, meminfo)
        assert "\n" not in str(caught.value)
    for text in ("MemTotal: 5\n", "XMemTotal: 5 kB\n"):
        meminfo.write_text(text)
        with pytest.raises(ExpectedError, match="it has no MemTotal"):
            read_memory(root, meminfo)


@pytest.fixture(scope="module")
def pushgateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pushgateway]:
    with Pushgateway(tmp_path_factory.mktemp("pushgateway")) as running:
        yield running


def pushed(pushgateway: Pushgateway) -> dict[str, tuple[dict[str, str], float]]:
    """Labels and value of each series, by its label ip."""
    with urllib.request.urlopen(f"{pushgateway.url}/metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = [sample for family in families for sample in family.samples]
    return {s.labels["ip"]: (s.labels, s.value) for s in samples if s.name == METRIC}


def test_series_are_in_the_first_projects_form_and_a_push_keeps_those_of_other_nodes(
    pushgateway,
) -> None:
    push(
        CollectOptions(pushgateway.url, ip="10.0.0.7", node="worker-7"), Memory(16 * GIB, 15 * GIB)
    )
    push(CollectOptions(pushgateway.url, ip="10.0.0.8"), Memory(16 * GIB, 10 * GIB))
    push(CollectOptions(pushgateway.url, ip="10.0.0.8"), Memory(16 * GIB, 10 * GIB + MIB // 2))
    found = pushed(pushgateway)
    job = {"job": "CollectK8sCgroupsMem"}
    of_worker = {"instance": "worker-7", "ip": "10.0.0.7", "node": "worker-7"}
    assert found["10.0.0.7"] == (job | of_worker, 1024)
    assert found["10.0.0.8"] == (job | {"instance": "10.0.0.8", "ip": "10.0.0.8"}, 6143.5)


def failing(url: str) -> str:
    with pytest.raises(ExpectedError) as caught:
        push(CollectOptions(url, ip="10.0.0.7"), Memory(GIB, MIB))
    return str(caught.value)


def test_a_failed_push_is_a_one_line_error_and_a_hanging_one_is_given_up(
    pushgateway: Pushgateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    assert failing(nowhere) == f"cannot push to {nowhere}: connection refused"
    other = failing(f"{pushgateway.url}/other")
    assert "it answered 404 Not Found; is this a Pushgateway?" in other
    assert "Name or service not known" in failing("http://pushgateway.invalid")
    monkeypatch.setattr("dynsched.tools.collect.TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        assert failing(f"http://127.0.0.1:{port}").endswith("no answer within 0.1 s")


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["collect", *arguments], env={"NODE_NAME": "", "NODE_IP": ""})
    return result.exit_code, result.output


def test_once_pushes_and_prints_the_value_or_fails_with_one_line(pushgateway, tmp_path) -> None:
    address = pushgateway.url.removeprefix("http://")
    flags = ("--once", "--pushgateway", address, "--ip", "10.0.0.7")
    flags += ("--cgroup-root", str(v1(tmp_path)))
    own = ("--node-name", "worker-7")
    for more, instance in (((), "10.0.0.7, ip 10.0.0.7"), (own, "worker-7, ip 10.0.0.7")):
        code, output = call(*flags, *more)
        printed = f"MiB available; pushed to {pushgateway.url} as instance {instance}\n"
        assert (code, output.endswith(printed)) == (0, True), output
    code, output = call(*flags[:5], "--cgroup-root", str(tmp_path))
    assert (code, output.count("\n")) == (1, 1)
    assert output.startswith(f"Error: {tmp_path}: neither cgroup v2")


def test_an_invalid_pushgateway_url_is_wrong_usage_and_not_repeated() -> None:
    code, output = call("--once", "--pushgateway", "me:s3cret@x")
    assert (code, "s3cret" in output) == (2, False)
    assert "--pushgateway" in output
    assert "it is not a URL like http://pushgateway:9091" in output


@pytest.mark.slow
async def test_the_loop_survives_an_unreachable_pushgateway_and_ends_on_sigterm(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    with MisbehavingServer() as server, log.open("wb") as output:
        server.default = sends()  # it closes the connection
        flags = (
            "--pushgateway",
            server.url,
            "--ip",
            "10.0.0.7",
            "--cgroup-root",
            str(v1(tmp_path)),
        )
        command = (sys.executable, "-m", "dynsched", "collect", *flags, "--interval", "1s")
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)

        async def pushes_again() -> bool:
            return len(server.seen) > seen + 1

        try:
            seen = 0
            await until(pushes_again, "it tries again")
            assert "the connection broke" in log.read_text()
            server.default, seen = http(""), len(server.seen)
            await until(pushes_again, "it goes on")
            assert process.returncode is None
        finally:
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 90) == 0
    assert "Traceback" not in log.read_text()
