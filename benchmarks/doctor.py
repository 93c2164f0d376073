"""`dynsched doctor` on a large cluster: time, memory and requests.

    python benchmarks/doctor.py --nodes 5000 --pods 150000

The API server is a process of its own that serves nodes of 9 KB and pods of 5 KB in pages;
Prometheus is a real one with half an hour of four series for each node.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

from prometheus_support import RealPrometheus

from dynsched_sim.examples import make_node

ROOT = Path(__file__).parents[1]
STEP, MINUTES = 30, 30
WORKLOADS = 2_000
PADDING = "x" * 3_500


def _template(*, avoids: bool) -> str:
    """A pod as large as real ones are, as JSON; @N, @W, @T, @H stand for what differs."""
    avoid = {"key": "status", "operator": "NotIn", "values": ["presure"]}
    term = {"weight": 100, "preference": {"matchExpressions": [avoid]}}
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    owner = {"kind": "ReplicaSet", "name": "web-@W-5d9c7b9d4f", "controller": True}
    body = {
        "metadata": {
            "name": "web-@W-5d9c7b9d4f-@N",
            "namespace": "team-@T",
            "uid": "@N",
            "ownerReferences": [owner],
            "labels": {"pod-template-hash": "5d9c7b9d4f"},
            "annotations": {"padding": PADDING},
        },
        "spec": {
            "nodeName": "worker-@H",
            "containers": [{"resources": {"requests": {"cpu": "250m", "memory": "256Mi"}}}] * 2,
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
            **({"affinity": {"nodeAffinity": affinity}} if avoids else {}),
        },
        "status": {"phase": "Running"},
    }
    return json.dumps(body)


TEMPLATES = {avoids: _template(avoids=avoids) for avoids in (True, False)}


def pod(number: int, nodes: int) -> str:
    """As JSON. Four of five workloads avoid the mark."""
    workload = number % WORKLOADS
    text = TEMPLATES[bool(workload % 5)].replace("@N", str(number)).replace("@W", str(workload))
    return text.replace("@T", str(workload % 50)).replace("@H", str(number % nodes))


def node(number: int) -> str:
    """As JSON."""
    body = make_node(f"worker-{number}", number, size=9_000)
    body["metadata"] |= {"resourceVersion": "7", "uid": str(number)}
    return json.dumps(body)


def serve(nodes: int, pods: int, port: int) -> None:
    """The API server: nodes and pods in pages, reviews of rights, and nothing else."""
    many = {
        "/api/v1/nodes": (nodes, node),
        "/api/v1/pods": (pods, lambda n: pod(n, nodes)),
        "/apis/apps/v1/deployments": (0, None),
        "/apis/batch/v1/cronjobs": (0, None),
        "/apis/coordination.k8s.io/v1/leases": (0, None),
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            total, make = many.get(parts.path, (None, None))
            if total is None:
                self._send(404, '{"kind": "Status", "code": 404}')
                return
            query = parse_qs(parts.query)
            limit = int(query.get("limit", ["500"])[0])
            start = int(query.get("continue", ["0"])[0])
            end = min(total, start + limit)
            metadata = {"resourceVersion": "7"} | ({"continue": str(end)} if end < total else {})
            items = ",".join(make(number) for number in range(start, end)) if make else ""
            head = json.dumps(metadata)
            self._send(200, f'{{"metadata": {head}, "items": [{items}]}}')

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(201, '{"status": {"allowed": true}}')

        def _send(self, status: int, body: str) -> None:
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def history(folder: Path, nodes: int) -> None:
    """Blocks with the metrics of the shipped rules."""
    now = int(time.time())
    # Ahead, too: nothing is scraped while the benchmark runs.
    times = range(now - MINUTES * 60, now + 900, STEP)
    with (folder / "history.om").open("w") as file:
        for number in range(nodes):
            address = make_node("x", number)["status"]["addresses"][0]["address"]
            node = f'instance="{address}:9100"'
            for labels, rate in (
                (f'{{mode="idle",{node}}}', 0.6),
                (f'{{mode="user",{node}}}', 0.4),
            ):
                file.writelines(
                    f"node_cpu_seconds_total{labels} {at % 10**6 * rate} {at}\n" for at in times
                )
            for name, value in (("MemAvailable", 5e9), ("MemTotal", 8e9)):
                file.writelines(
                    f"node_memory_{name}_bytes{{{node}}} {value} {at}\n" for at in times
                )
        file.write("# EOF\n")
    (folder / "data").mkdir()
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "history.om", "data"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def measured(*arguments: str) -> tuple[str, int, str]:
    """What a command takes, its exit code and its standard output."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([sys.executable, "-m", "dynsched", *arguments], stdout=output)
        _, code, usage = os.wait4(process.pid, 0)
        output.seek(0)
        text = output.read()
    seconds, cpu = time.monotonic() - began, usage.ru_utime + usage.ru_stime
    took = f"{seconds:5.1f} s ({cpu:.1f} s of CPU), {usage.ru_maxrss / 1024:.0f} MiB"
    return took, os.waitstatus_to_exitcode(code), text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--port", type=int, default=18_443)
    told = parser.parse_args()
    server = multiprocessing.Process(
        target=serve, args=(told.nodes, told.pods, told.port), daemon=True
    )
    server.start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        history(folder, told.nodes)
        kubeconfig = folder / "kubeconfig"
        cluster = {"server": f"http://127.0.0.1:{told.port}"}
        kubeconfig.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        common = ["--kubeconfig", str(kubeconfig), "-r", str(ROOT / "rules.yaml"), "-o", "json"]
        with RealPrometheus(folder) as prometheus:
            took, code, text = measured("doctor", *common, "--prom", prometheus.url)
        report = json.loads(text)
        codes = [f"{each['code']} {each['severity']}" for each in report["findings"]]
        print(f"doctor: {took}, exit {code}; findings: {codes}")
        for each in report["not_checked"]:
            print(f"  not checked: {each['code']}: {each['reason']}")
    server.terminate()


if __name__ == "__main__":
    main()
