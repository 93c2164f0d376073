"""A cluster with real kubelets on this machine, each with its own containerd.

In addition to the servers of `envtest` it starts kube-controller-manager, kube-proxy, and for each
node a kubelet, a containerd and cgroups that limit its CPU. It must be alone: `make e2e` runs the
tests in separate namespaces (`unshare --net --mount --pid`), and networks, mounts and processes
disappear with them. Only the cgroups belong to the machine; `stop` removes them.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from archives import image_of, pause_program
from certificates import Authority
from envtest import Envtest

NODES = ("node-1", "node-2", "node-3")
NODE_CPU = 0.6
"""Cores of each node."""

PAUSE = "localhost/pause:1"
BRIDGE, HOST, NETWORK = "nodes0", "10.198.0.1", "10.198.0"
PODS = "10.197.0.0/16"
CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = (
    *("cpu", "cpuacct", "cpuset", "memory", "devices"),
    *("freezer", "blkio", "pids", "systemd"),
)
SERVERS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kube-proxy")
TOOLS = ("containerd", "ctr", "runc", "ip", "iptables", "conntrack", "openssl")
PLUGINS = Path("/usr/lib/cni")


def missing(assets: Path | None) -> str:
    """What this machine lacks for such a cluster, in one line; "" if nothing is missing."""
    if assets is None or not (assets / "kubelet").exists():
        return "KUBEBUILDER_ASSETS names no folder with a kubelet"
    if os.getpid() != 1:
        return "not root: the namespaces of the cluster cannot be made"
    absent = [name for name in SERVERS if not (assets / name).exists()]
    absent += [name for name in TOOLS if not shutil.which(name)]
    absent += [name for name in ("bridge", "host-local") if not (PLUGINS / name).exists()]
    if absent:
        return f"{', '.join(absent)} missing (servers in {assets}, CNI plugins in {PLUGINS})"
    if os.uname().machine != "x86_64":
        return "the image that holds a pod's namespaces is made for x86_64 alone"
    if not (CGROUPS / "cpu").is_dir():
        return "the nodes' limits are made with cgroup v1, and this machine has v2"
    return ""


class Kubelets(Envtest):
    """`start` returns when all nodes are ready; ``images`` are archives that each node gets.

    ``controllers``: the value of kube-controller-manager's flag.
    """

    host = HOST
    admission_off = ""

    def __init__(
        self,
        assets: Path,
        folder: Path,
        images: list[Path],
        *,
        nodes: Sequence[str] = NODES,
        cpu: float = NODE_CPU,
        controllers: str = "*",
    ) -> None:
        self.nodes = {name: f"{NETWORK}.{last}" for last, name in enumerate(nodes, 11)}
        """Address of each node, by name."""
        self._authority = Authority(folder, "kubelets")
        self._cpu = cpu
        self._controllers = controllers
        self._users = {
            "kube-controller-manager": ("system:kube-controller-manager", ""),
            "kube-proxy": ("system:kube-proxy", ""),
            **{name: (f"system:node:{name}", "system:nodes") for name in nodes},
        }
        self._tokens = {user: secrets.token_hex(16) for user in self._users}
        client = self._authority.issue("kube-apiserver")
        super().__init__(
            assets,
            folder,
            audited=("create",),
            flags=(
                "--endpoint-reconciler-type=lease",
                "--authorization-mode=Node",
                f"--client-ca-file={self._authority.cert}",
                f"--kubelet-certificate-authority={self._authority.cert}",
                f"--kubelet-client-certificate={client.cert}",
                f"--kubelet-client-key={client.key}",
                "--kubelet-preferred-address-types=InternalIP",
            ),
        )
        self._images = [image_of(folder, "pause", pause_program()), *images]

    @property
    def kubelets_ca(self) -> str:
        """The file of the CA certificate that signed the kubelets' certificates."""
        return str(self._authority.cert)

    def _write_credentials(self) -> None:
        super()._write_credentials()
        with (self.folder / "tokens.csv").open("a") as file:
            for name, (user, group) in self._users.items():
                file.write(f'{self._tokens[name]},{user},{name},"{group}"\n')

    def _kubeconfig_of(self, name: str) -> Path:
        return self.kubeconfig(self.folder / f"{name}.kubeconfig", self._tokens[name])

    def start(self) -> None:
        remove_cgroups(self.nodes)
        self._make_network()
        super().start()
        self._admin = self.kubeconfig(self.folder / "admin.kubeconfig")
        of_the_api_server = ("--clusterrole=system:kubelet-api-admin", "--user=kube-apiserver")
        self._kubectl("create", "clusterrolebinding", "kubelet-api", *of_the_api_server)
        controllers = self._kubeconfig_of("kube-controller-manager")
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={controllers}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--use-service-account-credentials=true",
            f"--controllers={self._controllers}",
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            f"--root-ca-file={self.ca_file}",
            f"--cluster-cidr={PODS}",
            "--node-monitor-grace-period=20s",
        )
        self.stop_scheduler = self.start_scheduler()
        self._load_images()
        for name, address in self.nodes.items():
            self._start_node(name, address)
            # One after the other: all kubelets listen on the same path for device plugins, and each
            # removes the previous one's file. Two at once fail with "address already in use".
            self._until(name, lambda name=name: self._kubectl("get", "node", name))
        self._spawn(
            "kube-proxy",
            f"--kubeconfig={self._kubeconfig_of('kube-proxy')}",
            f"--hostname-override={next(iter(self.nodes))}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={PODS}",
            "--conntrack-max-per-core=0",
            "--conntrack-min=0",
        )
        count = len(self.nodes)
        self._until("the nodes", lambda: self._kubectl("get", "nodes").count(" Ready ") == count)

    def stop(self) -> None:
        for process in self._running:
            if Path(str(process.args[0])).name in ("kubelet", "containerd"):  # type: ignore[index]
                process.kill()  # a clean stop would leave the pods running as well
        remove_cgroups(self.nodes)
        super().stop()
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if (mounted := line.split()[1]).startswith(str(self.folder)):
                _sh("umount", "--lazy", mounted)

    def _make_network(self) -> None:
        _sh("mount", "-t", "tmpfs", "tmpfs", "/run")  # shims' sockets, CNI's namespaces, locks
        _sh("ip", "link", "set", "lo", "up")
        _sh("ip", "link", "add", BRIDGE, "type", "bridge")
        _sh("ip", "link", "set", BRIDGE, "up")
        for address in (HOST, *self.nodes.values()):
            _sh("ip", "addr", "add", f"{address}/24", "dev", BRIDGE)
        _sh("ip", "route", "add", "default", "via", HOST)  # kube-proxy looks for a default route
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        ipam = {
            "type": "host-local",
            "ranges": [[{"subnet": PODS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(self.folder / "ipam"),
        }
        bridge = {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipMasq": True}
        plugins = [bridge | {"hairpinMode": True, "ipam": ipam}]
        (self.folder / "cni").mkdir()
        (self.folder / "cni/pods.conflist").write_text(
            json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": plugins})
        )

    def _load_images(self) -> None:
        """Import into the first node's containerd; the others link its files, which never change.

        They are in memory, because the disk would be the bottleneck, and nothing is left on it.
        """
        nodes = self.folder / "nodes"
        nodes.mkdir()
        _sh("mount", "-t", "tmpfs", "tmpfs", str(nodes))
        first, *others = (nodes / name / "containerd" for name in self.nodes)
        containerd, ctr = self._start_containerd(next(iter(self.nodes)))
        for image in self._images:
            _sh(*ctr, "images", "import", str(image))
        self._stop(containerd)
        for copy in others:
            copy.parent.mkdir()
            _sh("cp", "--archive", "--link", str(first), str(copy))
            for database in first.rglob("*.db"):
                mine = copy / database.relative_to(first)
                mine.unlink()
                shutil.copy(database, mine)

    def _start_containerd(self, name: str) -> tuple[subprocess.Popen[bytes], Sequence[str]]:
        """The process, and the `ctr` command for it."""
        root = self.folder / "nodes" / name
        root.mkdir(exist_ok=True)
        (root / "containerd.toml").write_text(_containerd(root, self.folder / "cni"))
        program = shutil.which("containerd") or ""
        process = self._spawn(program, "--config", str(root / "containerd.toml"))
        ctr = ("ctr", "--address", str(root / "containerd.sock"), "--namespace", "k8s.io")
        self._until("containerd", lambda: _sh(*ctr, "version"))
        return process, ctr

    def _start_node(self, name: str, address: str) -> None:
        make_cgroups(name, self._cpu)
        self._start_containerd(name)
        root = self.folder / "nodes" / name
        pair = self._authority.issue(name, f"IP:{address}")
        config = _kubelet(name, address, root, self._cpu) | {
            "tlsCertFile": pair.cert,
            "tlsPrivateKeyFile": pair.key,
            "authentication": {"x509": {"clientCAFile": self._authority.cert}},
        }
        (root / "kubelet.json").write_text(json.dumps(config))
        (root / "resolv.conf").touch()
        self._spawn(
            "kubelet",
            f"--config={root / 'kubelet.json'}",
            f"--kubeconfig={self._kubeconfig_of(name)}",
            f"--root-dir={root / 'kubelet'}",
            f"--cert-dir={root / 'pki'}",
            f"--hostname-override={name}",
            f"--node-ip={address}",
            # Without it cAdvisor's series have no pod labels.
            f"--containerd={root / 'containerd.sock'}",
        )

    def _kubectl(self, *arguments: str) -> str:
        return _sh("kubectl", f"--kubeconfig={self._admin}", *arguments)

    def _until(self, what: str, ready: Callable[[], Any], seconds: float = 300) -> None:
        limit = time.monotonic() + seconds
        while True:
            with contextlib.suppress(subprocess.CalledProcessError):
                if ready():
                    return
            assert time.monotonic() < limit, f"{what}: not ready, see the logs in {self.folder}"
            time.sleep(0.2)


def _containerd(root: Path, networks: Path) -> str:
    # Without CAP_SYS_RESOURCE runc could not lower oom_score_adj, and ends with "EOF".
    return f"""
version = 2
root = "{root}/containerd"
state = "{root}/containerd-state"
[grpc]
address = "{root}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "{PAUSE}"
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{PLUGINS}"
conf_dir = "{networks}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


def _kubelet(name: str, address: str, root: Path, cpu: float) -> dict[str, Any]:
    reserved = (os.cpu_count() or 1) - cpu
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "healthzPort": 0,
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{name}",
        "enforceNodeAllocatable": ["none"],
        "kubeReserved": {"cpu": f"{reserved * 1000:.0f}m"},
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{root}/containerd.sock",
        "clusterDomain": "cluster.local",
        "clusterDNS": ["10.0.0.10"],  # nothing listens there; without it each pod gets a Warning
        "resolvConf": str(root / "resolv.conf"),
        "volumePluginDir": str(root / "volumes"),
        "podLogsDir": str(root / "logs"),
        "syncFrequency": "10s",  # delay of a changed ConfigMap; the default is a minute
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
    }


def make_cgroups(name: str, cpu: float) -> None:
    """Create the node's cgroup in each hierarchy, with its CPU limit."""
    for controller in CONTROLLERS:
        (CGROUPS / controller / name).mkdir()
    for file in ("cpuset.cpus", "cpuset.mems"):
        (CGROUPS / "cpuset" / name / file).write_text((CGROUPS / "cpuset" / file).read_text())
    # The node gets its CPU even if the machine is busy with other things.
    (CGROUPS / "cpu" / name / "cpu.shares").write_text("131072")
    (CGROUPS / "cpu" / name / "cpu.cfs_period_us").write_text("100000")
    (CGROUPS / "cpu" / name / "cpu.cfs_quota_us").write_text(f"{cpu * 100_000:.0f}")


def kill(uid: str) -> int:
    """Kill the containers of a pod, like a node out of memory; return the number of processes."""
    # The process that holds the namespaces stays, or the whole sandbox would be recreated.
    found = {
        int(number)
        for file in (CGROUPS / "pids").glob(f"*/kubepods/*/pod{uid}/*/cgroup.procs")
        for number in file.read_text().split()
    }
    ours = [n for n in found if Path(f"/proc/{n}/exe").resolve().name != "pause"]
    for number in ours:
        os.kill(number, signal.SIGKILL)
    return len(ours)


def remove_cgroups(nodes: Iterable[str]) -> None:
    """Kill the processes in the nodes' cgroups and remove them, also those of a killed run."""
    hierarchies = (*CONTROLLERS, "unified")  # runc creates some in this hierarchy too
    for top in (CGROUPS / each / name for each in hierarchies for name in nodes):
        limit = time.monotonic() + 30
        while top.exists() and time.monotonic() < limit:
            for number in {n for file in top.rglob("cgroup.procs") for n in _read(file).split()}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGKILL)
            for folder in sorted([top, *(d for d in top.rglob("*") if d.is_dir())], reverse=True):
                with contextlib.suppress(OSError):  # busy until its processes are gone
                    folder.rmdir()


def _read(file: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return file.read_text()
    return ""


def _sh(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
