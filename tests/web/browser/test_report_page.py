"""The report page in a real browser: it opens without a server, in light, in dark, on a phone and on paper."""

import importlib
import itertools
import unicodedata

import pytest
from support import samples
from support.browser import give_up

from recollect.evaluation.report import compose, render

pytestmark = pytest.mark.xdist_group("browser")

CONTRAST = """() => {
  const rgba = text => { const n = text.match(/[\\d.]+/g).map(Number); return [...n.slice(0, 3), n[3] ?? 1] };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                       return .2126 * r + .7152 * g + .0722 * b };
  const below = (element, x, y) => {
    let colour = rgba(getComputedStyle(document.body).backgroundColor);
    for (const one of document.elementsFromPoint(x, y).reverse()) {
      if (one === element || one instanceof SVGTextElement) continue;
      const style = getComputedStyle(one), drawn = one instanceof SVGElement;
      const paint = drawn ? style.fill : style.backgroundColor;
      if (!paint.startsWith('rgb') || one.tagName === 'svg' || one.tagName === 'g') continue;
      const painted = rgba(paint); painted[3] *= drawn ? Number(style.fillOpacity) : 1;
      colour = over(painted, colour);
    }
    return colour };
  const found = [];
  for (const one of document.querySelectorAll('svg text, h1, h2, p, li, td, th, dt, dd, figcaption, caption')) {
    one.scrollIntoView({block: 'center', inline: 'center'});
    const box = one.getBoundingClientRect(), style = getComputedStyle(one);
    if (!box.width || !one.textContent.trim()) continue;
    const ink = rgba(one instanceof SVGElement ? style.fill : style.color);
    const paper = below(one, box.x + box.width / 2, box.y + box.height / 2);
    const [a, b] = [light(over(ink, paper)), light(paper)].sort((x, y) => y - x);
    found.push([one.textContent.trim().slice(0, 60), (a + .05) / (b + .05)]);
  }
  return found }"""

TEXT_BOXES = """() => [...document.querySelectorAll('svg')].map(svg => [...svg.querySelectorAll('text')].map(text => {
  const a = text.getBoundingClientRect(), b = svg.getBoundingClientRect();
  const [x, y] = [b.left, b.top];
  return [text.textContent, a.left - x, a.top - y, a.right - x, a.bottom - y, b.width, b.height] }))"""


@pytest.fixture(scope="module")
def reports():
    return [samples.run(300), samples.sweep(), samples.overlap()]


