"""A real Prometheus, a Pushgateway and exporters, each on a free loopback port."""

import contextlib
import json
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import programs
from misbehaving_server import MisbehavingServer, http

_NO_PROXY = urllib.request.ProxyHandler({})  # loopback is never behind one
DIRECT = urllib.request.build_opener(_NO_PROXY)


def free_port() -> int:
    """A loopback port that nothing listens on now.

    It is below the range that the kernel gives to clients (`ip_local_port_range`), so that no
    outgoing connection takes it before you do.
    """
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def answers(url: str, token: str = "", context: ssl.SSLContext | None = None) -> bool:
    """Whether a GET of ``url`` returns status 200."""
    handlers = [] if context is None else [urllib.request.HTTPSHandler(context=context)]
    opener = urllib.request.build_opener(_NO_PROXY, *handlers)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with (
        contextlib.suppress(OSError),
        opener.open(urllib.request.Request(url, headers=headers), timeout=5) as response,
    ):
        return bool(response.status == 200)
    return False


def becomes_ready(
    process: subprocess.Popen[bytes], is_ready: Callable[[], bool], seconds: float = 90
) -> bool:
    """Wait until ``is_ready``; False if the process ends first or takes too long."""
    until = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError):
            if is_ready():
                return True
        time.sleep(0.05)
    return False


def end(process: subprocess.Popen[bytes], number: int = signal.SIGTERM, seconds: float = 5) -> None:
    """Stop the process with this signal, and kill it if it does not end in time."""
    process.send_signal(number)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def address_towards(other: str) -> str:
    """This machine's address in the network of ``other``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))  # sends nothing
        return str(probe.getsockname()[0])


def result_of(url: str, expr: str) -> list[dict[str, Any]]:
    """The result of an instant query to Prometheus at ``url``, without the code under test."""
    form = urllib.parse.urlencode({"query": expr}).encode()
    found: list[dict[str, Any]] = _data(f"{url}/api/v1/query", form)["result"]
    return found


def _data(url: str, form: bytes | None = None) -> Any:
    with DIRECT.open(url, data=form, timeout=60) as response:
        return json.load(response)["data"]


class Exporter(MisbehavingServer):
    """Serves ``text`` under /metrics; it can be changed at any time. ``target`` is host:port."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.text = text
        self.target = f"127.0.0.1:{self.port}"
        self.default = lambda _, connection: connection.sendall(
            http(self.text, content_type="text/plain; version=0.0.4")
        )


class Process:
    """A server program. ``url`` is its address once it is ready."""

    name = ""
    package = ""

    def __init__(self, folder: Path, ready_path: str) -> None:
        self.folder = folder
        self.url = ""
        self._ready_path = ready_path
        self._process: subprocess.Popen[bytes] | None = None

    def command(self, address: str) -> Sequence[str]:
        """The command-line options; ``address`` is the host:port to listen on."""
        raise NotImplementedError

    def free_address(self) -> str:
        return f"127.0.0.1:{free_port()}"

    @property
    def log(self) -> str:
        """The program's output since its last start."""
        return (self.folder / f"{self.name}.log").read_text(errors="replace")

    def start(self, attempts: int = 3) -> Self:
        """Start and wait until it is ready; retry on another port if this one was taken."""
        program = programs.need(self.name, self.package)
        self.folder.mkdir(parents=True, exist_ok=True)
        for _ in range(attempts):
            address = self.free_address()
            with (self.folder / f"{self.name}.log").open("wb") as log:
                self._process = subprocess.Popen(
                    [program, *self.command(address)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                )
            where = f"http://{address}{self._ready_path}"
            if becomes_ready(self._process, partial(answers, where)):
                self.url = f"http://{address}"
                return self
            self.stop()
        raise RuntimeError(f"{self.name} does not become ready:\n{self.log[-4000:]}")

    def stop(self) -> None:
        """Stop the program. Can be called repeatedly."""
        if self._process is not None:
            end(self._process)
        self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class RealPrometheus(Process):
    """Debian's Prometheus with the given scrape configurations.

    ``scrape`` are ``scrape_configs`` of prometheus.yml (``{"job_name": ..., "static_configs":
    [...]}``); targets are scraped every ``interval``. The first sample arrives about 6 s after the
    start, because Prometheus collects targets for 5 s before it scrapes any. ``prefix`` is a path
    prefix ("/prom") and becomes part of ``url``. ``rule_files`` are evaluated at the interval of
    their groups, by default ``interval``. ``options`` are additional command-line options.
    """

    name = package = "prometheus"

    def __init__(
        self,
        folder: Path,
        scrape: Sequence[Mapping[str, Any]] = (),
        *,
        interval: str = "1s",
        prefix: str = "",
        rule_files: Sequence[Path] = (),
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(folder, f"{prefix}/-/ready")
        times = ("scrape_interval", "scrape_timeout", "evaluation_interval")
        self._config = {
            "global": dict.fromkeys(times, interval),
            "rule_files": [str(path) for path in rule_files],
            "scrape_configs": [dict(each) for each in scrape],
        }
        self._prefix = prefix
        self._options = options

    def start(self, attempts: int = 3) -> Self:
        super().start(attempts)
        self.url += self._prefix
        return self

    def command(self, address: str) -> Sequence[str]:
        config = self.folder / "prometheus.yml"
        config.write_text(json.dumps(self._config))  # JSON is YAML
        return [
            f"--config.file={config}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={address}",
            f"--web.route-prefix={self._prefix or '/'}",
            "--log.level=warn",
            *self._options,
        ]

    def result(self, expr: str) -> list[dict[str, Any]]:
        """The result of an instant query, as `result_of`."""
        return result_of(self.url, expr)

    def rules(self) -> list[dict[str, Any]]:
        """The rules of all files with their `health`; alerting rules also with their `alerts`."""
        groups = _data(f"{self.url}/api/v1/rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def wait_for(self, expr: str, series: int = 1, seconds: float = 90) -> None:
        """Wait until ``expr`` has this many series; RuntimeError if it takes too long."""
        until = time.monotonic() + seconds
        while len(self.result(expr)) < series:
            if time.monotonic() > until:
                raise RuntimeError(f"no {series} series of {expr} in {seconds:g}s:\n{self.log}")
            time.sleep(0.1)


class Pushgateway(Process):
    """Debian's prometheus-pushgateway."""

    name = package = "prometheus-pushgateway"

    def __init__(self, folder: Path, address: str | None = None) -> None:
        super().__init__(folder, "/-/ready")
        self._address = address

    def free_address(self) -> str:
        return self._address or super().free_address()

    def command(self, address: str) -> Sequence[str]:
        # Debian's default keeps pushed metrics in /var/lib, where the next instance reads them.
        return [f"--web.listen-address={address}", "--persistence.file=", "--log.level=error"]
