import itertools
import os
from pathlib import Path

import pytest

from recollect.errors import UsageError


def section(number):
    return f"## Section {number}\n\n{f'alpha{number} ' * 130}\n\n"


def test_inserted_line_at_the_top_embeds_nothing_below(memory, notes, counting):
    """Chunks are identified by content: only new ones are embedded, and line numbers move."""
    body = "".join(section(number) for number in range(40))
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
    assert len(kept) >= len(before) - 1 > 10
    assert all(after[key] == (before[key][0] + 2, before[key][1] + 2) for key in kept)


def test_renamed_file_costs_no_embedding(memory, notes, counting):
    """Vectors are stored by text."""
    (notes / "old.md").write_text("# Note\n\nAbout walruses.\n")
    memory.index(notes)
    counting.embedded.clear()
    (notes / "old.md").rename(notes / "new.md")
    report = memory.index(notes)
    assert report.moved == {str(notes / "old.md"): str(notes / "new.md")}
    assert (report.added, report.changed, report.removed) == ([], [], [])
    assert counting.embedded == []
    assert [result.record.path for result in memory.search("walruses").results] == [str(notes / "new.md")]


def test_front_matter_and_flags_reach_the_records(memory, notes):
    """Tags, category and date come from the note, scope and more tags from the flags."""
    (notes / "a.md").write_text("---\ntags: [one]\ncategory: life\ndate: 2020-05-01\n---\nTea.\n")
    memory.index(notes, user="ada", tags=["two"])
    (record,) = memory.list(any_scope=True)
    assert (record.tags, record.category, record.scope.user) == (("one", "two"), "life", "ada")
    assert record.time.year == 2020
    assert memory.search("tea", until="2021-01-01", user="ada").results
    assert not memory.search("tea").results


def test_escapes_in_the_front_matter_are_stored(memory, notes):
    """A surrogate pair is the character that it means; half of one, and a zero byte, are replaced."""
    head = '---\ntitle: "\\ud83d\\ude80 Rocket"\naliases: ["\\ud83d half", "a\\0b"]\n---\n\n'
    (notes / "rocket.md").write_text(f"{head}It flies.\n", encoding="utf-8")
    memory.index(notes)
    texts = {record.text: record.title for record in memory.list(path="rocket.md")}
    assert texts == {'aliases: ["\ufffd half", "a\ufffdb"]\n\n\nIt flies.': "🚀 Rocket"}


def test_properties_and_aliases_find_the_note(memory, notes):
    """A question for a property, or by another name, is answered with the text of the note and its properties."""
    (notes / "Priya.md").write_text("---\nrole: CFO\nbirthday: 1984-03-12\n---\nPriya joined 2022 from Zalando.\n")
    (notes / "Tom Becker.md").write_text('---\naliases: ["Tommy", "TB"]\n---\nKids: Mila (6), Jonas (3)\n')
    memory.index(notes)
    (result,) = memory.search("who is the CFO?", sources=["keyword"]).results
    assert "Zalando" in result.record.text
    assert memory.search("Priya's birthday", sources=["keyword"]).results[0].record.text.startswith("role: CFO")
    text = memory.recall("Tommy's kids", sources=["keyword"]).text
    assert "Mila (6)" in text.partition("\n[2]")[0]


def test_period_in_the_front_matter_is_that_of_the_chunks(memory, notes):
    """After its last day a note is found only by a search as of a day before, and not as of one before its first."""
    (notes / "old.md").write_text("---\nvalid_from: 2020-05-01\nvalid_until: 2020-06-30\ndate: 2021-01-01\n---\nTea.\n")
    (notes / "now.md").write_text("---\nvalid_until: 9999-12-31\n---\nTea and milk.\n")
    (notes / "odd.md").write_text("---\nvalid_from: spring\nvalid_until: [1]\n---\nTea with mint.\n")
    memory.index(notes)
    found = {Path(result.record.path).name for result in memory.search("tea").results}
    assert found == {"now.md", "odd.md"}
    for day, expected in (("2020-04-30", 0), ("2020-05-02", 1), ("2020-06-30T12:00:00Z", 1), ("2020-07-01", 0)):
        assert len(memory.search("tea", as_of=day).results) == expected
    (record,) = [one for one in memory.list(as_of="2020-06-01") if one.path.endswith("old.md")]
    assert memory.why_not("tea", record.id).stage == "expired"
    (notes / "old.md").write_text("---\nvalid_from: 2020-05-01\n---\nTea.\n")
    memory.index(notes)
    assert len(memory.search("tea").results) == 3


