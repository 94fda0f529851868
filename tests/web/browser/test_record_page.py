"""Records in a real browser, on a real server: read, add, edit, supersede, forget and undo."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright import sync_api as playwright
from support import serving

from recollect import Memory
from recollect.config import Settings

pytestmark = pytest.mark.xdist_group("browser")

HERONS = Path(__file__).parents[2] / "ingest" / "readers" / "files" / "chromium.pdf"
PHONE = 360
ODD = "an odd/id?with=#marks %20"
LINE = "The pilot boat leaves at slack water."


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The home folder of the server."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def site(home):
    """The address of a server on a store with notes, facts, an unusual id and a long file that was deleted."""
    store = home / "memory.db"
    serving.fill(store, home / "notes")
    (home / "harbour").mkdir()
    gone, long = home / "harbour" / "gone.md", home / "harbour" / "long.md"
    gone.write_text("# Gone\n\nThe lighthouse was sold.\n")
    (home / "harbour" / "quay.md").write_text("The quay was built twice.\n")
    rows = [*(f"Berth {number} is dredged." for number in range(1, 90)), "", "# Pilot", "", LINE, "", "# After", ""]
    long.write_text("\n".join([*rows, *(f"Row {number} of the tide table." for number in range(90))]))
    shutil.copy(HERONS, home / "harbour" / "herons.pdf")
    with Memory.open(store, embedder="hashing:64", settings=Settings()) as memory:
        memory.index(home / "harbour")
        memory.add("Buoys are painted in March.", id=ODD)
    gone.unlink()
    with serving.serving(store, home) as address:
        yield address


@pytest.fixture
def ask(site):
    """Sends a request to the server's API."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def send(method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(site + path, data, {"Content-Type": "application/json"}, method=method)
        with opener.open(request, timeout=20) as answer:
            return json.load(answer)

    return send


@pytest.fixture
def add(ask):
    """Stores a record."""
    return lambda text, **said: ask("POST", "/v1/records", {"text": text, **said})


@pytest.fixture
def find(ask):
    """The first record with these words in its text, title or path."""

    def look(words):
        listed = ask("GET", "/v1/records?limit=1000&any_scope=true")["records"]
        return next(one for one in listed if words in f"{one['text']} {one['title']} {one.get('path')}")

    return look


@pytest.fixture
def visit(open_page, site):
    """Opens a view and waits until it is filled."""

    def go(hash_, *, address=site, **how):
        page = open_page(f"{address}/{hash_}", **how)
        page.locator(".view h1").wait_for(state="attached")
        return page

    return go


@pytest.fixture
def read(visit):
    """Opens a record's page."""
    return lambda record, **how: visit(f"#/record/{quote(record['id'], safe='')}", **how)


def shown(page):
    return page.locator(".record-text").inner_text()


def said(page, words):
    page.locator(".toast", has_text=words).wait_for()


def leave(*pages):
    """A server that ends waits for those who hold a connection."""
    for page in pages:
        page.context.close()


@pytest.mark.ci
def test_add_search_edit_and_undo_with_the_keyboard(visit):
    """From an empty form through search and the editor, and back with `u`."""
    page = visit("#/add")
    page.keyboard.type("The quay at Tallvik is closed for repairs")
    page.keyboard.press("Control+Enter")
    said(page, "Stored.")
    page.goto(page.url.replace("#/add", "#/search?q=quay+Tallvik"))
    page.locator(".result", has_text="closed for repairs").get_by_role("link").first.click()
    page.locator("[data-action=edit]").wait_for()
    page.keyboard.press("e")
    page.keyboard.press("Control+a")
    page.keyboard.type("The quay at Tallvik is open again")
    page.keyboard.press("Control+Enter")
    said(page, "Saved.")
    assert shown(page) == "The quay at Tallvik is open again"
    assert page.evaluate("document.activeElement.dataset.action") == "edit"
    page.keyboard.press("u")
    said(page, "undone")
    assert shown(page) == "The quay at Tallvik is closed for repairs"
    assert page.said == []


