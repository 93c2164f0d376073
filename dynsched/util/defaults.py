"""What is shown in the help of flags, and needed where they are obeyed."""

from __future__ import annotations

from typing import Final

EXTENDER_MEMORY: Final = 8
"""MiB for the questions of schedulers that are under way. 5,000 names are some 0.3 MiB; as whole
Nodes these need some 10 KB each.
"""
MAX_ROWS: Final = 20
"""How many values `plan` shows unless all are asked for."""

AVOIDANCE_WEIGHT: Final = 100
"""The weight of the injected preference, of 1 to 100. NodeAffinity scales the sums of the weights
of all nodes to 100, so beside a pod's own preferences the ratio counts."""