def test_period_of_an_observation_is_that_of_its_line(memory, notes):
    """An observation is found in its period only, and the other lines of the note as before."""
    (notes / "tea.md").write_text(
        "---\nvalid_until: 9999-12-31\n---\n# Tea\n\nWe like tea.\n\n"
        "- [shop] @effective[2020-05-01,2020-07-01) Green tea is from Uji.\n"
        "- [shop] @2020-07-01 Green tea is from Assam.\n"
    )
    memory.index(notes)
    assert ["Assam" in result.snippet for result in memory.search("green tea from", by="chunk").results].count(
        True
    ) == 1
    assert not any("Uji" in result.record.text for result in memory.search("green tea", by="chunk").results)
    assert any("like" in result.record.text for result in memory.search("tea", by="chunk").results)
    for day, towns in (("2020-04-30", []), ("2020-06-30", ["Uji"]), ("2020-08-01", ["Assam"])):
        results = memory.search("green tea", as_of=day, by="chunk").results
        assert [town for town in ("Uji", "Assam") if any(town in one.record.text for one in results)] == towns
    (notes / "tea.md").write_text("# Tea\n\n- [shop] @effective[2020-05-01,9999-07-01) Green tea is from Uji.\n")
    memory.index(notes)
    assert [one.record.lines for one in memory.search("green tea", by="chunk").results] == [(3, 3)]


def test_unusual_files_are_skipped_with_a_reason(memory, notes, tmp_path):
    """Hidden files silently; links, huge and binary files and pipes are named; any encoding is read."""
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
    assert {Path(path).name: reason for path, reason in report.skipped.items()} == {
        "huge.md": "larger than 2 MiB",
        "link.md": "a link out of the folder",
        "loop": "a link into the folder",
        "pipe.md": "not a file",
        "nul.md": "binary",
        "empty.md": "empty",
    }
    assert len(report.added) == 2
    assert [hit.record.text for hit in memory.search("walrus", sources=["keyword"]).results] == [
        "Café au lait and walrus"
    ]
    assert not memory.search("secret", sources=["keyword"]).results


def test_vanished_root_is_not_a_deletion(memory, notes, monkeypatch):
    """It is a usage error, and nothing is forgotten."""
    (notes / "a.md").write_text("Tea.\n")
    memory.index(notes)
    notes.rename(notes.with_name("elsewhere"))
    with pytest.raises(UsageError, match="not there any more"):
        memory.index(notes)
    assert memory.search("tea").results


def test_deleted_text_leaves_the_store(memory, notes, tmp_path):
    """It is neither found nor stored any more."""
    (notes / "a.md").write_text("The unicorn is in the garden.\n")
    memory.index(notes)
    (notes / "a.md").write_text("Nothing to see.\n")
    memory.index(notes)
    assert not memory.search("unicorn", sources=["keyword"]).results
    assert not memory.search("unicorn", sources=["keyword"], superseded=True).results


def test_results_show_their_freshness(memory, notes):
    """Fresh, changed or missing; a new time without a change is fresh."""

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
    assert memory.search("walrus").trace.lag == {"files": 1, "vectors": 0}
    note.unlink()
    assert mark() == "missing"
    memory.add("A walrus that was told, not read.")
    assert {result.freshness for result in memory.search("walrus", kind="fact").results} == {None}


