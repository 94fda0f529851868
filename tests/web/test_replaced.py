"""A server whose store was deleted or replaced reports it and acknowledges no further change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings


def delete(store: Path) -> None:
    for end in ("", "-wal", "-shm"):
        Path(f"{store}{end}").unlink(missing_ok=True)


def replace(store: Path) -> None:
    delete(store)
    with Memory.open(store, embedder="none", settings=Settings()) as memory:
        memory.add("Of another store.")


def overwrite(store: Path) -> None:
    other = store.with_name("other.db")
    with Memory.open(other, embedder="none", settings=Settings()) as memory:
        memory.add("Of another store.")
    shutil.copyfile(other, store)


@pytest.mark.parametrize("change", [delete, replace, overwrite])
def test_missing_store_is_503_on_every_route(home, change):
    """Writing, searching, reading and health; the error says what to do."""
    server = home.serve()
    client = server.client()
    assert client.post("/v1/records", json={"text": "The spare key is under the pot."}).status_code == 201
    assert client.post("/v1/search", json={"query": "key"}).json()["results"]
    assert client.get("/healthz").status_code == 200
    change(home.store)
    for _ in range(2):
        refused = client.post("/v1/records", json={"text": "This must not be acknowledged."})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "store"
        assert "process" in refused.json()["error"]["hint"]
        assert client.post("/v1/search", json={"query": "key"}).status_code == 503
        assert client.get("/v1/records").status_code == 503
        health = client.get("/healthz")
        assert (health.status_code, health.json()["status"] != "ok") == (503, True)
        assert str(home.store) not in health.text
    assert server.end() == 0
    assert "Traceback" not in "".join(server.errors)
