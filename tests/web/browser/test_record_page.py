"""Records in a real browser, on a real server: read, added, edited, superseded, forgotten, and all of it taken back."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from urllib.parse import quote

import pytest
from playwright import sync_api as playwright
from support import serving

from recollect import Memory
from recollect.config import Settings

pytestmark = pytest.mark.xdist_group("browser")

PHONE = 360
ODD = "an odd/id?with=#marks %20"
LINE = "The pilot boat leaves at slack water."


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where the server keeps what it keeps."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def site(home):
    """The address of a server on a store with notes and facts, an odd id, and a long file that is gone again."""
    store = home / "memory.db"
    serving.fill(store, home / "notes")
    (home / "harbour").mkdir()
    gone, long = home / "harbour" / "gone.md", home / "harbour" / "long.md"
    gone.write_text("# Gone\n\nThe lighthouse was sold.\n")
    rows = [*(f"Berth {number} is dredged." for number in range(1, 90)), "", "# Pilot", "", LINE, "", "# After", ""]
    long.write_text("\n".join([*rows, *(f"Row {number} of the tide table." for number in range(90))]))
    with Memory.open(store, embedder="hashing:64", settings=Settings()) as memory:
        memory.index(home / "harbour")
        memory.add("Buoys are painted in March.", id=ODD)
    gone.unlink()
    with serving.serving(store, home) as address:
        yield address


@pytest.fixture
def ask(site):
    """Asks the server's API."""
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
    """The first record that has these words in its text, title or path."""

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


def test_what_is_added_is_found_edited_and_as_it_was_again(visit):
    """From an empty form through search and the editor, with the keyboard alone, and back with `u`."""
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


def test_all_that_can_be_said_of_a_fact_is_stored(visit, find):
    """Title, category, tags, importance, decay, expiry and scope arrive as they were given."""
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


def test_what_was_added_can_be_taken_back(visit, ask):
    """Undo after adding: the record is forgotten, and the list follows."""
    page = visit("#/add")
    page.get_by_label("Text").fill("A mistake about cranes.")
    page.keyboard.press("Control+Enter")
    said(page, "Stored.")
    page.locator(".recent-row", has_text="mistake about cranes").wait_for()
    page.get_by_role("button", name="Undo").click()
    said(page, "new record is removed")
    page.locator(".recent-row", has_text="mistake about cranes").wait_for(state="detached")
    assert "cranes" not in json.dumps(ask("GET", "/v1/records?limit=1000"))


def test_known_words_are_no_new_record_and_offer_no_undo(visit, find, ask):
    """Storing what is known changes nothing, so that there is nothing whose undoing could harm the old record."""
    page = visit("#/add")
    page.get_by_label("Text").fill("prefer postgresql  for the job queue.")
    page.keyboard.press("Control+Enter")
    said(page, "already stored")
    assert page.get_by_role("button", name="Undo").count() == 0
    assert len(ask("GET", f"/v1/history/{find('Prefer PostgreSQL')['id']}")["events"]) == 1


def test_what_is_said_anew_of_known_words_can_be_taken_back(visit, find, ask):
    """A tag given to a fact that was there is undone without the fact."""
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


def test_what_is_near_is_shown_while_writing_and_can_be_superseded_instead(visit, add, ask):
    """The old record stands below the field; chosen, it is superseded by what is stored, and undo lifts that."""
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


def test_what_is_near_is_looked_for_in_the_scope_that_is_written_to(visit):
    """What one user keeps is near to what is written for them, and to nothing else."""
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


def test_superseding_shows_the_chain_and_undo_brings_the_old_back(read, add, ask):
    """Three in a row, each linked to the others; the last one is taken back from its own page."""
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


def test_what_is_forgotten_comes_back(read, add, ask):
    """Through the message at once, and later from the record's own page."""
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


def test_an_edit_is_told_as_before_and_after(read, add, ask):
    """Each edit says what was and what became of it; the last is measured against what holds now."""
    record = add("Ferries leave at six.", title="Ferries", importance=0.25)
    ask("PATCH", f"/v1/records/{record['id']}", {"title": "Ferry", "importance": 0.5})
    ask("PATCH", f"/v1/records/{record['id']}", {"title": "Ferry times", "tags": ["sea"]})
    events = [re.sub(r"\s+", " ", text) for text in read(record).locator(".event").all_inner_texts()]
    assert "title Ferries→Ferry" in events[1]
    assert "importance 0.25→0.5" in events[1]
    assert "title Ferry→Ferry times" in events[2]
    assert "tags nothing→sea" in events[2]


def test_escape_leaves_all_as_it_was(read, add, ask):
    """The editor closes without a word, and the focus is where it came from."""
    record = add("Nets are mended in winter.")
    page = read(record)
    page.get_by_role("button", name="Edit").press("Enter")
    page.keyboard.type("u lost: ")
    assert "u lost: " in page.get_by_label("Text").input_value()
    page.keyboard.press("Escape")
    assert shown(page) == "Nets are mended in winter."
    assert page.evaluate("document.activeElement.dataset.action") == "edit"
    assert len(ask("GET", f"/v1/history/{record['id']}")["events"]) == 1


