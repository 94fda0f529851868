import os
from pathlib import Path

import pytest

from recollect.config import Settings
from recollect.memory import Memory


class Counting:
    """The hashing embedder, counting what it is asked to embed."""

    def __init__(self):
        from recollect.embedders import open_embedder

        self._inner = open_embedder("hashing:64")
        self.name, self.fingerprint, self.embedded = "hashing:64", self._inner.fingerprint, []

    def passages(self, texts):
        self.embedded += texts
        return self._inner.passages(texts)

    def query(self, text):
        return self._inner.query(text)


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def memory(tmp_path, counting):
    with Memory.open(tmp_path / "store.db", embedder=counting, settings=Settings()) as opened:
        yield opened


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def section(number):
    return f"## Section {number}\n\n{f'alpha{number} ' * 130}\n\n"


def test_a_line_inserted_at_the_top_re_embeds_nothing_below(memory, notes, counting):
    """Chunks are identified by content: only what is new is embedded, and line numbers move."""
    body = "".join(section(number) for number in range(6))
    (notes / "long.md").write_text(f"# Long\n\nIntro.\n\n{body}")
    memory.index(notes)
    before = {record.id: record.lines for record in memory.list()}
    counting.embedded.clear()
    (notes / "long.md").write_text(f"# Long\n\nA new first line.\n\nIntro.\n\n{body}")
    report = memory.index(notes)
    assert len(report.changed) == 1
    assert len(counting.embedded) <= 1
    after = {record.id: record.lines for record in memory.list()}
    kept = before.keys() & after.keys()
    assert len(kept) >= 5
    assert all(after[key] == (before[key][0] + 2, before[key][1] + 2) for key in kept)


def test_a_renamed_file_is_followed_without_embedding(memory, notes, counting):
    """Vectors are kept by text, so that a new path costs none."""
    (notes / "old.md").write_text("# Note\n\nAbout walruses.\n")
    memory.index(notes)
    counting.embedded.clear()
    (notes / "old.md").rename(notes / "new.md")
    report = memory.index(notes)
    assert [len(report.added), len(report.removed)] == [1, 1]
    assert counting.embedded == []
    assert [result.record.path for result in memory.search("walruses").results] == [str(notes / "new.md")]


def test_front_matter_and_flags_reach_the_records(memory, notes):
    """Tags, category and date come from the note, scope and more tags from the one who indexes."""
    (notes / "a.md").write_text("---\ntags: [one]\ncategory: life\ndate: 2020-05-01\n---\nTea.\n")
    memory.index(notes, user="ada", tags=["two"])
    (record,) = memory.list(any_scope=True)
    assert (record.tags, record.category, record.scope.user) == (("one", "two"), "life", "ada")
    assert record.time.year == 2020
    assert memory.search("tea", until="2021-01-01", user="ada").results
    assert not memory.search("tea").results


def test_odd_files_are_skipped_with_a_reason_and_the_rest_is_read(memory, notes, tmp_path):
    """Hidden files are passed over; links out, huge files and pipes are named; any encoding is read."""
    (notes / "good.md").write_text("Good tea.\n")
    (notes / "latin.md").write_bytes("Caf\xe9 au lait and walrus\n".encode("latin-1"))
    (notes / "nul.md").write_bytes(b"zero\0byte walrus\n")
    (notes / "empty.md").write_text("")
    (notes / ".hidden.md").write_text("hidden")
    (notes / ".git").mkdir()
    (notes / ".git" / "x.md").write_text("hidden")
    (notes / "huge.md").write_bytes(b"x" * (3 * 1024 * 1024))
    (tmp_path / "outside.md").write_text("secret")
    (notes / "link.md").symlink_to(tmp_path / "outside.md")
    (notes / "loop").symlink_to(notes)
    os.mkfifo(notes / "pipe.md")
    report = memory.index(notes)
    assert {Path(path).name for path in report.skipped} == {"huge.md", "link.md", "pipe.md"}
    assert len(report.added) == 4
    assert len(memory.search("walrus", sources=["keyword"]).results) == 2
    assert not memory.search("secret", sources=["keyword"]).results


def test_what_cannot_be_looked_at_is_not_gone(memory, notes, monkeypatch):
    """A root that vanished is wrong use, and nothing is forgotten."""
    (notes / "a.md").write_text("Tea.\n")
    memory.index(notes)
    notes.rename(notes.with_name("elsewhere"))
    with pytest.raises(Exception, match="not a folder"):
        memory.index(notes)
    assert memory.search("tea").results


def test_deleted_text_leaves_the_store(memory, notes, tmp_path):
    """What was deleted from a file is not found, and not kept behind the user's back."""
    (notes / "a.md").write_text("The unicorn is in the garden.\n")
    memory.index(notes)
    (notes / "a.md").write_text("Nothing to see.\n")
    memory.index(notes)
    assert not memory.search("unicorn", sources=["keyword"]).results
    assert not memory.search("unicorn", sources=["keyword"], superseded=True).results


def test_results_say_whether_the_file_still_says_so(memory, notes):
    """Fresh, changed and missing, by the files of the results alone; a touch without a change is fresh."""

    def mark():
        return memory.search("walrus", sources=["keyword"]).results[0].freshness

    note = notes / "a.md"
    note.write_text("A walrus.\n")
    memory.index(notes)
    assert mark() == "fresh"
    os.utime(note, ns=(1, 1))
    assert mark() == "fresh"
    note.write_text("A weasel.\n")
    assert mark() == "changed"
    note.unlink()
    assert mark() == "missing"
    memory.add("A walrus that was told, not read.")
    assert {result.freshness for result in memory.search("walrus", kind="fact").results} == {None}
