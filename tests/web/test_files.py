"""Files over HTTP: a chunk shown in its file, and folders indexed again; no other file can be reached."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.types import Forget, Put, Scope

from .conftest import refused, until

LONG = "\n".join(
    f"# Part {number}\n\nLine {number} of the long file is about topic{number}.\n" for number in range(400)
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A server with one folder indexed for all, one for Ada, and one that may be indexed."""
    from .conftest import homes

    for home in homes(tmp_path_factory.mktemp("files")):
        notes, private, later = home.folder / "notes", home.folder / "private", home.folder / "later"
        for folder in (notes, private, later):
            folder.mkdir()
        (notes / "key.md").write_text("# Key\n\nThe spare key is under the blue pot.\n")
        (notes / "long.md").write_text(LONG)
        (private / "diary.md").write_text("# Diary\n\nAda likes the zebrafish best.\n")
        (later / "plan.md").write_text("# Plan\n\nBuy a boat.\n")
        common = ("--store", home.store, "--embedder", "hashing:64")
        assert home.run("index", notes, *common).returncode == 0
        assert home.run("index", private, "--user", "ada", *common).returncode == 0
        yield Place(home, home.serve("--folder", later))


class Place:
    """The server, its folders, and what is asked of it in the tests here."""

    def __init__(self, home, server):
        self.home, self.server, self.api = home, server, server.client()
        self.notes, self.private, self.later = (home.folder / name for name in ("notes", "private", "later"))

    def chunk(self, name, query, **options):
        found = self.api.post("/v1/search", json={"query": query, "kind": "chunk", "path": name, **options}).json()
        return found["results"][0]

    def index(self, **said):
        answer = self.api.post("/v1/index", json=said)
        assert answer.status_code == 202, answer.text
        assert answer.json()["state"] == "running"
        return until(lambda: self.api.get("/v1/index").json(), lambda job: job["state"] != "running")


def test_chunk_is_shown_in_its_file(place):
    """Its lines and those around them."""
    chunk = place.chunk("key.md", "spare key")
    told = place.api.get(f"/v1/file/{chunk['id']}").json()
    assert told == {
        "path": str(place.notes / "key.md"), "first_line": 1, "lines": chunk["lines"], "freshness": "fresh",
        "text": (place.notes / "key.md").read_text(), "total_lines": told["total_lines"],
    }  # fmt: skip


def test_part_of_a_long_file_is_shown(place):
    """Two hundred lines before and after, no more."""
    chunk = place.chunk("long.md", "topic200")
    told = place.api.get(f"/v1/file/{chunk['id']}").json()
    first, last = chunk["lines"]
    assert told["first_line"] == first - 200
    shown = told["text"].split("\n")
    assert len(shown) == last - first + 1 + 400
    assert shown == LONG.split("\n")[told["first_line"] - 1 :][: len(shown)]
    assert told["total_lines"] == len(LONG.splitlines())


def test_changed_or_missing_file_is_reported(place):
    """As it is now, or as it was indexed."""
    (place.notes / "moving.md").write_text("# Moving\n\nThe piano stands upstairs.\n")
    place.index(paths=[str(place.notes)])
    chunk = place.chunk("moving.md", "piano")
    (place.notes / "moving.md").write_text("# Moving\n\nThe piano stands downstairs now.\n")
    told = place.api.get(f"/v1/file/{chunk['id']}").json()
    assert (told["freshness"], "downstairs" in told["text"]) == ("changed", True)
    (place.notes / "moving.md").unlink()
    told = place.api.get(f"/v1/file/{chunk['id']}").json()
    assert (told["freshness"], told["text"], told["total_lines"]) == ("missing", chunk["text"], 0)
    assert told["lines"] == chunk["lines"]


BY_ROOT = pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root can read every file; run it as a user")


