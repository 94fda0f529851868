from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.ingest.facts import Piece, split

TEXTS = st.text(alphabet=st.sampled_from("ab# \n\té語."), max_size=400)


def cut(text, size=100, overlap=20):
    return list(split(text, path="/w/a.md", name="a.md", size=size, overlap=overlap))


@settings(max_examples=300)
@given(text=TEXTS, size=st.integers(10, 120), overlap=st.integers(0, 9))
def test_pieces_cover_the_text_and_have_their_lines(text, size, overlap):
    """Each piece is within the limit and on its lines; together they have every word."""
    lines = text.split("\n")
    pieces = cut(text, size, overlap)
    seen = set()
    for piece in pieces:
        first, last = piece.lines
        assert len(piece.text) <= size
        assert piece.text in "\n".join(lines[first - 1 : last])
        seen.update(range(first, last + 1))
    assert {number for number, line in enumerate(lines, 1) if line.strip()} <= seen
    joined = "".join("".join(piece.text.split()) for piece in pieces)
    assert all(joined.count(character) >= text.count(character) for character in "ab#é語.")


def test_pieces_overlap():
    """Where a text is cut inside a section, about the last characters of one piece begin the next."""
    text = " ".join(f"word{number}" for number in range(60))
    first, second, *_ = cut(text)
    shared = next(size for size in range(len(second.text), 0, -1) if first.text.strip().endswith(second.text[:size]))
    assert 10 <= shared <= 20


def test_plain_text_has_as_many_pieces_as_it_needs():
    """Two thousand characters without a break are three pieces of 800 that share 100."""
    pieces = cut("x" * 2000, 800, 100)
    assert [len(piece.text) for piece in pieces] == [800, 800, 600]


def test_line_at_the_top_changes_few_pieces():
    """After a cut at a heading the pieces are the same, one line lower, and are not sent again."""
    section = "\n".join(f"- point {number} of this section" for number in range(3))
    text = "\n\n".join(f"# Part {number}\n{section}" for number in range(12))
    before, after = cut(text), cut(f"A new line.\n{text}")
    same = {piece.digest() for piece in before} & {piece.digest() for piece in after}
    assert len(same) >= len(before) - 3
    assert after[-1].lines[0] == before[-1].lines[0] + 1


def test_empty_text_has_no_pieces():
    """Nor has white space."""
    assert cut(" \n\t\n") == []


@pytest.mark.parametrize(
    ("span", "lines"),
    [
        ("port 8080", (11, 11)),
        ("port\n  8080 and\tstays", (11, 12)),
        ("stays there", (12, 12)),
        ("PORT 8080", None),
        ("port 8081", None),
        ("", None),
        (" \n", None),
    ],
)
def test_span_is_found_with_any_white_space(span, lines):
    """Otherwise verbatim, with the lines it is on."""
    piece = Piece("/w/a.md", "a.md", "# Net\nThe port 8080\nand stays there.", (10, 12))
    assert piece.find(span) == lines
