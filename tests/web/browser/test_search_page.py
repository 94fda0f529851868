"""The search page in a real browser, on a real server: what is typed, turned, compared, asked and pressed."""

from __future__ import annotations

import importlib
import re
import subprocess
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest
from support import serving
from support.forking import recollect_words

pytestmark = pytest.mark.xdist_group("browser")

QUESTION = "connection pool postgres"
PHONE = 360
FOCUSED = "document.activeElement.closest('.result')?.dataset.rank ?? document.activeElement.id"
SERIOUS = ("serious", "critical")
STATES = {
    "blank": ("#/search", None),
    "results": ("#/search?q=connection+pool&fusion=rrf&mmr=true", None),
    "opened": ("#/search?q=connection+pool", ".trace summary, .why-here summary"),
    "compared": (
        "#/search?q=connection+pool&compare=1&a.fusion=rrf&b.fusion=weighted",
        ".half-controls summary >> nth=0",
    ),
    "asked why": ("#/search?q=coffee&why=nothing-like-it", None),
    "filtered": ("#/search?q=pool&category=technical&tags=postgres", "button >> text=Filters"),
    "nothing": ("#/search?q=zzzz&sources=keyword", None),
    "refused": ("#/search?q=pool&since=banana", None),
    "hostile": ("#/search?q=hostile+longline&any_scope=true", None),
    "keys": ("#/search?q=pool", "#keys"),
}
CORE = ("results", "compared", "hostile")
LOOKED_AT = [pytest.param(state, marks=[] if state in CORE else [pytest.mark.torture]) for state in STATES]
"""The states that are always looked at; all of them in `make torture`."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where the server keeps what it keeps."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def site(home):
    """The address of a server on a store with notes and facts."""
    serving.fill(home / "memory.db", home / "notes")
    with serving.serving(home / "memory.db", home) as address:
        yield address


@pytest.fixture(scope="module")
def guarded(home, site, tmp_path_factory):
    """A server of the same store that asks for a token; the owner's and Ada's."""
    place = tmp_path_factory.mktemp("guarded")

    def token(*flags):
        words = recollect_words("token", "add", *flags)
        made = subprocess.run(words, env=serving.environment(place), capture_output=True, text=True, check=True)
        return made.stdout.split()[0]

    owner, ada = token("owner", "--owner"), token("ada", "--user", "ada")
    with serving.serving(home / "memory.db", place) as address:
        yield SimpleNamespace(address=address, owner=owner, ada=ada)


@pytest.fixture
def visit(open_page, site):
    """Opens the page in one of its states, and waits until it has asked and shown what it asked for."""

    def go(hash_="#/search", *, press=None, address=site, **how):
        page = open_page(f"{address}/{hash_}", **how)
        page.locator(".ranking-body:not([aria-busy]) > *").first.wait_for()
        for one in page.locator(press).all() if press else ():
            one.click()
        return page

    return go


def titles(page, within=""):
    """The results' titles, in order."""
    return page.locator(f"{within} .result-title").all_inner_texts()


def address_of(page):
    """What the address says was chosen."""
    return parse_qs(page.url.partition("?")[2])


def ask(page, words):
    """Type it, and wait for its answer."""
    with page.expect_response(lambda answer: "/v1/search" in answer.url and asked(answer) == words):
        page.locator("#q").fill(words)
    shown(page)


def asked(answer):
    """The question of a request, as the page sent it."""
    return answer.request.post_data_json["query"]


def shown(page):
    """Wait until nothing is being asked."""
    page.wait_for_timeout(200)
    page.locator(".ranking-body:not([aria-busy])").first.wait_for()


def give(page, token):
    """Answer the dialog that asks for a token."""
    page.get_by_role("textbox", name="Token").fill(token)
    page.get_by_role("button", name="Use token").click()


def knob(page, name):
    """One of the controls."""
    return page.locator(f'.single [data-knob="{name}"]')


def test_results_change_as_one_types(visit):
    """Without a key to send; a burst of letters is few questions; the address and the count follow."""
    page = visit()
    with page.expect_response(lambda answer: "/v1/search" in answer.url and asked(answer) == "connection pool"):
        page.locator("#q").press_sequentially("connection pool", delay=15)
    shown(page)
    first = titles(page)
    assert any("pool" in title.lower() for title in first)
    assert address_of(page)["q"] == ["connection pool"]
    assert sum(url.endswith("/v1/search") for url in page.asked) < 8
    assert page.get_by_role("status").first.inner_text() == f"{len(first)} results"
    ask(page, "platform team")
    assert titles(page)[0] == "Mirela moves to the platform team."
    assert page.said == []


