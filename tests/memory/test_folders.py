"""Folders are indexed again with the options of the last time, and only for their own scope."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.errors import Forbidden, UsageError
from recollect.memory.folders import MIXED_OPTIONS, UNKNOWN_OPTIONS
from recollect.memory.roots import describe, folders, remove, rename
from recollect.stores import ledger
from recollect.stores.sqlite import records as sqlite_records
from recollect.types import GLOBAL, Scope


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with one note that is indexed and one that is excluded."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "open.md").write_text("# Open\n\nThe harbour closes at nine.\n")
    (folder / "secret.md").write_text("# Secret\n\nThe vault opens with 4711.\n")
    return folder


def texts(memory: Memory, **options: object) -> list[str]:
    return [result.record.text for result in memory.search("harbour vault", sources=["keyword"], **options).results]


def test_a_folder_is_indexed_again_with_the_same_options(open_memory: Callable[..., Memory], notes: Path) -> None:
    """Excluded files stay out, scope and tags stay, and a new file gets them, also in another process."""
    open_memory().index(notes, user="ada", tags=["proj"], exclude=["secret.md"])
    (notes / "open.md").write_text("# Open\n\nThe harbour closes at ten.\n")
    (notes / "new.md").write_text("# New\n\nThe harbour is being dredged.\n")
    memory = open_memory()
    report = memory.reindex()
    assert (len(report.added), len(report.changed), report.removed) == (1, 1, [])
    assert sorted(texts(memory, user="ada", tags=["proj"])) == [
        "The harbour closes at ten.",
        "The harbour is being dredged.",
    ]
    assert texts(memory) == []


def test_a_run_that_names_no_tags_keeps_those_of_the_folder(open_memory: Callable[..., Memory], notes: Path) -> None:
    """Changed and new files get them, also in a folder inside; other tags replace them."""
    memory = open_memory()
    memory.index(notes, tags=["proj"])
    (notes / "open.md").write_text("# Open\n\nThe harbour closes at ten.\n")
    inner = notes / "inner"
    inner.mkdir()
    (inner / "new.md").write_text("# New\n\nThe harbour is being dredged.\n")
    memory.index(notes)
    memory.index(inner)
    assert {record.tags for record in memory.list()} == {("proj",)}
    memory.index(notes, tags=["port"])
    assert {record.tags for record in memory.list()} == {("port",)}


def test_a_global_folder_stays_global_when_a_scoped_memory_indexes_it_again(
    open_memory: Callable[..., Memory], notes: Path
) -> None:
    """The scope of the last time counts, not the scope of the memory."""
    memory = open_memory()
    memory.index(notes)
    (notes / "open.md").write_text("# Open\n\nThe harbour closes at ten.\n")
    memory.scope = Scope("ada")
    memory.reindex([str(notes / "open.md")])
    assert {record.scope for record in memory.list(any_scope=True)} == {GLOBAL}


def test_a_folder_with_other_options_inside_is_skipped(open_memory: Callable[..., Memory], notes: Path) -> None:
    """The outer folder is skipped, because one set of options would change the scope of the inner one."""
    memory = open_memory()
    private = notes / "private"
    private.mkdir()
    (private / "diary.md").write_text("# Diary\n\nThe vault is empty.\n")
    memory.index(private, user="ada")
    memory.index(notes, exclude=["private/"])
    report = memory.reindex()
    assert report.skipped[str(notes)] == MIXED_OPTIONS
    assert texts(memory, user="ada").count("The vault is empty.") == 1
    assert "The vault is empty." not in texts(memory)


def test_unknown_options_are_not_guessed(open_memory: Callable[..., Memory], notes: Path) -> None:
    """Without stored options a folder is skipped; one that was never indexed is refused unless it is `new`."""
    memory = open_memory()
    memory.index(notes)
    with memory.store._database.write() as connection:
        connection.execute("DELETE FROM roots")
    assert memory.reindex().skipped == {str(notes): UNKNOWN_OPTIONS}
    other = notes.parent / "other"
    other.mkdir()
    (other / "a.md").write_text("# A\n\nThe harbour of Aarhus.\n")
    with pytest.raises(UsageError, match="is not indexed"):
        memory.reindex([str(other)])
    assert len(memory.reindex([str(other)], new=[str(other)]).added) == 1
    with pytest.raises(Forbidden):
        memory.within(Scope("ada")).reindex()


def test_a_dry_run_stores_nothing(open_memory: Callable[..., Memory], notes: Path) -> None:
    """Neither chunks nor the options of the folder."""
    memory = open_memory()
    memory.index(notes, dry_run=True)
    assert memory.store.files.roots() == {}


def test_the_text_of_a_file_is_not_overwritten_by_its_id(open_memory: Callable[..., Memory], notes: Path) -> None:
    """A chunk cannot be overwritten by `add`; a text that supersedes it is a fact, which can be edited."""
    memory = open_memory()
    memory.index(notes / "open.md")
    (chunk,) = memory.list()
    with pytest.raises(UsageError, match="a chunk of an indexed file"):
        memory.add("Hijacked.", id=chunk.id)
    new = memory.supersede(chunk.id, text="The harbour never closes.")
    assert (new.kind, memory.edit(new.id, title="Harbour").title) == ("fact", "Harbour")


def test_the_history_of_a_forgotten_record_is_shown_to_its_owner(memory: Memory) -> None:
    """A scoped caller too, if it was its own; a record of another scope, or a global one, is unknown."""
    ada, bob = memory.within(Scope("ada")), memory.within(Scope("bob"))
    mine, shared = ada.add("Ada's boat."), memory.add("A boat for all.")
    ada.forget(mine.id)
    memory.forget(shared.id)
    assert [event.action for event in ada.history(mine.id)] == ["add", "forget"]
    for view, key in ((bob, mine.id), (ada, shared.id)):
        with pytest.raises(UsageError, match="no record has the id"):
            view.history(key)
    assert ada.undo(mine.id)[0] == "forget"


def nested(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with a note, and a folder inside it with another one."""
    outer, inner = tmp_path / "n_%", tmp_path / "n_%" / "b"
    inner.mkdir(parents=True)
    (outer / "x.md").write_text("# X\n\nThe harbour closes at nine.\n")
    (inner / "y.md").write_text("# Y\n\nThe vault opens with 4711.\n")
    return outer, inner


