"""Documents as blocks of text: which files are documents, and what their readers return.

A reader is a function `read(content) -> DocumentText` in a module of this package. It runs in a process of its own with
limits (`worker`): it reads files that anybody may have made.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Any, Self

MIB = 1024 * 1024
EXTRA = "pip install 'recollect-search[documents]'"
MAX_CHARACTERS = 20_000_000  # of the text of a document
MAX_PARTS = 20_000  # pages, messages and cells of a document
MAX_UNPACKED = 256 * MIB  # bytes of all files inside a zip file
MAX_ENTRIES = 20_000  # files inside a zip file


class Unreadable(Exception):
    """A document cannot be read, for a reason that the report names. It stays so until the file changes."""


@cache
def _lacks(packages: tuple[str, ...]) -> bool:
    return any(find_spec(name) is None for name in packages)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document: the module that reads it, its version, the packages it needs, and the largest file.

    The version rises with every change that gives some file another text: such files are then read again.
    """

    name: str
    module: str
    version: int = 1
    needs: tuple[str, ...] = ()
    max_bytes: int = 64 * MIB
    is_text: bool = False

    @property
    def mark(self) -> str:
        """What the state of a file that was read by this reader records."""
        return f"{self.module.rpartition('.')[2]}/{self.version}"

    @property
    def missing(self) -> str:
        """Why files of this kind cannot be read by this installation; empty if they can."""
        return f"{self.name} needs: {EXTRA}" if _lacks(self.needs) else ""


_HTML = Kind("HTML", f"{__name__}.html", max_bytes=16 * MIB, is_text=True)
_MAIL = Kind("e-mail", f"{__name__}.mail", is_text=True)
KINDS: Mapping[str, Kind] = {
    ".html": _HTML, ".htm": _HTML, ".xhtml": _HTML,
    ".ipynb": Kind("a notebook", f"{__name__}.notebook", max_bytes=32 * MIB, is_text=True),
    ".eml": _MAIL, ".mbox": _MAIL,
    ".pdf": Kind("PDF", f"{__name__}.pdf", needs=("pypdfium2",)),
    ".docx": Kind("DOCX", f"{__name__}.docx", needs=("mammoth",)),
    ".pptx": Kind("PPTX", f"{__name__}.pptx"),
    ".epub": Kind("EPUB", f"{__name__}.epub"),
}  # fmt: skip
"""Suffix → kind."""


def kind_of(path: str) -> Kind | None:
    """The kind of a document by its suffix; None for a file that is text."""
    name = os.path.basename(path).lower()  # noqa: PTH119  (of every file of a walk, without a Path)
    return KINDS.get(".mbox" if name == "mbox" else os.path.splitext(name)[1])  # noqa: PTH122


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A heading, a paragraph, a list or a table, and the number of the page, slide, cell or message that it is on."""

    text: str
    part: int = 0
    level: int = 0
    """The level of a heading from 1 to 6; 0 for other text."""
    is_table: bool = False


@dataclass(frozen=True, slots=True)
class DocumentText:
    """What a reader returns: the title and the blocks, and what its parts are called (`page`).

    Parts that are `separate` never share a chunk, for example two messages. `dates` are of parts, in ISO 8601.
    """

    blocks: Sequence[TextBlock]
    title: str = ""
    unit: str = ""
    separate: bool = False
    dates: Mapping[int, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The reading as JSON; raises Unreadable if it holds no text, or too much."""
        size = sum(len(block.text) for block in self.blocks)
        if not size:
            raise Unreadable("no text in it")
        if size > MAX_CHARACTERS:
            raise Unreadable(f"more than {MAX_CHARACTERS:,} characters of text")
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The reading that `as_json` returned."""
        blocks = [TextBlock(**block) for block in value["blocks"]]
        dates = {int(part): date for part, date in value["dates"].items()}
        return cls(blocks, value["title"], value["unit"], value["separate"], dates)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a table of Markdown, with the first row as its head."""
    rows = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    rows = [row for row in rows if any(row)]
    if not rows:
        return ""
    width = max(map(len, rows))
    lines = ["| " + " | ".join([*row, *[""] * (width - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])
