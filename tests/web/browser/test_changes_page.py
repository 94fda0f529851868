"""The page in a real browser: it follows changes made by other processes without disturbing the user."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support import serving

from recollect import Memory
from recollect.config import Settings

pytestmark = pytest.mark.xdist_group("browser")

FOCUSED = "document.activeElement.closest('.result')?.dataset.id"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A server on a small store: its address, and a `Memory` of the same store in this process."""
    home = tmp_path_factory.mktemp("home")
    with Memory.open(home / "memory.db", embedder="hashing:64", settings=Settings()) as memory:
        for number in range(12):
            memory.add(f"The heron number {number} stands in the reeds.", id=f"heron-{number}")
        with serving.serving(home / "memory.db", home) as address:
            yield SimpleNamespace(address=address, memory=memory)


@pytest.mark.ci
def test_answer_follows_changes_of_other_processes(site, open_page):
    """Another process's record appears and disappears; focus, opened details and scroll position stay."""
    page = open_page(f"{site.address}/#/search?q=heron+reeds&limit=50")
    item = page.locator("[data-id=heron-7]")
    item.locator(".result-title").focus()
    item.locator("details summary").click()
    item.locator(".result-title").focus()
    page.evaluate("window.scrollTo(0, 300)")
    page.wait_for_function("performance.getEntriesByType('resource').some((one) => one.name.includes('/v1/changes'))")
    added = site.memory.add("heron reeds heron reeds")
    page.locator(f"[data-id='{added.id}']").wait_for()
    assert page.evaluate(FOCUSED) == "heron-7"
    assert item.locator("details").get_attribute("open") is not None
    assert page.evaluate("window.scrollY") == 300
    site.memory.forget(added.id)
    page.locator(f"[data-id='{added.id}']").wait_for(state="detached")
    assert page.said == []


@pytest.mark.torture
def test_recent_list_updates_but_not_while_a_form_is_open(site, open_page):
    """New records are listed, but only after an open form is closed."""
    page = open_page(f"{site.address}/#/add")
    rows = page.locator(".recent-row")
    rows.first.wait_for()
    site.memory.add("A badger digs.")
    rows.filter(has_text="A badger digs.").wait_for()
    text = page.get_by_label("Text", exact=True)
    text.fill("I am writing")
    site.memory.add("A walrus waits.")
    page.wait_for_timeout(1200)
    assert rows.filter(has_text="A walrus waits.").count() == 0
    assert text.input_value() == "I am writing"
    page.get_by_role("link", name="Search", exact=True).focus()
    rows.filter(has_text="A walrus waits.").wait_for()
    assert text.input_value() == "I am writing"
    assert page.said == []
