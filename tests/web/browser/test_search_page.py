"""The search page in a real browser, on a real server: typing, options, comparison, why-not, filters and keys."""

from __future__ import annotations

import importlib
import re
import subprocess
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest
from support import serving
from support.forking import recollect_words

from recollect import Memory
from recollect.config import Settings

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
    "ranking": ("#/search?q=pool", "button >> text=Ranking"),
    "palette": ("#/search?q=pool", "Control+k"),
    "palette, typed": ("#/search?q=pool", "Control+k f"),
}
CORE = ("results", "compared", "hostile", "ranking", "palette")
LOOKED_AT = [pytest.param(state, marks=[] if state in CORE else [pytest.mark.torture]) for state in STATES]
"""The states that are always looked at; all of them in `make torture`."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The home folder of the server."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def site(home):
    """The address of a server on a store with notes and facts."""
    serving.fill(home / "memory.db", home / "notes")
    (home / "long").mkdir()
    parts = (
        f"## Rookery {number}\n\n" + "Herons nest in the tall alders of the rookery. " * 30 for number in (1, 2, 3)
    )
    (home / "long" / "herons.md").write_text("# Herons\n\n" + "\n\n".join(parts), encoding="utf-8")
    (home / "long" / "alders.md").write_text(
        "# Alders\n\nTall trees of the fen, see [[Herons]] <b>.\n", encoding="utf-8"
    )
    log = "# Ringing log\n\n" + "".join(f"- {number} plovers\n" for number in range(90)) + "- one zitting cisticola\n"
    (home / "long" / "log.md").write_text(log, encoding="utf-8")
    with Memory.open(home / "memory.db", embedder="hashing:64", settings=Settings()) as memory:
        memory.index(home / "long")
    with serving.serving(home / "memory.db", home) as address:
        yield address


@pytest.fixture(scope="module")
def guarded(home, site, tmp_path_factory):
    """A server of the same store that requires a token, with the tokens of the owner and of Ada."""
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
    """Opens the page in one of its states and waits until the results are shown."""

    def go(hash_="#/search", *, press=None, address=site, **how):
        page = open_page(f"{address}/{hash_}", **how)
        page.locator(".ranking-body:not([aria-busy]) > *").first.wait_for()
        if press and press.startswith("Control"):
            for key in press.split():
                page.keyboard.press(key)
            page.locator(".palette [aria-selected]").first.wait_for()
            return page
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
    """One of the controls, which are behind a button."""
    if page.locator("#ranking").is_hidden():
        page.get_by_role("button", name="Ranking").click()
    return page.locator(f'#ranking [data-knob="{name}"]')


def test_results_change_while_typing(visit):
    """No submit key; fast typing sends few queries; the address and the count follow."""
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


def test_late_answer_is_not_shown(visit):
    """The answer of the first query is delayed until the second one's has arrived."""
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


def test_result_shows_its_origin_and_its_score(visit):
    """Marked words, file and lines, age, rank in each source, and the parts of the score."""
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


def test_further_passages_of_a_file_can_be_opened(visit):
    """A file is one result; its other passages are folded, joined where they adjoin, and lead to their records."""
    page = visit("#/search?q=herons+rookery+alders")
    file = page.locator(".result", has_text="herons.md")
    assert file.count() == 1
    more = file.locator(".passages")
    assert more.locator("summary").inner_text() == "and 2 more passages"
    assert not more.locator("ul").is_visible()
    more.locator("summary").click()
    assert more.locator(".passage").count() == 2
    assert re.search(r"lines \d+–\d+", more.locator("li").first.inner_text())
    assert "##" not in more.inner_text(), "passages are shown without the marks of Markdown, like the result"
    more.locator(".passage").first.click()
    page.wait_for_url("**/#/record/*")


def test_results_can_be_listed_by_chunk(visit):
    """The control lists every chunk by itself."""
    page = visit("#/search?q=herons+rookery+alders&by=chunk")
    assert page.locator(".result", has_text="herons.md").count() == 3
    assert page.locator(".passages").count() == 0


def test_trace_is_one_line_that_opens(visit):
    """The line has the time and the sources; opened, it lists every stage."""
    page = visit("#/search?q=pool")
    line = page.locator(".trace summary")
    assert re.match(r"[\d.]+ ms\s+·\s+keyword \d+ · vector \d+", line.inner_text())
    line.click()
    assert "limit 10" in page.locator(".trace-body").inner_text()