def test_related_notes_are_those_of_the_scope(place):
    """By id and by path; a note of another scope that links here is no backlink."""
    (place.private / "letter.md").write_text("# Letter\n\nThe spare [[key]], and [[nothing]].\n")
    flags = ("--user", "ada", "--store", place.home.store, "--embedder", "hashing:64")
    assert place.home.run("index", place.private, *flags).returncode == 0
    (place.notes / "copy.md").write_text((place.notes / "key.md").read_text())
    place.index(paths=[str(place.notes)])
    key = place.chunk("key.md", "spare key")
    for name in (key["id"], key["path"].replace("/", "%2F"), "notes/key.md"):
        answer = place.api.get(f"/v1/related/{name}", params={"limit": 2}).json()
        assert answer["id"] == key["id"]
        assert (answer["links"], answer["backlinks"], answer["unresolved"]) == ([], [], [])
        assert answer["similar"]
        assert not [note for note in answer["similar"] if note["path"].startswith(str(place.private))]
    (backlink,) = place.api.get("/v1/related/key.md", params={"user": "ada"}).json()["backlinks"]
    assert (backlink["title"], backlink["why"], backlink["line"]) == ("Letter", "line 3: [[key]]", 3)
    letter = place.api.get(f"/v1/related/{backlink['id']}").json()
    assert [note["id"] for note in letter["links"]] == [key["id"]]
    assert letter["unresolved"] == [{"link": "[[nothing]]", "line": 3}]
    assert place.api.get("/v1/related/key.md", params={"limit": 101}).status_code == 422


@pytest.mark.parametrize(
    "swapped", ["link", "folder link", "pipe", "folder", "private key", pytest.param("unreadable", marks=BY_ROOT)]
)
def test_what_replaced_an_indexed_file_is_not_opened(place, swapped):
    """A link to another file, an endless pipe, a folder: none is the file that was indexed."""
    folder = place.notes / f"swapped-{swapped.replace(' ', '-')}"
    folder.mkdir()
    file = folder / "trap.md"
    file.write_text(f"# Trap\n\nBait for {swapped}.\n")
    place.index(paths=[str(place.notes)])
    chunk = place.chunk(f"{folder.name}/trap.md", "bait")
    elsewhere = place.home.folder / f"secret-{folder.name}"
    elsewhere.mkdir()
    (elsewhere / "trap.md").write_text("TOP SECRET")
    file.unlink()
    if swapped == "link":
        file.symlink_to(elsewhere / "trap.md")
    elif swapped == "folder link":
        folder.rmdir()
        folder.symlink_to(elsewhere)
    elif swapped == "pipe":
        os.mkfifo(file)
    elif swapped == "folder":
        file.mkdir()
    elif swapped == "private key":
        file.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nTOP SECRET\n-----END OPENSSH PRIVATE KEY-----\n")
    else:
        file.write_text("TOP SECRET")
        file.chmod(0)
    answer = place.api.get(f"/v1/file/{chunk['id']}", timeout=5)
    try:
        assert "SECRET" not in answer.text
        assert answer.status_code in (200, 400, 503)
        if answer.status_code == 200:
            assert (answer.json()["freshness"], answer.json()["text"]) == ("missing", chunk["text"])
    finally:
        file.unlink() if file.is_symlink() or file.is_fifo() else None
        folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)


