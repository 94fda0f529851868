"""PDF as blocks: paragraphs, headings by their size or the outline, and rows of tables, page by page."""

import ctypes
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, Final

from recollect.ingest.readers import MAX_PARTS, DocumentText, TextBlock, Unreadable, table

LARGER: Final = 1.12  # how much larger than the body the letters of a heading are
MAX_HEADING: Final = 160  # characters of a heading
GAP: Final = 1.5  # the distance of two lines, in line heights, from which they are two paragraphs
CELL: Final = 0.65  # the distance of two words, in line heights, from which they are two cells
FULL: Final = 0.8  # the share of the width from which a line is continued by the next
REPEATED: Final = 0.5  # the share of pages on which a line at the edge is a header or a footer
EDGE, FEW_PAGES = 2, 4  # lines at the top and bottom that may be headers; documents of fewer pages have none
_ITEM = re.compile(r"[•‣▪◦●○■□–—*o·-]|\(?\w{1,3}[.)]")  # the mark of an item of a list
_HYPHEN = re.compile(r"(\w*)[\x02\ufffe\xad]\s?(\w*)")  # how PDFium writes a hyphen at the end of a line


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page: its cells and where they begin, the baseline, the height of its letters, and its right end."""

    cells: tuple[str, ...]
    starts: tuple[float, ...]
    y: float
    height: float
    right: float

    @property
    def left(self) -> float:
        """Where it begins."""
        return self.starts[0]

    @property
    def text(self) -> str:
        """All cells."""
        return " ".join(self.cells)


def read(content: bytes) -> DocumentText:
    """Read a PDF file."""
    import pypdfium2
    from pypdfium2 import raw

    try:
        pdf = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        locked = "password" in str(error).lower()
        raise Unreadable("encrypted: it needs a password" if locked else "damaged: not a PDF file") from error
    if len(pdf) > MAX_PARTS:
        raise Unreadable(f"more than {MAX_PARTS:,} pages")
    pages: list[list[Line]] = []
    pictures = 0
    for number in range(len(pdf)):
        page = pdf[number]
        try:
            pages.append(list(_lines(page, raw)))
            pictures += not pages[-1] and any(page.get_objects([raw.FPDF_PAGEOBJ_IMAGE], max_depth=3))
        except pypdfium2.PdfiumError:
            pages.append([])  # a damaged page; the others are read
        finally:
            page.close()
    if not any(pages):
        raise Unreadable("no text in it: its pages are pictures (scanned?)" if pictures else "no text in it")
    title = str(pdf.get_metadata_dict().get("Title") or "").strip()
    blocks = _without_hyphens(list(_blocks(_without_edges(pages), _outline(pdf))))
    own = next((block.text for block in blocks if block.level == 1), "")
    return DocumentText(blocks, own or title, "page")


def _without_hyphens(blocks: Sequence[TextBlock]) -> list[TextBlock]:
    """Join words that were divided at the end of a line. The hyphen stays between two words of the document."""
    words = {word.lower() for block in blocks for word in re.findall(r"\w+", _HYPHEN.sub(" ", block.text))}

    def join(match: re.Match[str]) -> str:
        first, second = match.groups()
        is_whole = f"{first}{second}".lower() in words
        are_words = {first.lower(), second.lower()} <= words
        return f"{first}-{second}" if are_words and not is_whole else f"{first}{second}"

    return [replace(block, text=_HYPHEN.sub(join, block.text)) for block in blocks]


def _outline(pdf: Any) -> dict[tuple[int, str], int]:
    """The levels of the headings that the outline of the document names, by page and text."""
    levels: dict[tuple[int, str], int] = {}
    with suppress(Exception):  # a broken outline; the text is still there
        for mark in pdf.get_toc(max_depth=6):
            destination = mark.get_dest()
            page = destination.get_index() if destination else None
            if page is not None:
                levels[page + 1, _key(mark.get_title())] = mark.level + 1
    return levels


def _key(text: str) -> str:
    return "".join(text.lower().split())


def _lines(page: Any, raw: Any) -> Iterator[Line]:
    """The lines of a page in the order of the file; words on one baseline that stand apart are cells."""
    text_page = page.get_textpage()
    handle, box = text_page.raw, raw.FS_RECTF()
    x, y = ctypes.c_double(), ctypes.c_double()
    letters: list[tuple[str, float, float, float, float]] = []
    for at in range(text_page.count_chars()):
        letter = chr(raw.FPDFText_GetUnicode(handle, at) or 0xFFFD)
        if letter in "\r\n":
            letters.append(("\n", 0, 0, 0, 0))
        elif not raw.FPDFText_IsGenerated(handle, at) and raw.FPDFText_GetLooseCharBox(handle, at, box):
            raw.FPDFText_GetCharOrigin(handle, at, x, y)
            letters.append((letter, box.left, box.right, y.value, box.top - box.bottom))
        else:
            letters.append((letter, 0, 0, 0, 0))
    text_page.close()
    rows = [_line(list(group)) for ended, group in groupby(letters, lambda each: each[0] == "\n") if not ended]
    yield from _joined(row for row in rows if row)


def _line(letters: Sequence[tuple[str, float, float, float, float]]) -> Line | None:
    placed = [each for each in letters if each[4]]
    text = "".join(each[0] for each in letters)
    if not placed or not text.strip():
        return None
    height = max(each[4] for each in placed)
    cells, starts, right = [""], [placed[0][1]], placed[0][1]
    for letter, left, end, _, high in letters:
        if high and left - right > CELL * height and cells[-1].strip():
            cells.append("")
            starts.append(left)
        cells[-1] += letter
        right = end if high and not letter.isspace() else right
    if not cells[-1].strip():
        cells, starts = cells[:-1], starts[:-1]
    texts = tuple(" ".join(cell.split()) for cell in cells)
    if len(texts) > 1 and _ITEM.fullmatch(texts[0]):
        texts, starts = (f"{texts[0]} {texts[1]}", *texts[2:]), [starts[0], *starts[2:]]
    return Line(texts, tuple(starts), placed[0][3], height, max(each[2] for each in placed))


def _joined(rows: Iterable[Line]) -> Iterator[Line]:
    """Lines; those on the same baseline, one to the right of the other, are cells of one."""
    last: Line | None = None
    for row in rows:
        if last and abs(last.y - row.y) < 0.3 * row.height and row.left >= last.right - 1:
            cells, starts = (*last.cells, *row.cells), (*last.starts, *row.starts)
            if _ITEM.fullmatch(last.text):  # the mark of an item and its text are one cell
                cells, starts = (f"{last.text} {row.cells[0]}", *row.cells[1:]), (last.left, *row.starts[1:])
            last = Line(cells, starts, last.y, max(last.height, row.height), row.right)
        else:
            if last:
                yield last
            last = row
    if last:
        yield last


def _without_edges(pages: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """The pages without the lines that most of them have at the top or the bottom, apart from numbers."""
    if len(pages) < FEW_PAGES:
        return [list(page) for page in pages]
    pages_with = Counter(key for page in pages for key in {_edge(line) for line in _edges(page)})
    repeated = {key for key, count in pages_with.items() if count >= REPEATED * len(pages)}
    return [
        [line for line in page if not (_edge(line) in repeated and any(line is other for other in _edges(page)))]
        for page in pages
    ]


def _edges(page: Sequence[Line]) -> list[Line]:
    order = sorted(page, key=lambda line: line.y)
    return [*order[:EDGE], *order[EDGE:][-EDGE:]]


def _edge(line: Line) -> str:
    return re.sub(r"\d+", "#", _key(line.text))


def _blocks(pages: Sequence[Sequence[Line]], outline: dict[tuple[int, str], int]) -> Iterator[TextBlock]:
    sizes: Counter[float] = Counter()
    for page in pages:
        for line in page:
            sizes[round(line.height, 1)] += len(line.text)
    body = sizes.most_common(1)[0][0]
    larger = sorted((size for size in sizes if size >= LARGER * body), reverse=True)
    levels = {size: min(level, 6) for level, size in enumerate(larger, 1)}
    for number, page in enumerate(pages, 1):
        marked = [(line, _level(line, number, outline, levels)) for line in page]
        for level, group in groupby(marked, lambda pair: pair[1]):
            lines = [line for line, _ in group]
            if level:
                yield from _headings(lines, number, level)
            else:
                yield from _text(lines, number)


def _level(line: Line, number: int, outline: dict[tuple[int, str], int], levels: dict[float, int]) -> int:
    """The level of a line as a heading; 0 if it is none."""
    if level := outline.get((number, _key(line.text))):
        return min(level, 6)
    is_heading = len(line.text) <= MAX_HEADING and any(character.isalpha() for character in line.text)
    return levels.get(round(line.height, 1), 0) if is_heading else 0


def _headings(lines: Sequence[Line], number: int, level: int) -> Iterator[TextBlock]:
    """Headings of one level; one that is continued on the next line is one."""
    for paragraph in _paragraphs(lines):
        text = _unbroken(paragraph).replace("\n", " ")
        yield TextBlock(text, number, level) if len(text) <= MAX_HEADING else TextBlock(text, number)


def _text(lines: Sequence[Line], number: int) -> Iterator[TextBlock]:
    """Paragraphs and tables."""
    at, prose = 0, list[Line]()
    while at < len(lines):
        rows, end = _rows(lines, at)
        if len(rows) > 1:
            yield from (TextBlock(_unbroken(paragraph), number) for paragraph in _paragraphs(prose))
            yield TextBlock(table(rows), number, is_table=True)
            at, prose = end, []
        else:
            prose.append(lines[at])
            at += 1
    yield from (TextBlock(_unbroken(paragraph), number) for paragraph in _paragraphs(prose))


def _rows(lines: Sequence[Line], at: int) -> tuple[list[list[str]], int]:
    """The rows of a table that begins at a line, and where it ends. A cell may be continued on the lines below."""
    rows: list[list[str]] = []
    starts: tuple[float, ...] = ()
    for end in range(at, len(lines)):
        line = lines[end]
        near = end == at or 0 < lines[end - 1].y - line.y <= 2 * GAP * line.height
        column = next((n for n, start in enumerate(starts) if n and abs(start - line.left) < line.height / 2), 0)
        if len(line.cells) > 1 and near:
            rows.append(list(line.cells))
            starts = line.starts
        elif column and near:
            rows[-1][column] += f" {line.text}"
        else:
            return rows, end
    return rows, len(lines)


def _paragraphs(lines: Sequence[Line]) -> Iterator[list[Line]]:
    if not lines:
        return
    paragraph = list(lines[:1])
    for above, line in pairwise(lines):
        if not 0 < above.y - line.y <= GAP * max(above.height, line.height):
            yield paragraph
            paragraph = []
        paragraph.append(line)
    yield paragraph


def _unbroken(lines: Sequence[Line]) -> str:
    """The text of a paragraph. A line that reaches the right edge is continued by the next one."""
    edge = max(line.right for line in lines)
    left = min(line.left for line in lines)
    text, full = "", False
    for line in lines:
        words = line.text
        continued = full and not _ITEM.fullmatch(words.partition(" ")[0])
        text += (" " if continued else "\n") + words if text else words
        full = line.right - left >= FULL * (edge - left)
    return text
