"""LanceDB on object storage: the file has every vector, and a machine with a copy of the file can search."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from recollect import Memory
from recollect.errors import StoreError
from recollect.models.hashing import HashingEmbedder
from recollect.moving import copy
from recollect.stores.lance import table
from recollect.testing import StoreContract
from recollect.types import Filter

Opened = Callable[..., Memory]
OnS3 = Callable[..., str]


def found(memory: Memory, query: str, **options: Any) -> list[str]:
    """The texts that a vector search finds."""
    return [result.record.text for result in memory.search(query, sources=["vector"], **options).results]


def in_file(path: Path) -> int:
    """How many vectors are in the file."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute("SELECT count(*) FROM embeddings").get)
    finally:
        connection.close()


@pytest.fixture
def objects(s3: int, bucket: str) -> Any:
    """The bucket, read by a different client than LanceDB's."""
    import boto3

    return boto3.resource("s3", endpoint_url=f"http://127.0.0.1:{s3}", region_name="us-east-1").Bucket(bucket).objects


def holds(objects: Any, vector: Any) -> bool:
    """Whether the bytes of a vector are in any file; Lance stores floats as they are."""
    return any(vector.tobytes() in part.get()["Body"].read() for part in objects.all())


READER = """
import json, sys
from recollect import Memory
from recollect.config import Settings
from recollect.stores import open_store
memory = Memory(open_store(sys.argv[1], read_only=True), Settings(), "hashing:64", announce=print)
answers = [memory.search(question, sources=["vector"], limit=40).results for question in sys.argv[2:]]
told = [[(result.record.id, result.similarity) for result in results] for results in answers]
print(json.dumps([memory.status()["vectors"]["with"], told]))
"""


@pytest.mark.ci
@pytest.mark.usefixtures("eager")
def test_machine_with_a_copy_of_the_file_can_search(opened: Opened, on_s3: OnS3, path: Path, tmp_path: Path) -> None:
    """A separate process with a read-only copy of the file gives the writer's answers."""
    memory, plain = opened(on_s3(path)), opened(tmp_path / "plain.db")
    for one in (memory, plain):
        one.add_many({"text": f"otter {i} by river {i % 7}", "id": f"o{i}"} for i in range(500))
        one.forget("o3")
        one.add_many({"text": f"heron {i}", "id": f"h{i}"} for i in range(5))
    assert in_file(path) == 505
    assert memory.store.spaces.pending() < 20
    there = tmp_path / "there.db"
    memory.close()
    shutil.copy(path, there)
    queries = ("otter 3 by river 3", "heron 4", "river")
    command = [sys.executable, "-c", READER, on_s3(there), *queries]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    covered, answers = json.loads(done.stdout.splitlines()[-1])
    assert covered == 504
    expected = [
        [[r.record.id, r.similarity] for r in plain.search(q, sources=["vector"], limit=40).results] for q in queries
    ]
    assert answers == expected