def test_an_answer_that_comes_late_is_not_shown(visit):
    """The first question's answer is held back until the second one's is there."""
    page = visit()
    held = []
    page.route(
        "**/v1/search", lambda route: held.append(route) if "pool" in route.request.post_data else route.continue_()
    )
    with page.expect_request("**/v1/search"):
        page.locator("#q").fill("pool")
    ask(page, "platform team")
    assert len(held) == 1
    held[0].fulfill(json={"results": [], "trace": {"took_ms": 1, "sources": [], "warnings": []}})
    page.wait_for_timeout(200)
    assert titles(page)[0] == "Mirela moves to the platform team."


def test_a_result_says_where_it_is_from_and_why_it_is_there(visit):
    """Marked words, file and lines, freshness, each source's rank, the parts of the score, its arithmetic."""
    page = visit("#/search?q=E4031+connection+pool&limit=20")
    fact = page.locator(".result", has_text="Error E4031 means")
    assert fact.locator("mark").all_inner_texts()[:3] == ["E4031", "connection", "pool"]
    assert fact.locator(".chip").all_inner_texts() == ["technical", "#postgres"]
    assert re.search(r"keyword\s+#\d+", fact.locator(".places").inner_text())
    told = fact.get_by_role("img").get_attribute("aria-label")
    assert sum(int(part) for part in re.findall(r"(\d+) %", told)) in (99, 100, 101)
    score = float(fact.locator(".score-number").inner_text())
    assert 0 < score <= 1
    assert f"Score {fact.locator('.score-number').inner_text()}" in told
    fact.get_by_text("Why this rank").click()
    assert "= score" in fact.locator("table").inner_text()
    chunk = page.locator(".result", has_text="connection-pool-postmortem.md").first
    assert re.search(r"postmortem\.md:\d+–\d+", chunk.locator(".place").inner_text())
    assert "file changed" in chunk.inner_text()


def test_the_trace_is_one_line_that_opens(visit):
    """How long it took and who answered; then every stage."""
    page = visit("#/search?q=pool")
    line = page.locator(".trace summary")
    assert re.match(r"[\d.]+ ms\s+·\s+keyword \d+ · vector \d+", line.inner_text())
    line.click()
    assert "limit 10" in page.locator(".trace-body").inner_text()


def test_another_method_is_another_ranking_and_another_address(visit):
    """What was turned is seen to be turned, stays when the page is loaded again, and can be put back."""
    page = visit(f"#/search?q={QUESTION}&limit=20")
    blended = titles(page)
    knob(page, "fusion").get_by_role("radio", name="RRF").check()
    shown(page)
    by_rank = titles(page)
    assert by_rank != blended
    assert address_of(page)["fusion"] == ["rrf"]
    assert "changed" in knob(page, "fusion").get_attribute("class")
    page.reload()
    page.locator(".result-title").first.wait_for()
    assert titles(page) == by_rank
    page.get_by_role("button", name="Reset all 2").click()
    shown(page)
    assert "fusion" not in address_of(page)
    assert titles(page) == blended[:10]


def test_only_what_matters_to_the_method_is_active(visit):
    """K for RRF alone, the normalisation for two, λ with MMR."""
    page = visit("#/search?q=pool")
    for method, active in (("Blend", ()), ("RRF", ("rrf_k",)), ("CombMNZ", ("normalisation",)), ("Borda", ())):
        knob(page, "fusion").get_by_role("radio", name=method).check()
        names = ("rrf_k", "normalisation")
        enabled = tuple(name for name in names if knob(page, name).locator("input, select").first.is_enabled())
        assert enabled == active, method
    assert knob(page, "mmr_lambda").locator("input").first.is_disabled()
    knob(page, "mmr").get_by_role("switch").click()
    assert knob(page, "mmr_lambda").locator("input").first.is_enabled()


