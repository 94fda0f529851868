"""Documents in a folder: indexed by page, read once, and skipped with a reason."""

from pathlib import Path

import pytest

from recollect.ingest import readers
from recollect.ingest.readers import KINDS
from recollect.memory import Memory
from recollect.types import FileState, SetFileState

MAILBOX = b"".join(
    b"From ada@example.org Mon Mar  2 10:00:00 2026\n"
    b"Subject: Note %d\nDate: Mon, %d Mar 2026 10:00:00 +0000\n\nthe %s\n\n" % (number, number, bird)
    for number, bird in enumerate((b"heron", b"stork", b"crane"), 1)
)


def test_a_message_is_a_result(memory: Memory, notes: Path) -> None:
    """A result names its message, and a record is about the day of its message; two messages share no chunk."""
    (notes / "inbox.mbox").write_bytes(MAILBOX)
    memory.index(notes)
    result = memory.search("stork").results[0]
    assert (result.record.place, result.record.title) == ("message 2", "inbox › Note 2")
    assert result.record.happened_at is not None
    assert result.record.happened_at.day == 2
    assert [record.place for record in memory.store.files.chunks(str(notes / "inbox.mbox"))] == [
        "message 1", "message 2", "message 3"
    ]  # fmt: skip


def test_unchanged_documents_are_not_read_again(memory: Memory, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged document costs a stat, also one that could not be read, whose reason is still reported."""
    (notes / "a.html").write_text("<p>heron")
    (notes / "b.ipynb").write_text("{}")
    assert list(memory.index(notes).skipped.values()) == ["damaged: not a notebook"]
    memory.index(notes)  # files that are this new are read twice
    monkeypatch.setattr("recollect.ingest.folder.read_file", None)
    again = memory.index(notes)
    assert (again.unchanged, list(again.skipped.values())) == (1, ["damaged: not a notebook"])


def test_raw_text_of_an_older_version_is_replaced(memory: Memory, notes: Path) -> None:
    """A page that was indexed with its tags is read again, though it has not changed."""
    page = notes / "a.html"
    page.write_text("<p class='menu-item'>heron</p><nav>menu</nav><p>stork")
    memory.index(notes)
    memory.index(notes)
    state = memory.store.files.states([str(page)])[str(page)]
    assert state.reader == KINDS[".html"].mark
    older = FileState(state.path, state.root, state.mtime_ns, state.size, state.content_digest)
    memory.store.records.apply([[SetFileState(str(page), older)]])
    assert memory.index(notes).changed == [str(page)]
    assert memory.index(notes).unchanged == 1


def test_document_that_becomes_unreadable(memory: Memory, notes: Path) -> None:
    """What was indexed of a document is removed when it is replaced by one that cannot be read, and comes back."""
    book = notes / "a.ipynb"
    good = '{"cells": [{"cell_type": "raw", "source": "the heron"}]}'
    book.write_text(good)
    memory.index(notes)
    book.write_text("{")
    report = memory.index(notes)
    assert (report.removed, report.skipped) == ([str(book)], {str(book): "damaged: not a notebook"})
    assert not memory.search("heron").results
    book.write_text(good)
    memory.index(notes)
    assert [result.record.place for result in memory.search("heron").results] == ["cell 1"]


def test_missing_extra(memory: Memory, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, what is indexed of a document stays, and the reason names the command to install it."""
    page = notes / "a.html"
    page.write_text("<p>heron")
    memory.index(notes)
    lacking = readers.Kind("HTML", "html", needs=("no_such_package",))
    monkeypatch.setattr(readers, "KINDS", {".html": lacking})
    assert memory.index(notes).skipped == {str(page): "HTML needs: pip install 'recollect-search[documents]'"}
    assert len(memory.search("heron").results) == 1


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_around_a_chunk_are_counted_as_it_was_cut(memory: Memory, notes: Path, end: str) -> None:
    """Whatever ends the lines of the file."""
    written = [f"line {number} harbour\x0c\u2028" for number in range(1, 600)]
    (notes / "old.txt").write_bytes(end.join([*written, ""]).encode())
    memory.index(notes)
    record = next(record for record in memory.list() if record.lines and record.lines[0] > 300)
    excerpt = memory.excerpt(record.id)
    assert (excerpt.total_lines, excerpt.first_line) == (599, record.lines[0] - 200)
    assert excerpt.text.split("\n")[200] == written[record.lines[0] - 1]


def test_lines_around_a_chunk_of_a_document(memory: Memory, notes: Path) -> None:
    """The text around a chunk comes from the stored chunks: the file itself has no such lines."""
    paragraphs = "".join(f"<h2>Bird {number}</h2><p>{'heron ' * 150} {number}</p>" for number in range(4))
    (notes / "a.html").write_text(f"<h1>Birds</h1>{paragraphs}")
    memory.index(notes)
    record = memory.search("Bird 2", by="chunk", limit=1).results[0].record
    excerpt = memory.excerpt(record.id)
    lines = excerpt.text.split("\n")
    assert record.lines is not None
    first = record.lines[0] - excerpt.first_line
    assert "\n".join(lines[first : first + record.text.count("\n") + 1]) == record.text
    assert "## Bird 0" in excerpt.text
    assert "<h2>" not in excerpt.text
