"""PPTX slide by slide: the title, the text of shapes, tables, and the speaker's notes."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from recollect.ingest.readers import MAX_PARTS, DocumentText, TextBlock, Unreadable, table
from recollect.ingest.readers.packed import Package

A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
MAIN = "ppt/presentation.xml"
SKIPPED = ("sldNum", "ftr", "dt", "hdr")  # the number, the footer, the date and the header of a slide


def read(content: bytes) -> DocumentText:
    """Read a PPTX file."""
    package = Package(content)
    presentation, targets = package.xml(MAIN), package.targets(MAIN)
    slides = [targets.get(each.get(f"{R}id", ""), "") for each in presentation.iter(f"{P}sldId")]
    if len(slides) > MAX_PARTS:
        raise Unreadable(f"more than {MAX_PARTS:,} slides")
    blocks: list[TextBlock] = []
    for number, name in enumerate(slides, 1):
        if name in package.names:
            blocks += _slide(package.xml(name), number)
            notes = (other for other in package.targets(name).values() if "notesSlide" in other)
            blocks += [
                block for other in notes if other in package.names for block in _notes(package.xml(other), number)
            ]
    title = next((block.text for block in blocks if block.level), "")
    return DocumentText(blocks, title, "slide")


def _slide(slide: Element, number: int) -> Iterator[TextBlock]:
    for shape in slide.iter():
        if shape.tag == f"{P}sp":
            kind = _placeholder(shape)
            if kind in SKIPPED:
                continue
            text = "\n".join(_paragraphs(shape))
            if kind in ("title", "ctrTitle") and text:
                yield TextBlock(" ".join(text.split()), number, 1 if kind == "ctrTitle" else 2)
            elif text:
                yield TextBlock(text, number)
        elif shape.tag == f"{A}tbl":
            rows = [[" ".join(_paragraphs(cell)) for cell in row.findall(f"{A}tc")] for row in shape.findall(f"{A}tr")]
            if text := table(rows):
                yield TextBlock(text, number, is_table=True)


def _notes(notes: Element, number: int) -> Iterator[TextBlock]:
    for shape in notes.iter(f"{P}sp"):
        text = "\n".join(_paragraphs(shape)) if _placeholder(shape) == "body" else ""
        if text:
            yield TextBlock(f"Notes: {text}", number)


def _placeholder(shape: Element) -> str:
    """The kind of a placeholder; empty for other shapes."""
    placeholder = shape.find(f"{P}nvSpPr/{P}nvPr/{P}ph")
    return "" if placeholder is None else placeholder.get("type", "body")


def _paragraphs(shape: Element) -> Iterator[str]:
    """The paragraphs of a shape, indented as its lists are."""
    for paragraph in shape.iter(f"{A}p"):
        runs = (
            run.text or "" if run.tag == f"{A}t" else "\n" for run in paragraph.iter() if run.tag in (f"{A}t", f"{A}br")
        )
        text = "".join(runs).strip()
        if text:
            properties = paragraph.find(f"{A}pPr")
            level = properties.get("lvl", "0") if properties is not None else "0"
            yield "  " * (int(level) if level.isdigit() and len(level) == 1 else 0) + text
