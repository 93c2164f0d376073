"""`dynsched doctor`: whether the rules fit the Prometheus and the cluster."""

from typing import Final

CODES: Final = (
    *("P0", "P1", "P4", "P5", "P9", "P10", "P12", "P14", "P15"),
    *("N1", "W3", "K1", "K2", "K4", "K5"),
)
"""All checks; docs/check.md explains each. A published code keeps its meaning."""