def test_all_fields_of_a_fact_are_stored(visit, find):
    """Title, category, tags, importance, decay, expiry and scope arrive as entered."""
    page = visit("#/add")
    page.get_by_label("Text").fill("Sluice gates open at noon.")
    page.get_by_label("Title").fill("Sluices")
    page.get_by_label("Category").fill("harbour")
    page.get_by_label("Tags").fill("water, gates, water")
    page.get_by_label("Importance").press("End")
    assert page.locator(".slider-words").inner_text() == "vital (1)"
    page.get_by_label("Decay").select_option("stable")
    page.get_by_label("Expires").fill("2031-05-01T12:00")
    page.get_by_label("User").fill("ada")
    page.get_by_role("button", name="Store").click()
    said(page, "Stored.")
    found = find("Sluice gates")
    wanted = {"title": "Sluices", "category": "harbour", "tags": ["water", "gates"], "importance": 1.0}
    assert found.items() >= {**wanted, "decay": "stable", "scope": {"user": "ada"}}.items()
    assert found["expires_at"].startswith("2031-0")
    page.locator(".recent-row", has_text="Sluices").wait_for()
    assert page.locator(".recent-row").first.inner_text().startswith("Sluices")
    page.get_by_role("link", name="Open it").click()
    known = page.locator(".known").inner_text()
    assert all(
        words in known for words in ("vital (1)", "counts half after 90 days", "user ada", "1 May 2031", "in 4 years")
    )


def test_undo_after_adding_forgets_the_record(visit, ask):
    """The record is forgotten, and the list is updated."""
    page = visit("#/add")
    page.get_by_label("Text").fill("A mistake about cranes.")
    page.keyboard.press("Control+Enter")
    said(page, "Stored.")
    page.locator(".recent-row", has_text="mistake about cranes").wait_for()
    page.get_by_role("button", name="Undo").click()
    said(page, "new record is removed")
    page.locator(".recent-row", has_text="mistake about cranes").wait_for(state="detached")
    assert "cranes" not in json.dumps(ask("GET", "/v1/records?limit=1000"))


def test_adding_a_known_text_offers_no_undo(visit, find, ask):
    """Adding a stored text changes nothing; an undo would damage the old record."""
    page = visit("#/add")
    page.get_by_label("Text").fill("prefer postgresql  for the job queue.")
    page.keyboard.press("Control+Enter")
    said(page, "already stored")
    assert page.get_by_role("button", name="Undo").count() == 0
    assert len(ask("GET", f"/v1/history/{find('Prefer PostgreSQL')['id']}")["events"]) == 1


def test_undo_removes_a_tag_added_to_a_known_text(visit, find, ask):
    """The tag is removed and the fact stays."""
    page = visit("#/add")
    page.get_by_label("Text").fill("Mirela moves to the platform team.")
    page.get_by_label("Tags").fill("moves")
    page.keyboard.press("Control+Enter")
    said(page, "its fields are updated")
    assert find("Mirela")["tags"] == ["team", "moves"]
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Undo").click()
    said(page, "The change is undone")
    assert find("Mirela")["tags"] == ["team"]


@pytest.mark.ci
def test_similar_records_are_shown_while_writing_and_can_be_superseded(visit, add, ask):
    """The chosen old record is superseded by the new one, and undo restores it."""
    old = add("The crane on pier nine lifts forty tonnes.", tags=["crane"])
    page = visit("#/add")
    page.keyboard.type("The crane on pier nine lifts sixty tonnes now.")
    row = page.locator(".near-row", has_text="forty tonnes")
    row.get_by_role("button", name="Supersede this record").click()
    assert "forty tonnes" in page.locator(".replaces").inner_text()
    page.keyboard.press("Control+Enter")
    said(page, "supersedes the old record")
    by = ask("GET", f"/v1/records/{old['id']}")["superseded_by"]
    assert "sixty" in ask("GET", f"/v1/records/{by}")["text"]
    page.get_by_role("button", name="Undo").click()
    said(page, "current again")
    assert "superseded_by" not in ask("GET", f"/v1/records/{old['id']}")


