"""Stores that an earlier version wrote still open, and no vector is lost.

That version kept the vectors of a store on object storage in LanceDB only. `before.tar.gz` holds two stores that it
wrote: one in a folder, and one in a bucket whose file has 2 of 14 vectors.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.errors import StoreError
from recollect.models.hashing import HashingEmbedder
from recollect.moving import copy
from recollect.stores import open_store

BEFORE = Path(__file__).with_name("before.tar.gz")
TEXTS = {f"o{i}": f"otter {i} by the river" for i in range(12) if i != 3} | {"h0": "heron at dawn", "h1": "a boat"}
EMBEDDER = "hashing:8"

Opened = Callable[..., Memory]


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The two stores."""
    with tarfile.open(BEFORE) as archive:
        archive.extractall(tmp_path / "before", filter="data")
    return tmp_path / "before"


@pytest.fixture
def bucket_url(before: Path, s3: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store in a bucket, on an S3 server that has its objects."""
    import boto3

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "tests")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    endpoint = f"http://127.0.0.1:{s3}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="recollect-before")
    objects = before / "bucket" / "objects"
    for file in objects.rglob("*"):
        if file.is_file():
            client.put_object(Bucket="recollect-before", Key=str(file.relative_to(objects)), Body=file.read_bytes())
    truth = before / "bucket" / "memory.db"
    return f"lancedb://s3://recollect-before/team?truth={truth}&endpoint={endpoint}&region=us-east-1&batch=5"


def vectors_of(path: Path) -> tuple[int, int]:
    """How many vectors the file has, and how many it lists as being in LanceDB only."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        counts = [connection.execute(f"SELECT count(*) FROM {name}").get for name in ("embeddings", "lance_held")]
        return counts[0], counts[1]
    finally:
        connection.close()


def assert_complete(memory: Memory, *, without: str | None = None) -> None:
    """Every record has the vector of its text, and is found by it."""
    texts = {key: text for key, text in TEXTS.items() if key != without}
    vectors = memory.embeddings.vectors(list(TEXTS))
    assert vectors.keys() == texts.keys()
    expected = dict(zip(texts, HashingEmbedder(8).passages(list(texts.values())), strict=True))
    assert all(np.array_equal(vectors[key], expected[key]) for key in texts)
    answer = memory.search("otter 5 by the river", sources=["vector"], user="ada", limit=20)
    assert {result.record.id: result.record.text for result in answer.results} == texts
    assert memory.status()["vectors"]["with"] == len(texts)


@pytest.mark.parametrize("eagerly", [False, True])
def test_folder_of_an_earlier_version_opens(opened: Opened, before: Path, request: Any, *, eagerly: bool) -> None:
    """All records are found by their vectors, also when LanceDB is queried for few candidates."""
    if eagerly:
        request.getfixturevalue("eager")
    memory = opened(f"lancedb://{before}/folder?batch=5", EMBEDDER)
    assert_complete(memory)
    assert len(memory.search("otter", sources=["vector"], limit=2, fetch_k=2).results) == 2
    assert memory.store.spaces.pending() == 2
    assert memory.embed() == 0


def test_vectors_only_in_a_bucket_are_copied_into_the_file(opened: Opened, before: Path, bucket_url: str) -> None:
    """At the first search; then the bucket is not needed."""
    file = before / "bucket" / "memory.db"
    assert vectors_of(file) == (2, 12)
    memory = opened(bucket_url, EMBEDDER)
    assert_complete(memory)
    assert memory.embed() == 0
    assert vectors_of(file) == (14, 0)
    memory.close()
    assert_complete(opened(file, EMBEDDER))


def test_read_only_store_reads_vectors_from_the_bucket(before: Path, bucket_url: str) -> None:
    """The file does not change."""
    file = before / "bucket" / "memory.db"
    content = file.read_bytes()
    memory = Memory(open_store(bucket_url, read_only=True), Settings(), EMBEDDER, announce=print)
    assert_complete(memory)
    with pytest.raises(StoreError, match="LanceDB only"), memory.store.contents.snapshot():
        pass
    memory.close()
    assert file.read_bytes() == content


def test_store_of_an_earlier_version_is_copied_with_all_vectors(
    opened: Opened, bucket_url: str, tmp_path: Path
) -> None:
    """Also if copying is the first operation."""
    copy(bucket_url, str(tmp_path / "plain.db"))
    assert_complete(opened(tmp_path / "plain.db", EMBEDDER))


@pytest.mark.ci
def test_unreachable_bucket_loses_nothing(
    opened: Opened, bucket_url: str, s3: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vector search fails with a reason, an add succeeds, and all works when the bucket is back."""
    monkeypatch.setenv("OBJECT_STORE_CLIENT_MAX_RETRIES", "0")
    away = opened(bucket_url.replace(f":{s3}", ":9"), EMBEDDER)
    away.add("added meanwhile", id="new")
    answer = away.search("otter 5")
    assert answer.results
    assert "cannot be used" in next(source.reason for source in answer.trace.sources if source.name == "vector")
    away.forget("new")
    away.close()
    assert_complete(opened(bucket_url, EMBEDDER))


def test_wrong_address_loses_nothing(opened: Opened, before: Path, bucket_url: str) -> None:
    """The file has the right address, and the error names it."""
    wrong = opened(bucket_url.replace("/team?", "/teem?"), EMBEDDER)
    answer = wrong.search("otter 5")
    assert "/team, not at" in next(source.reason for source in answer.trace.sources if source.name == "vector")
    wrong.close()
    assert vectors_of(before / "bucket" / "memory.db") == (2, 12)
    assert_complete(opened(bucket_url, EMBEDDER))


def test_purge_reaches_vectors_only_in_the_bucket(opened: Opened, before: Path, bucket_url: str) -> None:
    """No copy of the vector stays in the file, and all other vectors are there."""
    memory = opened(bucket_url, EMBEDDER)
    memory.forget("o7", purge=True)
    memory.close()
    file = before / "bucket" / "memory.db"
    (vector,) = HashingEmbedder(8).passages(["otter 7 by the river"])
    assert vector.astype("<f4").tobytes() not in file.read_bytes()
    assert vectors_of(file) == (13, 0)
    assert_complete(opened(file, EMBEDDER), without="o7")
