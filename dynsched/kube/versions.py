"""The order of an object's states."""

from __future__ import annotations


def is_older(version: str, than: str) -> bool:
    """Whether resourceVersion ``version`` was given before ``than``, within one history of etcd.

    Resource versions compare as decimal integers (KEP-5504), also between two objects of one name,
    and between an object and a list. Where they are something else, nothing can be said: False.
    """
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def newest(*versions: str) -> str:
    """The newest of the versions that can be compared; empty when there is none."""
    return max((each for each in versions if each.isdecimal()), key=int, default="")
