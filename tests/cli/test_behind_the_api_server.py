"""A real browser, behind a simulated and a real API server."""

import pytest
from plugin_support import line_of, started

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


async def test_the_page_works_in_a_browser_behind_the_service_proxy(environment, pages) -> None:
    from browser import chromium, tab  # noqa: PLC0415 - needs what the second tier installs

    async with (
        chromium() as browser,
        started(environment, "open", "--no-browser") as process,
        tab(browser, await line_of(process)) as shown,
    ):
        await shown.until("document.querySelectorAll('#nodes tbody tr').length === 3")
        assert (await shown.rows())[0] == "worker-2"
        pages.tick(worker_2=91.0, worker_3=99.0)
        await shown.look_again()
        await shown.until("document.documentElement.dataset.tick === given", "4")
        assert shown.complaints == []