def test_thousands_in_the_trace_have_a_comma(visit):
    """Wherever a count of the search itself is shown."""
    page = visit()
    made = """async () => {
        const source = { name: "vector", status: "ok", hits: 1000, took_ms: 4.66 };
        const trace = { took_ms: 20, sources: [source], warnings: [], stages: [{ name: "files", in: 1001, out: 1001 }],
          filtered: { duplicate: 1500 }, lag: { vectors: 2000 } };
        return (await import('/static/js/results.js')).traceLine({ trace }).textContent; }"""
    line = page.evaluate(made)
    assert [
        count for count in ("vector 1,000", "files 1,001", "duplicate 1,500", "vectors 2,000") if count not in line
    ] == []
    assert "1000" not in line


def test_changing_the_method_changes_ranking_and_address(visit):
    """The change is marked, survives a reload and can be reset."""
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
    page.get_by_role("button", name="Ranking, 2 changed").click()
    page.get_by_role("button", name="Reset all 2").click()
    shown(page)
    assert "fusion" not in address_of(page)
    assert titles(page) == blended[:10]


def test_only_options_of_the_method_are_active(visit):
    """K for RRF only, normalisation for two methods, λ with MMR."""
    page = visit("#/search?q=pool")
    for method, active in (("Blend", ()), ("RRF", ("rrf_k",)), ("CombMNZ", ("normalisation",)), ("Borda", ())):
        knob(page, "fusion").get_by_role("radio", name=method).check()
        names = ("rrf_k", "normalisation")
        enabled = tuple(name for name in names if knob(page, name).locator("input, select").first.is_enabled())
        assert enabled == active, method
    assert knob(page, "mmr_lambda").locator("input").first.is_disabled()
    knob(page, "mmr").get_by_role("switch").click()
    assert knob(page, "mmr_lambda").locator("input").first.is_enabled()


def test_slider_and_source_button_are_sent(visit):
    """A slider is moved by key, a source switched by its button; the last source cannot be switched off."""
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
    """One's own ranking against RRF: each record shows how it moved and is highlighted on both sides."""
    page = visit(f"#/search?q={QUESTION}")
    page.locator("#q").press("Escape")
    page.keyboard.press("c")
    page.locator('[data-side="b"] .result').first.wait_for()
    shown(page)
    heads = page.locator(".half-what").all_inner_texts()
    assert heads == ["Blend", "RRF, k 60"]
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
    assert address_of(page)["b.fusion"] == ["rrf"]


def test_each_side_has_its_own_options(visit):
    """A change on one side leaves the other; the better side can be continued alone."""
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


def test_note_of_a_result_is_read_beside_the_results(visit):
    """The first result's note is rendered and opened at the place; keys go on to the next; Ctrl+K lists commands."""
    page = visit("#/search?q=pool", width=1300)
    pane = page.locator(".reading")
    pane.locator(".prose").first.wait_for()
    first = pane.locator(".reading-title").inner_text()
    assert first == titles(page)[0]
    assert pane.locator("mark", has_text="pool").count() > 0
    assert re.fullmatch(r"[0-9a-f]{8}", page.locator(".result .short-id").first.inner_text())
    assert "](" not in pane.inner_text()
    page.locator("#q").press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.wait_for_function("first => document.querySelector('.reading-title').textContent !== first", arg=first)
    assert pane.locator(".reading-title").inner_text() == titles(page)[1]
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("facts")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Facts over time").wait_for()


def test_match_far_down_in_a_passage_is_in_view(visit):
    """The pane opens at the passage, or at its first match if that would be below its end."""
    page = visit("#/search?q=cisticola", width=1300)
    page.locator(".reading .prose mark").first.wait_for()
    assert page.locator(".reading .prose .mine").first.is_visible()
    page.wait_for_function("document.querySelector('.reading-body').scrollTop > 0")
    page.locator(".reading .related").wait_for()
    page.wait_for_function(
        """() => { const [mark, body] = ['.reading .prose mark', '.reading-body'].map((one) =>
          document.querySelector(one).getBoundingClientRect());
          return mark.top >= body.top && mark.bottom <= body.bottom; }"""
    )


def test_rows_of_a_table_are_told_apart_in_a_snippet(visit):
    """As on the terminal: a bullet before each row, and a dot between two cells."""
    page = visit("#/search?q=pool")
    unmarked = "async text => (await import('/static/js/words.js')).unmarked(text)"
    for text in ("| a | b |\n|---|:-:|\n| 1 | 2 |", "| a | b | | --- | --- | | 1 | 2 |"):
        assert page.evaluate(unmarked, text).strip() == "• a · b • 1 · 2"
    assert page.evaluate(unmarked, "no | table") == "no · table"


