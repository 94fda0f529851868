"""`doctor` on a store with LanceDB: the checks of the file, and of the vectors beside it."""

from __future__ import annotations

import importlib.util
import shutil
from importlib.util import find_spec

import pytest

from recollect import Memory
from recollect.config import Settings

pytest.importorskip("lancedb")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A closed store, named by the settings, that commits every ten vectors, with forty records."""
    url = f"lancedb://{tmp_path}/store?batch=10"
    with Memory.open(url, embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many([{"text": f"the heron number {n} stands in the reeds"} for n in range(40)])
        memory.search("heron")
    monkeypatch.setenv("RECOLLECT_STORE", url)
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    return tmp_path / "store"


def test_intact_store_is_unchanged(doctor, place, untouched):
    """All checks pass, and LanceDB agrees with the file."""
    untouched(place)
    told = doctor()
    assert (told.code, told.state) == (0, "ok")
    assert "40 records" in told["store"]["message"]
    every, there = told.all("vectors")
    assert every["message"] == "all 40 records have a vector of hashing:64"
    assert there["message"] == f"40 of hashing:64 are at {place}/vectors"


def test_missing_store_is_a_note_and_not_created(doctor, tmp_path):
    """Not even a folder."""
    assert doctor("--store", f"lancedb://{tmp_path}/nowhere", "--fix")["store"]["state"] == "note"
    assert not (tmp_path / "nowhere").exists()


def test_missing_vectors_are_rebuilt(doctor, place):
    """From the file; checking alone does not create the folder."""
    shutil.rmtree(place / "vectors")
    found = doctor().all("vectors")[1]
    assert (found["state"], found["message"]) == (
        "warning",
        f"the vectors of hashing:64 at {place}/vectors are missing or damaged",
    )
    assert not (place / "vectors").exists()
    told = doctor("--fix")
    assert [found["fixed"] for found in told.all("vectors")] == [True, True]
    assert (place / "vectors").is_dir()


def test_many_pending_vectors_are_committed(doctor, place, monkeypatch):
    """A whole batch is pending if the last commit failed or LanceDB was not installed."""
    with Memory.open(place / "memory.db", embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many([{"text": f"a boat, number {n}"} for n in range(20)])
        memory.embed()
    found = doctor().all("vectors")[-1]
    assert found["state"] == "warning"
    assert "up to 20 vectors of hashing:64 are not in LanceDB yet" in found["message"]
    assert doctor("--fix").all("vectors")[-1]["message"] == f"60 of hashing:64 are at {place}/vectors"


def test_unreachable_bucket_is_a_failure_in_time(doctor, tmp_path, monkeypatch):
    """It does not wait for all retries."""
    monkeypatch.setattr("recollect.stores.lance.WAIT_S", 0.3)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "quiet")
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    with Memory.open(tmp_path / "memory.db", embedder="hashing:64", settings=Settings()) as memory:
        memory.add("a heron")
        memory.search("heron")
        state = '{"table": "vectors_1", "dataset": "s3://bucket/x", "number": 1, "version": 1}'
        with memory.store._database.write() as connection:
            connection.execute("INSERT INTO meta VALUES ('lance 1', ?)", (state,))
    url = f"lancedb://s3://bucket/x?truth={tmp_path}/memory.db&endpoint=http://127.0.0.1:9&region=eu"
    found = doctor("--store", url).all("vectors")[-1]
    assert found["state"] == "failure"
    assert "s3://bucket/x" in found["message"]
    assert "AWS_ACCESS_KEY_ID" in found["mend"]


@pytest.mark.parametrize(("url", "extra"), [("lancedb:///tmp/x", "lancedb"), ("postgresql://127.0.0.1:9", "postgres")])
def test_missing_package_is_reported(doctor, monkeypatch, url, extra):
    """With the extra to install, and the other checks still run."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "/" not in name else find_spec(name))
    told = doctor("--store", url)
    assert (told["extras"]["state"], told["extras"]["mend"]) == ("failure", f"pip install 'recollect-search[{extra}]'")
    assert told["versions"]["state"] == "ok"
