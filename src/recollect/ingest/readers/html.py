"""HTML as blocks: headings, paragraphs, lists, tables and code of the content, without menus, scripts and footers."""

import re
from html.parser import HTMLParser
from typing import Final

from recollect.ingest.discovery import decode
from recollect.ingest.readers import DocumentText, TextBlock, table

IGNORED: Final = frozenset((
    "script", "style", "nav", "footer", "aside", "form", "button", "select", "textarea", "svg", "noscript", "template",
    "iframe", "object", "canvas", "dialog", "menu", "head", "title",
))  # fmt: skip
VOID: Final = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
))  # fmt: skip
PARAGRAPHS: Final = frozenset((
    "p", "div", "section", "article", "main", "header", "ul", "ol", "dl", "blockquote", "figure", "figcaption",
    "address", "body", "html", "details", "summary", "fieldset", "table", "thead", "tbody", "tfoot", "hr", "center",
    "caption",
))  # fmt: skip
HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
BLOCKS: Final = frozenset((*HEADINGS, "pre", "dt", "dd"))  # begin a block also inside a list
ROLES: Final = frozenset(
    ("navigation", "banner", "contentinfo", "search", "complementary", "menu", "menubar", "dialog")
)
# Words in an id or a class that name what surrounds the content.
CHROME: Final = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menu|sidebar|side-?bar|breadcrumbs?|toc|toctree|footer|cookies?|consent"
    r"|skip-?link|pagination|pager|related|share|social|advert(?:isement)?|banner|headerlink|mobile-header|visually-hidden|sr-only"
    r"|linenos|editsection|mw-editsection)(?:$|[\s_-])",
    re.IGNORECASE,
)
ENOUGH: Final = 0.2  # the least share of all text that <main> or <article> must hold to be taken for the content
MAX_DEPTH: Final = 2_000  # of nested elements; deeper ones count as text of their parent
_SPACE = re.compile(r"[ \t\r\n\f]+")


