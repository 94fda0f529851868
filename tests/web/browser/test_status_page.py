"""The status page in a real browser, on a real server: counts, updates, and indexing from the page."""

from __future__ import annotations

import importlib
import json
import subprocess
import urllib.request

import pytest
from support import serving
from support.forking import recollect_words

pytestmark = pytest.mark.xdist_group("browser")

PHONE = 360
SOURCES = """
[[sources]]
name = "wiki"
kind = "http"
url = "http://127.0.0.1:{port}/search?q={{query}}"
results = "hits"
fields = {{ id = "id", text = "text" }}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The home folder of the server."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def site(home):
    """The address of a server on a store with notes and facts, and with one source that never answers."""
    serving.fill(home / "memory.db", home / "notes")
    settings = home / "sources.toml"
    settings.write_text(SOURCES.format(port=serving.free_port()))
    with serving.serving(home / "memory.db", home, "--config", str(settings)) as address:
        yield address


@pytest.fixture
def ask(site):
    """Sends a request to the server's API."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def send(path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(site + path, data, {"Content-Type": "application/json"})
        with opener.open(request, timeout=20) as answer:
            return json.load(answer)

    return send


@pytest.fixture
def recollect(home):
    """Runs a command on the same store beside the server and returns its JSON."""

    def run(*words):
        command = recollect_words(*words, "--store", home / "memory.db", "--json")
        ran = subprocess.run(command, env=serving.environment(home), capture_output=True, text=True, check=True)
        return json.loads(ran.stdout)

    return run


@pytest.fixture
def visit(open_page, site):
    """Opens the page and waits until it is filled."""

    def go(*, address=site, **how):
        page = open_page(f"{address}/#/status", **how)
        page.locator(".tile").first.wait_for()
        return page

    return go


def figures(page):
    """The tiles: name → what it says."""
    return {tile.get_attribute("data-figure"): tile.locator("dd").inner_text() for tile in page.locator(".tile").all()}


def section(page, title):
    """One part of the page."""
    return page.locator("section", has=page.get_by_role("heading", name=title))


@pytest.mark.ci
def test_page_counts_equal_recollect_status(visit, recollect):
    """Records, facts, chunks, superseded, forgotten, files and bytes."""
    page = visit()
    told = recollect("status", "--embedder", "hashing:64")
    records = told["records"]
    shown = figures(page)
    names = {"Records": "total", "Facts": "facts", "Chunks": "chunks", "Superseded": "superseded"}
    assert {name: shown[name] for name in names} == {name: f"{records[key]:,}" for name, key in names.items()}
    assert shown["Forgotten"] == str(records["forgotten"])
    assert shown["Files"] == str(told["files"])
    assert int(page.locator("[data-figure=Bytes]").get_attribute("data-bytes")) == told["bytes"]
    assert "hashing:64" in section(page, "Indexes").inner_text()
    assert told["engine"] in section(page, "Server").inner_text()
    assert page.said == []


@pytest.mark.ci
def test_page_shows_the_lag_of_the_indexes(visit, recollect):
    """A record stored without a model has no vector yet; the keyword index lags by one change."""
    page = visit()
    assert "every record has one" in section(page, "Indexes").inner_text()
    recollect("add", "Stored without a vector.", "--embedder", "none")
    section(page, "Indexes").get_by_text("1 record without one").wait_for()


@pytest.mark.ci
def test_page_updates_without_moving_the_focus(visit, ask):
    """New records are counted; opened details and the focus stay."""
    ask("/v1/search", {"query": "connection pool"})
    page = visit()
    page.get_by_text("Show as a table").press("Enter")
    before = int(figures(page)["Facts"])
    ask("/v1/records", {"text": f"A fact number {before}."})
    page.locator("[data-figure=Facts] dd", has_text=str(before + 1)).wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Show as a table"
    assert page.get_by_role("region", name="Searches by duration").is_visible()