def test_unrelated_records_are_not_offered_while_writing(visit, add):
    """Only a record that probably says the same is listed, not whatever is nearest."""
    add("The ferry to Helgoland leaves at nine.")
    page = visit("#/add")
    page.get_by_label("Text").fill("The ferry to Helgoland leaves at ten.")
    page.locator(".near-row", has_text="at nine").wait_for()
    page.get_by_label("Text").fill("Xyzzyx qvqvqv jkjkjk zzzz.")
    page.locator(".near-row").first.wait_for(state="detached")


def test_newest_records_are_listed_without_marks(visit, add, ask):
    """The list beside the form shows the words of Markdown, as results do."""
    stored = add("## Tides\n\n**High** water at `noon`.", title="Tides")
    assert visit("#/add").locator(".recent-text").first.inner_text() == "Tides High water at noon."
    ask("DELETE", f"/v1/records/{stored['id']}")


@pytest.mark.ci
def test_record_without_similar_notes_says_so(visit, add):
    """A record that is like no other one lists none."""
    record = add("Xyzzyx qvqvqv jkjkjk.")
    visit("#/search?q=buoys").locator(".result-title").first.wait_for()  # measures the cosines of the model
    page = visit(f"#/record/{record['id']}")
    page.locator(".related", has_text="No similar notes were found.").wait_for()


def test_similar_records_come_from_the_scope_of_the_new_record(visit):
    """A user's record is similar only to records written for that user."""
    page = visit("#/add")
    page.get_by_label("User").fill("ada")
    near = page.locator(".near-row", has_text="coffee black")
    for end in ("", "!", "!!"):  # it asks quietly, and only when one types: on a busy machine an answer may be lost
        page.get_by_label("Text").fill(f"Ada takes her coffee with milk{end}")
        with contextlib.suppress(playwright.TimeoutError):
            near.wait_for(timeout=10_000)
            break
    assert near.count() == 1
    page.get_by_label("User").fill("")
    page.get_by_label("Text").fill("Ada takes her coffee with milk now.")
    page.locator(".near-row", has_text="coffee black").wait_for(state="detached")


def test_superseding_shows_the_chain_and_undo_restores_the_old_record(read, add, ask):
    """Three records link to each other; the last change is undone from its page."""
    first = add("The harbour master is Jonas.", title="Harbour master")
    second = ask("POST", "/v1/supersede", {"id": first["id"], "text": "The harbour master is Mira."})
    page = read(second)
    page.keyboard.press("s")
    assert "Mira" in page.locator(".beside-old").inner_text()
    page.keyboard.press("Control+a")
    page.keyboard.type("The harbour master is Oskar.")
    page.keyboard.press("Control+Enter")
    said(page, "This is the new record")
    stops = page.locator(".stop")
    stops.nth(2).wait_for()
    assert shown(page) == "The harbour master is Oskar."
    assert page.locator("h1").inner_text() == "Harbour master"
    assert ["Jonas" in stops.nth(0).inner_text(), "Mira" in stops.nth(1).inner_text()] == [True, True]
    assert "this one" in stops.nth(2).inner_text()
    stops.nth(0).get_by_role("link").first.click()
    page.locator(".note", has_text="Superseded").wait_for()
    assert page.locator("[data-action=supersede]").count() == 0
    page.keyboard.press("Control+z")
    said(page, "The old record is current again")
    page.wait_for_url(f"**/#/record/{second['id']}")
    page.locator(".record-text", has_text="Mira").wait_for()
    assert "superseded_by" not in ask("GET", f"/v1/records/{second['id']}")
    assert "Oskar" not in json.dumps(ask("GET", "/v1/records?limit=1000"))


