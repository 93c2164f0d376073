"""How one node can be spelled: addresses are compared as addresses, names without case.

Every name and address has one canonical text, so that a look-up by text is a comparison by
meaning. Exporters write the same IPv6 address in many ways, Windows its host names in capitals.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import Final

_MAX_KEPT: Final = 8192
"""Spellings of IPv6 addresses that are remembered: each is read anew in 5 microseconds, and comes
with every tick. Those that are canonical, or mostly so, need no memory."""


def canonical(text: str) -> str:
    """The one text of a name or an address.

    An IPv6 address is compressed and in lower case (RFC 5952), without its zone; one that only
    wraps an IPv4 address is that address. All else is taken for a name: in lower case, without
    the dot that ends a fully qualified one. An IPv4 address has one spelling only.
    """
    if ":" in text:
        try:
            address = IPv6Address(text.partition("%")[0])
        except AddressValueError:
            return text.lower()
        return str(address.ipv4_mapped or address)
    lowered = text.lower().removesuffix(".")
    return text if lowered == text else lowered  # the same object: it is kept for every node


def spellings(text: str) -> Iterable[str]:
    """What a sample's label may stand for, in the order in which it is looked up: the whole text;
    what is before the port, without brackets; the canonical text of that.
    """
    yield text
    host, colon, port = text.rpartition(":")
    # The last group of a bare IPv6 address is no port, though it may be all digits.
    has_port = colon and port.isdigit() and (":" not in host or host.startswith("["))
    bare = (host if has_port else text).removeprefix("[").removesuffix("]")
    yield bare
    yield _canonical(bare) if ":" in bare else canonical(bare)


_canonical = lru_cache(maxsize=_MAX_KEPT)(canonical)
