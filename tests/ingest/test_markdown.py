from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.ingest import read_note
from recollect.ingest.markdown import TARGET

NOTE = """---
tags: [garden, "2026"]
date: 2026-03-14
category: home
---
# Tomatoes

First of all.

## Sowing

- in March
- on the sill

```python
# not a heading
```
"""


def test_front_matter_title_and_lines_are_read():
    """The title is the first heading, front matter is metadata, and lines count from the top of the file."""
    note = read_note(NOTE, "file")
    assert note.title == "Tomatoes"
    assert note.metadata["tags"] == ["garden", "2026"]
    assert note.metadata["category"] == "home"
    assert [chunk.lines for chunk in note.chunks] == [(8, 17)]
    assert note.chunks[0].text.startswith("First of all.")
    assert "# not a heading" in note.chunks[0].text


def test_a_heading_in_a_fence_is_no_heading():
    """Structure comes from a parser, not from lines that begin with #."""
    body = "\n\n".join(f"```\n# fenced {n}\n```\n\n" + "words " * 120 for n in range(3))
    note = read_note(f"# Real\n\n{body}", "file")
    assert {chunk.headings for chunk in note.chunks} == {()}


def test_sections_begin_new_chunks_with_their_headings():
    """A long note is split at its headings, and each chunk carries the headings above it."""
    text = "# Top\n\n" + "".join(f"## Part {n}\n\n{'word ' * 150}\n\n### Detail\n\nEnd {n}.\n\n" for n in range(3))
    note = read_note(text, "file")
    assert [chunk.headings[0] for chunk in note.chunks if chunk.headings][:2] == ["Part 0", "Part 0"]
    assert all("Top" not in chunk.headings for chunk in note.chunks)


def test_broken_front_matter_is_text():
    """What is not YAML, or not a mapping, or never ends, is kept as text."""
    for head in ("---\n: : [\n---\n", "---\n- a\n- b\n---\n", "---\ntags: [x]\n"):
        note = read_note(f"{head}Body text.", "name")
        assert note.metadata == {}
        assert "Body text." in "".join(chunk.text for chunk in note.chunks)
        assert note.title == "name"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("# -*`>\n\n\nabc\t|[]():"), max_size=3000))
def test_chunks_tile_the_note(text):
    """Every line with words is in exactly one chunk, in order, with the right line numbers; chunks are bounded."""
    note = read_note(text, "name")
    lines = text.splitlines(keepends=True)
    seen = []
    for chunk in note.chunks:
        first, last = chunk.lines
        assert "".join(lines[first - 1 : last]).strip("\n") == chunk.text
        seen += range(first, last + 1)
    assert seen == sorted(set(seen))
    longest = max((len(line) for line in lines), default=0)
    assert all(len(chunk.text) <= 2 * TARGET + longest for chunk in note.chunks)


def test_a_long_block_is_cut_between_lines():
    """A fence of 500 lines becomes several chunks, none of them huge."""
    note = read_note("# T\n\n```\n" + "x = 1234567890\n" * 500 + "```\n", "n")
    assert len(note.chunks) > 4
    assert max(len(chunk.text) for chunk in note.chunks) <= TARGET