def test_forgotten_record_can_be_restored(read, add, ask):
    """At once through the message, and later from the record's own page."""
    record = add("Seals rest on the outer rocks.")
    page = read(record)
    page.keyboard.press("Delete")
    said(page, "Forgotten.")
    assert page.locator("h1").inner_text() == "This record is forgotten"
    page.get_by_role("button", name="Undo").press("Enter")
    said(page, "It is restored")
    assert shown(page) == "Seals rest on the outer rocks."
    ask("DELETE", f"/v1/records/{record['id']}")
    page.reload()
    page.get_by_role("button", name="Restore").click()
    page.locator(".record-text", has_text="Seals rest").wait_for()


def test_edits_are_shown_with_before_and_after(read, add, ask):
    """Each edit shows the old and the new value; the last one is compared with the current record."""
    record = add("Ferries leave at six.", title="Ferries", importance=0.25)
    ask("PATCH", f"/v1/records/{record['id']}", {"title": "Ferry", "importance": 0.5})
    ask("PATCH", f"/v1/records/{record['id']}", {"title": "Ferry times", "tags": ["sea"]})
    events = [re.sub(r"\s+", " ", text) for text in read(record).locator(".event").all_inner_texts()]
    assert "title Ferries→Ferry" in events[1]
    assert "importance 0.25→0.5" in events[1]
    assert "title Ferry→Ferry times" in events[2]
    assert "tags nothing→sea" in events[2]


def test_escape_discards_an_edit(read, add, ask):
    """The editor closes without a message, and the focus returns to where it was."""
    record = add("Nets are mended in winter.")
    page = read(record)
    page.get_by_role("button", name="Edit").press("Enter")
    page.keyboard.type("u lost: ")
    assert "u lost: " in page.get_by_label("Text").input_value()
    page.keyboard.press("Escape")
    assert shown(page) == "Nets are mended in winter."
    assert page.evaluate("document.activeElement.dataset.action") == "edit"
    assert len(ask("GET", f"/v1/history/{record['id']}")["events"]) == 1


def test_refused_edit_shows_the_error_and_keeps_the_input(visit):
    """A text of white space is refused, with the error beside the button."""
    page = visit("#/add")
    page.get_by_label("Title").fill("Kept")
    page.keyboard.press("Control+Enter")
    page.locator(".form-error", has_text="must not be empty").wait_for()
    assert page.get_by_label("Title").input_value() == "Kept"
    page.get_by_label("Text").fill("Some text")
    page.get_by_label("Category").fill("c" * 1200)
    page.keyboard.press("Control+Enter")
    page.locator(".form-error", has_text=re.compile("category|1000|1,000")).wait_for()
    assert page.get_by_label("Text").input_value() == "Some text"


def test_a_chunk_opens_its_file_at_the_line(read, find):
    """The note is rendered, the chunk's part is marked, and the first of it is visible without scrolling."""
    page = read(find(LINE))
    first = page.locator(".reading-body .mine").first
    first.wait_for()
    assert LINE in " ".join(page.locator(".mine").all_inner_texts())
    box, row = page.locator(".reading-body").bounding_box(), first.bounding_box()
    assert box["y"] <= row["y"] <= box["y"] + box["height"]
    assert page.locator("[data-action=edit]").count() == 0


@pytest.mark.parametrize(
    ("words", "told"), [("postmortem.md", "has changed"), ("lighthouse was sold", "no longer there")]
)
def test_changed_or_missing_file_is_reported(read, find, words, told):
    """A changed file is shown as it is now; a missing one is named."""
    page = read(find(words))
    page.locator(".note", has_text=told).wait_for()
    assert page.locator(".record-text").inner_text()


def test_chunk_of_one_line_names_that_line(visit, read, find):
    """A range of lines is written only where there is more than one."""
    quay = find("The quay was built twice.")
    assert "quay.md, line 1\n" in read(quay).locator("#about-title + dl").inner_text()
    page = visit("#/search?q=quay+built+twice")
    assert page.locator(".result .place").first.inner_text().endswith("quay.md:1")


