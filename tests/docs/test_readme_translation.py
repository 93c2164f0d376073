"""README.zh-CN.md says what README.md says: the same blocks in the same order, with the same code,
links, images and names. Who changes one of them without the other is told what differs, and where.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from programs import ROOT

ENGLISH = ROOT / "README.md"
CHINESE = ROOT / "README.zh-CN.md"
LANGUAGES = "README.md or README.zh-CN.md"
CHINESE_TEXT = re.compile(r"[\u4e00-\u9fff]")


class Block(NamedTuple):
    """What must be the same in every language, of one block."""

    kind: str
    """`heading 2`, `paragraph`, `list item`, `row of 3 cells`, `code sh`."""
    content: str
    """Of a code block."""
    links: tuple[str, ...]
    """Sorted, for words are in another order; of a heading of the page itself, its number."""
    images: tuple[str, ...]
    names: tuple[str, ...]
    """What is in backquotes."""


class Located(NamedTuple):
    """A block and where it begins, for the message."""

    block: Block
    line: int


def blocks(text: str) -> list[Located]:
    """All of a page, in order."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    headings = [
        tokens[at + 1].content for at, one in enumerate(tokens) if one.type == "heading_open"
    ]
    anchors = {f"#{anchor(title)}": f"heading {n}" for n, title in enumerate(headings, 1)}
    return list(_located(tokens, anchors))


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _located(tokens: list[Token], anchors: dict[str, str]) -> Iterator[Located]:
    line = 0
    for at, token in enumerate(tokens):
        line = token.map[0] + 1 if token.map else line
        if token.type == "fence":
            yield Located(Block(f"code {token.info}".strip(), token.content, (), (), ()), line)
        elif token.type == "list_item_open":
            yield Located(Block("list item", "", (), (), ()), line)
        elif token.type == "tr_open":
            row = tokens[at : tokens.index(_closing(tokens, at), at)]
            cells = [each for each in row if each.type == "inline"]
            yield Located(_block(f"row of {len(cells)} cells", cells, anchors), line)
        elif token.type == "heading_open":
            yield Located(_block(f"heading {token.tag[1]}", [tokens[at + 1]], anchors), line)
        elif token.type == "paragraph_open":
            yield Located(_block("paragraph", [tokens[at + 1]], anchors), line)


def _closing(tokens: list[Token], at: int) -> Token:
    return next(one for one in tokens[at:] if one.type == "tr_close")


def _block(kind: str, inlines: list[Token], anchors: dict[str, str]) -> Block:
    parts = [part for inline in inlines for part in inline.children or ()]
    links = [unquote(str(part.attrs["href"])) for part in parts if part.type == "link_open"]
    # Each page links to the other one.
    links = [LANGUAGES if link in (ENGLISH.name, CHINESE.name) else link for link in links]
    return Block(
        kind,
        "",
        tuple(sorted(anchors.get(link, link) for link in links)),
        tuple(str(part.attrs["src"]) for part in parts if part.type == "image"),
        tuple(sorted({part.content for part in parts if part.type == "code_inline"})),
    )


def differences(english: str, chinese: str) -> list[str]:
    """What differs, a line for each block; none when both are the same."""
    ours, theirs = blocks(english), blocks(chinese)
    matcher = SequenceMatcher(None, [b.block for b in ours], [b.block for b in theirs], False)
    found: list[str] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            found += _compared(ours[a:b], theirs[c:d])
    return found


def _compared(ours: list[Located], theirs: list[Located]) -> Iterator[str]:
    """Of a stretch that differs: block by block while the kinds are the same, then what is left."""
    while ours and theirs and ours[0].block.kind == theirs[0].block.kind:
        mine, other = ours.pop(0), theirs.pop(0)
        where = f"{ENGLISH.name}:{mine.line} and {CHINESE.name}:{other.line}: {mine.block.kind}"
        if mine.block.content != other.block.content:
            yield f"{where}: the code is not the same"
        for name in ("links", "images", "names"):
            here, there = getattr(mine.block, name), getattr(other.block, name)
            if here != there:
                yield f"{where}: {name}: {_without(here, there)} | {_without(there, here)}"
    for page, rest in ((ENGLISH, ours), (CHINESE, theirs)):
        yield from (f"{page.name}:{one.line}: {one.block.kind}: in this page only" for one in rest)


def _without(here: tuple[str, ...], there: tuple[str, ...]) -> str:
    rest = list(here)
    for one in there:
        if one in rest:
            rest.remove(one)
    return ", ".join(rest) or "-"


def test_both_pages_say_the_same() -> None:
    found = differences(ENGLISH.read_text(), CHINESE.read_text())
    assert not found, "\n" + "\n".join(
        [*found, "(what is in README.md only | what is in README.zh-CN.md only)"]
    )


def test_each_page_begins_with_a_link_to_the_other_one() -> None:
    for page, other in ((ENGLISH, CHINESE), (CHINESE, ENGLISH)):
        title, languages = page.read_text().split("\n\n")[:2]
        assert title == "# dynsched"
        assert f"]({other.name})" in languages


def test_the_chinese_page_is_in_chinese() -> None:
    """Each paragraph and heading with words in it, and not left as it was in English."""
    blocks_of_code = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
    without_code = blocks_of_code.sub("", CHINESE.read_text())
    english = set(re.split(r"\n\s*\n", ENGLISH.read_text()))
    for part in re.split(r"\n\s*\n", without_code)[1:]:
        text = part.strip()
        if text and not text.startswith(("- ", "|")):
            assert CHINESE_TEXT.search(text), text
        assert part not in english or not re.search(r"[a-z]{4} [a-z]{3}", text), text


@pytest.mark.parametrize(
    ("said", "right", "wrong"),
    [
        (
            "row of 2 cells: in this page only",
            "| `dynsched demo` |",
            "| `x` | x |\n| `dynsched demo` |",
        ),
        ("code sh: the code is not the same", "make demo\n", "make show\n"),
        (
            "links: docs/http.md | docs/cli.md",
            "[docs/cli.md](docs/cli.md)",
            "[docs/cli.md](docs/http.md)",
        ),
        ("names: --twice | --once", "except\n`--once`", "except\n`--twice`"),
    ],
)
def test_a_change_of_one_page_alone_is_told(said: str, right: str, wrong: str) -> None:
    changed = ENGLISH.read_text().replace(right, wrong, 1)
    found = differences(changed, CHINESE.read_text())
    assert any(said in line for line in found), found
    assert all(re.match(r"README(\.zh-CN)?\.md:\d+", line) for line in found)
    assert len(found) <= 2
