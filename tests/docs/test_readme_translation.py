"""README.zh-CN.md says what README.md says: the same blocks in the same order, with the same code,
links and names, and images that differ in their language alone. Who changes one of them without the
other is told what differs, and where.
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
    """A line for each block, and one for all that must be the same in every language in it."""
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
            link = str(part.attrs["href"]).replace(CHINESE.name, ENGLISH.name)  # each to the other
            yield f"link {anchors.get(link.lower(), link)}"
        elif part.type == "image":
            yield f"image {str(part.attrs['src']).replace('-zh-cn', '')}"


def anchor(heading: str) -> str:
    """As GitHub makes it, and as a link to it is encoded."""
    text = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
    return str(MarkdownIt().normalizeLink(text)).lower()


def differences(english: str, chinese: str) -> list[str]:
    names = (ENGLISH.name, CHINESE.name)
    return list(unified_diff([*outline(english)], [*outline(chinese)], *names, "", "", 8, ""))


def test_both_pages_say_the_same() -> None:
    found = differences(ENGLISH.read_text(), CHINESE.read_text())
    assert not found, "\n" + "\n".join(found)
