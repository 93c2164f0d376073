"""What is shown in the help of flags, and needed where they are obeyed."""

from __future__ import annotations

from typing import Final

MAX_ROWS: Final = 20
"""How many values `plan` shows unless all are asked for."""

AVOIDANCE_WEIGHT: Final = 100
"""The weight of the injected preference, of 1 to 100. NodeAffinity scales the sums of the weights
of all nodes to 100, so beside a pod's own preferences the ratio counts."""
