"""Each component has a page with the four questions of whoever is about to install it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from manifest_support import COMPONENTS
from programs import ROOT

QUESTIONS = [
    "What do I install",
    "How do I see that it works",
    "How do I take it back",
    "What may it do",
]
LINES = 80
"""One screen, with the introduction."""
PARTS = sorted(folder.name for folder in COMPONENTS.iterdir())


def page(part: str) -> Path:
    return ROOT / "docs" / f"{part}.md"


@pytest.mark.parametrize("part", PARTS)
def test_the_four_questions_come_first_and_fit_a_screen(part: str) -> None:
    text = page(part).read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[:4] == QUESTIONS
    last = text.index(f"## {headings[3]}")
    end = text.find("\n## ", last)
    assert text[: end if end > 0 else None].count("\n") <= LINES


@pytest.mark.parametrize("part", PARTS)
def test_the_readme_names_the_component_and_its_page(part: str) -> None:
    (row,) = [
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if line.startswith(f"| `manifests/components/{part}` |")
    ]
    assert f"docs/{part}.md" in row