def test_table_in_a_note_keeps_its_words_whole_on_a_phone(read, add, ask):
    """A table that is too wide is scrolled; its short words are not broken into letters."""
    row = "| pilotage | " + " | ".join(f"`column_number_{number}`" for number in range(9)) + " |"
    fact = add("\n".join((row, "|---" * 10 + "|", row)))["change"]
    page = read(fact, width=PHONE)
    page.locator(".prose td").first.wait_for()
    lines = """() => [...document.querySelectorAll('.prose :is(th, td)')].map(cell => {
        const words = document.createRange();
        words.selectNodeContents(cell);
        return new Set([...words.getClientRects()].map(({ top, height }) => Math.round(top + height / 2))).size; })"""
    assert set(page.evaluate(lines)) == {1}
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE
    ask("DELETE", f"/v1/records/{fact['id']}")


def test_unknown_id_is_explained(visit):
    """No error page: it shows the id and where to go on."""
    page = visit("#/record/no-such-thing")
    page.get_by_role("heading", name="No record has this id").wait_for()
    assert "no-such-thing" in page.locator(".record").inner_text()
    assert page.get_by_role("link", name="Search").count() >= 2


def test_any_id_has_a_page(visit, read):
    """Ids with slashes, punctuation and spaces work."""
    page = read({"id": ODD})
    assert shown(page) == "Buoys are painted in March."
    assert page.locator(".id").inner_text() == ODD


def test_loading_more_keeps_the_focus(visit, add):
    """The next page of the list is appended, without repeated rows."""
    for number in range(12):
        add(f"Mooring {number} is free.")
    page = visit("#/add")
    page.locator(".recent-row").nth(9).wait_for()
    assert page.locator(".recent-row").count() == 10
    page.get_by_role("button", name="Load more").press("Enter")
    page.locator(".recent-row").nth(19).wait_for()
    links = page.locator(".recent-row a").evaluate_all("links => links.map(link => link.hash)")
    assert len(set(links)) == len(links) == 20
    assert page.evaluate("document.activeElement.hash") == links[10]


def test_message_stays_for_its_whole_time(visit):
    """A little over eight seconds, and longer while it has the focus."""
    page = visit("#/add")
    page.clock.install()
    page.get_by_label("Text").fill("Gulls nest on the roof.")
    page.keyboard.press("Control+Enter")
    said(page, "Stored.")
    page.clock.run_for(8000)
    assert page.locator(".toast").count() == 1
    page.get_by_role("button", name="Undo").focus()
    page.clock.run_for(20000)
    assert page.locator(".toast").count() == 1
    page.get_by_label("Text").focus()
    page.clock.run_for(10000)
    assert page.locator(".toast").count() == 0


@pytest.mark.ci
def test_read_only_caller_sees_no_actions(home, read, visit, find, site):
    """No page has a button or a key that changes anything."""
    record = find("Prefer PostgreSQL")
    with serving.serving(home / "memory.db", home, "--read-only") as address:
        page = read(record, address=address)
        assert "PostgreSQL" in shown(page)
        page.keyboard.press("e")
        page.keyboard.press("Delete")
        assert page.locator("main button").count() == 0
        other = visit("#/add", address=address)
        other.locator(".recent-row").nth(9).wait_for()
        assert (other.locator(".recent-row").count(), other.locator("form").count()) == (10, 0)
        assert page.said == other.said == []
        leave(page, other)


@pytest.mark.ci
def test_scoped_caller_cannot_change_global_records(home, read, find, site):
    """A scoped caller has actions on its own records only."""
    shared, own = find("Prefer PostgreSQL"), find("coffee black")
    with serving.serving(home / "memory.db", home, "--user", "ada") as address:
        pages = read(shared, address=address), read(own, address=address)
        assert [page.locator("[data-action]").count() for page in pages] == [0, 3]
        leave(*pages)


