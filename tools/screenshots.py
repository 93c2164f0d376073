"""Pictures of the demo's page and of dynsched's, for README and docs/look.md.

    python -m tools.screenshots [docs/images] [--seconds 180]

Needs Debian's chromium (and fonts-wqy-zenhei for the Chinese one). The demo runs meanwhile, and is
ended afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, async_playwright

SHOTS: Final[dict[str, dict[str, Any]]] = {
    "page": {"color_scheme": "light"},
    "page-zh-cn": {"color_scheme": "light", "locale": "zh-CN"},
}
"""By the file's name: the options of Playwright's context."""
WAIT_MS: Final = 300_000
"""Long enough for a node to become hot, in spite of the order."""


async def take(folder: Path, seconds: float) -> None:
    """Run the demo, wait until it has something to show, and take all pictures."""
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dynsched", "demo"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert demo.stdout is not None  # noqa: S101 (it is a pipe)
    try:
        async for line in demo.stdout:
            if found := re.search(rb"(http://127\.0\.0\.1:\d+)/$", line.strip()):
                break
        else:
            raise SystemExit("the demo ended without an address of its page")
        drain = asyncio.create_task(demo.stdout.read())
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            both = await browser.new_page(viewport={"width": 1200, "height": 760})
            await both.goto(f"{found[1].decode()}/")
            url = await both.eval_on_selector("a", "link => link.href")
            await asyncio.sleep(seconds)  # until there is something to see
            await both.screenshot(path=folder / "demo.png")
            for name, options in SHOTS.items():
                await shot(browser, url, folder / f"{name}.png", options)
            await shot(browser, url, folder / "page-node.png", {}, detail=True)
            await browser.close()
    finally:
        demo.send_signal(signal.SIGINT)
        await demo.wait()
    await drain


async def shot(
    browser: Browser, url: str, path: Path, options: dict[str, Any], *, detail: bool = False
) -> None:
    """One picture, as soon as a node is hot."""
    settings = {"viewport": {"width": 1280, "height": 860}, "locale": "en-US", **options}
    context = await browser.new_context(**settings)
    page = await context.new_page()
    page.set_default_timeout(WAIT_MS)
    await page.goto(url)
    await page.wait_for_function("() => document.querySelector('#sentence.hot') !== null")
    # A page that was just opened lets rows stay for a while: the worst are to come first.
    await page.evaluate("document.querySelector('#sort-again').click()")
    if detail:
        await page.click("#nodes tr.marked a")
        await page.wait_for_selector("dialog tbody")
    await page.screenshot(path=path)
    await context.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("docs/images"))
    parser.add_argument("--seconds", type=float, default=180.0)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(asked.folder, asked.seconds))
