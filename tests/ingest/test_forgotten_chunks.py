"""A chunk that the user forgets or purges does not come back with the next change of its file; others do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.ingest import documents
from recollect.ingest.recutting import recut
from recollect.memory import roots

FINCH = "The phrase zebrafinch. " * 30
OTHER = "The phrase heron. " * 60


@pytest.fixture(params=["sqlite", "postgres", "lance"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    """A memory in each kind of store."""
    place = str(tmp_path / "store.db")
    if request.param == "postgres":
        place = request.getfixturevalue("new_schema")()
    elif request.param == "lance":
        pytest.importorskip("lancedb")
        place = f"lancedb://{tmp_path / 'store'}"
    with Memory.open(place, embedder="none", settings=Settings()) as opened:
        yield opened


@pytest.fixture
def note(notes: Path, memory: Memory) -> Path:
    """An indexed note with two chunks."""
    path = notes / "birds.md"
    path.write_text(f"# Birds\n\n## Finch\n\n{FINCH}\n\n## Heron\n\n{OTHER}\n")
    memory.index(notes)
    assert finches(memory)
    return path


def finches(memory: Memory) -> list[str]:
    """The ids of the chunks about the zebrafinch."""
    return [record.id for record in memory.list(any_scope=True, limit=100) if "zebrafinch" in record.text]


def herons(memory: Memory) -> list[str]:
    """The ids of the chunks about the heron."""
    return [record.id for record in memory.list(any_scope=True, limit=100) if "heron" in record.text]


@pytest.mark.parametrize("purge", [False, True], ids=["forgotten", "purged"])
def test_changed_or_moved_file_does_not_bring_it_back(memory: Memory, note: Path, purge: bool) -> None:
    """It stays away at every change elsewhere, after moves, and when the file is gone for a while."""
    memory.forget(*finches(memory), purge=purge)
    for line in ("One more line.", "And another one."):
        note.write_text(f"{note.read_text()}\n\n{line}\n")
        assert memory.index(note.parent).changed == [str(note)]
        assert not finches(memory)
        assert herons(memory)
    moved = note.rename(note.with_name("moved.md"))
    assert memory.index(note.parent).moved == {str(note): str(moved)}
    assert not finches(memory)
    moved.write_text(f"{moved.read_text()}\n\nThe end.\n")
    memory.index(note.parent)
    assert not finches(memory)
    content = moved.read_text()
    moved.unlink()
    memory.index(note.parent)
    moved.write_text(content)
    assert memory.index(note.parent).added == [str(moved)]
    assert not finches(memory)
    assert herons(memory)


def test_changed_text_is_a_new_chunk(memory: Memory, note: Path) -> None:
    """Only the text that was forgotten stays away."""
    memory.forget(*finches(memory), purge=True)
    note.write_text(note.read_text().replace("## Finch\n\n", "## Finch\n\nIt sings. "))
    memory.index(note.parent)
    assert finches(memory)


def test_forgotten_chunk_of_a_moved_file_can_be_restored(memory: Memory, note: Path) -> None:
    """`undo` brings it back at the new path."""
    (finch,) = finches(memory)
    memory.forget(finch)
    moved = note.rename(note.with_name("moved.md"))
    memory.index(note.parent)
    memory.undo(finch)
    assert memory.require(finch).path == str(moved)
    memory.index(note.parent)
    assert finches(memory) == [finch]


def test_forgotten_chunk_of_a_renamed_folder_stays_away(memory: Memory, note: Path) -> None:
    """`folders rename` takes forgotten chunks along."""
    memory.forget(*finches(memory))
    folder = note.parent.rename(note.parent.with_name("renamed"))
    roots.rename(memory, str(note.parent), str(folder))
    moved = folder / note.name
    moved.write_text(f"{moved.read_text()}\n\nThe end.\n")
    memory.index(folder)
    assert herons(memory)
    assert not finches(memory)


def test_what_indexing_removed_comes_back(memory: Memory, note: Path) -> None:
    """After a file was gone, after its text was, and after its folder was removed from the index."""
    content, before = note.read_text(), finches(memory)
    note.unlink()
    memory.index(note.parent)
    note.write_text(content)
    memory.index(note.parent)
    assert finches(memory) == before
    note.write_text("# Birds\n\nNone.\n")
    memory.index(note.parent)
    note.write_text(content)
    memory.index(note.parent)
    assert finches(memory) == before
    roots.remove(memory, str(note.parent))
    memory.index(note.parent)
    assert finches(memory) == before


def test_one_of_two_equal_chunks_can_be_forgotten(memory: Memory, notes: Path) -> None:
    """The other one stays."""
    path = notes / "twice.md"
    same = f"## Finch\n\n{FINCH}\n\n"
    path.write_text(f"# Twice\n\n{same}## Heron\n\n{OTHER}\n\n{same}")
    memory.index(notes)
    first, second = (record for record in memory.list(limit=100) if "zebrafinch" in record.text)
    assert first.text == second.text
    memory.forget(first.id)
    path.write_text(path.read_text().replace("## Heron\n\n", "## Heron\n\nIt wades. "))
    memory.index(notes)
    assert finches(memory) == [second.id]


def test_files_that_are_cut_again_do_not_bring_it_back(
    memory: Memory, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`migrate --chunks` stores no chunk that was purged."""
    memory.forget(*finches(memory), purge=True)
    monkeypatch.setattr(documents, "RULES", documents.RULES + 1)
    changes = recut(memory.store, str(note.parent))
    memory.store.records.apply([changes])
    assert herons(memory)
    assert not finches(memory)
