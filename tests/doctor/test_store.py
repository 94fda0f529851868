"""`doctor` on a store and its indexes, each really damaged, and the result of `--fix`."""

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.doctor import Finding
from recollect.stores.sqlite.health import steadily
from recollect.stores.sqlite.schema import MIGRATIONS
from recollect.stores.sqlite.segments import merged


@pytest.fixture(autouse=True)
def _embedder(monkeypatch):
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")


def found_by_words(path, text):
    """How many records a keyword search finds."""
    with Memory.open(path, embedder="none", settings=Settings()) as memory:
        return len(memory.search(text, limit=100, sources=["keyword"]).results)


def test_intact_store_is_unchanged(doctor, kept, untouched):
    """Every check passes, and no SQLite file appears beside the store."""
    untouched(kept.parent)
    told = doctor()
    assert (told.code, told.state) == (0, "ok")
    assert "40 records" in told["store"]["message"]
    assert "agrees" in told["keywords"]["message"]
    assert told["vectors"]["message"] == "all 40 records have a vector of hashing:64"


def test_store_in_use_is_checked_in_its_current_state(doctor, kept, open_memory, untouched):
    """Including another process's log, which is left alone."""
    other = open_memory(kept)
    other.add("a kingfisher")
    other.search("kingfisher")
    (kept.parent / "before").write_bytes(kept.read_bytes())
    told = doctor()
    assert (told.code, told.state) == (0, "ok")
    assert "41 records" in told["store"]["message"]
    assert kept.read_bytes() == (kept.parent / "before").read_bytes()
    other.add("a bittern")


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_truncated_store_is_a_failure(doctor, kept, untouched, share):
    """The advice is a backup; nothing is written even with --fix."""
    with kept.open("r+b") as file:
        file.truncate(int(kept.stat().st_size * share) // 4096 * 4096)
    untouched(kept.parent)
    for words in ([], ["--fix"]):
        told = doctor(*words)
        assert (told.code, told["store"]["state"]) == (3, "failure")
        assert "damaged" in told["store"]["message"]
        assert "backup" in told["store"]["mend"]


def test_overwritten_store_is_a_failure(doctor, kept):
    """SQLite's own check finds overwritten pages."""
    raw = bytearray(kept.read_bytes())
    raw[8192 : len(raw) - 8192] = random.Random(1).randbytes(len(raw) - 16384)
    kept.write_bytes(raw)
    told = doctor()
    assert (told.code, told["store"]["state"]) == (3, "failure")
    assert not any("check itself failed" in found["message"] for found in told.checks)


def test_what_is_not_a_store_is_named(doctor, path, untouched):
    """A text file, another program's database and a folder."""
    path.write_text("# Shopping\n" * 500)
    assert "not a Recollect store" in doctor()["store"]["message"]
    path.unlink()
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE bookmarks (url TEXT)")
    theirs.close()
    untouched(path.parent)
    assert "another program" in doctor("--fix")["store"]["message"]
    assert "is a folder" in doctor("--store", path.parent)["store"]["message"]
    assert doctor("--store", path.parent).code == 3


def test_store_of_a_newer_version_is_left_alone(doctor, kept, sql, untouched):
    """The advice is to upgrade."""
    sql(kept, f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    untouched(kept.parent)
    told = doctor("--fix")
    assert (told.code, told["store"]["mend"]) == (3, "pip install -U recollect-search")
    assert f"schema {len(MIGRATIONS) + 1}" in told["store"]["message"]
    assert told["keywords"]["message"].startswith("not checked")


def test_a_locked_store_is_reported_soon(doctor, kept):
    """A person waits: not as long as a writer waits for its turn."""
    code = (
        "import sqlite3, sys; other = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "other.execute('PRAGMA locking_mode=EXCLUSIVE'); other.execute('BEGIN IMMEDIATE')\n"
        "other.execute('DELETE FROM notes'); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(kept)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"locked\n"
        start = time.monotonic()
        told = doctor()
        assert time.monotonic() - start < 20
        other.stdin.close()
    assert (told.code, told["store"]["state"]) == (3, "failure")
    assert told["store"]["message"] == f"{kept} is locked by another process"


def test_store_of_an_older_version_is_a_note(doctor, path, sql):
    """The next command migrates it; doctor does not."""
    sql(path, *(MIGRATIONS[0][1], "PRAGMA application_id=0x52434C54; PRAGMA user_version=1"))
    told = doctor()
    assert (told.code, told["store"]["state"]) == (0, "note")
    assert "schema 1 of" in told["store"]["message"]


def test_impossible_place_is_a_failure(doctor):
    """An unknown kind, and a URL without a place; a password is not shown."""
    told = doctor("--store", "mysql://ada:secret@host/memory")
    assert told.code == 3
    assert told["store"]["message"].startswith(
        "unknown kind of store 'mysql'; available: sqlite, postgresql (recollect-search["
    )
    assert "secret" not in str(told.checks)
    assert "must name the file" in doctor("--store", "lancedb://s3://bucket/prefix")["store"]["message"]
    assert doctor("--store", "postgresql:/memory").worse() == {"settings"}
    assert doctor("--store", ":memory:").code == 0


def test_large_store_is_not_read_to_its_end(doctor, kept, monkeypatch):
    """What was not checked is reported so: here no time is allowed."""
    monkeypatch.setattr("recollect.stores.sqlite.health.LONGEST_S", -1.0)
    monkeypatch.setattr("recollect.stores.sqlite.health.STEPS", 1)
    told = doctor()
    assert (told.code, told["store"]["state"]) == (0, "note")
    assert "the rest was not read" in told["store"]["message"]
    assert "quick_check" in told["store"]["mend"]


def test_failure_during_writes_is_checked_again(kept, open_memory):
    """A failure counts only if the store did not change meanwhile."""
    looks = []

    def look():
        looks.append(1)
        if len(looks) == 1:
            open_memory(kept).add("a kingfisher")
        return [Finding("store", "failure" if len(looks) == 1 else "ok", "")]

    assert [found.state for found in steadily(kept, look)] == ["ok"]
    assert [found.state for found in steadily(kept, lambda: [Finding("store", "failure", "")])] == ["failure"]


ALTERED = {
    "a text": "UPDATE records SET text = replace(text, 'heron', 'hex0n') WHERE row = 7",
    "a letter's case": "UPDATE records SET text = upper(text) WHERE row = 7",
    "a title": "UPDATE records SET title = 'nothing was called so' WHERE row = 7",
    "a hash": "UPDATE records SET passage = randomblob(16) WHERE row = 7",
    "the other hash": "UPDATE records SET fold = randomblob(16) WHERE row = 7",
}


@pytest.mark.parametrize("what", ALTERED)
def test_altered_text_is_a_failure(doctor, kept, sql, what):
    """With its id and the advice to restore a backup; --fix does not change it."""
    sql(kept, ALTERED[what])

    def stored():
        with Memory.open(kept, embedder="none", settings=Settings()) as memory:
            (record,) = (record for record in memory.list(limit=100) if "number 6 " in record.text.lower())
            return record

    altered = stored()
    for words in ([], ["--fix"]):
        told = doctor(*words)
        assert (told.code, told["store"]["state"]) == (3, "failure")
        assert "1 record was changed outside Recollect" in told["store"]["message"]
        assert altered.id in told["store"]["message"]
        assert "backup" in told["store"]["mend"]
    assert stored() == altered


def test_changed_bytes_in_the_file_are_found(doctor, kept):
    """As by a bad disk: the page is well formed, so SQLite notices nothing."""
    raw = kept.read_bytes()
    assert raw.count(b"heron number 17 stands") == 1
    kept.write_bytes(raw.replace(b"heron number 17 stands", b"FAKED numbXr 17 stands"))
    told = doctor()
    assert (told.code, told["store"]["state"]) == (3, "failure")
    assert "was changed outside Recollect" in told["store"]["message"]


def test_forgotten_purged_and_edited_records_pass(doctor, kept):
    """A purged record has no text to compare; other alphabets are no damage."""
    with Memory.open(kept, embedder="none", settings=Settings()) as memory:
        first, second, third, *_ = memory.list()
        memory.forget(first.id)
        memory.forget(second.id, purge=True)
        memory.edit(third.id, text="Der Fuß \u0130stanbul \ufb01 \x00 end", title="Größe")
        memory.add("\ud55c\uad6d\uc5b4 e\u0301 \u1e9e")
    assert doctor("--embedder", "none").code == 0


def test_altered_chunks_are_restored_from_their_file(doctor, kept, sql, tmp_path):
    """By following the advice: the file is changed and indexed again."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("# Birds\n\nThe bittern booms in spring.\n")
    with Memory.open(kept, embedder="hashing:64", settings=Settings()) as memory:
        memory.index(notes)
    sql(kept, "UPDATE records SET text = replace(text, 'booms', 'sings') WHERE kind = 'chunk'")
    told = doctor()
    assert told["store"]["state"] == "failure"
    assert "a blank line is enough" in told["store"]["mend"]
    (notes / "a.md").write_text("# Birds\n\nThe bittern booms in spring.\n\n")
    with Memory.open(kept, embedder="hashing:64", settings=Settings()) as memory:
        memory.index(notes)
        assert [record.text for record in memory.list(kind="chunk")] == ["The bittern booms in spring."]
    assert doctor()["store"]["state"] == "ok"


def test_altered_text_does_not_stop_embed(kept, sql):
    """It stays without a vector; all others get theirs."""
    sql(kept, "UPDATE records SET passage = randomblob(16) WHERE row = 7")
    with Memory.open(kept, embedder="hashing:32", settings=Settings()) as memory:
        memory.embed()
        assert memory.status()["vectors"] == {"embedder": "hashing:32", "dimension": 32, "with": 39, "without": 1}


def test_empty_file_is_a_failure(doctor, path, untouched):
    """It may be the remains of a store; it stays empty, even with --fix."""
    path.touch()
    untouched(path.parent)
    for words in ([], ["--fix"]):
        told = doctor(*words)
        assert (told.code, told["store"]["state"]) == (3, "failure")
        assert "is empty" in told["store"]["message"]
        assert "backup" in told["store"]["mend"]
        assert told["keywords"]["message"] == "not checked: the store cannot be read"


# -- the keyword index --------------------------------------------------------------------------------------


def without(segment, count):
    """The segment without its first rows."""
    chosen = np.arange(len(segment)) >= count
    return merged([segment], [chosen], first=True)


DAMAGE = {
    "some rows are gone": (lambda segment: without(segment, 5), "5 records are not in it"),
    "all rows are gone": (None, "40 records are not in it"),
    "a row too many": (lambda segment: replace(segment, rows=segment.rows + 1), "not in it"),
    "a length is wrong": (lambda segment: replace(segment, length=segment.length + 70), "another number of words"),
    "its words are others'": (lambda segment: replace(segment, terms=segment.terms + 1), "does not have the words"),
}


def check_mended(doctor, kept, words):
    """A damaged index is a failure that --fix mends: after it every record is found by its words again."""
    told = doctor()
    assert (told.code, told["keywords"]["state"]) == (3, "failure")
    assert words in told["keywords"]["message"]
    assert told["store"]["state"] == "ok"
    assert "--fix" in told["keywords"]["mend"]
    mended = doctor("--fix")
    assert mended.code == 0
    assert mended["keywords"]["state"] == "ok"
    assert mended["keywords"]["fixed"] is True
    assert "building the keyword index" in mended.err
    assert "keywords: fixed" in mended.err
    assert found_by_words(kept, "heron") == 40
    again = doctor("--fix")
    assert "fixed" not in again["keywords"]


@pytest.mark.parametrize("name", DAMAGE)
def test_index_that_differs_from_the_records_is_found_and_rebuilt(doctor, kept, spoil, name):
    """Its files are whole, and say something else."""
    change, words = DAMAGE[name]
    spoil(change)
    check_mended(doctor, kept, words)


def test_damaged_file_of_the_index_is_found_and_rebuilt(doctor, kept, indexed):
    """One byte of it is another."""
    (segment,) = indexed.path.glob("*.segment")
    raw = bytearray(segment.read_bytes())
    raw[-100] ^= 1
    segment.write_bytes(raw)
    check_mended(doctor, kept, f"{segment.name} is damaged")


def test_lagging_index_is_a_note(doctor, kept, indexed):
    """It catches up before it answers; --fix does it now."""
    manifest = indexed.path / "manifest.json"
    before = manifest.read_bytes()
    with Memory.open(kept, embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many([{"text": f"a bittern {i}"} for i in range(10)])
        memory.search("bittern")
        manifest.write_bytes(before)  # as if this process had been killed before it was written
    told = doctor()
    assert (told.code, told["keywords"]["state"]) == (0, "note")
    assert doctor("--fix")["keywords"]["fixed"] is True


def test_index_of_another_analyzer_is_a_note(doctor, kept, indexed):
    """As after an upgrade that changed the analysis."""
    manifest = indexed.read()
    with indexed.writing():
        indexed.commit(replace(manifest, key=manifest.key._replace(analysis="another")))
    assert doctor()["keywords"]["state"] == "note"
    assert doctor("--fix")["keywords"]["state"] == "ok"
    assert found_by_words(kept, "heron") == 40


def test_store_never_written_to_passes(doctor, blank, path):
    """No record, no index, nothing to say."""
    path.write_bytes(blank.read_bytes())
    told = doctor()
    assert (told.code, told.state) == (0, "ok")


# -- vectors ------------------------------------------------------------------------------------------------


def test_missing_vectors_are_a_warning_and_computed(doctor, kept, sql):
    """With their number and the command; --fix does it."""
    sql(kept, "DELETE FROM embeddings WHERE number <= 7")
    told = doctor()
    assert (told.code, told["vectors"]["state"]) == (1, "warning")
    assert told["vectors"]["message"] == "7 of 40 records have no vector"
    assert told["vectors"]["mend"] == "recollect embed --embedder hashing:64"
    mended = doctor("--fix")["vectors"]
    assert (mended["state"], mended["fixed"]) == ("ok", True)
    assert mended["message"] == "all 40 records have a vector of hashing:64"


def test_vectors_of_another_model_are_a_warning(doctor, kept):
    """The old vectors stay; after --fix the configured model is used."""
    told = doctor("--embedder", "hashing:32")
    assert (told.code, told["vectors"]["state"]) == (1, "warning")
    assert told["vectors"]["message"] == (
        "searches use hashing:64, the settings say hashing:32: 40 records lack its vectors"
    )
    assert doctor("--embedder", "hashing:32", "--fix").code == 0
    with Memory.open(kept, embedder="hashing:32", settings=Settings()) as memory:
        assert memory.status()["vectors"]["embedder"] == "hashing:32"
    assert doctor()["vectors"]["message"] == (
        "searches use hashing:32, the settings say hashing:64: its vectors are there and do not answer"
    )


def test_advice_names_the_checked_store(doctor, kept, sql, tmp_path):
    """Flags that chose it are part of the command."""
    sql(kept, "DELETE FROM embeddings")
    other = tmp_path / "my other.db"
    other.write_bytes(kept.read_bytes())
    assert doctor("--store", other)["vectors"]["mend"] == f"recollect embed --embedder hashing:64 --store '{other}'"
    assert doctor()["vectors"]["mend"] == "recollect embed --embedder hashing:64"
    gone = doctor("--store", "gone.db")["store"]["mend"]
    assert gone == "recollect index FOLDER --store gone.db, or recollect add TEXT --store gone.db"


def test_vectors_are_not_sent_to_a_service_by_fix(doctor, kept, monkeypatch):
    """There is a command for it, but --fix does not run it."""
    monkeypatch.setenv("RECOLLECT_OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    told = doctor("--embedder", "openai:some-model", "--fix")
    assert told["vectors"]["state"] == "warning"
    assert "fixed" not in told["vectors"]
    assert told["vectors"]["mend"] == "recollect embed --embedder openai:some-model"
    assert (told["model"]["state"], "127.0.0.1:9" in told["model"]["message"]) == ("warning", True)


# -- files --------------------------------------------------------------------------------------------------


def test_changed_and_missing_files_are_counted(doctor, path, tmp_path, open_memory):
    """With the command that indexes their folder; --fix removes nothing."""
    folder = tmp_path / "my notes"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.md").write_text(f"# {name}\nsome text\n")
    with open_memory() as memory:
        memory.index(folder)
    assert doctor()["files"]["message"] == "all 3 are unchanged since they were indexed"
    (folder / "a.md").write_text("# a\nother text altogether\n")
    (folder / "b.md").unlink()
    os.utime(folder / "c.md", (1, 1))
    told = doctor("--fix")
    assert (told.code, told["files"]["state"]) == (1, "warning")
    assert told["files"]["message"] == "1 changed and 1 missing since they were indexed, of 3"
    assert told["files"]["mend"] == f"recollect index '{folder}'"
    with open_memory() as memory:
        memory.index(folder, user="ada")
    (folder / "a.md").unlink()
    assert doctor()["files"]["mend"] == f"recollect index '{folder}', with the flags that it was indexed with"


def test_files_that_cannot_be_read_need_permission(doctor, tmp_path, open_memory):
    """Indexing them again would not help. A link to itself cannot be read by root either."""
    note = tmp_path / "notes" / "a.md"
    note.parent.mkdir()
    note.write_text("# a\nsome text\n")
    with open_memory() as memory:
        memory.index(note.parent)
    note.unlink()
    note.symlink_to(note)
    told = doctor()
    assert told["files"]["message"] == "1 unreadable since they were indexed, of 1"
    assert told["files"]["mend"] == f"give yourself permission to read the files in {note.parent}"


# -- where nothing can be written ---------------------------------------------------------------------------

AS_NOBODY = """
import os, sys
import recollect.doctor, recollect.cli.maintenance, recollect.cli.queries, recollect.models.hashing
from recollect.cli import main
recollect.doctor.examine(recollect.doctor.Setup())  # loads what may be out of reach for whom it becomes
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
sys.exit(main(["doctor", "--json", "--store", *sys.argv[1:]]))
"""


@pytest.fixture
def as_nobody(monkeypatch):
    """Runs doctor in a process without write permission and without a home."""

    def run(place, *words):
        for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            monkeypatch.setenv(name, "/nowhere")
        command = [sys.executable, "-c", AS_NOBODY, place, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=60)

    return run


@pytest.mark.ci
def test_store_in_a_read_only_folder_is_a_warning(kept, sealed, as_nobody):
    """It can be searched but not written."""
    place = sealed(kept)
    ran = as_nobody(place)
    assert ran.returncode == 1, ran.stderr + ran.stdout
    assert "can be searched but not written" in ran.stdout
    assert "40 records" in ran.stdout
    assert [file.name for file in place.parent.iterdir()] == ["memory.db"]


@pytest.mark.ci
def test_fix_that_fails_is_reported(kept, sealed, spoil, as_nobody):
    """The finding stays, with the reason."""
    spoil()
    ran = as_nobody(sealed(kept), "--fix")
    assert ran.returncode == 3, ran.stderr
    assert "the fix failed" in ran.stdout
    assert '"fixed": false' in ran.stdout
    assert "Traceback" not in ran.stderr


@pytest.mark.ci
def test_unreadable_settings_folder_is_a_failure(kept, sealed, as_nobody, home):
    """It is named, and the other checks run."""
    place = sealed(kept)
    home.chmod(0o700)
    ran = as_nobody(place, "--config", home / "closed" / "config.toml")
    found = next(found for found in json.loads(ran.stdout)["checks"] if found["check"] == "settings")
    assert (ran.returncode, found["state"]) == (3, "failure")
    assert "closed" in found["message"]
    assert "40 records" in ran.stdout


def test_other_language_in_the_settings_is_a_note(doctor, settings, kept):
    """The command that changes the store's is named, and `--fix` does not run it."""
    settings('language = "german"\n')
    for words in ((), ("--fix",)):
        told = doctor(*words)
        assert told.code == 0
        note, index = told.all("keywords")
        assert (note["state"], note["mend"]) == ("note", "recollect language german")
        assert "language = 'german'" in note["message"]
        assert index["state"] == "ok"