def test_file_that_cannot_be_read_is_not_missing(memory, notes, monkeypatch):
    """A folder without access hides whether a file is there."""
    note = notes / "a.md"
    note.write_text("A walrus.\n")
    memory.index(notes)
    read = Path.stat

    def refuse(path, **options):
        if path == note:
            raise PermissionError(13, "Permission denied")
        return read(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    (result,) = memory.search("walrus", sources=["keyword"]).results
    assert result.freshness == "unreadable"
    assert "the file cannot be read now" in memory.recall("walrus").text


def test_inserted_paragraphs_leave_the_other_chunks(memory, notes, counting):
    """Cuts depend on the text around them, so that new paragraphs at the top or in the middle stay local."""
    paragraphs = [" ".join(f"w{number}x{n}" for n in range(40 + number % 7 * 9)) for number in range(120)]
    for at in (0, 60):
        note = notes / f"long{at}.txt"
        note.write_text("\n\n".join(paragraphs))
        memory.index(notes)
        whole = len(memory.store.files.chunks(str(note)))
        counting.embedded.clear()
        added = [" ".join(f"new{number}y{n}" for n in range(60)) for number in range(5)]
        note.write_text("\n\n".join([*paragraphs[:at], *added, *paragraphs[at:]]))
        memory.index(notes)
        assert 1 <= len(counting.embedded) <= 6 < whole / 4


def test_unchanged_files_cost_a_stat(memory, notes, monkeypatch):
    """The second run opens no file; a touched one is read and found the same."""
    for number in range(20):
        (notes / f"{number}.md").write_text(f"Note {number}.\n")
        os.utime(notes / f"{number}.md", (1_700_000_000, 1_700_000_000))
    memory.index(notes)
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest: (opened.append(path), real(path, *rest))[1])
    assert memory.index(notes).unchanged == 20
    assert [path for path in opened if str(path).endswith(".md")] == []
    os.utime(notes / "3.md", (1_700_000_001, 1_700_000_001))
    report = memory.index(notes)
    assert (report.unchanged, report.changed) == (20, [])
    assert [path for path in opened if str(path).endswith(".md")] == [str(notes / "3.md")]


def test_hundred_renamed_files_cost_no_embedding(memory, notes, counting):
    """Reported as moved, found at the new path, with their old dates."""
    for number in range(100):
        title = f"# Title {number}\n\n" if number % 2 else ""
        (notes / f"{number:03}.md").write_text(f"{title}Walrus number n{number}n.\n")
    memory.index(notes)
    born = {record.text: record.created_at for record in memory.list(limit=1000)}
    counting.embedded.clear()
    (notes / "deep").mkdir()
    for number in range(100):
        (notes / f"{number:03}.md").rename(notes / "deep" / f"renamed-{number:03}.md")
    report = memory.index(notes)
    assert (len(report.moved), report.added, report.removed, counting.embedded) == (100, [], [], [])
    after = memory.list(limit=1000)
    assert {record.text: record.created_at for record in after} == born
    assert {Path(record.path).parent.name for record in after} == {"deep"}
    assert memory.index(notes).unchanged == 100


def test_copy_is_added_and_move_between_roots_is_detected(memory, tmp_path):
    """Only a vanished file can have moved; also to another folder of the same run."""
    left, right = tmp_path / "left", tmp_path / "right"
    left.mkdir()
    right.mkdir()
    (left / "a.md").write_text("# A\n\nTea.\n")
    memory.index([left, right])
    (right / "copy.md").write_text("# A\n\nTea.\n")
    assert memory.index([left, right]).added == [str(right / "copy.md")]
    (left / "a.md").rename(right / "b.md")
    assert memory.index([left, right]).moved == {str(left / "a.md"): str(right / "b.md")}


def test_dry_run_reports_what_a_run_does(memory, notes, counting):
    """The same report, and nothing stored."""
    for name in ("changed", "moved", "removed", "same"):
        (notes / f"{name}.md").write_text(f"About {name}.\n")
    memory.index(notes)
    before = sorted((record.id, record.text) for record in memory.list())
    counting.embedded.clear()
    (notes / "changed.md").write_text("Other words.\n")
    (notes / "moved.md").rename(notes / "elsewhere.md")
    (notes / "removed.md").unlink()
    (notes / "added.md").write_text("New.\n")
    told = memory.index(notes, dry_run=True)
    assert sorted((record.id, record.text) for record in memory.list()) == before
    assert counting.embedded == []
    done = memory.index(notes)
    for name in ("added", "changed", "moved", "removed", "skipped", "unchanged", "chunks"):
        assert getattr(told, name) == getattr(done, name), name
    assert [len(done.added), len(done.changed), len(done.moved), len(done.removed)] == [1, 1, 1, 1]
    assert (told.dry_run, done.dry_run) == (True, False)