class _Table:
    """The rows of a table that is open; a table inside a cell is text of that cell."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.depth = 1


class BlockParser(HTMLParser):
    """Collects the blocks of a page. What is inside <main> or <article> is marked as `inner`."""

    def __init__(self, part: int) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.part = part
        self.blocks: list[tuple[TextBlock, bool]] = []
        self._text: list[str] = []
        self._open: list[tuple[str, bool, bool]] = []  # tag, whether it is ignored, whether it is the content
        self._ignored = self._inner = self._pre = 0
        self._level = 0
        self._lists: list[int] = []  # the next number of each open list; -1 for one without numbers
        self._table: _Table | None = None
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        if tag in VOID:
            self._void(tag, dict(attrs))
            return
        if tag in ("p", "li", "tr", "td", "th", "dt", "dd", "option") and self._open and self._open[-1][0] == tag:
            self.handle_endtag(tag)
        values = {name: value or "" for name, value in attrs}
        ignored = self._is_chrome(tag, values)
        inner = tag in ("main", "article") or values.get("role") == "main" or values.get("itemprop") == "articleBody"
        if len(self._open) < MAX_DEPTH:
            self._open.append((tag, ignored, inner))
            self._ignored += ignored
            self._inner += inner
        if tag == "title" and not self.title and "svg" not in (name for name, *_ in self._open):
            self._in_title = True
        if not self._ignored:
            self._begin(tag)

    def _is_chrome(self, tag: str, values: dict[str, str]) -> bool:
        if tag in IGNORED:
            return True
        if tag in ("html", "body", "main", "article", "table", "tr", "td", "code", "pre"):
            return False
        # The id of a section is often made of its heading, so only lists and divisions are judged by it.
        names = f"{values.get('class', '')} {values.get('id', '') if tag in ('div', 'ul', 'ol') else ''}"
        hidden = "hidden" in values or values.get("aria-hidden") == "true"
        hidden = hidden or "display:none" in values.get("style", "").replace(" ", "")
        return hidden or values.get("role") in ROLES or bool(CHROME.search(names))

    def _void(self, tag: str, values: dict[str, str | None]) -> None:
        if self._ignored:
            return
        if tag == "br":
            self._text.append("\n" if self._table is None else " ")
        elif tag == "hr":
            self._flush()
            self.part += self.part > 0 and values.get("class") == "page"
        elif tag == "img" and (text := (values.get("alt") or "").strip()):
            self._text.append(f" {text} ")

    def _begin(self, tag: str) -> None:
        if self._table is not None:
            self._begin_in_table(tag, self._table)
        elif tag == "table":
            self._flush()
            self._table = _Table()
        elif tag in ("ul", "ol"):
            self._flush() if not self._lists else self._text.append("\n")
            self._lists.append(1 if tag == "ol" else -1)
        elif tag == "li":
            self._item()
        elif tag in PARAGRAPHS and self._lists:
            self._text.append(" ")
        elif tag in PARAGRAPHS or tag in BLOCKS:
            self._flush()
            self._level = HEADINGS.get(tag, 0)
            self._pre += tag == "pre"

    def _begin_in_table(self, tag: str, table: _Table) -> None:
        if tag == "table":
            table.depth += 1
        elif tag in ("tr", "td", "th") and table.depth == 1:
            self._cell()
            if tag == "tr" or not table.rows:
                table.rows.append([])
            if tag != "tr":
                table.rows[-1].append("")
        elif tag in PARAGRAPHS or tag == "li":
            self._text.append(" ")

    def _item(self) -> None:
        number = self._lists[-1] if self._lists else -1
        if self._lists and number > 0:
            self._lists[-1] += 1
        mark = f"{number}. " if number > 0 else "- "
        self._text.append("\n" + "  " * max(len(self._lists) - 1, 0) + "\0" + mark)

    def _cell(self) -> None:
        """Put the text since the last cell began into it."""
        text = "".join(self._text).replace("\0", "")
        self._text = []
        if self._table and self._table.rows and self._table.rows[-1]:
            self._table.rows[-1][-1] += text
        elif text.strip():
            self.blocks.append((TextBlock(_SPACE.sub(" ", text).strip(), self.part), self._inner > 0))

    def handle_endtag(self, tag: str) -> None:
        """Close an element, and those inside it that were left open."""
        at = next((at for at in range(len(self._open) - 1, -1, -1) if self._open[at][0] == tag), None)
        if at is None:
            return
        self._in_title = self._in_title and tag != "title"
        was_ignored = self._ignored > 0
        if not was_ignored:
            self._end(tag)
        for _, ignored, inner in self._open[at:]:
            self._ignored -= ignored
            self._inner -= inner
        del self._open[at:]

    def _end(self, tag: str) -> None:
        if self._table is not None:
            if tag == "table":
                self._end_table(self._table)
            elif tag in PARAGRAPHS or tag == "li":
                self._text.append(" ")
        elif tag in ("ul", "ol"):
            if self._lists:
                self._lists.pop()
            self._flush() if not self._lists else self._text.append("\n")
        elif tag in BLOCKS or (tag in PARAGRAPHS and not self._lists):
            self._flush()
        elif tag in PARAGRAPHS:
            self._text.append(" ")

    def _end_table(self, open_table: _Table) -> None:
        if open_table.depth > 1:
            open_table.depth -= 1
            return
        self._cell()
        rows, self._table = [row for row in open_table.rows if any(cell.strip() for cell in row)], None
        if rows and max(map(len, rows)) > 1:
            self.blocks.append((TextBlock(table(rows), self.part, is_table=True), self._inner > 0))
        else:  # a table of one column is layout
            for row in rows:
                self.blocks.append((TextBlock(_SPACE.sub(" ", row[0]).strip(), self.part), self._inner > 0))

    def handle_data(self, data: str) -> None:
        """Take in text."""
        if self._in_title:
            self.title += data
        if not self._ignored:
            self._text.append(data if self._pre else _SPACE.sub(" ", data))

    def _flush(self) -> None:
        """End the block that is open."""
        text, self._text = "".join(self._text), []
        level, self._level = self._level, 0
        inner = self._inner > 0
        if self._pre:
            self._pre -= 1
            code = text.strip("\r\n").rstrip()
            if code.strip():
                self.blocks.append((TextBlock(f"```\n{code}\n```", self.part), inner))
            return
        lines = [(line if "\0" in line else line.strip()).rstrip() for line in text.split("\n")]
        text = "\n".join(re.sub(r"(\S) {2,}", r"\1 ", line.replace("\0", "")) for line in lines if line.strip(" \0"))
        if level:
            text = " ".join(text.rstrip("¶#\uf0c1").split())
        if text.strip():
            self.blocks.append((TextBlock(text, self.part, level), inner))

    def close(self) -> None:
        """End what is left open."""
        super().close()
        if self._table is not None:
            self._table.depth = 1
            self._end_table(self._table)
        self._flush()


def html_blocks(text: str, part: int = 0) -> tuple[str, list[TextBlock]]:
    """The title of a page and its content: what is inside <main> or <article> where that is a good part of it."""
    parser = BlockParser(part)
    parser.feed(text)
    parser.close()
    everything = [block for block, _ in parser.blocks]
    content = [block for block, inner in parser.blocks if inner]
    if sum(len(block.text) for block in content) < ENOUGH * sum(len(block.text) for block in everything):
        content = everything
    return " ".join(parser.title.split()), content


_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}charset\s*=\s*["']?([\w-]+)|^<\?xml[^>]{0,200}encoding=["']([\w-]+)""", re.IGNORECASE
)


def html_text(content: bytes) -> str:
    """The text of a page in the encoding that it names, or in the one that it seems to have."""
    if match := _CHARSET.search(content[:4096]):
        try:
            return content.decode((match[1] or match[2]).decode("ascii"))
        except (LookupError, UnicodeDecodeError):
            pass
    return decode(content)


def read(content: bytes) -> DocumentText:
    """Read a page."""
    title, blocks = html_blocks(html_text(content))
    heading = next((block.text for block in blocks if block.level == 1), "")
    return DocumentText(blocks, heading or title)
