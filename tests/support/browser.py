"""A real Chromium, and a page in it whose errors and warnings are collected."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from programs import need

WAIT_MS = 20_000
"""Limit for a condition, long enough for a busy machine."""


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Debian's Chromium. Without it the test is skipped or fails, as in `programs.lacking`."""
    path = need("chromium", "Debian's chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


class Tab:
    """A page and its errors and warnings."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda line: self._collect(line.type, line.text))

    def _collect(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    async def until(self, expression: str, argument: Any = None) -> None:
        """Wait until the JavaScript ``expression`` is true."""
        # A function, because a string would need eval, which the page's policy forbids.
        await self.page.wait_for_function(f"(given) => {expression}", arg=argument, timeout=WAIT_MS)

    async def rows(self) -> list[str]:
        """The names in the table, from top to bottom."""
        names = (
            "[...document.querySelectorAll('#nodes [data-node]')].map((row) => row.dataset.node)"
        )
        return await self.page.evaluate(names)

    async def look_again(self) -> None:
        """Make the page refresh now, as it does when it becomes visible."""
        await self.page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")


@contextlib.asynccontextmanager
async def tab(browser: Browser, url: str, **options: Any) -> AsyncIterator[Tab]:
    """Open a page at ``url``. ``options`` are those of Playwright's browser context."""
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
