"""A large cluster's nodes and samples, as the bytes that the bench's servers send."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from dynsched_sim.apiserver.api_server import ApiServer
from dynsched_sim.apiserver.resources import NODES
from dynsched_sim.examples import make_node

NODE_BYTES: Final = 9_000
COOL, HOT = 18.0, 95.0
ROTATING: Final = 4
"""Number of prepared sets of values; a node has the same value again after this many answers."""


def node_names(count: int) -> list[str]:
    return [f"node-{number:05d}" for number in range(count)]


def address(number: int) -> str:
    """A node's InternalIP; unique for any size that is measured."""
    number += 1
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def fill(api: ApiServer, count: int) -> None:
    """Create the nodes.

    All but the first bypass the server's checks of new objects, which take 3 ms per node.
    """
    names = node_names(count)
    first = api.objects.create("nodes", make_node(names[0], 0, size=NODE_BYTES)).decode()
    for number, name in enumerate(names):
        if number:
            node = _like(first, name, number)
            node["metadata"]["uid"] = f"00000000-0000-4000-8000-{number:012d}"
            api.store.put(NODES, node)


def likeness() -> Callable[[str, int], dict[str, Any]]:
    """A function that makes the same nodes from a name and a number, as a client sends them."""
    return partial(_like, make_node(node_names(1)[0], 0, size=NODE_BYTES))


def _like(first: dict[str, Any], name: str, number: int) -> dict[str, Any]:
    """Another node; parts that are equal are shared with the first, not copied."""
    node = copy.copy(first)
    meta = node["metadata"] = copy.copy(first["metadata"])
    meta["name"] = name
    zone = f"eu-west-1{'abc'[number % 3]}"
    meta["labels"] = first["metadata"]["labels"] | {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": zone,
    }
    status = node["status"] = copy.copy(first["status"])
    status["addresses"] = [
        {"type": "InternalIP", "address": address(number)},
        {"type": "Hostname", "address": name},
    ]
    status["nodeInfo"] = first["status"]["nodeInfo"] | {"machineID": f"{number:032x}"}
    return node


@dataclass(slots=True)
class Readings:
    """The values of one expression.

    Each answer's values differ a little from the previous ones, and have as many digits as
    Prometheus writes. Only the timestamps are encoded anew for each answer.
    """

    count: int
    _hot: set[int] = field(default_factory=set)
    _parts: list[list[bytes]] = field(default_factory=list)
    """For each set of values, the bytes between the timestamps of an answer."""
    _asked: int = 0

    def __post_init__(self) -> None:
        rng = random.Random(self.count)
        for _ in range(ROTATING):
            parts = [self._series(0)]
            parts += [self._part(number, COOL, rng) for number in range(self.count)]
            self._parts.append(parts)

    def heat(self, numbers: range) -> None:
        """Make these nodes hot; those that are hot become cool."""
        rng = random.Random(self._asked)
        for each in numbers:
            number = each % self.count
            self._hot ^= {number}
            value = HOT if number in self._hot else COOL
            for parts in self._parts:
                parts[number + 1] = self._part(number, value, rng)

    def answer(self) -> bytes:
        """The body of the next answer to an instant query."""
        self._asked += 1
        now = f"{time.time():.3f}".encode()
        return now.join(self._parts[self._asked % ROTATING])

    def _part(self, number: int, value: float, rng: random.Random) -> bytes:
        """The bytes after a node's timestamp: its value, and the start of the next series."""
        text = f',"{value + rng.random()!r}"]}}'.encode()
        last = number + 1 == self.count
        return text + (b"]}}" if last else b"," + self._series(number + 1))

    def _series(self, number: int) -> bytes:
        start = b'{"status":"success","data":{"resultType":"vector","result":['
        series = f'{{"metric":{{"instance":"{address(number)}:9100"}},"value":['.encode()
        return series if number else start + series


def past(count: int, start: float, end: float, step: float) -> bytes:
    """The body of an answer to a range query, with only cool values."""
    times = [start + step * number for number in range(int((end - start) / step + 1.001))]
    values = msgspec.Raw(msgspec.json.encode([[at, str(COOL)] for at in times]))
    result = [
        {"metric": {"instance": f"{address(number)}:9100"}, "values": values}
        for number in range(count)
    ]
    data = {"resultType": "matrix", "result": result}
    return msgspec.json.encode({"status": "success", "data": data})