def test_snippet_loses_marks_but_no_words_or_numbers(visit):
    """A year at the end of a sentence, a plus and a minus stay; fences and the brackets of links are removed."""
    page = visit("#/search?q=pool")
    for text, words in (
        ("the earthquake of 1755. You can walk", "the earthquake of 1755. You can walk"),
        ("0.3 of s / (1 + s) and 5 - 3", "0.3 of s / (1 + s) and 5 - 3"),
        ("Again: - the museum. * Tram 28", "Again: • the museum. • Tram 28"),
        ("By hand: ```console $ make all ``` Then", "By hand: $ make all Then"),
        ("See [[table]] and [[notes/costs|the costs]].", "See table and the costs."),
    ):
        shown = page.evaluate("async text => (await import('/static/js/words.js')).unmarked(text)", text)
        assert " ".join(shown.split()) == words


def test_headings_of_one_level_stay_equal_in_a_note(visit):
    """Three sections of one note have headings of the same level, below that of the note."""
    page = visit("#/search?q=rookery", width=1300)
    page.locator(".reading .prose h3").first.wait_for()
    tags = "[...document.querySelectorAll('.reading .prose :is(h2, h3, h4, h5, h6)')].map((one) => one.tagName)"
    assert page.evaluate(tags) == ["H2", "H3", "H3", "H3"]


def test_related_notes_are_listed_below_the_note(visit, violations):
    """A note is read with what it links to and what links to it; a link leads on, and back."""
    page = visit("#/search?q=alders+fen+trees", width=1300)
    related = page.locator(".reading .related")
    related.get_by_role("heading", name="Links to").wait_for()
    assert related.locator("li").first.inner_text() == "Herons › Rookery 1 line 3: [[Herons]]"
    assert [one for one in violations(page) if one[1] in SERIOUS] == []
    page.locator(".reading .prose").get_by_role("link", name="Herons").click()
    page.locator(".reading .reading-title", has_text="Herons").wait_for()
    assert page.url.endswith("q=alders+fen+trees")
    related.get_by_role("link", name="Alders").first.click()
    page.locator(".record .prose").get_by_role("link", name="Herons").click()
    related = page.locator(".record .related")
    related.get_by_role("heading", name="Linked from").wait_for()
    assert "Alders line 3: [[Herons]]" in related.inner_text()
    assert page.said == []


def test_why_not_names_the_stage_and_applies_the_advice(visit):
    """The advice changes the options, and the record is found."""
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


def test_why_not_shows_the_rank_in_each_source(visit):
    """Also beyond the limit; Escape closes the panel."""
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
    """Choices come from the store; each active filter is a chip that removes it."""
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


def test_many_tags_are_not_counted(visit):
    """The server names 500 tags at most, so that their number would not be that of the store."""
    tags = [f"tag{number}" for number in range(500)]
    page = visit()
    page.route("**/v1/facets*", lambda route: route.fulfill(json={"tags": tags}))
    page.reload()
    page.get_by_role("button", name="Filters").click()
    assert page.get_by_label("Another of Tags").get_attribute("placeholder") == "another…"


def test_hebrew_is_aligned_to_the_right(visit):
    """The words of the query, the name of a result and its text begin at the same side."""
    page = visit()
    texts = {"title": "מפתח רזרבי", "snippet": "המפתח נמצא מתחת לעציץ הכחול"}

    def answer(route):
        document = route.fetch().json()
        document["results"] = [{**one, **texts} for one in document["results"]]
        route.fulfill(json=document)

    page.route("**/v1/search", answer)
    ask(page, "פתח pool")
    right = "name => document.querySelector(name).getBoundingClientRect().right"
    assert page.evaluate(right, ".result-title") == page.evaluate(right, ".result-head h3")
    assert page.evaluate("getComputedStyle(document.getElementById('q')).direction") == "rtl"


def test_owner_can_search_scopes(visit):
    """A user's record is found only if that user or every scope is selected."""
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


def test_everything_works_with_the_keyboard(visit):
    """From the field through the results into a record and back; the keys are listed."""
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


def test_first_tab_skips_to_the_content(visit):
    """The skip link moves the focus past the header."""
    page = visit()
    page.locator(".brand").focus()
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.get_by_text("Skip to the content").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


@pytest.mark.ci
def test_back_button_returns_to_the_previous_query(visit):
    """A query that was not changed for a while is a history entry."""
    page = visit("#/search?q=platform+team")
    before = titles(page)
    page.wait_for_timeout(1600)
    ask(page, "connection pool")
    page.go_back()
    page.wait_for_function("() => document.querySelector('#q').value === 'platform team'")
    shown(page)
    assert titles(page) == before


