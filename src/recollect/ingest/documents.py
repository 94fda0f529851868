"""A file's text as a document: markdown, prose or source code, cut into chunks that follow its structure.

Among equal positions for a cut a hash of the text decides, so that an inserted line changes only its own chunk.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby, pairwise
from pathlib import PurePath
from typing import Any

from recollect.ingest.discovery import decode
from recollect.ingest.lengths import MAX_CONTEXT, bounded, tokens
from recollect.ingest.markdown import TopBlock, top_blocks
from recollect.ingest.periods import Validity, validity
from recollect.ingest.properties import metadata_text, read_front_matter, searched
from recollect.ingest.readers import DocumentText, kind_of
from recollect.ingest.readers.worker import Worker
from recollect.types.records import FRONT_MATTER, MARKDOWN

RULES = 4
"""The version of the rules in this module. It rises with every change that cuts some file in another way; files that
were cut before stay as they are until `recollect migrate --chunks`."""

PROSE = frozenset((".txt", ".text", ".rst", ".rest", ".org", ".adoc", ".asciidoc", ".tex", ".log", ".textile", ""))
"""Suffixes of texts whose indentation has no meaning; every other file is read as source code."""

MAX_CODE_CONTEXT = 3  # lines of context for a chunk of code: the class, the function and the block that contain it
MIN_TOKENS = 100  # a chunk may end from here on
MAX_TOKENS = 400  # of a chunk: with its title still below the 512 that small models read
# How good a cut before a unit is. A heading of level n is 10 - n; after a heading GLUED, at a new page PART.
PART, BLOCK, LINE, SENTENCE, GLUED = 9, 3, 2, 1, 0

OBSERVATION = "observation"  # the kind of a block that is an observation with a period

_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}\s*$")
_ADOC = re.compile(r"(={1,6})\s+(\S.*)")
_HEADINGS = {".org": re.compile(r"(\*+)\s+(\S.*)"), ".adoc": _ADOC, ".asciidoc": _ADOC}
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|(?<=,)\s+")
_LINES = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a text: its context, the text, its first and last line; its place and its period if it has them."""

    headings: tuple[str, ...]
    text: str
    lines: tuple[int, int]
    place: str | None = field(default=None, repr=False)
    date: datetime | None = field(default=None, repr=False)
    expires: datetime | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Unit:
    """Text that is not cut: with line ends, its lines, how good a cut before it is (`weight`), and its context.

    The units of one observation have the same object as `period`; other text has none.
    """

    text: str
    lines: tuple[int, int]
    weight: int
    headings: tuple[str, ...] = ()
    period: Validity | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A file's text: title, chunks and front matter. `untitled` means that the title is only the file's name."""

    title: str
    chunks: tuple[Chunk, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    untitled: bool = False


def read_document(content: bytes, path: str, worker: Worker | None = None) -> Document:
    """Read a file's content as its suffix says: markdown, prose, source code, or a document by the worker.

    Raises Unreadable for a document that cannot be read.
    """
    name = PurePath(path)
    suffix = name.suffix.lower()
    if kind := kind_of(path):
        with nullcontext(worker) if worker else Worker() as reader:
            return cut_blocks(reader.read(content, kind), name.stem)
    text = decode(content)
    if suffix in MARKDOWN:
        return read_markdown(text, name.stem)
    # The suffix of a source file is part of its name: `main.rs`, `docker-compose.yml`.
    return read_plain(text, name.stem if suffix == ".txt" else name.name, suffix)


def read_markdown(text: str, name: str) -> Document:
    """Read a markdown note; `name` is its title if it has none of its own."""
    lines = split_lines(text)
    metadata, first = read_front_matter(lines)
    blocks = [part for block in _blocks(lines, first) for part in _with_periods(lines, block)]
    own = metadata_text(metadata.get("title")) or next((block.heading for block in blocks if block.level == 1), "")
    title = own or name
    names, units = _with_front_matter(lines[: max(first - 1, 0)], metadata, list(_units(lines, blocks, title)))
    chunks = (*names, *_pack_periods(units))
    if not chunks and metadata:
        chunks = (Chunk((), bounded(title), (1, first), place=FRONT_MATTER),)  # a note that has nothing else
    return Document(bounded(title), chunks, metadata, untitled=not own)


def cut_blocks(reading: DocumentText, name: str) -> Document:
    """Cut a document; `name` is its title if it has none of its own. Chunks know the pages that they are on."""
    laid = lay_out(reading)
    title = reading.title or name
    units = list(_units(laid.lines, laid.blocks, title))
    for at, (above, unit) in enumerate(pairwise(units), 1):
        if unit.weight and laid.part(unit.lines) != laid.part(above.lines):
            units[at] = replace(unit, weight=max(unit.weight, PART))
    groups = [list(group) for _, group in groupby(units, lambda unit: laid.parts[unit.lines[0] - 1])]
    chunks = (chunk for group in (groups if reading.separate else [units]) for chunk in pack(group))
    dates = {part: datetime.fromisoformat(day) for part, day in reading.dates.items()}
    placed = (replace(chunk, place=laid.place(chunk.lines), date=dates.get(laid.part(chunk.lines))) for chunk in chunks)
    return Document(bounded(title), tuple(placed), untitled=not reading.title)


@dataclass(frozen=True, slots=True)
class LaidOut:
    """The lines of a document, its blocks with their lines, the part of each line, and what parts are called."""

    lines: list[str]
    blocks: list[TopBlock]
    parts: list[int]
    unit: str

    def part(self, lines: tuple[int, int]) -> int:
        """The part in which these lines begin."""
        return self.parts[lines[0] - 1]

    def place(self, lines: tuple[int, int]) -> str:
        """Where these lines are: `page 12`, `slides 3–4`, or the lines themselves if the document has no parts."""
        first, last = (self.parts[line - 1] for line in lines)
        unit, of = self.unit, ""
        if not first:
            unit, (first, last), of = "line", lines, " of its text"
        return f"{unit} {first}{of}" if first == last else f"{unit}s {first}–{last}{of}"


def lay_out(reading: DocumentText) -> LaidOut:
    """The text of a document, line by line."""
    lines: list[str] = []
    parts: list[int] = []
    laid = [TopBlock("start", 0, 0)]
    for block in reading.blocks:
        start = len(lines)
        text = f"{'#' * block.level} {block.text}" if block.level else block.text
        lines += [f"{line}\n" for line in re.split(r"\r\n|\r|\n", text)]
        heading = (block.level, block.text) if block.level else ()
        laid.append(TopBlock("table_open" if block.is_table else "paragraph_open", start, len(lines), *heading))
        lines.append("\n")
        parts += [block.part] * (len(lines) - start)
    return LaidOut(lines, [*laid, TopBlock("end", len(lines), len(lines))], parts, reading.unit)


def _blocks(lines: Sequence[str], offset: int) -> list[TopBlock]:
    """The top-level blocks, between one for what is above the first and one for the end."""
    blocks = top_blocks("".join(lines[offset:]), offset)
    return [TopBlock("start", offset, offset), *blocks, TopBlock("end", len(lines), len(lines))]


def _units(lines: Sequence[str], blocks: list[TopBlock], title: str) -> Iterator[Unit]:
    """All lines but the title, each in one unit. Blank lines and link definitions belong to the block above them."""
    path: dict[int, str] = {}
    begun = after_heading = False
    above = blocks[0]
    for block, below in pairwise(blocks):
        start = block.start
        has_title = block.level and block.heading == title == bounded(title)
        if has_title and not begun and any(map(str.strip, lines[block.end :])):
            start = block.end  # every chunk has the title already; a note without other text keeps it
        elif block.level:
            path = _below(path, block.level, block.heading)
        if any(map(str.strip, lines[start : below.start])):
            weight = GLUED if after_heading else 10 - block.level if block.level else BLOCK
            headings = tuple(bounded(words) for words in path.values() if words and words != title)
            first, *rest = units_of(lines, start, below.start, weight, headings)
            if block.kind == OBSERVATION:
                period = validity(lines[block.start])
                first, *rest = (replace(unit, period=period) for unit in (first, *rest))
            yield first
            # Context for the later parts of a long block: a table's header, or the line above that ends in a colon.
            lead = lines[above.end - 1].strip() if above.kind == "paragraph_open" else ""
            if block.kind == "table_open":
                lead = lines[block.start].strip().strip("|")
            elif not lead.endswith(":"):
                lead = ""
            context = (*headings, bounded(lead)) if lead else headings
            yield from (replace(unit, headings=context) for unit in rest)
            begun, after_heading = True, bool(block.level) and start == block.start
        above = block


def _with_periods(lines: Sequence[str], block: TopBlock) -> Iterator[TopBlock]:
    """A block. Of a list, every observation that has a period is a block of its own."""
    start = at = block.start
    while at < block.end and block.kind == "bullet_list_open":
        end = at + 1
        if validity(lines[at]):
            while end < block.end and (not lines[end].strip() or _indent(lines[end]) > _indent(lines[at])):
                end += 1
            if start < at:
                yield block._replace(start=start, end=at)
            yield TopBlock(OBSERVATION, at, end)
            start = end
        at = end
    if start < block.end or start == block.start:
        yield block._replace(start=start)


def _pack_periods(units: Sequence[Unit]) -> Iterator[Chunk]:
    """Chunks of which each holds one observation that has a period, with a heading directly above it, or none."""
    groups = [list(group) for _, group in groupby(units, lambda unit: id(unit.period))]
    for above, group in pairwise(groups):
        if group[0].period and group[0].weight == GLUED:
            group.insert(0, above.pop())
    for group in groups:
        since, until = group[-1].period or (None, None) if group else (None, None)
        yield from (replace(chunk, date=since, expires=until) for chunk in pack(group))


def _with_front_matter(
    lines: Sequence[str], metadata: Mapping[str, Any], units: list[Unit]
) -> tuple[list[Chunk], list[Unit]]:
    """The units of a note, the first one with the front matter above it; and chunks of what has no place there.

    Lines that are not searched are empty, so that each line keeps its number.
    """
    names, properties = searched(lines, metadata)
    if units and not units[0].period:
        is_long = tokens("".join(names)) > MAX_CONTEXT
        above = properties if is_long else _merged(names, properties)
        if any(map(str.strip, above)):
            gap = "\n" * (units[0].lines[0] - 1 - len(above))
            units[0] = replace(units[0], text="".join((*above, gap, units[0].text)), lines=(1, units[0].lines[1]))
        names = names if is_long else []
    else:
        names = _merged(names, properties)
    chunks = pack(list(units_of(names, 0, len(names), BLOCK, ())))
    return [replace(chunk, place=FRONT_MATTER) for chunk in chunks], units


def _merged(names: Iterable[str], properties: Iterable[str]) -> list[str]:
    return [name if name.strip() else other for name, other in zip(names, properties, strict=True)]


def _below(path: Mapping[int, str], level: int, heading: str) -> dict[int, str]:
    return {upper: words for upper, words in path.items() if upper < level} | {level: heading}


def read_plain(text: str, name: str, suffix: str) -> Document:
    """Read prose or source code; `name` is its title if it has none of its own."""
    lines = split_lines(text)
    paragraphs = list(_prose(lines, suffix) if suffix in PROSE else _code(lines))
    titles: Iterable[str] = ()
    if suffix == ".org":
        titles = (line.partition(":")[2].strip() for line in lines[:20] if line.lower().startswith("#+title:"))
    elif suffix in (".rst", ".rest", ".adoc", ".asciidoc") and paragraphs:
        titles = paragraphs[0][3]
    title = next(iter(titles), "")
    units: list[Unit] = []
    for start, end, weight, headings in paragraphs:
        units += units_of(lines, start, end, weight, tuple(words for words in headings if words != title))
    return Document(title or name, tuple(pack(units)), untitled=not title)


def _spans(lines: Sequence[str], heading: re.Pattern[str] | None = None) -> Iterable[tuple[int, int]]:
    """The paragraphs as line ranges, each with the blank lines after it. A `heading` is a paragraph of its own."""
    begins = {at + more for at, line in enumerate(lines) if heading and heading.match(line) for more in (0, 1)}
    begins |= {at for at in range(len(lines)) if not at or not lines[at - 1].strip()}
    return pairwise((*(at for at, line in enumerate(lines) if at in begins and line.strip()), len(lines)))


def _prose(lines: Sequence[str], suffix: str) -> Iterator[tuple[int, int, int, tuple[str, ...]]]:
    """The paragraphs: the range of each, how good a cut before it is, and the headings above it."""
    path: dict[int, str] = {}
    styles: list[str] = []
    heading = _HEADINGS.get(suffix)
    after_heading = False
    for start, end in _spans(lines, heading):
        level, words = 0, ""
        if suffix in (".rst", ".rest"):
            level, words = _underlined([line.strip() for line in lines[start : min(end, start + 3)]], styles)
        elif heading and (match := heading.match(lines[start])):
            level, words = len(match[1]), match[2].strip()
        if level:
            path = _below(path, level, words)
        weight = max(10 - level, LINE) if level else GLUED if after_heading else BLOCK
        yield start, end, weight, tuple(path.values())
        after_heading = bool(level and heading)


def _underlined(lines: list[str], styles: list[str]) -> tuple[int, str]:
    """A heading of reStructuredText. Its levels are numbered in the order in which the styles first occur."""
    match lines:
        case [over, words, under] if over == under and _UNDERLINE.match(over):
            style = over[0] * 2
        case [words, under, *_] if _UNDERLINE.match(under) and len(under) >= len(words):
            style = under[0]
        case _:
            return 0, ""
    if style not in styles:
        styles.append(style)
    return styles.index(style) + 1, words


def _code(lines: Sequence[str]) -> Iterator[tuple[int, int, int, tuple[str, ...]]]:
    """The parts of source code, with the less indented lines above as headings: the class, the function."""
    above: dict[int, str] = {}
    for start, end in _spans(lines):
        indent = _indent(lines[start])
        headings = [words for width, words in above.items() if width < indent]
        yield start, end, BLOCK if indent else BLOCK + 1, tuple(headings[-MAX_CODE_CONTEXT:])
        for line in filter(str.strip, lines[start:end]):
            above = _below(above, _indent(line), bounded(line.strip())[:80])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def split_lines(text: str) -> list[str]:
    """Lines with their ends, as editors and markdown count them; other separators of Unicode end no line."""
    return _LINES.findall(text)


def units_of(lines: Sequence[str], start: int, end: int, weight: int, headings: tuple[str, ...]) -> Iterator[Unit]:
    """The lines from `start` to `end` (from 0, end excluded): one unit if they fit in a chunk, else one a line."""
    text = "".join(lines[start:end])
    if tokens(text) <= MAX_TOKENS:
        yield Unit(text, (start + 1, end), weight, headings)
        return
    for at in range(start, end):
        for piece in _split_line(lines[at]):
            yield Unit(piece, (at + 1, at + 1), weight, headings)
            weight = SENTENCE
        weight = LINE


def pack(units: Sequence[Unit]) -> Iterator[Chunk]:
    """Chunks of at most `MAX_TOKENS`, in order, every unit in one of them."""
    sizes = [tokens(unit.text) for unit in units]
    start = 0
    while start < len(units):
        end = _cut(units, sizes, start)
        text = "".join(unit.text for unit in units[start:end])
        if text.strip():
            lines = split_lines(text)
            first, last = units[start].lines[0] + _blank(lines), units[end - 1].lines[1] - _blank(lines[::-1])
            yield Chunk(_shared(units[start:end]), text.strip("\r\n"), (first, last))
        start = end


def _shared(units: Sequence[Unit]) -> tuple[str, ...]:
    """The headings that all units are below, and those that the first one is below but does not contain.

    A chunk of several sections has not the title of the first one; one that begins within a section has its title.
    """
    first = units[0]
    same = [set(column) == {column[0]} for column in zip(*(unit.headings for unit in units), strict=False)]
    shared = (*same, False).index(False)
    return tuple(
        words for at, words in enumerate(first.headings) if at < shared or words.removesuffix("…") not in first.text
    )


def _cut(units: Sequence[Unit], sizes: Sequence[int], start: int) -> int:
    """The end of the chunk that begins at `start`: the best position between `MIN_TOKENS` and `MAX_TOKENS`."""
    size, best, rank = sizes[start], start + 1, (-1, b"")
    for at in range(start + 1, len(units)):
        content = units[at].text.strip().encode("utf-8", "surrogatepass")
        candidate = units[at].weight, hashlib.blake2b(content, digest_size=8).digest()
        if size < MIN_TOKENS or candidate >= rank:
            # Before there is enough text, every later position is better.
            best, rank = at, candidate if size >= MIN_TOKENS else (-1, b"")
        if size + sizes[at] > MAX_TOKENS:
            return best
        size += sizes[at]
    # The rest fits. It is cut once more only at a heading with enough text below it.
    return best if rank[0] > BLOCK and sum(sizes[best:]) >= MIN_TOKENS else len(units)


def _split_line(line: str) -> Iterator[str]:
    """A line that is too long for a chunk, cut between sentences, then words, then anywhere."""
    if tokens(line) <= MAX_TOKENS:
        yield line
        return
    piece, size = "", 0
    for part in _sentences(line):
        cost = tokens(part)
        if piece and size + cost > MIN_TOKENS:
            yield piece
            piece, size = "", 0
        piece, size = piece + part, size + cost
    yield piece


def _sentences(line: str) -> Iterator[str]:
    """The sentences of a line; a long one as its words, none longer than a chunk."""
    for start, end in pairwise((0, *(match.end() for match in _SENTENCE.finditer(line)), len(line))):
        sentence = line[start:end]
        if tokens(sentence) <= MIN_TOKENS:
            yield sentence
            continue
        for word in re.findall(r"\S+\s*|\s+", sentence):
            yield from (word[at : at + MIN_TOKENS] for at in range(0, len(word), MIN_TOKENS))


def _blank(lines: Sequence[str]) -> int:
    """How many lines at the beginning are empty; a chunk's range does not include them."""
    return next(at for at, line in enumerate(lines) if line.strip("\r\n"))