def test_searches_are_plotted_and_counted(visit, ask):
    """Every search since the start is in one bar and one table row; median and p95 are in the text."""
    for _ in range(3):
        ask("/v1/search", {"query": "platform team", "sources": ["keyword"]})
    told = ask("/v1/status")["latency"]["search"]
    page = visit()
    part = section(page, "Search time")
    part.locator(".histogram-bar").first.wait_for(state="attached")
    assert f"{told['count']} searches: half within" in part.inner_text()
    assert ["p50" in words or "p95" in words for words in part.locator(".mark-words").all_text_contents()] == [True] * 2
    page.get_by_text("Show as a table").click()
    counts = [int(cell) for cell in part.locator("tbody td").all_inner_texts()]
    assert sum(counts) == told["count"]
    tallest = max(part.locator(".histogram-bar").all(), key=lambda bar: float(bar.get_attribute("height")))
    assert tallest.text_content().endswith(f": {max(counts)}")


@pytest.mark.ci
def test_failing_source_is_named_with_its_reason(visit, ask):
    """First as failing, after three failures as paused, with the time when the pause ends."""
    ask("/v1/search", {"query": "harbour", "sources": ["keyword", "wiki"]})
    rows = section(visit(), "Sources")
    assert "keyword answers" in rows.inner_text()
    assert "wiki fails" in rows.inner_text()
    for _ in range(3):
        ask("/v1/search", {"query": "harbour", "sources": ["keyword", "wiki"]})
    told = section(visit(), "Sources").locator("li", has_text="wiki").inner_text()
    assert "left alone for now" in told
    assert "failures:" in told
    assert "asked again" in told


def test_index_button_adds_a_new_file(visit, home):
    """The button keeps the focus, and the report is shown."""
    (home / "notes" / "buoys.md").write_text("# Buoys\n\nBuoys are painted in March.\n")
    page = visit()
    button = page.get_by_role("button", name="Index again")
    button.press("Enter")
    page.locator(".job", has_text="1 added").wait_for()
    assert str(home / "notes") in page.locator(".job").inner_text()
    assert page.evaluate("document.activeElement.textContent") == "Index again"
    button.press("Enter")
    page.locator(".job", has_text="unchanged").wait_for()


@pytest.mark.ci
def test_read_only_caller_cannot_index(home, visit, site):
    """The counts are shown, the button is not."""
    with serving.serving(home / "memory.db", home, "--read-only") as address:
        page = visit(address=address)
        assert figures(page)["Records"] != "0"
        assert page.get_by_role("button", name="Index again").count() == 0
        page.context.close()


@pytest.mark.ci
def test_scoped_caller_sees_only_its_own_counts(home, visit, site):
    """Store, sources and counts of other scopes are left out, not shown as zero."""
    with serving.serving(home / "memory.db", home, "--user", "ada") as address:
        page = visit(address=address)
        assert "Bytes" not in figures(page)
        assert not section(page, "Sources").is_visible()
        assert "user ada" in section(page, "Server").inner_text()
        assert str(home) not in page.locator("main").inner_text()
        page.context.close()


@pytest.mark.ci
def test_lost_server_is_reported_and_the_counts_stay(visit):
    """The last counts stay with their time until there are new ones."""
    page = visit()
    shown = figures(page)
    page.route("**/v1/status", lambda route: route.abort())
    page.locator(".seen", has_text="does not answer").wait_for()
    assert figures(page) == shown
    page.unroute("**/v1/status")
    page.locator(".seen", has_text="As of").wait_for()


@pytest.mark.ci
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit, ask, scheme):
    """No axe-core violation of any severity, in both colour schemes."""
    axe = importlib.import_module("axe_playwright_python.sync_playwright")
    ask("/v1/search", {"query": "connection pool"})
    page = visit(scheme=scheme)
    page.get_by_text("Show as a table").click()
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], one["impact"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found] == []


@pytest.mark.ci
def test_nothing_scrolls_sideways_on_a_phone(visit, ask):
    """The page is not wider than a phone, and no text of the plot is cut."""
    ask("/v1/search", {"query": "connection pool"})
    page = visit(width=PHONE)
    page.locator(".histogram-bar").first.wait_for(state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    drawing = page.locator(".chart svg").bounding_box()
    for words in page.locator(".chart text").all():
        box = words.bounding_box()
        assert drawing["x"] - 1 <= box["x"] <= box["x"] + box["width"] <= drawing["x"] + drawing["width"] + 1
