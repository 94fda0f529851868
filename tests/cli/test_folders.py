"""Indexed folders are listed, described, removed when they are gone, and followed when they have moved."""

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.memory.roots import described, for_agents
from recollect.types import Scope


@pytest.fixture
def notes(run, home):
    """A folder with two notes, indexed."""
    folder = home / "notes"
    folder.mkdir()
    (folder / "heron.md").write_text("# Heron\n\nA heron by the lake.\n")
    (folder / "otter.md").write_text("# Otter\n\nAn otter in the river.\n")
    assert run("index", folder).code == 0
    return folder


def test_folders_are_listed_with_what_they_hold(run, notes):
    """Files, chunks, the last run, and the description, which survives the next run."""
    assert run("folders", "describe", notes, "Notes about animals.").code == 0
    assert run("index", notes).code == 0
    (folder,) = run("folders", "--json").json
    assert (folder["path"], folder["files"], folder["chunks"], folder["exists"]) == (str(notes), 2, 2, True)
    assert folder["description"] == "Notes about animals."
    assert folder["indexed_at"]
    shown = run("folders").out
    assert "2 files, 2 chunks, indexed 20" in shown
    assert "Notes about animals." in shown
    run("folders", "describe", notes, "")
    assert run("folders", "--json").json[0]["description"] == ""


def test_documents_that_cannot_be_read_are_not_counted(run, notes):
    """As in the report of `index`. A record of a deleted file is purged, and not counted as forgotten."""
    (notes / "bad.pdf").write_text("x")
    assert "2 unchanged, 1 skipped" in run("index", notes).out
    assert run("status", "--json").json["files"] == run("folders", "--json").json[0]["files"] == 2
    assert "all 2 are unchanged" in run("doctor").out
    (notes / "heron.md").unlink()
    run("index", notes)
    state = run("status", "--json").json
    assert (state["files"], state["records"]["total"], state["records"]["forgotten"]) == (1, 1, 0)


def test_gone_folder_is_removed(run, notes, home):
    """`index` says which command to use; afterwards nothing of the folder is found."""
    notes.rename(home / "elsewhere")
    error = run("index", notes, "--json").error
    assert "folders rename" in error["hint"]
    assert "folders remove" in error["hint"]
    assert "gone" in run("folders").out
    assert "folders remove" in run("doctor").out
    assert "folders remove" in run("why-not", "zebra", notes / "heron.md").out
    assert run("folders", "remove", notes).code == 0
    assert run("folders", "--json").json == []
    assert run("search", "heron").code == 1


def test_moved_folder_is_followed_without_reading_it(run, notes, home):
    """Ids stay, results have the new path, and the next run finds every file unchanged."""
    before = {record["id"] for record in run("list", "--json").json}
    run("folders", "describe", notes, "Animals.")
    there = home / "elsewhere"
    notes.rename(there)
    assert run("folders", "rename", notes, there).code == 0
    assert {record["id"] for record in run("list", "--json").json} == before
    (result,) = run("search", "heron", "--json").json["results"]
    assert (result["path"], result["freshness"]) == (str(there / "heron.md"), "fresh")
    report = run("index", there, "--json").json
    assert (report["unchanged"], report["added"], report["changed"]) == (2, [], [])
    (folder,) = run("folders", "--json").json
    assert (folder["path"], folder["description"]) == (str(there), "Animals.")


@pytest.mark.parametrize("words", [("remove", "x"), ("describe", "x", "y"), ("rename", "x", "y")])
def test_unknown_folder_is_an_error(run, notes, words):
    """Which names the command that lists them."""
    ran = run("folders", *words)
    assert (ran.code, "recollect folders" in ran.err) == (2, True)


def test_a_part_of_a_folder_and_a_taken_place_are_refused(run, notes, home):
    """Nothing is changed."""
    (notes / "sub").mkdir()
    assert "part of the indexed folder" in run("folders", "remove", notes / "sub").err
    assert "is not there" in run("folders", "rename", notes, home / "nowhere").err
    assert "indexed already" in run("folders", "rename", notes, notes).err
    assert "at most" in run("folders", "describe", notes, "x" * 501).err
    assert run("folders", "--json").json[0]["files"] == 2


def test_agents_are_told_the_descriptions_of_folders_that_they_may_see(run, notes, home):
    """The folder of another user is not among them."""
    hers = home / "hers"
    hers.mkdir()
    (hers / "secret.md").write_text("A secret.")
    run("index", hers, "--user", "ada")
    run("folders", "describe", notes, "Notes about animals.")
    run("folders", "describe", hers, "Diary.")
    with Memory.open(home / "store.db", embedder="none", settings=Settings()) as memory:
        assert [folder["description"] for folder in described(memory.within(Scope("ada")))] == [
            "Diary.", "Notes about animals."
        ]  # fmt: skip
        assert [folder["description"] for folder in described(memory.within(Scope("bob")))] == ["Notes about animals."]
        assert "Notes about animals." in for_agents(memory.within(Scope("bob")))
        assert "Diary" not in for_agents(memory.within(Scope("bob")))
