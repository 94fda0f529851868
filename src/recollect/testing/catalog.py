"""Tables beside the records: indexed files, ids of external sources, and cached notes."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from recollect.errors import UsageError
from recollect.ranking import fold_hash
from recollect.testing.harness import NOON, OpenStore, ids, store_all
from recollect.types import (
    FileState,
    Filter,
    Forget,
    MarkIngested,
    Put,
    Record,
    Scope,
    SetFileState,
    SetFolderOptions,
    Store,
)


def state(path: str, root: str = "/n", size: int = 1) -> FileState:
    """The state of a file."""
    return FileState(path, root, 1_750_000_000_123_456_789, size, f"digest of {path} {size}")


class FilesContract:
    """Files, ingested texts, ids of external sources, and notes."""

    def test_files_are_known_by_root_and_by_path(self, store: Store) -> None:
        """A file has the state that was stored last. A removed file is not known."""
        paths = ["/n/a.md", "/n/ünï 湖.md", "/n/100%_[x]*?.md", '/n/it\'s "q".md', "/m/b.md"]
        states = {path: state(path, path[:2]) for path in paths}
        store.records.apply([[SetFileState(path, seen)] for path, seen in states.items()])
        store.records.apply(
            [[SetFileState("/n/a.md", state("/n/a.md", size=2**40))], [SetFileState("/n/never.md", None)]]
        )
        assert store.files.known("/m") == {"/m/b.md": states["/m/b.md"]}
        assert set(store.files.known("/n")) == set(paths[:4])
        assert store.files.known("/n")["/n/a.md"].size == 2**40
        assert store.files.known("/") == {}
        assert store.files.states(["/m/b.md", paths[2], "/nowhere"]) == {
            path: states[path] for path in (paths[2], "/m/b.md")
        }
        assert store.files.roots() == {"/m": None, "/n": None}
        told = {"scope": {"user": "ada"}, "tags": ["ä"], "exclude": ["*.log"]}
        store.records.apply([[SetFolderOptions("/n", {"scope": {}})], [SetFolderOptions("/n", told)]])
        assert store.files.roots() == {"/m": None, "/n": told}
        assert store.status()["files"] == 5
        store.records.apply([[SetFileState("/m/b.md", None)]])
        assert store.files.roots() == {"/n": told}
        assert store.files.states([]) == {}

    def test_a_very_long_path_is_kept(self, store: Store) -> None:
        """A path may be as long as an operating system allows, whatever the store's index can hold."""
        chance = random.Random(6)
        path = "/n/" + "/".join("".join(chance.choices("abcdefghöüé湖", k=120)) for _ in range(25)) + ".md"
        store_all(store, Record("a", "heron", path=path, kind="chunk"))
        store.records.apply([[SetFileState(path, state(path))], [SetFileState(path, state(path, size=2))]])
        assert store.files.states([path])[path].size == 2
        assert ids(store.files.chunks(path)) == ["a"]
        assert store.joins.by_path([path], Filter())[path][0].id == "a"
        assert ids(store.records.list(Filter(path=path), limit=9)) == ["a"]

    def test_the_chunks_of_a_file_are_its_own(self, store: Store) -> None:
        """Facts, chunks of other files and chunks of similar paths are not among them."""
        store_all(
            store,
            Record("1", "one", path="/n/a.md", lines=(1, 4), kind="chunk"),
            Record("2", "two", path="/n/a.md", lines=(5, 9), kind="chunk", scope=Scope("ada")),
            Record("3", "a fact of it", path="/n/a.md"),
            Record("4", "another", path="/n/a_md", kind="chunk"),
            Record("5", "another", path="/n/A.md", kind="chunk"),
        )
        assert sorted(ids(store.files.chunks("/n/a.md"))) == ["1", "2"]
        assert store.files.chunks("/n") == []

    def test_files_of_another_scope_or_without_a_tag_differ(self, store: Store) -> None:
        """One live chunk that differs is enough. Facts, forgotten chunks and other files do not count."""
        ada = Scope("ada", "a'b")
        store_all(
            store,
            Record("1", "one", path="/n/same.md", kind="chunk", scope=ada, tags=("x", "y")),
            Record("2", "two", path="/n/mixed.md", kind="chunk", scope=ada, tags=("x",)),
            Record("3", "three", path="/n/mixed.md", kind="chunk"),
            Record("4", "four", path="/n/ünï 湖.md", kind="chunk", scope=Scope("ada"), tags=("x",)),
            Record("5", "five", path="/n/same.md", tags=("z",)),
            Record("6", "six", path="/n/gone.md", kind="chunk"),
        )
        store.records.apply([[Forget("6")]])
        paths = ["/n/same.md", "/n/mixed.md", "/n/ünï 湖.md", "/n/gone.md", "/nowhere"]
        others = {"/n/mixed.md", "/n/ünï 湖.md"}
        assert store.files.differing(paths, ada, ()) == store.files.differing(paths, ada, ("x",)) == others
        assert store.files.differing(paths, ada, ("x", "y", "z")) == others | {"/n/same.md"}
        assert store.files.differing(["/n/same.md"], Scope("ada"), ()) == {"/n/same.md"}
        assert store.files.differing(["/n/same.md"], Scope("ada", "a'b", "s"), ()) == {"/n/same.md"}
        assert store.files.differing(paths[:1], ada, ()) == store.files.differing([], Scope(), ()) == set()

    def test_a_store_has_one_key_for_chunks_and_no_other_store_has_it(
        self, open_store: OpenStore, place: str, store: Store
    ) -> None:
        """The key is the same in every process, even if eight create it at once."""
        others = [open_store(place) for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            keys = set(pool.map(lambda other: other.files.chunk_key(), others))
        assert keys == {store.files.chunk_key()}
        assert len(store.files.chunk_key()) == 32
        assert open_store().files.chunk_key() not in keys

    def test_what_was_ingested_is_known(self, store: Store) -> None:
        """A digest is known, however often it is stored."""
        store.records.apply([[MarkIngested("d1"), MarkIngested("d2")], [MarkIngested("d1")]])
        assert store.files.ingested(["d1", "d2", "d3"]) == {"d1", "d2"}
        assert store.files.ingested([]) == set()

    def test_a_file_and_its_records_hold_as_one(self, open_store: OpenStore, place: str, store: Store) -> None:
        """If a change of a group fails, the state of its file is not stored either."""
        taken = Record("taken", "x", scope=Scope("ada"))
        store.records.apply([[Put(taken)]])
        with pytest.raises(UsageError, match="taken"):
            store.records.apply(
                [[SetFileState("/n/a.md", state("/n/a.md")), MarkIngested("d"), Put(Record("taken", "y"))]]
            )
        assert open_store(place).files.known("/n") == {}
        assert store.files.ingested(["d"]) == set()

    def test_joins_find_by_path_or_its_last_parts(self, store: Store) -> None:
        """Records of the same path, else of all paths that end with it, in order; only visible ones."""
        store_all(
            store,
            Record("1", "one", path="/n/sub/a.md", lines=(5, 9)),
            Record("2", "two", path="/n/sub/a.md", lines=(1, 4)),
            Record("3", "three", path="/m/sub/a.md", lines=(1, 4), scope=Scope("ada")),
            Record("4", "four", path="a.md"),
            Record("5", "five", path="/n/100%_x.md"),
        )
        found = store.joins.by_path(["sub/a.md", "a.md", "file:///n/sub/a.md", "b.md", "100%_x.md", "_x.md"], Filter())
        assert {path: ids(records) for path, records in found.items()} == {
            "sub/a.md": ["2", "1"], "a.md": ["4"], "file:///n/sub/a.md": ["2", "1"], "100%_x.md": ["5"],
        }  # fmt: skip
        whole = store.joins.by_path(["sub/a.md"], Filter(scope=Scope("ada")))["sub/a.md"]
        assert sorted(ids(whole)) == ["1", "2", "3"]

    def test_joins_find_by_text_the_newest(self, store: Store) -> None:
        """Of visible records with the same text, the newest is returned."""
        old, new = (
            Record("a", "Heron  lake", created_at=NOON),
            Record("b", "heron LAKE", created_at=NOON + timedelta(1)),
        )
        store_all(store, old, new, Record("c", "heron lake", scope=Scope("ada"), created_at=NOON + timedelta(2)))
        fold, other = fold_hash("heron lake"), fold_hash("nothing says this")
        assert {key: record.id for key, record in store.joins.by_text([fold, other], Filter()).items()} == {fold: "b"}
        assert store.joins.by_text([fold], Filter(scope=Scope("ada")))[fold].id == "c"
        assert store.joins.by_text([], Filter()) == {}

    def test_what_outside_ids_stand_for_is_learnt(self, open_store: OpenStore, place: str, store: Store) -> None:
        """For each source and in every process; the last value counts."""
        other = open_store(place)
        store.joins.learn("qmd", {"#1": "/n/a.md", "#2": "/n/b.md", "湖\0": "c'; --"})
        store.joins.learn("docs", {"#1": "/d/a.md"})
        assert dict(other.joins.paths("qmd")) == {"#1": "/n/a.md", "#2": "/n/b.md", "湖\0": "c'; --"}
        other.joins.learn("qmd", {"#1": "/n/z.md"})
        assert store.joins.paths("qmd")["#1"] == "/n/z.md"
        assert dict(store.joins.paths("docs")) == {"#1": "/d/a.md"}
        assert dict(store.joins.paths("nobody")) == {}

    def test_what_a_scope_learnt_of_outside_ids_is_its_own(
        self, open_store: OpenStore, place: str, store: Store
    ) -> None:
        """An id stands for a path in one scope, and in no wider or narrower one."""
        ada, other = Scope("ada", session="湖\0"), open_store(place)
        store.joins.learn("qmd", {"#1": "/n/ada.md"}, ada)
        store.joins.learn("qmd", {"#1": "/n/all.md"})
        for scope, known in ((ada, {"#1": "/n/ada.md"}), (Scope(), {"#1": "/n/all.md"}), (Scope("ada"), {})):
            assert dict(other.joins.paths("qmd", scope)) == known

    def test_what_is_taken_is_told_of_all_or_of_one_scope(self, store: Store) -> None:
        """Ids include those of forgotten and purged records; texts and paths only those of live ones."""
        store_all(
            store,
            Record("a", "heron", path="/n/a.md", scope=Scope("ada")),
            Record("b", "badger", path="/n/b.md", scope=Scope("bob")),
            Record("c", "crane"),
            Record("gone", "gone", path="/n/gone.md", scope=Scope("ada")),
            Record("purged", "purged", scope=Scope("ada")),
        )
        store.records.apply([[Forget("gone"), Forget("purged", purge=True)]])
        folds = {fold_hash(text): text for text in ("heron", "badger", "crane", "gone", "new")}
        asked = (["a", "b", "c", "gone", "purged", "new"], list(folds), ["n/a.md", "/n/b.md", "gone.md", "new.md"])
        for within, keys, texts, paths in (
            (None, "a b c gone purged", "badger crane heron", {"n/a.md": 1, "/n/b.md": 1}),
            (Scope("ada"), "a c gone purged", "crane heron", {"n/a.md": 1}),
            (Scope(), "c", "crane", {}),
        ):
            found = store.joins.taken(*asked, within)
            assert (sorted(found[0]), sorted(folds[fold] for fold in found[1])) == (keys.split(), texts.split())
            assert {path: count for path, count in found[2].items() if count} == paths

    def test_notes_are_kept(self, open_store: OpenStore, place: str, store: Store) -> None:
        """By key and in every process; the last value counts."""
        store.notes.put("k", "one")
        store.notes.put("k\0'", "two \0 湖")
        other = open_store(place)
        assert (other.notes.get("k"), other.notes.get("k\0'"), other.notes.get("nobody")) == ("one", "two \0 湖", None)
        other.notes.put("k", "three")
        assert store.notes.get("k") == "three"
