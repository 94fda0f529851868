"""DOCX, PPTX and EPUB files of several writers are read with their structure, within limits."""

import io
import zipfile
from pathlib import Path

import pytest

from recollect.ingest.readers import Unreadable, docx, epub, packed, pptx

FILES = Path(__file__).parent / "files"
TABLE = (
    "| Bird | Length | Colour |\n| --- | --- | --- |\n| Grey heron | 98 cm | grey |\n| Little egret | 60 cm | white |"
)


@pytest.mark.parametrize("name", ["pandoc.docx", "libreoffice.docx"])
def test_docx(name: str) -> None:
    """What Pandoc and LibreOffice write has its headings, its table, its list and the page after a break."""
    text = docx.read((FILES / name).read_bytes())
    assert (text.title, text.unit) == ("Heron field guide", "page")
    assert [(block.part, block.level, block.text) for block in text.blocks][2:] == [
        (1, 2, "Sizes"),
        (1, 0, TABLE),
        (1, 0, "- they eat fish\n- they eat frogs"),
        (2, 2, "Nests"),
        (2, 0, "A heronry is a colony of nests in tall trees. The stork is not a heron."),
    ]


def changed(name: str, entry: str, old: bytes, new: bytes) -> bytes:
    """A file with a change in one of its entries."""
    file = io.BytesIO()
    with zipfile.ZipFile(FILES / name) as source, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        for each in source.namelist():
            data = source.read(each)
            target.writestr(each, data.replace(old, new, 1) if each == entry else data)
    return file.getvalue()


def test_docx_with_the_pages_of_word() -> None:
    """Where Word has recorded its pages, these count and not the breaks that the author set."""
    content = changed("pandoc.docx", docx.MAIN, b"Herons are", b"</w:t><w:lastRenderedPageBreak/><w:t>Herons are")
    parts = {block.text.partition(" ")[0]: block.part for block in docx.read(content).blocks}
    assert (parts["Heron"], parts["Sizes"], parts["Nests"]) == (1, 2, 2)


def test_pptx() -> None:
    """Slides have their titles, tables, lists and notes."""
    text = pptx.read((FILES / "pandoc.pptx").read_bytes())
    assert text.unit == "slide"
    assert [(block.part, block.level, block.text) for block in text.blocks] == [
        (1, 2, "Sizes"),
        (1, 0, "| Bird | Length |\n| --- | --- |\n| Grey heron | 98 cm |"),
        (2, 2, "Nests"),
        (2, 0, "A heronry is a colony of nests.\n  in tall trees"),
        (2, 0, "Notes: Show the picture of the heronry."),
    ]


def test_epub() -> None:
    """Chapters come in the order of reading, each a part that shares no chunk with another."""
    text = epub.read((FILES / "pandoc.epub").read_bytes())
    assert (text.title, text.unit, text.separate) == ("Heron field guide", "chapter", True)
    chapters = {block.text: block.part for block in text.blocks if block.level == 2}
    assert list(chapters) == ["Sizes", "Nests"]
    assert chapters["Nests"] == chapters["Sizes"] + 1
    assert TABLE in [block.text for block in text.blocks]


BOMB = b" " * (packed.MAX_UNPACKED + 1) + b"</w:body>"
LAUGHS = b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'


@pytest.mark.parametrize("name", ["pandoc.docx", "pandoc.pptx", "pandoc.epub"])
def test_hostile(name: str) -> None:
    """Truncated, foreign, locked and swollen files, and XML with entities, are skipped with a reason."""
    read = {"docx": docx.read, "pptx": pptx.read, "epub": epub.read}[name.rpartition(".")[2]]
    main = {"docx": docx.MAIN, "pptx": pptx.MAIN, "epub": epub.CONTAINER}[name.rpartition(".")[2]]
    whole = (FILES / name).read_bytes()
    locked = bytearray(whole)
    for at in range(len(whole) - 4):
        if whole[at : at + 4] in (b"PK\x01\x02", b"PK\x03\x04"):
            locked[at + (8 if whole[at + 2] == 1 else 6)] |= 1
    for content, reason in (
        (whole[: len(whole) // 2], "not a zip file"),
        (b"", "not a zip file"),
        (packed.OLE + whole, "before 2007"),
        (bytes(locked), "encrypted"),
        (changed(name, main, b"?>", b"?>" + LAUGHS), "declares entities"),
        (changed(name, main, b"</", b"<"), "is not XML"),
    ):
        with pytest.raises(Unreadable, match=reason):
            read(content)


@pytest.mark.ci
def test_zip_bomb() -> None:
    """A file that unpacks to more than the limit is refused before it is unpacked."""
    with pytest.raises(Unreadable, match="unpacks to more than 256 MiB"):
        docx.read(changed("pandoc.docx", docx.MAIN, b"</w:body>", BOMB))
