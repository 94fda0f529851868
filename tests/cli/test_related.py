"""`recollect related`: its text, its JSON, and how a note is named."""

import pytest


@pytest.fixture
def notes(home, run):
    """Two notes that link to each other, and one that does not."""
    folder = home / "notes"
    folder.mkdir()
    (folder / "Garden.md").write_text("# The garden\n\nSee [[Beds|the beds]] and [[Nowhere]].\n", encoding="utf-8")
    (folder / "Beds.md").write_text("# Beds\n\nIn the [garden](Garden.md).\n", encoding="utf-8")
    (folder / "tea.md").write_text("# Tea\n\nGreen.\n", encoding="utf-8")
    assert run("index", str(folder), "--embedder", "none").code == 0
    return folder


def test_related_lists_links_and_backlinks(run, notes):
    """A note is named by its path, by its id, or by the number that the last answer gave it."""
    shown = run("related", "notes/Garden.md", "--embedder", "none")
    assert shown.code == 0
    lines = [line.strip() for line in shown.out.splitlines()]
    assert lines[0] == "links to"
    assert lines[1].startswith("1. Beds  ")
    assert lines[2].startswith("line 3: [[Beds|the beds]]  ")
    assert lines[2].endswith("notes/Beds.md:3")
    assert lines[3] == "linked from"
    assert lines[5].startswith("line 3: [garden](Garden.md)  ")
    assert lines[6:] == ["links to no indexed file", "line 3: [[Nowhere]]"]
    beds = run("related", "1", "--embedder", "none", "--json").json
    assert [note["title"] for note in beds["backlinks"]] == ["The garden"]
    assert run("related", beds["short_id"], "--embedder", "none", "--json").json == beds


def test_nothing_related_is_exit_code_1_and_an_unknown_note_2(run, notes):
    """Both say so."""
    alone = run("related", str(notes / "tea.md"), "--embedder", "none")
    assert (alone.code, alone.out) == (1, "")
    assert "no note is related to it" in alone.err
    unknown = run("related", "nowhere.md", "--embedder", "none")
    assert unknown.code == 2
    assert "no indexed file" in unknown.err
