"""HTML is read as its content: headings, lists, tables and code, without what surrounds it."""

import pytest

from recollect.ingest.readers import DocumentText
from recollect.ingest.readers.html import html_text, read

PAGE = """<!DOCTYPE html><html><head><title>Herons — Birds</title><style>p {color: red}</style>
<script>var menu = "scripted";</script></head><body>
<header class="site-header"><a href="/">Birds</a></header>
<nav><ul><li><a href="/a">All birds</a></li></ul></nav>
<div class="sidebar">Ducks, geese</div>
<main><h1>Herons<a class="headerlink" href="#herons">¶</a></h1>
<p>The grey heron<br>stands <b>still</b>.</p>
<h2>Food</h2><ul><li>fish</li><li>frogs<ol><li>green</li><li>brown</li></ol></li></ul>
<table><tr><th>bird</th><th>size</th></tr><tr><td>grey | heron</td><td>98 <i>cm</i></td></tr></table>
<pre><code>def wade():
    return 1</code></pre>
<p hidden>invisible</p><p>Last words</p></main>
<footer>Imprint</footer></body></html>"""


def texts(text: DocumentText) -> list[str]:
    return [block.text for block in text.blocks]


def test_content_without_menus() -> None:
    """Menus, scripts, styles, hidden text and the footer are left out; the structure of the rest is kept."""
    page = read(PAGE.encode())
    assert page.title == "Herons"
    assert texts(page) == [
        "Herons",
        "The grey heron\nstands still.",
        "Food",
        "- fish\n- frogs\n  1. green\n  2. brown",
        "| bird | size |\n| --- | --- |\n| grey \\| heron | 98 cm |",
        "```\ndef wade():\n    return 1\n```",
        "Last words",
    ]
    assert [block.level for block in page.blocks if block.level] == [1, 2]
    assert [block.is_table for block in page.blocks].count(True) == 1


def test_page_without_main() -> None:
    """A page that marks no content is read whole, but for its menus."""
    page = read(b"<title>Tea</title><nav>Home</nav><div>Green <p>tea<p>Black tea</div><table><td>layout</table>")
    assert page.title == "Tea"
    assert texts(page) == ["Green", "tea", "Black tea", "layout"]


def test_small_article_is_not_the_content() -> None:
    """An <article> that holds little of the text, such as a teaser, is not taken for the content."""
    page = read(f"<p>{'long text ' * 50}</p><article>teaser</article>".encode())
    assert len(texts(page)) == 2


@pytest.mark.parametrize(
    "content",
    [
        '<meta charset="iso-8859-1"><p>Tür'.encode("iso-8859-1"),
        '<meta http-equiv="Content-Type" content="text/html; charset=windows-1252"><p>Tür'.encode("cp1252"),
        "<p>Tür".encode("utf-16"),
        '<meta charset="no-such-thing"><p>Tür'.encode(),
    ],
)
def test_encoding(content: bytes) -> None:
    """The encoding that a page names is used; a wrong one is not believed."""
    assert "Tür" in html_text(content)


def test_tags_that_are_never_closed() -> None:
    """Open elements, wrong ends and a hundred thousand nested elements lose no text."""
    assert texts(read(b"</p></div><p>one<div><table><tr><td>two<td>three")) == ["one", "| two | three |\n| --- | --- |"]
    assert texts(read(b"<div>" * 100_000 + b"deep")) == ["deep"]