def listed(memory: Memory) -> list[tuple[str, int, int]]:
    return [(Path(folder.path).name, folder.files, folder.chunks) for folder in folders(memory.store)]


def test_inner_folder_is_removed_with_its_files(open_memory: Callable[..., Memory], tmp_path: Path) -> None:
    """Also if the outer folder was indexed first. The next run over the outer one indexes them again."""
    memory, (outer, inner) = open_memory(), nested(tmp_path)
    memory.index(outer)
    memory.index(inner, user="ada")
    assert listed(memory) == [("n_%", 2, 2), ("b", 1, 1)]
    assert remove(memory, str(inner)).files == 1
    assert listed(memory) == [("n_%", 1, 1)]
    assert texts(memory, user="ada") == ["The harbour closes at nine."]
    assert memory.index(outer).added == [str(inner / "y.md")]


def test_removed_folder_includes_those_inside(open_memory: Callable[..., Memory], tmp_path: Path) -> None:
    """A folder beside it whose name begins the same stays."""
    memory, (outer, inner) = open_memory(), nested(tmp_path)
    beside = tmp_path / "n_%b"
    beside.mkdir()
    (beside / "z.md").write_text("# Z\n\nThe harbour is being dredged.\n")
    for folder in (inner, outer, beside):
        memory.index(folder)
    remove(memory, str(outer))
    assert listed(memory) == [("n_%b", 1, 1)]
    assert texts(memory) == ["The harbour is being dredged."]


def test_renamed_folder_takes_those_inside_with_it(open_memory: Callable[..., Memory], tmp_path: Path) -> None:
    """They keep their options and descriptions, and the next run finds their files unchanged."""
    memory, (outer, inner) = open_memory(), nested(tmp_path)
    memory.index(inner, user="ada")
    memory.index(outer, exclude=["b"])
    describe(memory, str(inner), "Diary.")
    outer.rename(moved := tmp_path / "moved")
    assert rename(memory, str(outer), str(moved)).files == 2
    assert listed(memory) == [("moved", 2, 2), ("b", 1, 1)]
    assert [folder.description for folder in folders(memory.store)] == ["", "Diary."]
    report = memory.index(moved / "b", user="ada")
    assert (report.unchanged, report.added, report.changed, report.rescoped) == (1, [], [], [])


