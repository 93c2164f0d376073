"""The pictures of docs/effect.md."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from closedloop.plots import plot_over_time, plot_removed

pytestmark = pytest.mark.thorough


def test_the_same_figures_make_the_same_pictures(tmp_path: Path) -> None:
    """Else each run of the benchmark would change committed files."""
    shares = {
        "taint": {"40 % used": 0.9, "60 % used": 0.8},
        "extender": dict.fromkeys(("40 % used", "60 % used"), 0.95),
    }
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        plot_removed(shares, tmp_path / folder / "removed.svg")
        plot_over_time({"taint": [0.1, 0.2]}, tmp_path / folder / "over-time.svg", "60 % used")
    for name in ("removed.svg", "over-time.svg"):
        first, second = ((tmp_path / folder / name).read_bytes() for folder in ("first", "second"))
        assert first == second
        assert "taint" in "".join(ET.fromstring(first).itertext())