@pytest.fixture(scope="module")
def address(reports, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(reports), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def lopsided(tmp_path_factory):
    """One system wins every question, and only quantiles of the times are known."""
    told = samples.run(20, ("all", "nothing"))
    for system, value in (("all", 1.0), ("nothing", 0.0)):
        body = told["systems"][system]
        body["per_query"] = {"nDCG@10": dict.fromkeys(body["per_query"]["nDCG@10"], value)}
        body["measures"], body["latency_ms"] = {}, {"p50": 0.4, "p95": 1900.0}
    told["comparisons"] = [{"a": a, "b": b, "measure": "nDCG@10"} for a, b in (("all", "nothing"), ("nothing", "all"))]
    path = tmp_path_factory.mktemp("lopsided") / "report.html"
    path.write_text(render([told]), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    path.write_text(render(samples.hostile()), encoding="utf-8")
    return path.as_uri()


def colours(page):
    """The page's own two colours, and every fill and stroke of its drawings."""
    return page.evaluate(
        """() => [...document.querySelectorAll('body, svg path, svg use, svg text')].map(one => {
          const style = getComputedStyle(one);
          return [style.backgroundColor, style.color, style.fill, style.stroke].join() })"""
    )


@pytest.mark.ci
def test_report_opens_from_a_file_without_requests(open_page, address, reports):
    """No console error, no request but for the page itself, and every plot is visible."""
    page = open_page(address)
    assert page.said == []
    assert page.asked == [address]
    boxes = [figure.bounding_box() for figure in page.query_selector_all("figure svg")]
    assert len(boxes) == len(compose(reports)) == 6
    assert all(box["width"] > 400 and box["height"] > 80 for box in boxes)


@pytest.mark.ci
@pytest.mark.parametrize("which", ["address", "lopsided"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(open_page, request, which, scheme):
    """At least 4.5 to 1 on the page and inside its plots."""
    found = open_page(request.getfixturevalue(which), scheme=scheme).evaluate(CONTRAST)
    assert len(found) > 50
    assert [(text, round(ratio, 2)) for text, ratio in found if ratio < 4.5] == []


@pytest.mark.ci
def test_buttons_choose_the_colour_scheme(open_page, address):
    """The system's scheme is used until a button is pressed; plots follow."""
    light, dark = open_page(address), open_page(address, scheme="dark")
    assert colours(light) != colours(dark)
    drawn = zip(colours(light)[1:], colours(dark)[1:], strict=True)
    assert all(a != b for a, b in drawn if "rgb" in a.partition(",rgb")[2])
    dark.get_by_label("Light").check(force=True)
    light.get_by_label("Dark").check(force=True)
    assert colours(open_page(address)) == colours(dark)
    assert colours(open_page(address, scheme="dark")) == colours(light)
    light.get_by_label("Auto").check(force=True)
    assert colours(light) == colours(open_page(address))


def test_buttons_work_from_the_keyboard(open_page, address):
    """Tab reaches them and the arrow keys move between them."""
    page = open_page(address)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


@pytest.mark.parametrize("width", [320, pytest.param(390, marks=pytest.mark.torture), 1000])
@pytest.mark.parametrize("which", ["address", "hostile"])
def test_nothing_is_wider_than_the_screen(open_page, request, which, width):
    """The page does not scroll sideways, even with names of 400 letters; wide tables scroll by themselves."""
    page = open_page(request.getfixturevalue(which), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("which", ["address", "hostile", "lopsided"])
def test_plot_texts_are_not_cut_or_covered(open_page, request, which):
    """Every text is inside its plot, and no two overlap."""
    for boxes in open_page(request.getfixturevalue(which)).evaluate(TEXT_BOXES):
        for text, left, top, right, bottom, width, height in boxes:
            assert min(left, top, width - right, height - bottom) >= -1, (text, left, right, width)
        for a, b in itertools.combinations(boxes, 2):
            across, down = min(a[3], b[3]) - max(a[1], b[1]), min(a[4], b[4]) - max(a[2], b[2])
            assert across < 2 or down < 4, (a[0], b[0])


def test_report_prints(open_page, address, reports, tmp_path):
    """Paper is always light; each section begins a page; the text can be searched."""
    pypdf = pytest.importorskip("pypdf")
    page = open_page(address, scheme="dark")
    page.get_by_label("Dark").check(force=True)
    page.pdf(path=tmp_path / "report.pdf", format="A4", print_background=True)
    pages = [
        unicodedata.normalize("NFKC", sheet.extract_text()) for sheet in pypdf.PdfReader(tmp_path / "report.pdf").pages
    ]
    for section in compose(reports).values():
        assert any(text.lstrip().startswith(section.title[:20]) for text in pages), section.title
    assert "fingerprint 3fa8c1d2e4b59607" in " ".join(pages)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator(".scheme").is_visible()


def test_markup_in_names_is_shown_as_text(open_page, hostile):
    """Nothing in the data becomes an element, runs or causes a request."""
    page = open_page(hostile)
    assert page.said == []
    assert page.asked == [hostile]
    assert page.evaluate("document.scripts.length") == 0
    assert samples.HOSTILE in page.inner_text("h1")
    assert "<script>" in page.inner_text("table")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_page, address, scheme):
    """No axe-core violation of any severity, in both colour schemes."""
    axe = importlib.import_module("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(open_page(address, scheme=scheme)).response["violations"]
    assert [(one["id"], one["impact"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found] == []


@pytest.mark.parametrize(("ci", "ends"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_missing_browser_fails_only_in_ci(monkeypatch, ci, ends):
    """Elsewhere these tests are skipped with the reason."""
    monkeypatch.setenv("CI", ci)
    with pytest.raises(ends, match="no Chromium"):
        give_up("no Chromium")
