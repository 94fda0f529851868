"""Plain text and source code into chunks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ROOT

from recollect.ingest.documents import MAX_TOKENS, read_plain, split_lines
from recollect.ingest.lengths import tokens

WORDS = "one two three four five six seven eight nine ten " * 12


def test_code_chunk_names_its_class_and_function() -> None:
    """Also a chunk from the middle of a long method."""
    body = "".join(f"        value_{n} = compute(value_{n - 1}, {n})\n\n" for n in range(1, 80))
    note = read_plain(
        f"import os\n\n\nclass Engine:\n    def start(self):\n{body}\n\ndef other():\n    pass\n", "e.py", ".py"
    )
    assert note.title == "e.py"
    inner = [chunk for chunk in note.chunks if "value_60 = " in chunk.text]
    assert [chunk.headings for chunk in inner] == [("class Engine:", "def start(self):")]
    assert note.chunks[-1].text.endswith("pass")


def test_headings_of_org_and_restructured_text_are_context() -> None:
    """Each format's own headings, and its own title."""
    org = read_plain(f"#+TITLE: Garden\n\n* Beds\n** Tomatoes\n{WORDS}\n\n** Beans\n{WORDS}\n", "g", ".org")
    assert org.title == "Garden"
    assert org.chunks[-1].headings == ("Beds", "Beans")
    rst = read_plain(f"Garden\n======\n\n{WORDS}\n\nBeans\n-----\n\n{WORDS}\n", "g", ".rst")
    assert (rst.title, rst.untitled) == ("Garden", False)
    assert rst.chunks[-1].headings == ("Beans",)


@pytest.mark.parametrize(("suffix", "mark"), [(".org", "*"), (".adoc", "==")])
def test_text_below_a_heading_without_blank_lines_has_its_title(suffix: str, mark: str) -> None:
    """A heading starts a paragraph of its own, and is not separated from the text after it."""
    roof = [f"Tile {n} is loose above the attic, near the chimney." for n in range(60)]
    lines = [f"{mark} Kitchen", "Fix the tap.", "Mend the stove, which smokes. " * 20, f"{mark} Roof", *roof]
    kitchen, *others = read_plain("\n".join(lines), "house", suffix).chunks
    assert kitchen.lines == (1, 3)
    assert len(others) > 1
    assert {chunk.headings for chunk in others} == {("Roof",)}
    assert others[0].text.startswith(f"{mark} Roof\nTile 0")


def test_too_long_line_is_cut_between_sentences() -> None:
    """Nothing is lost, every piece has the line's number, and none is too long."""
    line = " ".join(f"Sentence number {n} is about tea and walruses." for n in range(400))
    note = read_plain(line, "n", ".txt")
    assert len(note.chunks) > 5
    assert {chunk.lines for chunk in note.chunks} == {(1, 1)}
    assert "".join(chunk.text for chunk in note.chunks) == line
    assert all(chunk.text.rstrip().endswith(".") for chunk in note.chunks)
    assert max(tokens(chunk.text) for chunk in note.chunks) <= MAX_TOKENS


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet=st.sampled_from("ab =-*#.\t\n\n\r\u2028日"), max_size=2000),
    st.sampled_from([".txt", ".rst", ".org", ".py", ".adoc"]),
)
def test_chunks_have_every_line_once(text: str, suffix: str) -> None:
    """In order and with the right numbers, for every format and line end."""
    note = read_plain(text, "name", suffix)
    lines = split_lines(text)
    seen: list[int] = []
    for chunk in note.chunks:
        first, last = chunk.lines
        assert "".join(lines[first - 1 : last]).strip("\r\n") == chunk.text
        seen += range(first, last + 1)
    assert seen == sorted(set(seen))
    assert all(at in seen for at, line in enumerate(lines, 1) if line.strip())


def test_this_projects_own_sources_are_read_completely() -> None:
    """Every line with words of every module is in a chunk, and no chunk is too long."""
    files = sorted(ROOT.glob("src/recollect/**/*.py"))
    assert len(files) > 40
    for path in files:
        text = path.read_text()
        note = read_plain(text, path.name, ".py")
        assert all(tokens(chunk.text) <= MAX_TOKENS for chunk in note.chunks)
        joined = "\n".join(chunk.text for chunk in note.chunks)
        assert joined.split() == text.split(), path