def test_path_in_a_fact_opens_no_file(place):
    """Anybody can write a path into a record: only files read by the indexer are opened."""
    home = place.home
    lines = [
        {"text": "Trust me.", "id": "liar", "path": "/etc/passwd", "lines": [1, 5]},
        {"text": "Me too.", "id": "chunky", "kind": "chunk", "path": "/etc/passwd", "lines": [1, 5]},
        {"text": "And me.", "id": "beside", "path": str(place.notes / "key.md"), "lines": [1, 3]},
    ]
    ran = subprocess.run(
        home.words("add", "-", "--store", home.store, "--embedder", "hashing:64"), env=home.environment, text=True,
        input="\n".join(map(json.dumps, lines)), capture_output=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for record_id in ("liar", "chunky", "beside"):
        answer = place.api.get(f"/v1/file/{record_id}")
        refused(answer, 400, "usage")
        assert "root:" not in answer.text
        assert "blue pot" not in answer.text
    refused(place.api.post("/v1/records", json={"text": "x", "path": "/etc/passwd"}), 422, "invalid")
    refused(place.api.post("/v1/records", json={"text": "x", "kind": "chunk"}), 422, "invalid")


def test_chunk_cannot_be_edited(place):
    """It mirrors its file; its creation cannot be undone either."""
    chunk = place.chunk("key.md", "spare key")
    error = refused(place.api.patch(f"/v1/records/{chunk['id']}", json={"text": "x"}), 400, "usage")
    assert "edit the file" in error["hint"]
    refused(place.api.post("/v1/undo", json={"id": chunk["id"]}), 400, "usage")


def test_indexed_folder_can_be_indexed_again(place):
    """Whole, in part, or all folders; the report lists the outcome."""
    (place.notes / "new.md").write_text("# New\n\nA walrus moved in.\n")
    job = place.index(paths=[str(place.notes)])
    assert job["state"] == "done"
    assert job["paths"] == [str(place.notes)]
    assert str(place.notes / "new.md") in job["report"]["added"]
    assert {"added", "changed", "removed", "unchanged", "skipped", "embedded"} <= set(job["report"])
    assert (job["error"], job["done"] > 0, job["took_ms"] > 0) == (None, True, True)
    assert job["started_at"].endswith("Z")
    assert place.chunk("new.md", "walrus")
    (place.notes / "new.md").unlink()
    every = place.index()
    assert set(every["paths"]) == {str(place.notes), str(place.private), str(place.later)}
    assert every["report"]["removed"] == [str(place.notes / "new.md")]
    assert str(place.later / "plan.md") in place.api.get("/v1/file/" + place.chunk("plan.md", "boat")["id"]).text


def test_a_dry_run_changes_nothing(place):
    """It reports what a run would do."""
    (place.notes / "dry.md").write_text("# Dry\n\nA camel moved in.\n")
    job = place.index(paths=[str(place.notes)], dry_run=True)
    assert job["report"]["dry_run"] is True
    assert str(place.notes / "dry.md") in job["report"]["added"]
    assert place.api.get("/v1/records?path=dry.md").json()["records"] == []
    (place.notes / "dry.md").unlink()


def test_indexing_again_keeps_the_scope(place):
    """Ada's folder stays Ada's, although the owner ran the index."""
    (place.private / "diary.md").write_text("# Diary\n\nAda likes the zebrafish best, and the newt.\n")
    for said in ({"paths": [str(place.private)]}, {}):
        assert place.index(**said)["state"] == "done"
        assert place.api.get("/v1/records?path=diary.md").json()["records"] == []
        (kept,) = place.api.get("/v1/records?path=diary.md&user=ada").json()["records"]
        assert kept["scope"] == {"user": "ada"}
    assert "newt" in kept["text"]
    (place.private / "inner").mkdir()
    (place.private / "inner" / "more.md").write_text("# More\n\nAda also likes the axolotl.\n")
    place.index(paths=[str(place.private / "inner")])
    assert place.api.get("/v1/records?path=more.md").json()["records"] == []
    assert place.api.get("/v1/records?path=more.md&user=ada").json()["records"]


def test_folder_of_several_scopes_is_not_indexed(place):
    """The scope of its new files is unknown; a missing folder is skipped too, and the rest is indexed."""
    place.home.run("folders", "remove", place.later, "--store", place.home.store)  # which another test has indexed
    mixed = place.later / "mixed"
    for name in ("ada", "bob"):
        (mixed / name).mkdir(parents=True)
        (mixed / name / "note.md").write_text(f"# Note\n\nOf {name}.\n")
        common = ("--store", place.home.store, "--embedder", "hashing:64", "--user", name)
        assert place.home.run("index", mixed / name, *common).returncode == 0
    gone = str(place.later / "gone")
    job = place.index(paths=[str(mixed), gone, str(place.notes)])
    assert job["state"] == "done"
    assert "with other options" in job["report"]["skipped"][str(mixed)]
    assert job["report"]["skipped"][gone] == "not there"
    assert job["report"]["unchanged"] > 0
    for name in ("ada", "bob"):
        (kept,) = place.api.get("/v1/records", params={"path": f"{name}/note.md", "any_scope": True}).json()["records"]
        assert kept["scope"] == {"user": name}
    shutil.rmtree(mixed)


@pytest.mark.parametrize(
    "path",
    ["/", "/etc", "~", "~root", "{notes}/..", "{notes}/../..", "{notes}/../private/../..", "{notes}-other", "..", ".",
     "", "{notes}/link", "\x00", "relative", "{notes}/" + "x/" * 300, "file://{notes}"],
)  # fmt: skip
def test_other_folders_are_not_indexed(place, path):
    """403, however the path is written; no run begins."""
    link = place.notes / "link"
    if not link.is_symlink():
        link.symlink_to("/etc")
    (place.home.folder / "notes-other").mkdir(exist_ok=True)
    before = place.api.get("/v1/index").json()
    answer = place.api.post("/v1/index", json={"paths": [path.format(notes=place.notes)]})
    if "x/x/" in path:  # inside, and not there: that is found out on the way
        assert answer.status_code in (202, 403)
        until(lambda: place.api.get("/v1/index").json(), lambda job: job["state"] != "running")
        return
    refused(answer, 403, "forbidden")
    assert place.api.get("/v1/index").json() == before


def test_one_forbidden_folder_refuses_the_request(place):
    """The other folders are not indexed either."""
    refused(place.api.post("/v1/index", json={"paths": [str(place.notes), "/etc"]}), 403, "forbidden")
    for said in ({"paths": "x"}, {"paths": [5]}, {"dry_run": "maybe"}, {"confirm": True}, {"paths": ["x"] * 101}, []):
        refused(place.api.post("/v1/index", json=said), 422, "invalid")


@pytest.mark.ci
def test_only_one_index_run_at_a_time(place):
    """The second request is refused; the first reports its progress."""
    busy = place.notes / "busy"
    busy.mkdir()
    for number in range(1500):
        (busy / f"{number}.md").write_text(f"# N{number}\n\n" + f"Word{number} and more of them.\n" * 20)
    first = place.api.post("/v1/index", json={"paths": [str(busy)]})
    second = place.api.post("/v1/index", json={})
    error = refused(second, 409, "busy")
    assert "/v1/index" in error["hint"]
    assert first.json()["state"] == "running"
    seen = []
    until(lambda: place.api.get("/v1/index").json(), lambda job: seen.append(job) or job["state"] != "running", 60)
    assert seen[-1]["state"] == "done"
    assert any(0 < job["done"] < job["total"] for job in seen)
    shutil.rmtree(busy)
    until(lambda: place.api.post("/v1/index", json={"paths": [str(place.notes)]}).status_code, (202).__eq__)


def indexed(api):
    """A run of all folders to its end, and its report."""
    assert api.post("/v1/index", json={}).status_code == 202
    return until(lambda: api.get("/v1/index").json(), lambda job: job["state"] != "running")["report"]


def test_scoped_caller_cannot_keep_a_folder_out_of_the_index(home):
    """A chunk id cannot be computed from path, text and user."""
    notes = home.folder / "notes"
    notes.mkdir()
    for name, text in (("todo.md", "Buy milk."), ("other.md", "The harbour closes at nine.")):
        (notes / name).write_text(text)
    name = "\0".join((str(notes / "todo.md"), "Buy milk.", "1", "user", "bob"))
    ada = home.token("ada", "--user", "ada")
    server = home.serve()
    computed = hashlib.blake2b(name.encode(), digest_size=12).hexdigest()
    assert server.client(ada).post("/v1/records", json={"id": computed, "text": "squatted"}).status_code == 201
    ran = home.run("index", notes, "--user", "bob", "--store", home.store, "--embedder", "none", "--json")
    assert (ran.returncode, len(json.loads(ran.stdout)["added"])) == (0, 2)


def test_indexing_again_restores_the_scope_and_skips_refused_files(home):
    """A file with a wrong scope gets the right one; one that cannot be stored is named."""
    notes = home.folder / "notes"
    notes.mkdir()
    for name in "abc":
        (notes / f"{name}.md").write_text(f"The harbour of {name}.")
    with Memory.open(home.store, embedder="none", settings=Settings()) as memory:
        memory.index(notes, user="bob")
        left, taken = (memory.store.files.chunks(str(notes / f"{name}.md"))[0] for name in "ab")
        memory.store.records.apply([[Put(replace(left, id="left", scope=Scope())), Forget(left.id, purge=True)]])
        (notes / "b.md").write_text("Nothing.")
        memory.index(notes / "b.md", user="bob")
        memory.add("squatted", id=taken.id, user="ada")
    (notes / "b.md").write_text("The harbour of b.")
    owner, ada = home.token("owner", "--owner"), home.token("ada", "--user", "ada")
    server = home.serve()
    report = indexed(server.client(owner))
    assert report["rescoped"] == [str(notes / "a.md")]
    assert report["skipped"][str(notes / "b.md")].startswith("not stored: the id")
    found = server.client(ada).post("/v1/search", json={"query": "harbour"}).json()["results"]
    assert [result["text"] for result in found if result["kind"] == "chunk"] == []


def test_indexing_without_folders_is_an_error(server, api):
    """400 with a hint; before that the job is idle."""
    if api.get("/v1/facets").json()["roots"]:
        pytest.skip("another test has indexed something")
    assert api.get("/v1/index").json()["state"] == "idle"
    refused(api.post("/v1/index", json={}), 400, "usage")


def test_missing_folder_is_refused_at_startup(home):
    """Exit code 2, with its name."""
    ran = home.run("serve", "--port", "0", "--folder", Path("nowhere"))
    assert ran.returncode == 2
    assert "nowhere" in ran.stderr


def test_scoped_caller_sees_a_file_as_it_was_indexed(home):
    """Text written since then was not indexed for its scope; the owner sees the current file."""
    note = home.folder / "notes" / "note.md"
    note.parent.mkdir()
    note.write_text("# Piano\n\nThe piano stands upstairs.\n")
    ran = home.run("index", note.parent, "--user", "ada", "--store", home.store, "--embedder", "hashing:64")
    assert ran.returncode == 0, ran.stderr
    ada, owner = home.token("ada", "--user", "ada"), home.token("owner", "--owner")
    server = home.serve()
    clients = {"ada": server.client(ada), "owner": server.client(owner)}
    (chunk,) = clients["ada"].get("/v1/records").json()["records"]
    shown = clients["ada"].get(f"/v1/file/{chunk['id']}").json()
    assert (shown["freshness"], shown["text"]) == ("fresh", note.read_text())
    note.write_text("# Piano\n\nThe safe opens with 4711.\n")
    shown = clients["ada"].get(f"/v1/file/{chunk['id']}").json()
    assert (shown["freshness"], shown["text"], shown["total_lines"]) == ("changed", chunk["text"], 0)
    assert shown["lines"] == chunk["lines"]
    shown = clients["owner"].get(f"/v1/file/{chunk['id']}").json()
    assert (shown["freshness"], "4711" in shown["text"]) == ("changed", True)


def test_file_with_only_a_new_time_is_shown(home):
    """Its modification time differs, its content does not."""
    note = home.folder / "note.md"
    note.write_text("# Piano\n\nThe piano stands upstairs.\n")
    ran = home.run("index", note, "--user", "ada", "--store", home.store, "--embedder", "hashing:64")
    assert ran.returncode == 0, ran.stderr
    os.utime(note, (1, 1))
    client = home.serve("--user", "ada").client()
    (chunk,) = client.get("/v1/records").json()["records"]
    shown = client.get(f"/v1/file/{chunk['id']}").json()
    assert (shown["freshness"], shown["text"]) == ("fresh", note.read_text())