def test_new_folder_at_the_old_path_takes_nothing_from_a_renamed_one(
    open_memory: Callable[..., Memory], notes: Path, tmp_path: Path
) -> None:
    """The renamed folder keeps its chunks, also when this happens twice, and a run over all of them changes nothing."""
    memory = open_memory()
    memory.index(notes)
    for name in ("first", "second"):
        shutil.copytree(notes, tmp_path / name)
        rename(memory, str(notes), str(tmp_path / name))
        kept = {record.id for record in memory.list()}
        assert len(memory.index(notes).added) == 2
        assert kept < {record.id for record in memory.list()}
    assert [folder.chunks for folder in folders(memory.store)] == [2, 2, 2]
    assert (memory.index(notes).unchanged, memory.index(tmp_path / "first").unchanged) == (2, 2)
    ids = {record.id for record in memory.list(path=str(notes))}
    (notes / "open.md").write_text("# Open\n\nThe harbour closes at nine.\n\n# More\n\nIt opens at five.\n")
    memory.index(notes)
    assert len(ids & {record.id for record in memory.list(path=str(notes))}) == 1
    assert len(memory.list()) == 6


def test_inner_folder_is_renamed_alone(open_memory: Callable[..., Memory], tmp_path: Path) -> None:
    """Its files do not belong to the outer folder any more."""
    memory, (outer, inner) = open_memory(), nested(tmp_path)
    memory.index(outer)
    memory.index(inner)
    inner.rename(moved := tmp_path / "moved")
    rename(memory, str(inner), str(moved))
    assert listed(memory) == [("moved", 1, 1), ("n_%", 1, 1)]
    assert memory.index(moved).unchanged == memory.index(outer).unchanged == 1


@pytest.mark.parametrize("command", [remove, lambda memory, path: rename(memory, path, f"{path}.moved")])
def test_interrupted_change_of_a_folder_can_be_repeated(
    open_memory: Callable[..., Memory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Any]
) -> None:
    """It is one transaction, however many files there are."""
    memory, folder = open_memory(), tmp_path / "many"
    folder.mkdir()
    for number in range(300):
        (folder / f"{number}.md").write_text(f"# {number}\n\nA note about harbour {number}.\n")
    memory.index(folder)
    folder.rename(tmp_path / "many.moved")
    monkeypatch.setattr(sqlite_records, "TRANSACTION_SECONDS", 1e-4)
    steps = itertools.count()
    note = ledger.Table.hide if command is remove else sqlite_records._Rows.replace

    def interrupt(*step: Any) -> None:
        if next(steps) == 290:
            raise KeyboardInterrupt
        note(*step)

    monkeypatch.setattr(sqlite_records._Rows, note.__name__, interrupt)
    with pytest.raises(KeyboardInterrupt):
        command(memory, str(folder))
    assert listed(memory) == [("many", 300, 300)]
    command(memory, str(folder))
    assert listed(memory) == ([] if command is remove else [("many.moved", 300, 300)])


def test_folder_may_move_up_to_the_folder_around_it(open_memory: Callable[..., Memory], tmp_path: Path) -> None:
    """The new path of one file may be the old path of another."""
    memory, outer = open_memory(), tmp_path / "a"
    for place in (outer / "a", outer / "a" / "a"):
        place.mkdir(parents=True)
        (place / "x.md").write_text(f"# X\n\nThe harbour of {place.relative_to(tmp_path)}.\n")
    memory.index(outer / "a")
    (outer / "a").rename(tmp_path / "b")
    (tmp_path / "b" / "x.md").rename(outer / "x.md")
    (tmp_path / "b" / "a").rename(outer / "a")
    rename(memory, str(outer / "a"), str(outer))
    assert listed(memory) == [("a", 2, 2)]
    assert memory.index(outer).unchanged == 2