def test_many_vanished_files_wait_for_confirm(memory, notes):
    """An unplugged disk looks like a deletion: more than 20 files and 20 % are not removed."""
    for number in range(60):
        (notes / f"{number}.md").write_text(f"Note n{number}n.\n")
    memory.index(notes)
    for number in range(20):
        (notes / f"{number}.md").unlink()
    assert len(memory.index(notes).removed) == 20
    for number in range(20, 41):
        (notes / f"{number}.md").unlink()
    report = memory.index(notes)
    assert (report.removed, len(report.unconfirmed)) == ([], 21)
    assert memory.search("n25n", sources=["keyword"]).results
    assert len(memory.index(notes, confirm=True).removed) == 21
    assert not memory.search("n25n", sources=["keyword"]).results


def test_nested_roots_share_their_files(memory, notes):
    """However a file is named, it is one file: nothing is read twice, and its removal is seen from above and below."""
    inner = notes / "inner"
    inner.mkdir()
    for path in (notes / "a.md", inner / "b.md", inner / "c.md"):
        path.write_text(f"# {path.stem}\n\nTea.\n")
        os.utime(path, (1_700_000_000, 1_700_000_000))
    assert memory.index(inner / "b.md").added == [str(inner / "b.md")]
    assert memory.index([inner, inner / "b.md"]).added == [str(inner / "c.md")]
    assert memory.index(notes).added == [str(notes / "a.md")]
    assert [memory.index(path).unchanged for path in (notes, inner, inner / "b.md")] == [3, 2, 1]
    (inner / "b.md").unlink()
    assert memory.index(inner).removed == [str(inner / "b.md")]
    (inner / "c.md").unlink()
    assert memory.index(notes).removed == [str(inner / "c.md")]


def test_new_scope_or_tag_applies_to_every_file(memory, notes, counting):
    """The last one counts, and nothing is embedded again."""
    for name in ("a", "b"):
        (notes / f"{name}.md").write_text(f"# {name}\n\nTea.\n")
        os.utime(notes / f"{name}.md", (1_700_000_000, 1_700_000_000))
    memory.index(notes, user="ada")
    counting.embedded.clear()
    memory.index(notes, user="bob", tags=["x"])
    found = memory.list(any_scope=True)
    assert {(record.scope.user, record.tags) for record in found} == {("bob", ("x",))}
    assert len(found) == 2
    assert counting.embedded == []
    assert memory.index(notes, user="bob", tags=["x"]).changed == []


def test_include_and_exclude_narrow_a_run_and_remove_nothing(memory, notes):
    """Other files stay indexed."""
    for name in ("a.md", "b.txt", "c.py"):
        (notes / name).write_text(f"Tea {name}.\n")
    assert [Path(path).name for path in memory.index(notes, include=["*.md"]).added] == ["a.md"]
    assert [Path(path).name for path in memory.index(notes, exclude=["*.py", "a.*"]).added] == ["b.txt"]
    assert len(memory.list()) == 2


def test_no_line_is_in_two_chunks(memory, notes):
    """Context is in the title, not in the text, so that one sentence is one result."""
    rows = "\n".join(f"| key{number} | {chr(97 + number // 26)}{chr(97 + number % 26)}zebra |" for number in range(300))
    (notes / "t.md").write_text(f"# Table\n\n| name | meaning |\n|---|---|\n{rows}\n")
    memory.index(notes)
    found = [result.record for result in memory.search("jozebra", sources=["keyword"]).results]
    assert len(found) == 1
    assert found[0].title == "Table › name | meaning"
    spans = sorted(record.lines for record in memory.list())
    assert all(first[1] < second[0] for first, second in itertools.pairwise(spans))


