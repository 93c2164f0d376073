"""README.zh-CN.md has the same content as README.md.

Both have the same blocks in the same sequence with the same code, links and names. Only the
language of the images differs. The failure of this test shows what differs, and where.
"""

import re
from collections.abc import Iterator
from difflib import unified_diff

from markdown_it import MarkdownIt
from markdown_it.token import Token
from programs import ROOT

ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
KINDS = {"heading_open", "paragraph_open", "list_item_open", "tr_open", "th_open", "td_open"}


def outline(text: str) -> Iterator[str]:
    """One line per block, followed by its parts that must be the same in both languages."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    titles = [tokens[at + 1].content for at, one in enumerate(tokens) if one.type == "heading_open"]
    anchors = {f"#{anchor(title)}": f"heading {n}" for n, title in enumerate(titles, 1)}
    for token in tokens:
        if token.type == "fence":
            yield from (f"code {token.info}", *token.content.splitlines())
        elif token.type in KINDS:
            yield token.type.replace("open", token.tag)
        elif token.type == "inline":
            yield from sorted(same_everywhere(token.children or [], anchors))


def same_everywhere(parts: list[Token], anchors: dict[str, str]) -> Iterator[str]:
    yield from {f"`{part.content}`" for part in parts if part.type == "code_inline"}
    for part in parts:
        if part.type == "link_open":
            # Each page links to the other.
            link = str(part.attrs["href"]).replace(CHINESE.name, ENGLISH.name)
            yield f"link {anchors.get(link.lower(), link)}"
        elif part.type == "image":
            yield f"image {str(part.attrs['src']).replace('-zh-cn', '')}"


def anchor(heading: str) -> str:
    """GitHub's anchor of a heading, encoded as in links."""
    text = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
    return str(MarkdownIt().normalizeLink(text)).lower()


def differences(english: str, chinese: str) -> list[str]:
    names = (ENGLISH.name, CHINESE.name)
    return list(unified_diff([*outline(english)], [*outline(chinese)], *names, "", "", 8, ""))


def test_both_pages_have_the_same_content() -> None:
    found = differences(ENGLISH.read_text(), CHINESE.read_text())
    assert not found, "\n" + "\n".join(found)