@pytest.mark.usefixtures("eager")
def test_older_copy_of_the_file_works_with_newer_vectors(
    opened: Opened, on_s3: OnS3, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It returns exactly the records it has, even if its version of the table is deleted."""
    monkeypatch.setattr(table, "KEPT_VERSIONS", timedelta(milliseconds=1))
    memory = opened(on_s3(path))
    memory.add_many({"text": f"otter {i}"} for i in range(60))
    older = path.with_name("older.db")
    backup(path, older)
    reader = opened(on_s3(older))
    before = found(reader, "otter 7", limit=20)
    memory.add_many({"text": f"otter again {i}"} for i in range(60))
    memory.embed()
    assert found(reader, "otter 7", limit=20) == before
    assert len(found(reader, "otter again 7", limit=99, fetch_k=99)) == 60
    assert len(found(memory, "otter again 7", limit=99, fetch_k=200)) == 99


def backup(source: Path, target: Path) -> None:
    """Copy a file that is in use."""
    connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
    connection.execute("VACUUM INTO ?", (str(target),))
    connection.close()


def test_file_has_every_vector(opened: Opened, on_s3: OnS3, path: Path) -> None:
    """No vector is computed twice, and the bits are unchanged."""
    embedder = HashingEmbedder(64)
    memory = opened(on_s3(path))
    memory.add_many({"text": f"otter {i}", "id": f"o{i}"} for i in range(30))
    memory.embed()
    index = memory.store.spaces.open(memory.store.spaces.active)
    assert index.known(["otter 3", "nobody"]) == {"otter 3"}
    assert index.missing(9) == []
    assert np.array_equal(index.vectors(["o3"])["o3"], embedder.passages(["otter 3"])[0])
    assert in_file(path) == 30
    memory.add("otter 3", user="ada")
    assert in_file(path) == 30


@pytest.mark.ci
def test_purge_reaches_object_storage(opened: Opened, on_s3: OnS3, path: Path, objects: Any) -> None:
    """No object contains the vector any more, and all others are found."""
    memory = opened(on_s3(path))
    memory.add("a most private matter", id="secret")
    memory.add_many({"text": f"otter {i}"} for i in range(30))
    (vector,) = memory.embeddings.vectors(["secret"]).values()
    assert holds(objects, vector)
    memory.forget("secret", purge=True)
    assert not holds(objects, vector)
    assert len(found(memory, "otter", limit=40)) == 30


@pytest.mark.usefixtures("eager")
def test_wrong_address_loses_nothing(opened: Opened, on_s3: OnS3, path: Path) -> None:
    """The error names the right address, and the store works with that."""
    memory = opened(on_s3(path))
    memory.add_many({"text": f"otter {i}"} for i in range(30))
    memory.close()
    wrong = opened(on_s3(path).replace("/team?", "/teem?"))
    index = wrong.store.spaces.open(wrong.store.spaces.active)
    with pytest.raises(StoreError, match=r"/team, not at .*/teem"):
        index.search(HashingEmbedder(64).query("otter"), Filter(), 5)
    answer = wrong.search("otter 3", limit=5, fetch_k=5)
    assert answer.results
    assert answer.trace.sources[1].status != "ok"
    assert len(found(opened(on_s3(path)), "otter", limit=40)) == 30


@pytest.mark.usefixtures("eager")
def test_lost_table_is_rebuilt_from_the_file(opened: Opened, on_s3: OnS3, path: Path, objects: Any) -> None:
    """After the prefix was emptied, the next search rebuilds it without embedding."""
    memory = opened(on_s3(path))
    memory.add_many({"text": f"otter {i}"} for i in range(50))
    objects.delete()
    again = opened(on_s3(path))
    assert len(found(again, "otter", limit=20)) == 20
    assert again.embed() == 0
    assert len(found(again, "otter", limit=50)) == 50
    assert any(objects.all())


def test_store_is_copied_in_and_out(opened: Opened, on_s3: OnS3, path: Path, tmp_path: Path) -> None:
    """Every vector is copied without loss, to LanceDB and back."""
    plain = opened(tmp_path / "plain.db")
    plain.add_many({"text": f"otter {i}", "id": f"o{i}"} for i in range(60))
    there = opened(on_s3(path))
    for _ in range(2):
        copy(plain.store, there.store)
    assert in_file(path) == 60
    back = opened(tmp_path / "back.db")
    copy(there.store, back.store)
    keys = [f"o{i}" for i in range(60)]
    assert back.embed() == 0
    here, home = plain.embeddings.vectors(keys), back.embeddings.vectors(keys)
    assert all(np.array_equal(here[key], home[key]) for key in keys)


@pytest.mark.ci
@pytest.mark.usefixtures("eager")
def test_unreachable_storage_leaves_keyword_search(opened: Opened, path: Path, on_s3: OnS3, monkeypatch: Any) -> None:
    """The trace has the reason; adds succeed, and no vector is lost."""
    memory = opened(on_s3(path))
    memory.add_many({"text": f"otter {i}"} for i in range(30))
    before = in_file(path)
    memory.close()
    monkeypatch.setenv("OBJECT_STORE_CLIENT_MAX_RETRIES", "0")
    away = opened(on_s3(path, endpoint="http://127.0.0.1:9"))
    away.add("heron at dawn")
    answer = away.search("otter 3", limit=5, fetch_k=5)
    assert answer.results[0].record.text == "otter 3"
    vector = next(source for source in answer.trace.sources if source.name == "vector")
    assert "cannot be used" in vector.reason
    assert in_file(path) == before + 1


@pytest.mark.torture
@pytest.mark.usefixtures("eager")
class TestContract(StoreContract):
    """The store contract with LanceDB's table in a bucket."""

    @pytest.fixture
    def new_place(self, tmp_path: Path, on_s3: OnS3) -> Callable[[], str]:
        """A new file at each call; all share one prefix."""
        counter = itertools.count()
        return lambda: on_s3(tmp_path / f"store-{next(counter)}.db", batch=3)