def test_a_slider_and_a_source_are_turned(visit):
    """A slider by key, a source by its button; both are sent, and the last source cannot be turned off."""
    page = visit("#/search?q=pool")
    knob(page, "limit").get_by_role("slider").focus()
    for _ in range(7):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => document.querySelectorAll('.result').length === 3")
    knob(page, "sources").get_by_role("button", name="vector").click()
    shown(page)
    assert address_of(page) == {"q": ["pool"], "limit": ["3"], "sources": ["keyword"]}
    assert page.locator(".places").first.inner_text().startswith("keyword")
    assert "vector" not in page.locator(".places").first.inner_text()
    assert knob(page, "sources").get_by_role("button", name="keyword").is_disabled()


def test_two_rankings_side_by_side(visit):
    """RRF against a weighted sum; each record says how it moved, and one is lit with its other self."""
    page = visit(f"#/search?q={QUESTION}")
    page.locator("#q").press("Escape")
    page.keyboard.press("c")
    page.locator('[data-side="b"] .result').first.wait_for()
    shown(page)
    heads = page.locator(".half-what").all_inner_texts()
    assert heads == ["RRF, k 60", "Weighted · keyword 0.3, vector 0.7"]
    a, b = titles(page, '[data-side="a"]'), titles(page, '[data-side="b"]')
    assert a != b
    for rank, title in enumerate(b):
        mark = page.locator('[data-side="b"] .move span[aria-hidden]').nth(rank).inner_text()
        up = a.index(title) - rank if title in a else None
        assert mark == ("new" if up is None else "=" if up == 0 else f"▲{up}" if up > 0 else f"▼{-up}")
    both = next(title for title in a if title in b)
    page.locator('[data-side="a"] .result').nth(a.index(both)).hover()
    assert titles(page, ".lit") == [both, both]
    assert page.locator(".line.lit").count() == 1
    assert page.locator(".line").count() == len(set(a) & set(b))
    assert address_of(page)["b.fusion"] == ["weighted"]


def test_each_side_has_knobs_of_its_own(visit):
    """Turning one side leaves the other; the better one is kept alone."""
    page = visit(f"#/search?q={QUESTION}&compare=1&a.fusion=rrf&b.fusion=rrf")
    page.locator('[data-side="b"] .result').first.wait_for()
    shown(page)
    assert page.locator(".compared").inner_text() == "Both rankings are equal."
    page.locator(".half-controls summary").first.click()
    page.locator('[data-side="b"] [data-knob="fusion"]').get_by_role("radio", name="Borda").check()
    shown(page)
    assert page.locator(".half-what").all_inner_texts() == ["RRF, k 60", "Borda"]
    page.get_by_role("button", name="Use B").click()
    page.locator(".single").wait_for()
    assert address_of(page) == {"q": [QUESTION], "fusion": ["borda"]}


def test_why_not_says_what_lost_it_and_mends_it(visit):
    """A record is picked by its words; the advice is applied to the controls, and then it is there."""
    page = visit("#/search?q=pool&limit=2&sources=keyword,vector")
    page.locator("#q").press("Escape")
    page.keyboard.press("w")
    page.locator("#why").fill("coffee black")
    page.get_by_role("option", name="Ada takes her coffee").wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(".told").wait_for()
    assert "Removed by scope" in page.locator(".told-reason").inner_text()
    assert page.locator(".route [aria-current]").inner_text().startswith("Filters")
    page.get_by_role("button", name="Apply").click()
    page.locator(".told.found").wait_for()
    shown(page)
    assert "Ada takes her coffee black." in titles(page)
    assert address_of(page)["user"] == ["ada"]
    assert "It is in the results" in page.locator(".told-reason").inner_text()


