"""The evaluation page in a real browser, on a real server: reports with their plots, and the user's own questions."""

from __future__ import annotations

import json
import re

import pytest
from support import samples, serving

pytestmark = pytest.mark.xdist_group("browser")

PHONE = 360
HOSTILE_SVG = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 10 10"
  onload="window.ran = 1"><script>window.ran = 2</script><foreignObject><b xmlns="http://www.w3.org/1999/xhtml">x</b>
  </foreignObject><image href="http://evil.test/x.png"/><use xlink:href="http://evil.test/y.svg#a"/>
  <a href="javascript:window.ran = 3"><text>pressed</text></a><style>body { display: none }</style>
  <rect id="kept" width="5" height="5" style="fill: var(--series-1); background: url(http://evil.test/z)"
  onclick="window.ran = 4" fill="url(http://evil.test/w)"/><text>&lt;script&gt; in words</text></svg>"""

pytestmark = pytest.mark.torture  # the laboratory itself has its tests; its page is looked at in `make torture`


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The home folder of the server."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def site(home):
    """The address of a server with four stored reports."""
    serving.fill(home / "memory.db", home / "notes")
    (home / "lab").mkdir()
    kept = {
        "run": samples.run(60),
        "sweep": samples.sweep(),
        "overlap": samples.overlap(),
        "hostile": samples.hostile()[0],
    }
    for name, report in kept.items():
        (home / "lab" / f"{name}.json").write_text(json.dumps(report))
    with serving.serving(home / "memory.db", home, "--lab", str(home / "lab")) as address:
        yield address


@pytest.fixture
def visit(open_page, site):
    """Opens a view of the evaluation page and waits until it is filled."""

    def go(hash_="#/lab", *, address=site, **how):
        page = open_page(f"{address}/{hash_}", **how)
        page.locator(".view-lab h1").wait_for()
        return page

    return go


def keep(page, question, *, answers=1):
    """Ask a question, tick the first results, and keep it; with the keyboard alone."""
    page.get_by_label("A question").fill(question)
    page.keyboard.press("Enter")
    page.locator(".judged").first.wait_for()
    for _ in range(answers):
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
    page.get_by_role("button", name="Save this question").press("Enter")
    page.locator(".kept-row", has_text=question).wait_for()


def colours(page):
    """Every fill and stroke of the drawings."""
    return page.evaluate(
        """() => [...document.querySelectorAll('.plot svg :is(path, text, use)')].map(one => {
          const style = getComputedStyle(one); return `${style.fill} ${style.stroke}` })"""
    )


def test_reports_are_listed_and_shown_with_their_plots(visit):
    """From the list to a report: each section has text, a plot and tables; the console stays empty."""
    page = visit()
    assert sorted(page.locator(".recent-row a").all_inner_texts()) == ["hostile", "overlap", "run", "sweep"]
    page.get_by_role("link", name="run", exact=True).click()
    page.locator(".lab-section").first.wait_for()
    titles = page.locator(".lab-section h2").all_inner_texts()
    assert titles[0] == "How well each system finds"
    assert page.locator(".finding-link").count() == len(titles) == 4
    boxes = [drawn.bounding_box() for drawn in page.locator(".plot svg").all()]
    assert all(box["width"] > 400 and box["height"] > 80 for box in boxes)
    assert page.locator(".lab-section table").count() == 5
    assert page.said == []


def test_command_in_an_empty_list_is_shown_as_code(visit, home):
    """The text names the command that makes a report."""
    with serving.serving(home / "memory.db", home, "--lab", str(home / "empty")) as address:
        page = visit(address=address)
        page.get_by_text("None yet").wait_for()
        assert page.locator(".recent-list code").inner_text() == "recollect eval … --json"


def test_finding_links_to_its_section(visit):
    """A click on a finding in the summary moves the focus to its section."""
    page = visit("#/lab/run")
    page.locator(".finding-link").last.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "How long a search takes"


def test_plots_follow_the_colour_scheme(visit):
    """The colours of a plot differ between the light and the dark scheme."""
    light, dark = colours(visit("#/lab/overlap")), colours(visit("#/lab/overlap", scheme="dark"))
    assert len(light) == len(dark) > 10
    assert all(a != b for a, b in zip(light, dark, strict=True) if "rgb" in a)


def test_plots_contain_nothing_active(visit, site):
    """Scripts, event handlers, foreign elements and links are removed from the SVG; shapes stay."""
    page = visit()
    section = {"key": "x", "title": "T", "lead": "L", "more": [], "svg": HOSTILE_SVG, "shows": "", "tables": []}
    page.route("**/v1/eval/reports/made", lambda route: route.fulfill(json={"name": "made", "sections": [section]}))
    page.goto(f"{site}/#/lab/made")
    kept = page.locator(".plot #kept")
    kept.wait_for()
    kept.dispatch_event("click")
    assert page.locator(".plot :is(script, foreignObject, image, a, style, b)").count() == 0
    assert page.locator(".plot text").all_text_contents() == ["<script> in words"]
    assert kept.evaluate("one => [one.getAttributeNames().sort().join(), getComputedStyle(one).fill]") == [
        "height,id,style,width",
        "rgb(15, 91, 216)",
    ]
    assert page.evaluate("window.ran") is None
    assert not any("evil.test" in address for address in page.asked)


def test_unknown_report_is_explained(visit):
    """The page shows the name and a link back to the list."""
    page = visit("#/lab/nothing-like-it")
    assert "no such report" in page.locator("h1").inner_text()
    assert page.get_by_role("link", name="Evaluation").count() == 1


def test_own_questions_are_stored_in_the_browser(visit, tmp_path):
    """They survive a reload, can be exported and imported, and a removed one comes back with undo."""
    page = visit()
    keep(page, "platform team")
    keep(page, "connection pool", answers=2)
    page.reload()
    rows = page.locator(".kept-row")
    rows.nth(1).wait_for()
    assert "2 answers" in rows.nth(1).inner_text()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    download.value.save_as(tmp_path / "questions.json")
    written = json.loads((tmp_path / "questions.json").read_text())["questions"]
    assert [(one["text"], len(one["relevant"])) for one in written] == [("platform team", 1), ("connection pool", 2)]
    page.get_by_role("button", name="Remove the question platform team").click()
    assert rows.count() == 1
    page.get_by_role("button", name="Undo").click()
    rows.nth(1).wait_for()
    other = visit()
    assert other.locator(".kept-row").count() == 0
    other.locator("input[type=file]").set_input_files(tmp_path / "questions.json")
    other.locator(".kept-row").nth(1).wait_for()
    assert page.said == other.said == []


def test_measuring_shows_the_best_system_and_its_certainty(visit, home):
    """One dot and interval for each system, a table of the numbers, and the report saved under its name."""
    page = visit()
    for question in ("platform team", "E4031 connection pool", "job queue PostgreSQL"):
        keep(page, question)
    page.get_by_label("and keep the report as").fill("mine")
    page.get_by_role("button", name="Measure", exact=True).click()
    page.locator(".interval").nth(4).wait_for(state="attached")
    words = page.locator(".outcome .lead").inner_text()
    assert re.search(r"(best|best, and equal|equally well): nDCG@10", words)
    assert "no difference can be told from chance" in page.locator(".outcome .note").first.inner_text()
    assert sorted(page.locator(".interval .row-name").all_text_contents()) == [
        "default",
        "keyword",
        "rrf",
        "vector",
        "weighted",
    ]
    saved = json.loads((home / "lab" / "mine.json").read_text())
    means = {name: system["measures"]["nDCG@10"]["mean"] for name, system in saved["systems"].items()}
    best = page.locator(".interval-best .row-name").all_text_contents()
    assert set(best) == {name for name, mean in means.items() if mean == max(means.values())}
    page.get_by_role("link", name="mine", exact=True).wait_for()
    page.get_by_label("Measure", exact=True).select_option(index=1)
    assert "nDCG" not in page.locator(".outcome .lead").inner_text()
    assert page.said == []


VERDICTS = [
    (
        {"default": 0.8, "rrf": 0.6},
        [("rrf", -0.2, 0.01)],
        "default is best: M 0.800. Its lead of 0.200 over rrf is more",
    ),
    (
        {"default": 0.6, "rrf": 0.8},
        [("rrf", 0.2, 0.01)],
        "rrf is best: M 0.800. Its lead of 0.200 over default is more",
    ),
    ({"default": 0.6, "rrf": 0.7}, [("rrf", 0.1, 0.3)], "is no more than chance could give (p = 0.300)"),
    ({"default": 0.7, "rrf": 0.7}, [("rrf", 0.0, 1.0)], "All 2 find equally well: M 0.700."),
    (
        {"default": 0.7, "rrf": 0.7, "keyword": 0.1},
        [("rrf", 0.0, 1.0), ("keyword", -0.6, 0.0001)],
        "default and rrf are best, and equal: M 0.700. Their lead of 0.600 over keyword is more than",
    ),
    (
        {"default": 0.1, "rrf": 0.7, "keyword": 0.6},
        [("rrf", 0.6, 0.001), ("keyword", 0.5, 0.01)],
        "rrf is best: M 0.700. Its lead of 0.600 over default is more than chance would give (p = 0.001).",
    ),
]


@pytest.mark.parametrize(("means", "compared", "words"), VERDICTS, ids=range(len(VERDICTS)))
def test_verdict_follows_the_comparison_with_the_best(visit, means, compared, words):
    """The lead of the best system is judged by its own comparison and no other."""
    measured = {name: {"measures": {"M": {"mean": mean, "low": 0, "high": 1, "n": 40}}} for name, mean in means.items()}
    rows = [{"a": a, "b": "default", "measure": "M", "difference": {"mean": by}, "p": p} for a, by, p in compared]
    said = visit().evaluate(
        """async report => { const { ranked, verdict } = await import("/static/js/measured.js");
          return verdict(report, "M", ranked(report, "M")) }""",
        {"systems": measured, "comparisons": rows},
    )
    assert words in said


STATES = ["#/lab", "#/lab/run", "#/lab/sweep", "#/lab/hostile", "#/lab/none", "judging", "measured"]
CORE = ("#/lab/run", "judging")
LOOKED_AT = [pytest.param(state, marks=[] if state in CORE else [pytest.mark.torture]) for state in STATES]
"""The states that are always looked at; all of them in `make torture`."""


@pytest.fixture
def stand(visit):
    """Opens the evaluation page in one of its states."""

    def go(state, **how):
        page = visit(state if state.startswith("#") else "#/lab", **how)
        if state == "judging":
            page.get_by_label("A question").fill("hostile longline pool")
            page.keyboard.press("Enter")
            page.locator(".judged").first.wait_for()
        if state == "measured":
            keep(page, "platform team")
            page.get_by_role("button", name="Measure", exact=True).click()
            page.locator(".interval").first.wait_for(state="attached")
        return page

    return go


@pytest.mark.parametrize("state", LOOKED_AT)
def test_axe_finds_nothing(stand, violations, state):
    """No axe-core violation of any severity, in both colour schemes."""
    assert violations(stand(state)) == []


@pytest.mark.parametrize("state", LOOKED_AT)
def test_nothing_scrolls_sideways_on_a_phone(stand, state):
    """No view is wider than a phone; wide tables scroll by themselves."""
    page = stand(state, width=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
