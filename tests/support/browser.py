"""A real Chromium, and a page in it that must not complain."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from programs import need

WAIT_MS = 20_000
"""How long a condition may take on a busy machine."""


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Debian's. Without it the test is skipped, as for any other program."""
    path = need("chromium", "Debian's chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


class Tab:
    """A page, and what it complained of."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda line: self._heard(line.type, line.text))

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    async def until(self, expression: str, argument: Any = None) -> None:
        """Wait until JavaScript says that it is so."""
        # As a function: text would be evaluated by eval, which the page's policy forbids.
        await self.page.wait_for_function(f"(given) => {expression}", arg=argument, timeout=WAIT_MS)

    async def rows(self) -> list[str]:
        """The names in the table, from the top."""
        names = (
            "[...document.querySelectorAll('#nodes [data-node]')].map((row) => row.dataset.node)"
        )
        return await self.page.evaluate(names)

    async def look_again(self) -> None:
        """Make the page ask at once, as it does when it is shown again."""
        await self.page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")


@contextlib.asynccontextmanager
async def tab(browser: Browser, url: str, **options: Any) -> AsyncIterator[Tab]:
    """A page at this address, once it shows nodes. ``options`` of the context, as Playwright's."""
    context: BrowserContext = await browser.new_context(
        **{"viewport": {"width": 1280, "height": 900}, "locale": "en-US", **options}
    )
    context.set_default_timeout(WAIT_MS)
    try:
        opened = Tab(await context.new_page())
        await opened.page.goto(url)
        yield opened
    finally:
        await context.close()