@pytest.mark.ci
def test_chosen_colour_scheme_is_stored(visit):
    """The system's scheme is used until one is chosen."""
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
def test_nothing_scrolls_sideways_on_a_phone(visit, state):
    """No state is wider than a phone, whatever the records contain."""
    hash_, press = STATES[state]
    page = visit(hash_, press=press, width=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE


def test_two_rankings_are_stacked_on_a_phone(visit):
    """One below the other, each as wide as the screen."""
    page = visit("#/search?q=pool&compare=1&a.fusion=rrf&b.fusion=weighted", width=PHONE)
    a, b = (page.locator(f'[data-side="{side}"]').bounding_box() for side in "ab")
    assert a["x"] == b["x"]
    assert b["y"] >= a["y"] + a["height"]


@pytest.mark.ci
@pytest.mark.parametrize("state", LOOKED_AT)
def test_axe_finds_nothing_serious(visit, state):
    """axe-core in each state, and its contrast checks also in dark."""
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


def test_hostile_text_is_shown_as_text(visit, site):
    """Nothing in it runs, no other host is contacted, and the console is empty."""
    page = visit("#/search?q=hostile+pool")
    assert f"{serving.HOSTILE} \ufffdgnp.exe\u202c" in titles(page)
    page.get_by_role("button", name="Filters").click()
    page.get_by_role("button", name="<b>bold</b>").click()
    shown(page)
    assert page.evaluate("window.ran") is None
    assert page.locator("main script, main img").count() == 0
    assert [url for url in page.asked if not url.startswith((site, "data:"))] == []
    assert page.said == []


def test_refused_query_shows_the_error_in_place(visit):
    """With its hint; a corrected query is answered."""
    page = visit("#/search?q=pool&since=banana")
    refused = page.get_by_role("alert").filter(has_text="banana")
    assert refused.is_visible()
    page.get_by_role("button", name="Remove the filter since: banana").click()
    page.locator(".result").first.wait_for()
    assert not refused.is_visible()


def test_no_results_shows_what_to_do(visit):
    """The filters can be cleared from the message."""
    page = visit("#/search?q=pool&path=/nowhere&sources=keyword")
    assert page.get_by_role("heading", name="No results").is_visible()
    page.get_by_role("button", name="Clear the filters").click()
    page.locator(".result").first.wait_for()


def test_empty_answer_names_the_closest_record(visit):
    """With its confidence, and a link to it."""
    page = visit("#/search?q=connection+pool&min_confidence=1")
    closest = page.locator(".blank")
    assert re.search(r"Closest, with [\d.]+: .+", closest.inner_text())
    assert closest.get_by_role("link").get_attribute("href").startswith("#/record/")


def test_moved_result_shows_why(visit):
    """Where diversity raised it, the result says from which rank."""
    page = visit("#/search?q=connection+pool&mmr=true&mmr_lambda=0.1")
    assert re.match(r"↑ from \d+: .*different from the results above", page.locator(".moved").first.inner_text())


@pytest.mark.ci
def test_empty_store_shows_how_to_begin(visit, tmp_path):
    """With the command that indexes; one line stores a fact, and one button indexes the sample notes."""
    with serving.serving(tmp_path / "empty.db", tmp_path) as address:
        page = visit(address=address)
        assert page.get_by_role("heading", name="Nothing is stored yet").is_visible()
        assert page.get_by_role("link", name="Add a fact").is_visible()
        page.get_by_role("button", name="Try the sample notes").click()
        page.locator(".result-title", has_text="The dishwasher that hummed").wait_for()
        page.goto(f"{address}#/search")
        page.get_by_role("textbox", name="Remember a fact").fill("Anneke has the spare key.")
        page.keyboard.press("Enter")
        page.get_by_text("Remembered.").wait_for()


@pytest.mark.ci
def test_page_recovers_when_the_server_returns(visit, site, home, tmp_path):
    """The page reports the lost server, leaves the results, and searches again when it is back."""
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
def test_token_is_requested_once(open_page, guarded):
    """A wrong token is requested again; the right one, pasted with an invisible character, is stored for the tab."""
    page = open_page(f"{guarded.address}/#/search?q=pool")
    give(page, "wrong")
    page.get_by_text("The token was refused").wait_for()
    give(page, f"\u200b{guarded.owner} ")
    page.locator(".result").first.wait_for()
    page.reload()
    page.locator(".result").first.wait_for()
    assert page.get_by_role("dialog").count() == 0


def test_scoped_caller_sees_only_its_own_scope(open_page, guarded):
    """Its records are found without a filter, and there is no filter by scope."""
    page = open_page(f"{guarded.address}/#/search?q=coffee+black")
    give(page, guarded.ada)
    page.get_by_role("link", name="Ada takes her coffee black.").wait_for()
    page.get_by_role("button", name="Filters").click()
    assert page.get_by_label("Kind").is_visible()
    assert page.get_by_role("switch", name="Any scope").count() == 0
    assert page.get_by_label("Of user").count() == 0


@pytest.mark.ci
def test_closing_the_token_dialog_shows_that_it_is_missing(open_page, guarded):
    """The user can open the dialog again."""
    page = open_page(guarded.address)
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("alert").filter(has_text="token").wait_for()
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("textbox", name="Token").wait_for()
