"""Playwright fixtures for the browser tests: one Chromium for the whole run, installed once where that is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.browser import find_browser, give_up, install_browser

PATIENCE_MS = 120_000  # a busy machine is slow; what never comes is found all the same


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for the whole run."""
    reason = "" if find_browser() else install_browser()
    if not find_browser():
        give_up(reason)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        give_up("playwright is not installed: pip install 'recollect-search[dev]'")
    with sync_playwright() as playwright:
        # The sandbox needs rights that containers do not have; only pages of our own are opened.
        running = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page in a new context; `said` collects its console errors, `asked` its requests."""
    contexts = []

    def open_one(address: str, *, width: int = 1000, scheme: str = "light") -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        contexts[-1].set_default_timeout(PATIENCE_MS)
        page = contexts[-1].new_page()
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(address)
        return page

    yield open_one
    for context in contexts:
        context.close()


@pytest.fixture
def violations() -> Callable[[Any], list[Any]]:
    """All axe-core violations on a page, in the light and the dark colour scheme."""
    from axe_playwright_python.sync_playwright import Axe

    def look(page: Any) -> list[Any]:
        found = []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found += Axe().run(page).response["violations"]
        return [(one["id"], one["impact"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found]

    return look