def test_home_is_not_indexed_without_force(memory, monkeypatch, tmp_path):
    """Nor any folder above it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "ada"))
    notes = tmp_path / "home" / "ada" / "notes"
    notes.mkdir(parents=True)
    (notes / "a.md").write_text("Tea.\n")
    for wide in ("/", tmp_path / "home", tmp_path / "home" / "ada", "~"):
        with pytest.raises(UsageError, match="whole home"):
            memory.index(wide)
    assert len(memory.index("~/notes").added) == 1
    assert len(memory.index(tmp_path / "home", force=True).skipped) == 0


def test_folder_with_a_former_files_name_removes_the_file(memory, notes):
    """The file is gone, though its path is there."""
    (notes / "a.md").write_text("A walrus.\n")
    memory.index(notes)
    (notes / "a.md").unlink()
    (notes / "a.md").mkdir()
    assert memory.index(notes).removed == [str(notes / "a.md")]
    assert memory.list() == []


def test_scope_and_tags_have_the_usual_forms(memory, notes):
    """A scope as a mapping, and one tag as plain text, as in `add`."""
    (notes / "a.md").write_text("Tea.\n")
    memory.index(notes, scope={"user": "ada"}, tags="one")
    (record,) = memory.list(user="ada")
    assert (record.scope.user, record.tags) == ("ada", ("one",))


def test_separately_indexed_files_are_known_from_above(memory, notes):
    """A file or folder indexed on its own and deleted is removed when a parent is indexed."""
    (notes / "inner").mkdir()
    for path in (notes / "a.md", notes / "inner" / "b.md", notes / "c.md"):
        path.write_text(f"Walrus {path.stem}.\n")
    memory.index(notes / "a.md")
    memory.index(notes / "inner")
    (notes / "a.md").unlink()
    (notes / "inner" / "b.md").unlink()
    (notes / "inner").rmdir()
    assert memory.index(notes).removed == [str(notes / "a.md"), str(notes / "inner" / "b.md")]
    assert [Path(record.path).name for record in memory.list()] == ["c.md"]


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("a.md", 'date: "2024-01-01"', "2024-01-01T00:00"),
        ("a.md", "date: 2024-05-17 19:30", "2024-05-17T19:30"),
        ("a.md", "date: 17.05.2024", "2024-05-17T00:00"),
        ("a.md", 'valid_from: "2024/05/17"', "2024-05-17T00:00"),
        ("2023-03-04 a.md", 'date: "2024-01-01"', "2024-01-01T00:00"),
        ("2023-03-04 a.md", "date: some day in spring", "2023-03-04T00:00"),
        ("2023-03-04 a.md", "date: 31.02.2024", "2023-03-04T00:00"),
    ],
)
def test_date_in_the_front_matter_may_be_a_text(memory, notes, name, line, expected):
    """What is no date does not count, and then the date in the name does."""
    (notes / name).write_text(f"---\n{line}\n---\nTea.\n")
    memory.index(notes)
    (record,) = memory.list()
    assert f"{record.happened_at:%Y-%m-%dT%H:%M}" == expected


def test_last_day_in_the_front_matter_may_be_a_text(memory, notes):
    """The day belongs to the period."""
    (notes / "a.md").write_text('---\nvalid_from: "2020-01-01"\nvalid_until: "2020-12-31"\n---\nTea.\n')
    memory.index(notes)
    assert memory.list() == []
    assert memory.list(as_of="2020-12-31T12:00:00Z")


def test_note_with_only_front_matter_is_found_by_its_title(memory, notes):
    """Also one that had a text before."""
    (notes / "a.md").write_text("---\ntitle: Walrus feeding plan\ntags: [zoo]\n---\n")
    memory.index(notes)
    (result,) = memory.search("walrus feeding", sources=["keyword"]).results
    assert (result.record.text, result.record.tags, result.record.lines) == ("Walrus feeding plan", ("zoo",), (1, 4))


def test_file_of_blanks_is_skipped_as_empty(memory, notes):
    """Every run says so, and a text that a file had before leaves the index."""
    blank, other = notes / "blank.md", notes / "other.txt"
    blank.write_text(" \n\n\t\n")
    other.write_text("Tea.\n")
    assert memory.index(notes).skipped == {str(blank): "empty"}
    report = memory.index(notes)
    assert (report.skipped, report.unchanged) == ({str(blank): "empty"}, 1)
    other.write_text("\n\n\n")
    report = memory.index(notes)
    assert (report.removed, list(report.skipped)) == ([str(other)], [str(blank), str(other)])
    assert memory.list() == []
