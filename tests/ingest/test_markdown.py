import gc

from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.ingest.documents import MAX_TOKENS, read_markdown
from recollect.ingest.lengths import tokens

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
    note = read_markdown(NOTE, "file")
    assert note.title == "Tomatoes"
    assert note.metadata["tags"] == ["garden", "2026"]
    assert note.metadata["category"] == "home"
    assert [chunk.lines for chunk in note.chunks] == [(8, 17)]
    assert note.chunks[0].text.startswith("First of all.")
    assert "# not a heading" in note.chunks[0].text


def test_heading_in_a_fence_is_no_heading():
    """Structure comes from a parser, not from lines that begin with #."""
    body = "\n\n".join(f"```\n# fenced {n}\n```\n\n" + "words " * 120 for n in range(3))
    note = read_markdown(f"# Real\n\n{body}", "file")
    assert {chunk.headings for chunk in note.chunks} == {()}


def test_sections_begin_new_chunks_with_their_headings():
    """A long note is split at its headings, and each chunk carries the headings above it."""
    text = "# Top\n\n" + "".join(f"## Part {n}\n\n{'word ' * 150}\n\n### Detail\n\nEnd {n}.\n\n" for n in range(3))
    note = read_markdown(text, "file")
    assert [chunk.headings[0] for chunk in note.chunks] == ["Part 0", "Part 1", "Part 2"]
    assert all("Top" not in chunk.headings for chunk in note.chunks)


def test_chunk_of_several_sections_has_the_headings_of_all():
    """The heading of its first section is not that of the others; of a section that began before, it stays."""
    (chunk,) = read_markdown("# Yusuf\n\n## 3 May\n\nTalked.\n\n## 5 May\n\nRaise approved.\n", "n").chunks
    assert chunk.headings == ()
    (chunk,) = read_markdown("## Lease\n\n### Notice\n\nMonths.\n\n### Pets\n\nNo dogs.\n", "n").chunks
    assert chunk.headings == ("Lease",)
    text = f"# T\n\n## A\n\n{'word ' * 380}\n\n{'More words. ' * 20}\n\n## B\n\nIts text.\n"
    _, chunk = read_markdown(text, "n").chunks
    assert "## B" in chunk.text
    assert chunk.headings == ("A",)


def test_broken_front_matter_is_text():
    """Not YAML, not a mapping, or without an end."""
    for head in ("---\n: : [\n---\n", "---\n- a\n- b\n---\n", "---\ntags: [x]\n"):
        note = read_markdown(f"{head}Body text.", "name")
        assert note.metadata == {}
        assert "Body text." in "".join(chunk.text for chunk in note.chunks)
        assert note.title == "name"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("# -*`>\n\n\nabc\t|[]():"), max_size=3000))
def test_chunks_cover_the_note(text):
    """Every line with words is in exactly one chunk, in order, with the right numbers; chunks are bounded."""
    note = read_markdown(text, "name")
    lines = text.splitlines(keepends=True)
    seen = []
    for chunk in note.chunks:
        first, last = chunk.lines
        assert "".join(lines[first - 1 : last]).strip("\n") == chunk.text
        seen += range(first, last + 1)
    assert seen == sorted(set(seen))
    assert all(tokens(chunk.text) <= MAX_TOKENS for chunk in note.chunks)
    missed = [line for at, line in enumerate(lines, 1) if at not in seen and line.strip()]
    assert all(line.strip(" #\t\n") in note.title for line in missed), "only the title is not in a chunk"


def test_a_long_block_is_cut_between_lines():
    """A fence of 500 lines becomes several chunks, none of them huge."""
    note = read_markdown("# T\n\n```\n" + "x = 1234567890\n" * 500 + "```\n", "n")
    assert len(note.chunks) > 4
    assert max(tokens(chunk.text) for chunk in note.chunks) <= MAX_TOKENS


def test_links_and_fences_are_unchanged():
    """Wikilinks, link texts, definitions and a fence that fits stay in one chunk."""
    fence = "```python\n" + "".join(f"step_{n}()\n\n" for n in range(60)) + "```\n"
    note = read_markdown(
        f"# T\n\nSee [[Garden plan|the plan]] and [the shed][s].\n\n{fence}\n[s]: https://shed.example\n", "n"
    )
    joined = "\n".join(chunk.text for chunk in note.chunks)
    assert "[[Garden plan|the plan]]" in joined
    assert "[the shed][s]" in joined
    assert "https://shed.example" in joined
    assert any(fence.strip() in chunk.text for chunk in note.chunks)


def test_complex_front_matter_is_ignored():
    """Nested values, and a bomb of aliases, become neither titles nor tags."""
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(24)
    )
    note = read_markdown(f"---\n{bomb}title: *y\n---\n# Real\n\nBody.\n", "n")
    assert note.title == "Real"


def test_very_long_title_is_cut_and_its_words_stay():
    """The title is context for every chunk; the heading's own words stay in the text."""
    heading = " ".join(f"word{n}" for n in range(500))
    note = read_markdown(f"# {heading}\n\nBody.\n", "n")
    assert tokens(note.title) <= 65
    assert "word499" in "".join(chunk.text for chunk in note.chunks)


