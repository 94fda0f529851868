"""Links of Markdown texts, and the files that they mean."""

from __future__ import annotations

import time

import pytest

from recollect.ingest.links import LinkTargets, destinations, links_of, may_link, words_for

TEXT = """\
# Title

See [[Garden]] and [[garden/Tools#Spade|the spade]],
then [a *b* c](../x%20y.md#top "title") and [r][ref]. `[[code]]` ![[pic.png]] ![i](i.png)
\\[[escaped]] [u](https://example.org) [m](mailto:a@b) [s](#self) [[#self]] [p](page.md?plain=1) [e]()

<!-- [[comment]] -->

```
[[fence]]
```

    [[indented]]

- item

    para [[In list]]

| a | b |
|---|---|
| [[Note\\|alias]] | [x](<a b.md>) |

[[two
lines]]

[ref]: ./ref_(1).md
"""


def test_links_are_read_with_heading_and_line():
    """Code, comments, images and addresses are no links; an embedded file is marked as one."""
    found = [(link.line, link.target, link.heading, link.written) for link in links_of(TEXT) if not link.embeds]
    assert found == [
        (3, "Garden", "", "[[Garden]]"),
        (3, "garden/Tools", "Spade", "[[garden/Tools#Spade|the spade]]"),
        (4, "../x y.md", "top", "[a b c](../x y.md#top)"),
        (4, "./ref_(1).md", "", "[r](./ref_(1).md)"),
        (5, "page.md", "", "[p](page.md?plain=1)"),
        (17, "In list", "", "[[In list]]"),
        (21, "Note", "", "[[Note|alias]]"),
        (21, "a b.md", "", "[x](a b.md)"),
    ]
    assert [link.written for link in links_of(TEXT) if link.embeds] == ["![[pic.png]]"]


def test_a_link_that_is_an_item_or_a_field_has_its_relation():
    """As basic-memory and Dataview write it; a sentence with a link in it has none."""
    text = (
        "- implements [[Search]]\n- 'part of' [[Plan]] (since May)\n- see: [[Note]]\n"
        "- [x] [[Task]]\n- about [[A]] and [[B]]\n\n"
        "up:: [[Top]], [other](o.md)\nnext [[Day]]\n- [[Bare]]\n\nstd::map [[C]]\n"
    )
    assert [(link.relation, link.target) for link in links_of(text)] == [
        ("implements", "Search"), ("part of", "Plan"), ("see", "Note"), ("", "Task"), ("", "A"), ("", "B"),
        ("up", "Top"), ("up", "o.md"), ("", "Day"), ("", "Bare"), ("", "C"),
    ]  # fmt: skip


def test_hostile_lines_take_no_time():
    """A line of spaces, brackets or colons is read once."""
    hostile = [
        f"a{' ' * 50_000}b [[x]]",
        f"- a [[x]]{' ' * 50_000}z",
        f"- a [[x]] ({')' * 50_000}z",
        "a:: " * 20_000 + "[[x]]",
    ]
    begun = time.process_time()
    assert [len(links_of(text)) for text in hostile] == [1] * 4
    assert time.process_time() - begun < 5


FILES = {
    "/v/Note.md": "/v", "/v/a/Note.md": "/v", "/v/a/b/Caf\u00e9.md": "/v", "/v/cli/index.md": "/v", "/v/x/cli.md": "/v",
    "/v/a/x.py": "/v", "/v/a/v1.2.md": "/v", "/w/z/Note.md": "/w", "/w/only.md": "/w", "/v/a/100%.md": "/v",
    "/v/docs/README.md": "/v", "/v/a/ref_(1).md": "/v",
}  # fmt: skip
TITLES = {
    "/v/a/v1.2.md": "Release one/two",
    "/w/only.md": "Release one/two",
    "/v/a/x.py": "Note",
    "/w/z/Note.md": "Only",
}


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("[[note]]", "/v/a/s.md", "/v/Note.md"),  # the shortest path, also beside another one
        ("[[note]]", "/w/s.md", "/w/z/Note.md"),  # the own folder first
        ("[[Only]]", "/v/s.md", "/w/only.md"),
        ("[[a/note]]", "/v/s.md", "/v/a/Note.md"),
        ("[[Note.md]]", "/v/s.md", "/v/Note.md"),
        ("[[./Note]]", "/v/a/s.md", "/v/a/Note.md"),
        ("[[../Note]]", "/v/a/s.md", "/v/Note.md"),
        ("[[/a/Note]]", "/v/x/s.md", "/v/a/Note.md"),
        ("[[v1.2]]", "/v/s.md", "/v/a/v1.2.md"),
        ("[[ote]]", "/v/s.md", None),
        ("[[release One/two#x|y]]", "/v/s.md", "/v/a/v1.2.md"),  # by its title
        ("[[release One/two]]", "/w/s.md", "/w/only.md"),
        ("[x](<Release one/two>)", "/v/s.md", None),
        ("[[..]]", "/v/x/s.md", None),
        ("[x](Note.md)", "/v/a/s.md", "/v/a/Note.md"),
        ("[x](note)", "/v/a/s.md", "/v/a/Note.md"),
        ("[x](../Note.md)", "/v/a/s.md", "/v/Note.md"),
        ("[x](only.md)", "/v/s.md", "/w/only.md"),
        ("[x](nope/x.py)", "/v/s.md", None),
        ("[x](a/x.py)", "/v/s.md", "/v/a/x.py"),
        ("[x](/cli)", "/v/a/s.md", "/v/cli/index.md"),  # not `cli.md`, which is not at the top
        ("[x](../cli/)", "/v/a/s.md", "/v/cli/index.md"),
        ("[x](../docs)", "/v/a/s.md", "/v/docs/README.md"),
        ("[x](/b/cafe%CC%81.md)", "/v/s.md", "/v/a/b/Caf\u00e9.md"),
        ("[x](100%25.md)", "/v/a/s.md", "/v/a/100%.md"),
        (r"[x](ref\_(1).md)", "/v/a/s.md", "/v/a/ref_(1).md"),
        ("[x](../../../../etc/passwd)", "/v/a/s.md", None),
        ("[x](Note.md)", None, "/v/Note.md"),  # of a fact, which has no folder
        ("[x](a/Note.md)", None, "/v/a/Note.md"),
        ("[x](./Note.md)", None, None),
    ],
)
def test_a_link_means_one_file(text, source, expected):
    """Names as in Obsidian, paths as in Markdown. A text that links to a file passes the filter for that file."""
    (link,) = links_of(text)
    roots = {**FILES, source: source[:2]} if source else FILES
    files = {path: (root, TITLES.get(path, "")) for path, root in roots.items()}
    assert LinkTargets(files).find(link, source) == expected
    if expected:
        title = TITLES.get(expected, "")
        assert may_link(expected, title).search(destinations(text))
        assert any(word in text.lower().partition("[")[2] for word in words_for(expected, title))


def test_words_of_a_name_are_letters_and_digits_of_ascii():
    """They can be compared whatever the case and the escapes; other names match every text."""
    assert words_for("/v/cli/index.md", "The start") == {"index", "cli", "start"}
    assert words_for("/v/Caf\u00e9 Notes-2.md", "") == words_for("/v/Cafe\u0301 Notes-2.md", "") == {"notes"}
    assert words_for("/v/Gr\u00f6\u00dfe.md", "") == {"gr"}  # also written GR\u00d6SSE
    assert words_for("/v/\u4f1a\u8bae.md", "") == {""}
