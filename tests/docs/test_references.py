"""No page, manifest or script points at something that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
FILES = [
    *PAGES,
    *(ROOT / "manifests").rglob("*.yaml"),
    *(ROOT / "docs/examples").glob("*.yaml"),
    *(
        ROOT / name
        for name in ("rules.yaml", "Makefile", "Dockerfile", "pyproject.toml", ".ci/run")
    ),
    ROOT / ".pre-commit-config.yaml",
    ROOT / ".github/workflows/ci.yml",
]
FOLDERS = ("docs", "dynsched", "manifests", "tests", "benchmarks", r"\.ci", r"\.github")
IN_THE_TREE = re.compile(rf"(?<![\w/.:-])((?:{'|'.join(FOLDERS)})/[\w./-]*[\w/])")
IMAGES = re.compile(r"\b[\w.-]+\.example\.com/\S+")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    """Without code blocks, where brackets mean other things."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), target


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_paths_that_are_named_exist(path: Path) -> None:
    text = IMAGES.sub("", path.read_text())
    for named in IN_THE_TREE.findall(text):
        assert (ROOT / named).exists(), named


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs/decisions"
    listed = set(LINK.findall((folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("0*.md")}


def test_every_example_is_shown_to_the_reader() -> None:
    linked = " ".join(page.read_text() for page in PAGES)
    for path in (ROOT / "docs/examples").glob("*.yaml"):
        assert f"examples/{path.name}" in linked, path.name