def test_a_refusal_is_said_and_nothing_typed_is_lost(visit):
    """A text of white space alone is refused beside the button."""
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
    """The lines have their numbers, the chunk's are marked, and the first of them is in sight without scrolling."""
    page = read(find(LINE))
    first = page.locator(".code-mine").first
    first.wait_for()
    assert "long.md" in page.locator("#file-title + .path").inner_text()
    start, end = find(LINE)["lines"]
    marked = [int(one.get_attribute("data-line")) for one in page.locator(".code-mine").all()]
    assert marked == list(range(start, end + 1))
    assert LINE in " ".join(page.locator(".code-mine").all_inner_texts())
    page.wait_for_function("document.querySelector('.code').scrollTop > 0")
    box, row = page.locator(".code").bounding_box(), first.bounding_box()
    assert box["y"] <= row["y"] <= box["y"] + box["height"] - row["height"]
    assert page.locator("[data-action=edit]").count() == 0


@pytest.mark.parametrize(
    ("words", "told"), [("postmortem.md", "has changed"), ("lighthouse was sold", "no longer there")]
)
def test_a_file_that_moved_on_is_said(read, find, words, told):
    """A changed file is shown as it is now, a missing one is named."""
    page = read(find(words))
    page.locator(".note", has_text=told).wait_for()
    assert page.locator(".code-mine").count() > 0


def test_an_unknown_id_is_told_kindly(visit):
    """No error page: what was asked for, and where to go on."""
    page = visit("#/record/no-such-thing")
    page.get_by_role("heading", name="No record has this id").wait_for()
    assert "no-such-thing" in page.locator(".record").inner_text()
    assert page.get_by_role("link", name="Search").count() >= 2


def test_any_id_has_its_page(visit, read):
    """Slashes, marks and blanks in an id stay what they are."""
    page = read({"id": ODD})
    assert shown(page) == "Buoys are painted in March."
    assert page.locator(".id").inner_text() == ODD


def test_more_is_loaded_and_the_focus_goes_on_with_it(visit, add):
    """The next page of the list is put below the first, without one row twice."""
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


def test_a_message_stays_as_long_as_it_is_promised(visit):
    """Eight seconds and a little more, and longer while the focus is in it."""
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
def test_one_who_may_only_read_sees_no_actions(home, read, visit, find, site):
    """No button that changes anything, on no page, and no key that does."""
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
def test_what_is_everyones_is_not_for_one_user_to_change(home, read, find, site):
    """One who is bound to a scope has the actions on their own records only."""
    shared, own = find("Prefer PostgreSQL"), find("coffee black")
    with serving.serving(home / "memory.db", home, "--user", "ada") as address:
        pages = read(shared, address=address), read(own, address=address)
        assert [page.locator("[data-action]").count() for page in pages] == [0, 3]
        leave(*pages)


def test_hostile_text_is_only_text(read, find, site):
    """Nothing of it becomes an element, runs, or is asked for; its name is not turned round."""
    page = read(find(serving.HOSTILE))
    page.locator(".record-text").wait_for()
    assert serving.HOSTILE in shown(page)
    assert serving.HOSTILE in page.locator("h1").inner_text()
    assert "\u202e" not in page.locator("h1").inner_text()
    assert "direction of writing" in page.locator(".note").inner_text()
    assert page.evaluate("[window.ran, document.querySelectorAll('main img, main script').length]") == [None, 0]
    assert all(one.startswith((site, "data:")) for one in page.asked)
    assert page.said == []


def test_a_very_long_text_comes_in_two_steps(read, find):
    """The head is shown at once, the rest on demand."""
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
}
CORE = ("fact", "edited", "chunk", "hostile")
LOOKED_AT = [pytest.param(state, marks=[] if state in CORE else [pytest.mark.torture]) for state in STATES]
"""The states that are always looked at; all of them in `make torture`."""


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
        if keys and len(keys) > 10:
            page.get_by_label("Text").fill(keys)
            page.locator(".near-row").first.wait_for()
        elif keys:
            page.locator("[data-action]").first.wait_for()
            page.keyboard.press(keys)
            page.locator("form.sheet, .toast").first.wait_for()
        return page

    return go


@pytest.mark.parametrize("state", LOOKED_AT)
def test_axe_finds_nothing(stand, violations, state):
    """The checks of axe-core, of every weight, in both schemes."""
    assert violations(stand(state)) == []


@pytest.mark.ci
@pytest.mark.parametrize("state", LOOKED_AT)
def test_nothing_is_wider_than_a_phone(stand, state):
    """No view scrolls sideways, whatever stands in it."""
    page = stand(state, width=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