def test_hostile_text_is_shown_as_text(read, find, site):
    """Nothing in it becomes an element, runs, causes a request or reverses the text direction."""
    page = read(find(serving.HOSTILE))
    page.locator(".record-text").wait_for()
    assert serving.HOSTILE in shown(page)
    assert serving.HOSTILE in page.locator("h1").inner_text()
    assert "\u202e" not in page.locator("h1").inner_text()
    assert "direction of writing" in page.locator(".note").inner_text()
    assert page.evaluate("[window.ran, document.querySelectorAll('main img, main script').length]") == [None, 0]
    assert all(one.startswith((site, "data:")) for one in page.asked)
    assert page.said == []


def test_very_long_text_is_shown_in_two_steps(read, find):
    """The beginning is shown at once, the rest on demand."""
    page = read(find("longline"))
    assert len(shown(page)) < 50_000
    page.get_by_role("button", name="Show all 90,009 characters").click()
    assert len(shown(page)) == 90_009


SHOWN = {
    "fact": "Mirela moves",
    "chunk": LINE,
    "hostile": serving.HOSTILE,
    "long": "longline",
    "chain": "holds forty",
}
STATES = {
    "fact": ("#/record/{fact}", None),
    "edited": ("#/record/{fact}", "e"),
    "superseded": ("#/record/{fact}", "s"),
    "forgotten": ("#/record/{spare}", "Delete"),
    "chunk": ("#/record/{chunk}", None),
    "hostile": ("#/record/{hostile}", None),
    "long": ("#/record/{long}", "e"),
    "chain": ("#/record/{chain}", None),
    "unknown": ("#/record/nothing", None),
    "add": ("#/add", "The connection pool holds many connections"),
    "facts": ("#/facts", None),
}
CORE = ("fact", "edited", "chunk", "hostile", "facts")
LOOKED_AT = [pytest.param(state, marks=[] if state in CORE else [pytest.mark.torture]) for state in STATES]
"""The states that are always looked at; all of them in `make torture`."""


def test_facts_are_listed_with_their_short_ids(visit, add):
    """A fact of the time line can be named in a command; one that was superseded names the newer one."""
    fact = add("The rowing boat is moored at the third post.")
    page = visit("#/facts")
    line = page.locator(".fact", has_text="third post")
    assert line.locator(".short-id").inner_text() == fact["short_id"]
    assert page.locator(".fact.past p a").count() > 0


@pytest.fixture
def stand(visit, find, add):
    """Opens the page in one of its states."""

    def go(state, **how):
        hash_, keys = STATES[state]
        words = {
            "fact": "Mirela moves",
            "chunk": LINE,
            "hostile": serving.HOSTILE,
            "long": "longline",
            "chain": "forty conn",
        }
        ids = {name: quote(find(text)["id"]) for name, text in words.items()}
        page = visit(hash_.format(**ids, spare=add("A spare record.")["id"]), **how)
        if state == "facts":
            page.locator(".fact").first.wait_for()
        if keys and len(keys) > 10:
            page.get_by_label("Text").fill(keys)
            page.locator(".near-row").first.wait_for()
        elif keys:
            page.locator("[data-action]").first.wait_for()
            page.keyboard.press(keys)
            page.locator("form.sheet, .toast").first.wait_for()
        return page

    return go


@pytest.mark.ci
@pytest.mark.parametrize("state", LOOKED_AT)
def test_axe_finds_nothing(stand, violations, state):
    """No axe-core violation of any severity, in both colour schemes."""
    assert violations(stand(state)) == []


@pytest.mark.ci
@pytest.mark.parametrize("state", LOOKED_AT)
def test_nothing_scrolls_sideways_on_a_phone(stand, state):
    """No view is wider than a phone, whatever it contains."""
    page = stand(state, width=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE


def test_pdf_opens_at_the_page_of_the_record(read, site, ask):
    """The link names the page, and the server sends the file."""
    chunk = ask("POST", "/v1/search", {"query": "wading birds of rivers"})["results"][0]
    page = read(chunk)
    link = page.get_by_role("link", name="Open page 1 of the PDF")
    playwright.expect(link).to_have_attribute("href", f"/v1/pdf/{chunk['id']}#page=1")
    assert page.request.get(site + link.get_attribute("href")).body() == HERONS.read_bytes()
