"""The steps of `deploy/cluster`, run here without containers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from stores.postgres.test_deploy import Site, serving
from support.cluster import programs

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.web.access import Caller


@pytest.fixture(scope="module")
def coordinator() -> Iterator[Site]:
    """The coordinator of a cluster with two workers, made by the scripts that the containers run."""
    if (found := programs()) is None:
        pytest.skip("RECOLLECT_TEST_CITUS is a URL, and the scripts need the programs of a server")
    nodes: list[Site] = []
    try:
        for _ in range(3):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("HOME", "/nonexistent")  # where a server looks for certificates
                nodes.append(node := Site(found, shared_preload_libraries="citus", wal_level="logical"))
            with psycopg.connect(node.server.url(port=node.port), autocommit=True) as admin:
                admin.execute("ALTER ROLE postgres PASSWORD 'the admin''s'")
            node.make("cluster/citus.sh")
        nodes[0].make("main.sh", PGDATABASE="recollect")
        join(nodes)
        prepare(nodes[0])
        yield nodes[0]
    finally:
        for node in nodes:
            node.server.remove()


def join(nodes: list[Site]) -> None:
    """Make the servers one cluster."""
    nodes[0].run("cluster/join.sh", *(f"127.0.0.1:{node.port}" for node in nodes))


def prepare(coordinator: Site) -> None:
    """Make the tables as their owner."""
    place = f"postgresql://recollect_owner@127.0.0.1:{coordinator.port}/recollect"
    secret = str(coordinator.secrets / "owner")
    coordinator.run("prepare.sh", RECOLLECT_STORE=place, PASSWORD_FILE=secret, DISTRIBUTE="yes")


@pytest.mark.timeout(1200)
def test_two_services_in_front_of_one_cluster(coordinator: Site, tmp_path: Path) -> None:
    """What one adds, the other finds; a token sees its own scope and global records alone."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    callers = [Caller("ada", Scope("ada")), Caller("bob", Scope("bob")), Caller("owner", owner=True)]
    with serving(coordinator, folders[0], callers) as first, serving(coordinator, folders[1], callers) as second:
        assert first("ada").get("/healthz").json() == second("ada").get("/healthz").json() == {"status": "ok"}
        added = first("ada").post("/v1/records", json={"text": "An egret of ada's."})
        assert added.status_code == 201, added.text
        assert second("bob").post("/v1/records", json={"text": "An egret of bob's."}).status_code == 201
        assert second("owner").post("/v1/records", json={"text": "An egret of everybody's."}).status_code == 201
        for each in (first, second):
            for name in ("ada", "bob"):
                found = each(name).post("/v1/search", json={"query": "egret"}).json()["results"]
                texts = {result["text"] for result in found}
                assert texts == {f"An egret of {name}'s.", "An egret of everybody's."}
            assert each("bob").get(f"/v1/records/{added.json()['id']}").status_code == 404
            assert each("ada").get(f"/v1/records/{added.json()['id']}").json()["text"] == "An egret of ada's."


@pytest.mark.timeout(1200)
def test_scripts_run_again(coordinator: Site) -> None:
    """At each start, also with records: nothing changes. The role of the service owns nothing and sees no scope."""
    place = coordinator.url("recollect", "the service's")
    with Memory.open(place, settings=Settings(), embedder="hashing:64") as memory:
        memory.add("A plover of cyd's.", user="cyd")
    with psycopg.connect(coordinator.server.url(port=coordinator.port, database="recollect")) as admin:
        workers = admin.execute("SELECT nodeport FROM pg_dist_node WHERE groupid > 0").fetchall()
    coordinator.run(
        "cluster/join.sh", *(f"127.0.0.1:{port}" for port in (coordinator.port, *(port for (port,) in workers)))
    )
    prepare(coordinator)
    with Memory.open(place, settings=Settings(), embedder="hashing:64") as memory:
        assert len(memory.search("plover", user="cyd", sources=["keyword"]).results) == 1
    with psycopg.connect(place) as raw:
        assert raw.execute("SELECT count(*) FROM recollect.records").fetchone() == (0,)
        for forbidden in ("DELETE FROM recollect.migrations", "SELECT * FROM pg_dist_authinfo"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(forbidden)
            raw.rollback()
