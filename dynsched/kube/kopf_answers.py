"""What kopf sees of the API server's answers about nodes: how far the list and the watch are, and
no node. Of a page of the list it gets the metadata, of an event in a watch a bookmark of the same
resourceVersion: see docs/decisions/0018-what-kopf-does-here.md.

An answer that has not the expected form goes to kopf as it came, but not whatever its size: the
reads of one that is too large raise TooLargeError.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp
import msgspec

from dynsched.engine.model import Node
from dynsched.kube.pages import Event, Page, read_lines
from dynsched.kube.projection import read_node
from dynsched.kube.transport import MAX_OF_A_LIST, read_body

Observer = Callable[[str | None, Node | None], None]
"""Called with an event's type (None for a listed object) and the node (None for an object without
a name), in kopf's thread. Must not block and must not raise."""

_NODE_EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})


_PAGE: Final = msgspec.json.Decoder(Page[msgspec.Raw])
_EVENT: Final = msgspec.json.Decoder(Event)


class NodesResponse(aiohttp.ClientResponse):
    """An answer to kopf. The nodes in it are taken out where `take_nodes` was called."""

    _observer: Observer | None = None

    def take_nodes(self, observer: Observer, *, watch: bool) -> None:
        """Give ``observer`` the nodes of this answer to a list or a watch of nodes."""
        if watch:
            self.content = _Lines(self.content, observer)  # type: ignore[assignment]
        else:
            self._observer = observer

    async def read(self) -> bytes:
        if self._body is None:
            self._body = await read_body(self, MAX_OF_A_LIST)
        return self._body

    async def json(self, **options: Any) -> Any:
        """The decoded body; a page of nodes is without its items."""
        if self._observer is not None:
            page = _without_nodes(await self.read(), self._observer)
            if page is not None:
                return page
        return await super().json(**options)


def _without_nodes(body: bytes, observer: Observer) -> dict[str, Any] | None:
    """The page without its items, which were given to ``observer``; None for what is no page."""
    try:
        page = _PAGE.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return None
    if not page.metadata.version:
        return None
    for item in page.items or ():
        observer(None, read_node(item))
    position = {"resourceVersion": page.metadata.version, "continue": page.metadata.after}
    return {"metadata": position, "items": []}


class _Lines:
    """A StreamReader whose `iter_chunked`, by which kopf reads the lines of a watch, gives a
    bookmark for each event about a node, and ends when a line is larger than an object can be.
    """

    def __init__(self, content: aiohttp.StreamReader, observer: Observer) -> None:
        self._content = content
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        async for lines in read_lines(self._content.iter_chunked(size)):
            yield b"\n".join([*map(self._without_node, lines), b""])

    def _without_node(self, line: bytes) -> bytes:
        try:
            event = _EVENT.decode(line)
            if event.type not in _NODE_EVENTS:
                return line
            node = read_node(event.object)
        except (msgspec.DecodeError, ValueError):
            return line
        self._observer(event.type, node)
        # Without a version, kopf keeps the one that it has; from "" it would miss what was deleted.
        position = (
            {"resourceVersion": version} if node and (version := node.resource_version) else {}
        )
        return msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": position}})
