"""Debian's node-exporter for a node of `kubelets`, on the node's address as in a DaemonSet."""

import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from kubelets import CGROUPS, NODE_CPU
from prometheus_support import Process

PORT = 9100
_TICKS = os.sysconf("SC_CLK_TCK")


class NodeExporter(Process):
    """Instead of /proc, which is about the whole machine, it reads a folder whose `stat` has the
    node's own CPU use, as lxcfs presents it to containers.
    """

    name = package = "prometheus-node-exporter"

    def __init__(self, folder: Path, node: str, address: str) -> None:
        super().__init__(folder, "/metrics")
        self._node, self._address = node, address
        self._began, self._idle = time.monotonic(), 0

    @classmethod
    def is_there(cls) -> bool:
        return shutil.which(cls.name) is not None

    def free_address(self) -> str:
        return f"{self._address}:{PORT}"

    def command(self, address: str) -> Sequence[str]:
        (self.folder / "meminfo").symlink_to("/proc/meminfo")
        self._write()
        threading.Thread(target=self._go_on, daemon=True).start()
        only = ("--collector.disable-defaults", "--collector.cpu", "--collector.meminfo")
        return [f"--path.procfs={self.folder}", f"--web.listen-address={address}", *only]

    def _write(self) -> None:
        used = int((CGROUPS / "cpuacct" / self._node / "cpuacct.usage").read_text()) / 1e9
        idle = (time.monotonic() - self._began) * NODE_CPU - used
        self._idle = max(self._idle, int(idle * _TICKS))
        counters = f"{int(used * _TICKS)} 0 0 {self._idle} 0 0 0 0 0 0"
        new = self.folder / "stat.new"
        new.write_text(f"cpu  {counters}\ncpu0 {counters}\n")
        new.replace(self.folder / "stat")

    def _go_on(self) -> None:
        try:
            while True:
                time.sleep(1)
                self._write()
        except OSError:
            return  # the cluster is gone
