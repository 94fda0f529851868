"""Tables beside the records: indexed files, ids of external sources, and cached notes."""

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from recollect.ranking import fold_hash
from recollect.testing.harness import NOON, OpenStore, all_ids, apply, ids, store_all
from recollect.types import (
    FileState,
    Filter,
    Forget,
    MarkIngested,
    Record,
    Scope,
    SetFileState,
    SetFolderOptions,
    Store,
)


def state(path: str, root: str = "/n", size: int = 1) -> FileState:
    """The state of a file."""
    return FileState(path, root, 1_750_000_000_123_456_789, size, FileState.digest_of(f"{path} {size}".encode()))


class FilesContract:
    """Files, ingested texts, ids of external sources, and notes."""

    def test_files_are_read_by_root_and_by_path(self, store: Store) -> None:
        """A file has the state that was stored last. A removed file is not known."""
        paths = ["/n/a.md", "/n/ünï 湖.md", "/n/100%_[x]*?.md", '/n/it\'s "q".md', "/m/b.md"]
        states = {path: state(path, path[:2]) for path in paths}
        apply(store, *(SetFileState(path, stored) for path, stored in states.items()))
        apply(store, SetFileState("/n/a.md", state("/n/a.md", size=2**40)), SetFileState("/n/never.md", None))
        states["/n/a.md"] = state("/n/a.md", size=2**40)
        assert store.files.known("/m") == {"/m/b.md": states["/m/b.md"]}
        assert store.files.known("/n") == {path: states[path] for path in paths[:4]}
        assert (store.files.known("/"), store.files.states([])) == (states, {})
        known = {path: states[path] for path in (paths[2], "/m/b.md")}
        assert store.files.states(["/m/b.md", paths[2], "/nowhere"]) == known
        assert store.files.roots() == {"/m": None, "/n": None}
        options = {"scope": {"user": "ada"}, "tags": ["ä"], "exclude": ["*.log"]}
        store.records.apply([[SetFolderOptions("/n", {"scope": {}})], [SetFolderOptions("/n", options)]])
        assert store.files.roots() == {"/m": None, "/n": options}
        damaged = FileState("/n/bad.pdf", "/n", 1, 1, "0123 pdf/1 damaged: not a PDF file")
        apply(store, SetFileState("/n/bad.pdf", damaged))
        assert store.files.states(["/n/bad.pdf"])["/n/bad.pdf"].problem == "damaged: not a PDF file"
        assert store.status()["files"] == 5  # those that could be read
        apply(store, SetFileState("/m/b.md", None))
        assert store.files.roots() == {"/n": options}
        apply(store, SetFolderOptions("/n", None))
        assert store.files.roots() == {"/n": None}  # its files are still indexed

    def test_known_files_are_those_below_a_path(self, store: Store) -> None:
        """Whichever folder they were indexed with. A folder whose name only begins the same is another one."""
        paths = ["/n/b/x.md", "/n/b/c/y.md", "/n/bc/x.md", "/n/b.md", "/n/B/x.md", "/n/_/x.md", "/n/%/x.md", "/n/b0"]
        apply(store, *(SetFileState(path, state(path)) for path in paths))
        assert store.files.known("/n").keys() == set(paths)
        assert store.files.known("/n/b").keys() == {"/n/b/x.md", "/n/b/c/y.md"}
        assert store.files.known("/n/b.md").keys() == {"/n/b.md"}
        assert store.files.known("/n/_").keys() == {"/n/_/x.md"}
        assert store.files.known("/n/%").keys() == {"/n/%/x.md"}
        assert store.files.known("/n/").keys() == set(paths)
        assert store.files.known("/m") == {}

    def test_a_path_may_be_very_long(self, store: Store) -> None:
        chance = random.Random(6)
        path = "/n/" + "/".join("".join(chance.choices("abcdefghöüé湖", k=120)) for _ in range(25)) + ".md"
        store_all(store, Record("a", "heron", path=path, kind="chunk"))
        store.records.apply([[SetFileState(path, state(path))], [SetFileState(path, state(path, size=2))]])
        assert store.files.states([path])[path].size == 2
        assert ids(store.joins.by_path([path], Filter())[path]) == ids(store.files.chunks(path)) == ["a"]
        assert all_ids(store, Filter(path=path)) == ["a"]

    def test_chunks_are_those_of_one_file(self, store: Store) -> None:
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

    def test_files_and_mentions_are_those_that_the_filter_admits(self, store: Store) -> None:
        """Words are compared in upper and lower case, after a bracket; only chunks make a file visible."""
        store_all(
            store,
            Record("1", "see [[Garden]]", title="A › z", path="/n/a.md", kind="chunk"),
            Record("2", "the GARDEN [x](garden%20b.md)", title="A › b", path="/n/a.md", kind="chunk"),
            Record("3", "the garden has no link", title="B", path="/n/b.md", kind="chunk"),
            Record("4", "[[garden]]", path="/n/ada.md", kind="chunk", scope=Scope("ada")),
            Record("5", "[[garden]] of a fact", path="/n/fact.md"),
            Record("6", "[[garden]] forgotten", path="/n/gone.md", kind="chunk"),
            Record("7", "[湖](x.md)"),
        )
        apply(store, Forget("6"), SetFileState("/n/a.md", state("/n/a.md")))
        assert store.files.visible(Filter()) == {"/n/a.md": ("/n", "A"), "/n/b.md": ("", "B")}
        assert store.files.visible(Filter(scope=Scope("ada"))).keys() == {"/n/a.md", "/n/b.md", "/n/ada.md"}
        for words, where, expected in (
            ({"garden"}, Filter(), ["1", "2", "5"]),
            ({"Garden"}, Filter(scope=Scope("ada")), ["1", "2", "4", "5"]),
            ({"x", "of"}, Filter(), ["2", "5", "7"]),
            ({""}, Filter(), ["1", "2", "5", "7"]),
            ({"none"}, Filter(), []),
        ):
            assert sorted(ids(store.files.linking(words, where))) == expected

    def test_files_with_another_scope_or_without_a_tag_differ(self, store: Store) -> None:
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
        apply(store, Forget("6"))
        paths = ["/n/same.md", "/n/mixed.md", "/n/ünï 湖.md", "/n/gone.md", "/nowhere"]
        others = {"/n/mixed.md", "/n/ünï 湖.md"}
        for scope, tags, expected in (
            (ada, (), others),
            (ada, ("x",), others),
            (ada, ("x", "y", "z"), {*others, "/n/same.md"}),
            (Scope("ada"), (), {"/n/same.md", "/n/mixed.md"}),
            (Scope("ada", "a'b", "s"), (), {*others, "/n/same.md"}),
        ):
            assert store.files.differing(paths, scope, tags) == expected
        assert store.files.differing([], Scope(), ()) == set()

    def test_a_store_has_one_chunk_key_of_its_own(self, open_store: OpenStore, place: str, store: Store) -> None:
        """The key is the same in every process, even if eight create it at once."""
        others = [open_store(place) for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            keys = set(pool.map(lambda other: other.files.chunk_key(), others))
        assert keys == {store.files.chunk_key()}
        assert len(store.files.chunk_key()) == 32
        assert open_store().files.chunk_key() not in keys

    def test_ingested_digests_are_known(self, store: Store) -> None:
        store.records.apply([[MarkIngested("d1"), MarkIngested("d2")], [MarkIngested("d1")]])
        assert store.files.ingested(["d1", "d2", "d3"]) == {"d1", "d2"}
        assert store.files.ingested([]) == set()

    def test_joins_by_path_take_the_last_parts_of_a_path(self, store: Store) -> None:
        """Records of the same path, else of all paths that end with it, in order; only visible ones."""
        store_all(
            store,
            Record("1", "one", path="/n/sub/a.md", lines=(5, 9)),
            Record("2", "two", path="/n/sub/a.md", lines=(1, 4)),
            Record("3", "three", path="/m/sub/a.md", lines=(1, 4), scope=Scope("ada")),
            Record("4", "four", path="a.md"),
            Record("5", "five", path="/n/100%_x.md"),
        )
        expected = {"sub/a.md": ["2", "1"], "a.md": ["4"], "file:///n/sub/a.md": ["2", "1"], "100%_x.md": ["5"]}
        results = store.joins.by_path([*expected, "b.md", "_x.md"], Filter())
        assert {path: ids(records) for path, records in results.items()} == expected
        results = store.joins.by_path(["sub/a.md"], Filter(scope=Scope("ada")))
        assert sorted(ids(results["sub/a.md"])) == ["1", "2", "3"]

    def test_joins_by_text_return_the_newest_visible_record(self, store: Store) -> None:
        times = [NOON + timedelta(days) for days in range(3)]
        store_all(
            store, Record("a", "Heron  lake", created_at=times[0]), Record("b", "heron LAKE", created_at=times[1])
        )
        store_all(store, Record("c", "heron lake", scope=Scope("ada"), created_at=times[2]))
        fold, other = fold_hash("heron lake"), fold_hash("nothing says this")
        assert {key: record.id for key, record in store.joins.by_text([fold, other], Filter()).items()} == {fold: "b"}
        assert store.joins.by_text([fold], Filter(scope=Scope("ada")))[fold].id == "c"
        assert store.joins.by_text([], Filter()) == {}

    def test_paths_of_external_ids_are_learnt(self, open_store: OpenStore, place: str, store: Store) -> None:
        """For each source and scope, in every process; the last value counts. A scope is no wider or narrower one."""
        ada, other = Scope("ada", session="湖\0"), open_store(place)
        store.joins.learn("qmd", {"#1": "/n/a.md", "#2": "/n/b.md", "湖\0": "c'; --"})
        store.joins.learn("docs", {"#1": "/d/a.md"})
        store.joins.learn("qmd", {"#1": "/n/ada.md"}, ada)
        assert dict(other.joins.paths("qmd")) == {"#1": "/n/a.md", "#2": "/n/b.md", "湖\0": "c'; --"}
        other.joins.learn("qmd", {"#1": "/n/z.md"})
        assert store.joins.paths("qmd")["#1"] == "/n/z.md"
        assert dict(store.joins.paths("docs")) == {"#1": "/d/a.md"}
        assert dict(other.joins.paths("qmd", ada)) == {"#1": "/n/ada.md"}
        assert dict(store.joins.paths("nobody")) == dict(other.joins.paths("qmd", Scope("ada"))) == {}

    def test_taken_ids_texts_and_paths_are_those_of_all_or_of_one_scope(self, store: Store) -> None:
        """Ids include those of forgotten and purged records; texts and paths only those of live ones."""
        store_all(
            store,
            Record("a", "heron", path="/n/a.md", scope=Scope("ada")),
            Record("b", "badger", path="/n/b.md", scope=Scope("bob")),
            Record("c", "crane"),
            Record("gone", "gone", path="/n/gone.md", scope=Scope("ada")),
            Record("purged", "purged", scope=Scope("ada")),
        )
        apply(store, Forget("gone"), Forget("purged", purge=True))
        folds = {fold_hash(text): text for text in ("heron", "badger", "crane", "gone", "new")}
        names = (["a", "b", "c", "gone", "purged", "new"], list(folds), ["n/a.md", "/n/b.md", "gone.md", "new.md"])
        for within, keys, texts, paths in (
            (None, "a b c gone purged", "badger crane heron", {"n/a.md": 1, "/n/b.md": 1}),
            (Scope("ada"), "a c gone purged", "crane heron", {"n/a.md": 1}),
            (Scope(), "c", "crane", {}),
        ):
            results = store.joins.taken(*names, within)
            assert (sorted(results[0]), sorted(folds[fold] for fold in results[1])) == (keys.split(), texts.split())
            assert {path: count for path, count in results[2].items() if count} == paths

    def test_notes_are_stored_by_key(self, open_store: OpenStore, place: str, store: Store) -> None:
        store.notes.put("k", "one")
        store.notes.put("k\0'", "two \0 湖")
        other = open_store(place)
        assert (other.notes.get("k"), other.notes.get("k\0'"), other.notes.get("nobody")) == ("one", "two \0 湖", None)
        other.notes.put("k", "three")
        assert store.notes.get("k") == "three"
