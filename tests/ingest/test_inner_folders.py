"""An indexed folder inside another one keeps its scope and tags, and a run over a part does not change the folder's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.memory import roots


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    """A memory in each kind of store."""
    place = tmp_path / "store.db" if request.param == "sqlite" else request.getfixturevalue("new_schema")()
    with Memory.open(place, embedder="none", settings=Settings()) as opened:
        yield opened


@pytest.fixture
def inner(notes: Path) -> Path:
    """A folder with a file, in a folder with another one."""
    (notes / "open.md").write_text("The open heron.")
    folder = notes / "private"
    folder.mkdir()
    (folder / "diary.md").write_text("The private heron.")
    return folder


def owned(memory: Memory) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    """The user and the tags of each file."""
    records = memory.list(any_scope=True, limit=100)
    return {Path(record.path or "").name: (record.scope.user, record.tags) for record in records}


def stored(memory: Memory, folder: Path) -> tuple[dict[str, str], list[str]]:
    """The scope and the tags of an indexed folder."""
    (found,) = (each for each in roots.folders(memory.store) if each.path == str(folder))
    return dict(found.scope), list(found.tags)


def test_inner_folder_keeps_its_scope_and_tags(memory: Memory, inner: Path) -> None:
    """Also for files that change or are new, and until the inner folder itself is indexed in another way."""
    outer = inner.parent
    memory.index(inner, user="ada", tags=["diary"])
    report = memory.index(outer, tags=["all"])
    assert report.rescoped == []
    assert owned(memory) == {"open.md": (None, ("all",)), "diary.md": ("ada", ("diary",))}
    assert stored(memory, inner) == ({"user": "ada"}, ["diary"])
    (inner / "diary.md").write_text("The private and shy heron.")
    (inner / "new.md").write_text("Another heron.")
    memory.index(outer)
    assert owned(memory) == {
        "open.md": (None, ("all",)), "diary.md": ("ada", ("diary",)), "new.md": ("ada", ("diary",)),
    }  # fmt: skip
    memory.index(inner, user="bob")
    memory.index(outer)
    assert {user for user, _ in owned(memory).values()} == {None, "bob"}


def test_inner_folder_of_everybody_gets_the_scope_of_the_outer_one(memory: Memory, inner: Path) -> None:
    """A folder that becomes private becomes so completely; the inner folder keeps its tags."""
    memory.index(inner, tags=["diary"])
    memory.index(inner.parent, user="ada")
    assert owned(memory) == {"open.md": ("ada", ()), "diary.md": ("ada", ("diary",))}


def test_run_over_a_part_does_not_change_the_options_of_the_folder(memory: Memory, inner: Path) -> None:
    """With `--include` or `--exclude`, a tag and a user are those of the selected files only."""
    outer = inner.parent
    memory.index(outer, tags=["all"])
    memory.index(outer, include=["open.md"], tags=["part"], user="ada")
    assert owned(memory)["open.md"][0] == "ada"
    assert stored(memory, outer) == ({}, ["all"])
    (outer / "new.md").write_text("Another heron.")
    memory.index(outer)
    assert owned(memory)["new.md"] == (None, ("all",))


def test_folder_of_which_only_a_part_is_indexed_has_the_options_of_that_part(memory: Memory, inner: Path) -> None:
    """The patterns of the first run are those of the folder; the same patterns with another tag change its tags."""
    outer = inner.parent
    memory.index(outer, include=["open.md"], tags=["old"])
    assert stored(memory, outer) == ({}, ["old"])
    memory.index(outer, include=["open.md"], tags=["new"])
    assert stored(memory, outer) == ({}, ["new"])
    assert owned(memory).keys() == {"open.md"}


def test_folder_with_a_private_folder_inside_is_indexed_again(memory: Memory, inner: Path) -> None:
    """`reindex` and `watch` skipped the outer folder, because the inner one had another scope."""
    memory.index(inner, user="ada")
    memory.index(inner.parent)
    (inner.parent / "new.md").write_text("Another heron.")
    report = memory.reindex()
    assert (report.added, report.skipped, report.rescoped) == ([str(inner.parent / "new.md")], {}, [])
    assert owned(memory)["diary.md"] == ("ada", ())


def test_folder_in_a_private_folder_is_private_too(memory: Memory, inner: Path) -> None:
    """Its options are those of the folder around it, and not of the outermost one, also after a change."""
    deep = inner / "deep"
    deep.mkdir()
    (deep / "deep.md").write_text("The deep heron.")
    memory.index(inner, user="ada", tags=["diary"])
    memory.index(deep, user="ada")
    memory.index(inner.parent)
    assert owned(memory)["deep.md"] == ("ada", ("diary",))
    memory.index(inner, user="bob", tags=["log"])
    assert owned(memory)["deep.md"] == ("bob", ("log",))