def test_other_unicode_separators_do_not_move_lines():
    """A line separator, a form feed or a carriage return inside a paragraph."""
    note = read_markdown("# T\r\n\r\nOne\u2028still one\x0cstill.\r\n\r\nLast walrus.\r\n", "n")
    assert [(chunk.lines, chunk.text.splitlines()[-1]) for chunk in note.chunks] == [((3, 5), "Last walrus.")]


def test_note_with_only_a_heading_can_be_found():
    """Its title is its text; otherwise the title is not repeated."""
    (chunk,) = read_markdown("# Call the plumber\n", "a").chunks
    assert chunk.text.strip() == "# Call the plumber"
    (chunk,) = read_markdown("# Call the plumber\n\nOn Monday.\n", "a").chunks
    assert "plumber" not in chunk.text


def test_reading_leaves_nothing_to_the_garbage_collector():
    """`watch` runs for months: what refers to itself would stay in memory until a full collection, which is rare."""
    read_markdown(NOTE, "file")
    gc.collect()
    gc.disable()
    try:
        for number in range(5):
            read_markdown(f"{NOTE}\n{number}", "file")
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_aliases_and_properties_are_above_the_first_passage():
    """The lines keep their numbers; a note without a place for them has a chunk of them; bad aliases are no error."""
    top = "---\ntitle: Heron\naliases:\n  - Grey bird\n  - 7\ncolour: grey\nup: '[[Birds]]'\n---\n"
    (chunk,) = read_markdown(f"{top}# Heron\n\nIt wades.\n", "file").chunks
    above = 'aliases: ["Grey bird", "7"]\n\n\ncolour: grey\nup: \'[[Birds]]\''
    assert (chunk.text, chunk.lines, chunk.place) == (f"{above}\n\n\n\nIt wades.", (3, 11), None)
    names, text = read_markdown(f"{top}- [place] @2026-02-27 The mill.\n", "file").chunks
    assert (names.text, names.lines, names.place) == (above, (3, 7), "front matter")
    assert text.text == "- [place] @2026-02-27 The mill."
    (names,) = read_markdown(top, "file").chunks
    assert (names.text, names.place) == (above, "front matter")
    for value in ("", "[]", "{a: b}", "[[a], {b: c}]", "null"):
        assert len(read_markdown(f"---\naliases: {value}\n---\nIt wades.\n", "file").chunks) == 1
    assert len(read_markdown("---\naliases: [\n---\nIt wades.\n", "file").chunks) == 1
    long = f"---\naliases: {[f'name {n}' for n in range(5000)]}\nrole: CFO\n---\nIt wades.\n"
    *many, text = read_markdown(long, "file").chunks
    assert all(tokens(chunk.text) <= MAX_TOKENS and chunk.place == "front matter" for chunk in many)
    assert text.text == "role: CFO\n\nIt wades."


def test_properties_that_tell_about_the_note_are_searched():
    """As they are written, in few tokens; without what is meant for a program or read already."""
    top = """---
"full name": Priya Rao   # since 2020
birthday: 1984-03-12
time: 1:30
position: Head of finance
"likes":
  - chess
  - 茶
summary: >
  In two
  lines.
empty:
tags: [person]
created: 2026-01-01
cssclasses: [wide]
publish: true
active: true
kanban-plugin: board
uid: 4711
ratings: [1, 2, 3]
site: https://x.example/a
sha: d41d8cd98f00b204e9800998ecf8427e
address: {street: Mill}
---
"""
    (chunk,) = read_markdown(f"{top}\nWords.\n", "Priya").chunks
    expected = ["full name: Priya Rao", "birthday: 1984-03-12", "time: 1:30", "position: Head of finance"]
    expected += ["likes: chess, 茶"]
    assert [line for line in chunk.text.split("\n") if line] == [*expected, "summary: In two lines.", "Words."]
    many = "".join(f"property{n}: {'very ' * n}long\n" for n in range(60))
    chunk, *_ = read_markdown(f"---\n{many}---\n{'Words. ' * 150}\n\nMore.\n", "n").chunks
    assert tokens(chunk.text.partition("Words.")[0]) <= 64


def test_observation_with_a_period_is_a_chunk():
    """The heading directly above it and the lines that continue it belong to it; what is no period is text."""
    note = read_markdown(
        "# Cache\n\nWhat we use.\n\n## Now\n\n- [decision] @effective[2026-01-10,2026-02-27) Redis.\n  It was there.\n"
        "- [note] Ask Ada.\n- [decision] @2026-02-27 Memcached.\n- [note] @valid[spring,) Swim.\n\nText.\n\n"
        "```\n- [decision] @2026-03-01 In code.\n```\n",
        "file",
    )
    periods = [(chunk.lines, *(at and at.day for at in (chunk.date, chunk.expires))) for chunk in note.chunks]
    assert periods == [
        ((3, 3), None, None), ((5, 8), 10, 27), ((9, 9), None, None), ((10, 10), 27, None), ((11, 17), None, None),
    ]  # fmt: skip
    assert [chunk.headings for chunk in note.chunks[1:]] == [("Now",)] * 4
    long = read_markdown(f"- [decision] @2026-02-27 {'Much. ' * 900}\n- [a] @2026-02-28 Little.\n", "file").chunks
    assert [chunk.date.day for chunk in long[-2:]] == [27, 28]
    assert all(tokens(chunk.text) <= MAX_TOKENS for chunk in long)