def test_why_not_shows_the_place_in_each_source(visit):
    """Beyond the limit, with every source's rank; and Escape closes it."""
    page = visit("#/search?q=connection+pool&limit=1")
    page.get_by_role("button", name="Why not…?").click()
    page.locator("#why").fill("Mirela moves")
    page.get_by_role("option", name="Mirela moves").click()
    page.locator(".told table").wait_for()
    assert "Removed by limit" in page.locator(".told-reason").inner_text()
    rows = page.locator(".told tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows] == ["keyword", "vector"]
    assert re.search(r"#\d+", rows[1])
    page.locator("#why").press("Escape")
    assert not page.locator("#why-not").is_visible()
    assert "why" not in address_of(page)


def test_filters_narrow_the_answer(visit):
    """Choices come from the store; each that is set is a chip that takes it away again."""
    page = visit("#/search?q=connection+pool&limit=20")
    every = titles(page)
    page.get_by_role("button", name="Filters").click()
    page.get_by_role("group", name="Category").get_by_role("button", name="people").click()
    shown(page)
    assert titles(page) == ["Mirela moves to the platform team."]
    page.get_by_label("Include superseded").check()
    page.get_by_role("button", name="Remove the filter category: people").click()
    shown(page)
    assert "The connection pool holds twenty connections." in titles(page)
    assert "The connection pool holds twenty connections." not in every
    page.get_by_label("Kind").select_option("fact")
    shown(page)
    assert set(page.locator(".place").all_inner_texts()) == {"fact"}
    assert address_of(page) == {"q": ["connection pool"], "limit": ["20"], "superseded": ["true"], "kind": ["fact"]}
    page.get_by_role("button", name="Clear all").click()
    shown(page)
    assert titles(page) == every


def test_the_owner_looks_into_scopes(visit):
    """What is one user's is not seen, until that user or every scope is named."""
    page = visit("#/search?q=coffee+black")
    assert "Ada takes her coffee black." not in titles(page)
    page.get_by_role("button", name="Filters").click()
    page.get_by_role("switch", name="Any scope").check()
    shown(page)
    assert titles(page)[0] == "Ada takes her coffee black."
    assert page.locator(".chip.scope").first.inner_text() == "user ada"
    page.get_by_role("switch", name="Any scope").uncheck()
    page.get_by_label("Of user").fill("ada")
    page.get_by_label("Of user").press("Enter")
    shown(page)
    assert titles(page)[0] == "Ada takes her coffee black."


def test_the_keyboard_is_enough(visit):
    """From the field through the results into a record and back to where one was; the keys are told."""
    page = visit()
    page.locator("#q").press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("connection pool")
    page.locator(".result").nth(3).wait_for()
    shown(page)
    walked = []
    for key in ("ArrowDown", "j", "ArrowDown", "k", "ArrowUp", "ArrowUp", "ArrowDown", "j"):
        page.keyboard.press(key)
        walked.append(page.evaluate(FOCUSED))
    assert walked == ["1", "2", "3", "2", "1", "q", "1", "2"]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/record/*")
    page.go_back()
    page.wait_for_function(f"() => ({FOCUSED}) === '2'")
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").count()
    page.keyboard.press("f")
    assert page.locator("#filters").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#filters").is_visible()


def test_the_first_tab_skips_to_the_content(visit):
    """Past the header, to what the page is for."""
    page = visit()
    page.locator(".brand").focus()
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.get_by_text("Skip to the content").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_back_is_what_was_asked_before(visit):
    """A question that has rested is an entry of its own."""
    page = visit("#/search?q=platform+team")
    before = titles(page)
    page.wait_for_timeout(1600)
    ask(page, "connection pool")
    page.go_back()
    page.wait_for_function("() => document.querySelector('#q').value === 'platform team'")
    shown(page)
    assert titles(page) == before


def test_dark_is_another_page_and_the_switch_is_kept(visit):
    """The system's scheme is followed until one is chosen."""
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = visit(), visit(scheme="dark")
    assert light.evaluate(paper) == "rgb(255, 255, 255)"
    assert dark.evaluate(paper) != light.evaluate(paper)
    light.get_by_role("button", name="Colours: auto").click()
    light.get_by_role("button", name="Colours: light").click()
    assert light.evaluate(paper) == dark.evaluate(paper)
    light.reload()
    assert light.evaluate(paper) == dark.evaluate(paper)


@pytest.mark.parametrize("state", LOOKED_AT)
def test_nothing_is_wider_than_a_phone(visit, state):
    """No state scrolls sideways, whatever is in the records."""
    hash_, press = STATES[state]
    page = visit(hash_, press=press, width=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE


def test_on_a_phone_two_rankings_are_stacked(visit):
    """One below the other, each as wide as the screen."""
    page = visit("#/search?q=pool&compare=1&a.fusion=rrf&b.fusion=weighted", width=PHONE)
    a, b = (page.locator(f'[data-side="{side}"]').bounding_box() for side in "ab")
    assert a["x"] == b["x"]
    assert b["y"] >= a["y"] + a["height"]


@pytest.mark.parametrize("state", LOOKED_AT)
def test_axe_finds_nothing_serious(visit, state):
    """The checks of axe-core in each state, and those of contrast once more in the dark."""
    axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
    hash_, press = STATES[state]
    page = visit(hash_, press=press, width=1280)
    page.wait_for_timeout(300)
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    found += axe.run(page, options={"runOnly": ["color-contrast"]}).response["violations"]
    bad = [one for one in found if one["impact"] in SERIOUS]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in bad] == []


def test_hostile_text_is_only_text(visit, site):
    """It is shown as it is, nothing of it runs, no other host is asked, and the console is silent."""
    page = visit("#/search?q=hostile+pool")
    assert f"{serving.HOSTILE} \ufffdgnp.exe\u202c" in titles(page)
    page.get_by_role("button", name="Filters").click()
    page.get_by_role("button", name="<b>bold</b>").click()
    shown(page)
    assert page.evaluate("window.ran") is None
    assert page.locator("main script, main img").count() == 0
    assert [url for url in page.asked if not url.startswith((site, "data:"))] == []
    assert page.said == []


def test_what_the_server_refuses_is_said_in_place(visit):
    """With its hint; and what is put right is answered."""
    page = visit("#/search?q=pool&since=banana")
    refused = page.get_by_role("alert").filter(has_text="banana")
    assert refused.is_visible()
    page.get_by_role("button", name="Remove the filter since: banana").click()
    page.locator(".result").first.wait_for()
    assert not refused.is_visible()


def test_nothing_found_says_what_to_do(visit):
    """The filters can be cleared where they are in the way."""
    page = visit("#/search?q=pool&path=/nowhere&sources=keyword")
    assert page.get_by_role("heading", name="No results").is_visible()
    page.get_by_role("button", name="Clear the filters").click()
    page.locator(".result").first.wait_for()


@pytest.mark.ci
def test_an_empty_store_says_how_to_begin(visit, tmp_path):
    """With the command that indexes, and a way to add."""
    with serving.serving(tmp_path / "empty.db", tmp_path) as address:
        page = visit(address=address)
        assert page.get_by_role("heading", name="Nothing is stored yet").is_visible()
        assert page.get_by_role("link", name="Add a fact").is_visible()


@pytest.mark.ci
def test_a_lost_server_is_waited_for(visit, site, home, tmp_path):
    """The page says so, keeps what it shows, and answers by itself when the server is back."""
    port = serving.free_port()
    with serving.serving(home / "memory.db", tmp_path, port=port) as address:
        page = visit("#/search?q=pool", address=address)
        before = titles(page)
    page.locator("#q").fill("platform team")
    page.get_by_text("not reachable, retrying").wait_for()
    assert titles(page) == before
    with serving.serving(home / "memory.db", tmp_path, port=port):
        page.get_by_role("link", name="Mirela moves").wait_for()
        assert not page.locator("#banner").is_visible()


@pytest.mark.ci
def test_a_token_is_asked_for_once(open_page, guarded):
    """A wrong one is asked for again; the right one is kept for the tab."""
    page = open_page(f"{guarded.address}/#/search?q=pool")
    give(page, "wrong")
    page.get_by_text("The token was refused").wait_for()
    give(page, guarded.owner)
    page.locator(".result").first.wait_for()
    page.reload()
    page.locator(".result").first.wait_for()
    assert page.get_by_role("dialog").count() == 0


def test_one_who_is_bound_sees_their_own_and_no_scopes(open_page, guarded):
    """What belongs to them is found without a filter, and there is no filter to look elsewhere."""
    page = open_page(f"{guarded.address}/#/search?q=coffee+black")
    give(page, guarded.ada)
    page.get_by_role("link", name="Ada takes her coffee black.").wait_for()
    page.get_by_role("button", name="Filters").click()
    assert page.get_by_label("Kind").is_visible()
    assert page.get_by_role("switch", name="Any scope").count() == 0
    assert page.get_by_label("Of user").count() == 0


@pytest.mark.ci
def test_a_token_that_is_not_given_is_said_to_be_missing(open_page, guarded):
    """Closing the dialog is an answer, and one can think again."""
    page = open_page(guarded.address)
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("alert").filter(has_text="token").wait_for()
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("textbox", name="Token").wait_for()
