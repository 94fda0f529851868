"""PDF files of several writers are read page by page, with headings and tables."""

import io
from pathlib import Path

import pytest
from PIL import Image
from pypdf import PdfReader, PdfWriter

from recollect.ingest.readers import Unreadable
from recollect.ingest.readers.pdf import read

FILES = Path(__file__).parent / "files"
TABLE = (
    "| Bird | Length | Colour |\n| --- | --- | --- |\n| Grey heron | 98 cm | grey |\n| Little egret | 60 cm | white |"
)


@pytest.mark.parametrize("name", ["chromium.pdf", "libreoffice.pdf"])
def test_pages_headings_and_tables(name: str) -> None:
    """What Chromium prints and LibreOffice exports has its headings, its table and its second page."""
    text = read((FILES / name).read_bytes())
    blocks = [(block.part, block.level, block.text) for block in text.blocks]
    assert (1, 1, "Heron field guide") in blocks
    assert (1, 2, "Sizes") in blocks
    assert (1, 0, TABLE) in blocks
    assert (2, 2, "Nests") in blocks
    assert blocks[-1] == (2, 0, "A heronry is a colony of nests in tall trees. The stork is not a heron.")
    assert text.unit == "page"


def written(pdf: PdfWriter) -> bytes:
    file = io.BytesIO()
    pdf.write(file)
    return file.getvalue()


def test_header_and_footer_of_every_page_are_left_out() -> None:
    """A line at the edge of most pages is a header, whatever its number; on a short document it stays."""
    from recollect.ingest.readers.pdf import Line, _without_edges

    def page(number: int) -> list[Line]:
        texts = [f"Report, page {number}", f"Text of {number}: {'abcdefgh'[number]}", "Confidential"]
        return [Line((text,), (0.0,), 800.0 - 20 * at, 10.0, 300.0) for at, text in enumerate(texts)]

    assert [[line.text for line in kept] for kept in _without_edges([page(number) for number in range(5)])] == [
        [f"Text of {number}: {'abcdefgh'[number]}"] for number in range(5)
    ]
    assert len(_without_edges([page(0), page(1)])[0]) == 3


def test_encrypted() -> None:
    """A file that needs a password is skipped; one that only forbids printing is read."""
    for password, reason in (("secret", "encrypted: it needs a password"), ("", None)):
        pdf = PdfWriter(clone_from=PdfReader(FILES / "chromium.pdf"))
        pdf.encrypt(password, "owner", algorithm="RC4-128")
        if reason:
            with pytest.raises(Unreadable, match=reason):
                read(written(pdf))
        else:
            assert any("heronry" in block.text for block in read(written(pdf)).blocks)


def test_scanned() -> None:
    """Pages that are pictures have that as their reason, and an empty page that it has no text."""
    scan = io.BytesIO()
    Image.new("L", (200, 300)).save(scan, "PDF")
    with pytest.raises(Unreadable, match="pictures"):
        read(scan.getvalue())
    blank = PdfWriter()
    blank.add_blank_page(200, 300)
    with pytest.raises(Unreadable, match=r"^no text in it$"):
        read(written(blank))


@pytest.mark.parametrize("content", [b"", b"%PDF-1.7\n", b"not a pdf", b"%PDF-1.7\n" + bytes(range(256)) * 20])
def test_damaged(content: bytes) -> None:
    """A file that is no PDF is skipped."""
    with pytest.raises(Unreadable, match=r"damaged|no text"):
        read(content)


def test_truncated() -> None:
    """Half of a file is read as far as it goes, or skipped; nothing else is raised."""
    whole = (FILES / "libreoffice.pdf").read_bytes()
    for share in (0.1, 0.5, 0.9, 0.99):
        try:
            blocks = read(whole[: int(len(whole) * share)]).blocks
        except Unreadable:
            continue
        assert blocks
