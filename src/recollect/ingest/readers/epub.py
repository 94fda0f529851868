"""EPUB chapter by chapter, in the order of reading."""

import posixpath
from urllib.parse import unquote

from recollect.ingest.readers import MAX_PARTS, DocumentText, TextBlock, Unreadable
from recollect.ingest.readers.html import html_blocks, html_text
from recollect.ingest.readers.packed import Package

OPF = "{http://www.idpf.org/2007/opf}"
DC = "{http://purl.org/dc/elements/1.1/}"
CONTAINER = "META-INF/container.xml"
PAGES = ("application/xhtml+xml", "text/html")


def read(content: bytes) -> DocumentText:
    """Read an EPUB file of version 2 or 3."""
    package = Package(content)
    if "META-INF/encryption.xml" in package.names and b"xmlenc#" in package.read("META-INF/encryption.xml"):
        raise Unreadable("encrypted: its text is protected (DRM)")
    main = next((each.get("full-path", "") for each in package.xml(CONTAINER).iter() if each.get("full-path")), "")
    book = package.xml(main)
    folder = posixpath.dirname(main)
    items = {
        each.get("id"): posixpath.normpath(posixpath.join(folder, unquote(each.get("href", ""))))
        for each in book.iter(f"{OPF}item")
        if each.get("media-type") in PAGES and "nav" not in (each.get("properties") or "").split()
    }
    chapters = [items[each.get("idref")] for each in book.iter(f"{OPF}itemref") if each.get("idref") in items]
    if len(chapters) > MAX_PARTS:
        raise Unreadable(f"more than {MAX_PARTS:,} chapters")
    blocks: list[TextBlock] = []
    number = 0
    for name in chapters:
        chapter = html_blocks(html_text(package.read(name)), number + 1)[1] if name in package.names else []
        number += bool(chapter)
        blocks += chapter
    title = " ".join((book.findtext(f".//{DC}title") or "").split())
    return DocumentText(blocks, title, "chapter", separate=True)
