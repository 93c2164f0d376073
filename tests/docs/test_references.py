"""References in pages, manifests and scripts exist, and pages link to every example."""

import re
from pathlib import Path

from programs import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
FILES = [
    *PAGES,
    *(ROOT / "manifests").rglob("*.yaml"),
    *(ROOT / "docs/examples").rglob("*.yaml"),
    *(
        ROOT / name
        for name in ("rules.yaml", "Makefile", "Dockerfile", "pyproject.toml", ".ci/run")
    ),
    ROOT / ".pre-commit-config.yaml",
    *(ROOT / ".github/workflows").glob("*.yml"),
]
FOLDERS = ("docs", "dynsched", "manifests", "tests", "benchmarks", r"\.ci", r"\.github")
IN_THE_TREE = re.compile(rf"(?<![\w/.:-])((?:{'|'.join(FOLDERS)})/[\w./-]*[\w/])")
NO_PATHS = re.compile(r"\b[\w.-]+\.example\.com/\S+|inject-?[cC]a-?[fF]rom[:=] ?\S+")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """The page without code blocks, where brackets have other meanings."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_targets_of_links_exist() -> None:
    wrong = []
    for page in PAGES:
        for target in LINK.findall(prose(page)):
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            if target.startswith("https://") or (path.exists() and not anchor):
                continue
            if not path.exists() or anchor not in anchors(path):
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
    assert wrong == []


def test_named_paths_exist() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {named}"
        for path in FILES
        for named in IN_THE_TREE.findall(NO_PATHS.sub("", path.read_text()))
        if not (ROOT / named).exists()
    ]
    assert wrong == []


def test_no_page_applies_manifests_with_placeholders() -> None:
    placeholders = r"kubectl \w+ -k manifests/"
    assert [path for path in FILES if re.search(placeholders, path.read_text())] == []


def test_every_decision_and_every_example_is_linked() -> None:
    folder = ROOT / "docs/decisions"
    listed = set(LINK.findall((folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("0*.md")}
    linked = " ".join(page.read_text() for page in PAGES)
    found = (ROOT / "docs/examples").rglob("*.yaml")
    examples = [str(path.relative_to(ROOT / "docs")) for path in found]
    assert [name for name in examples if name not in linked] == []


def test_every_reason_of_an_event_is_explained() -> None:
    page = (ROOT / "docs/operate.md").read_text()
    keys = (ROOT / "dynsched/rules/keys.py").read_text()
    reasons = re.findall(r'^REASON_\w+: Final = "(\w+)"', keys, re.MULTILINE)
    assert reasons
    assert reasons == re.findall(r"^\| `(\w+)`(?: \(Warning\))? \| the ", page, re.MULTILINE)
