"""Workers that are killed, and a new one: nothing acknowledged is lost, and the errors say what to do."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster import Cluster, programs
from support.postgres import Server
from support.tally import note

from recollect import Memory
from recollect.config import Settings
from recollect.errors import RecollectError, StoreError
from recollect.stores.postgres.citus.layout import distribute

USERS = [f"user{number}" for number in range(8)]
NODES = """
    SELECT "user", nodeport FROM recollect.scopes JOIN pg_dist_placement
        ON shardid = get_shard_id_for_distribution_column('recollect.records', scope) JOIN pg_dist_node USING (groupid)
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster of the test's own."""
    with contextlib.closing(Cluster()) as cluster:
        yield cluster


def by_worker(cluster: Cluster) -> dict[Server, list[str]]:
    """The users whose records are on each worker."""
    places = dict(cluster.execute(NODES))
    return {
        worker: [str(user) for user, port in places.items() if user and port == cluster.ports[worker]]
        for worker in cluster.workers
    }


def test_killed_worker_concerns_its_own_users_alone(cluster: Cluster) -> None:
    """They get an error that says what to do; when it is back, all that was acknowledged is there."""
    distribute(cluster.url)
    with Memory.open(cluster.url, embedder="hashing:64", settings=Settings()) as memory:
        for user in USERS:
            memory.add(f"the heron of {user}", user=user)
        users = by_worker(cluster)
        down, up = (worker for worker in cluster.workers if users[worker])
        down.kill()
        for user in users[up]:
            assert len(memory.search("heron", user=user).results) == 1
            memory.add("a heron at dawn", user=user)
            memory.add("a heron at dusk", user=user, session="new")
        for user in users[down]:
            with pytest.raises(StoreError, match="a worker of the cluster does not answer") as refused:
                memory.add("a heron at dawn", user=user)
            assert "try again" in (refused.value.hint or "")
            with pytest.raises(RecollectError, match="a worker of the cluster does not answer"):
                memory.search("heron", user=user)
        down.start()
        for user in users[down]:
            assert [result.record.text for result in memory.search("heron", user=user).results] == [
                f"the heron of {user}"
            ]
            memory.add("a heron at dawn", user=user)
        for user in users[up]:
            found = {result.record.text for result in memory.search("heron", user=user, session="new").results}
            assert found == {f"the heron of {user}", "a heron at dawn", "a heron at dusk"}


def test_killed_worker_of_the_global_records_is_an_error_for_all_who_see_them(cluster: Cluster) -> None:
    """Nobody gets an answer that silently lacks them; records of a user elsewhere can be written and read by id."""
    distribute(cluster.url)
    with Memory.open(cluster.url, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("the heron of all")
        ids = {user: memory.add(f"the heron of {user}", user=user).id for user in USERS}
        users, port = by_worker(cluster), dict(cluster.execute(NODES))[None]
        (down,) = (worker for worker in cluster.workers if cluster.ports[worker] == port)
        (elsewhere, *_) = (user for worker, here in users.items() if worker is not down for user in here)
        down.kill()
        for user in USERS:
            with pytest.raises(RecollectError, match="a worker of the cluster does not answer"):
                memory.search("heron", user=user)
        memory.add("a heron at dawn", user=elsewhere)
        assert memory.get(ids[elsewhere]).text == f"the heron of {elsewhere}"
        down.start()
        found = {result.record.text for result in memory.search("heron", user=elsewhere).results}
        assert found == {"the heron of all", f"the heron of {elsewhere}", "a heron at dawn"}


@pytest.mark.parametrize(
    ("clients", "kills"), [pytest.param(3, 2, id="short"), pytest.param(8, 8, id="long", marks=pytest.mark.torture)]
)
@pytest.mark.timeout(1200)
def test_nothing_acknowledged_is_lost_to_killed_workers(cluster: Cluster, clients: int, kills: int) -> None:
    """Clients add records while workers are killed and come back. The indexes agree with the records after that."""
    distribute(cluster.url)
    stop = threading.Event()
    acknowledged: dict[str, list[str]] = {user: [] for user in USERS}
    refused: list[RecollectError] = []

    def add(number: int) -> None:
        with Memory.open(cluster.url, embedder="hashing:64", settings=Settings()) as memory:
            count = 0
            while not stop.is_set():
                user, count = USERS[(number + count) % len(USERS)], count + 1
                try:
                    acknowledged[user].append(memory.add(f"heron {number} {count}", user=user).id)
                except RecollectError as error:
                    refused.append(error)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for number in range(kills):
        time.sleep(7)
        worker = cluster.workers[number % len(cluster.workers)]
        worker.kill()
        time.sleep(1)
        worker.start()
    time.sleep(3)
    stop.set()
    for thread in threads:
        thread.join()
    cluster.execute("SELECT recover_prepared_transactions()")
    with Memory.open(cluster.url, embedder="hashing:64", settings=Settings()) as memory:
        for user, ids in acknowledged.items():
            stored = {record.id for record in memory.store.records.get(ids)}
            assert set(ids) - stored == set(), user
            memory.add("heron that comes last", user=user)
        held = cluster.execute("SELECT count(*) FROM recollect.records")
        assert held == cluster.execute("SELECT count(*) FROM recollect.ids")
        assert held == cluster.execute("SELECT count(*) FROM recollect.documents")
        assert held == cluster.execute("SELECT sum(records)::bigint FROM recollect.tallies")
    assert all("Traceback" not in str(error) for error in refused)
    count = sum(map(len, acknowledged.values()))
    assert count > kills * clients
    note("killed workers of a cluster", clients=clients, kills=kills, acknowledged=count, refused=len(refused), lost=0)


@pytest.mark.timeout(600)
def test_shards_move_to_a_new_worker_while_records_are_written(cluster: Cluster) -> None:
    """Searches and writes go on meanwhile, and find everything."""
    distribute(cluster.url)
    with Memory.open(cluster.url, embedder="hashing:64", settings=Settings()) as memory:
        for user in USERS:
            memory.add(f"the heron of {user}", user=user)
        cluster.add(new := cluster.start_node())
        cluster.execute("SELECT citus_rebalance_start()")
        count = 1
        while cluster.execute("SELECT 1 FROM citus_rebalance_status() WHERE state <> 'finished'"):
            count += 1
            for user in USERS:
                memory.add(f"heron number {count}", user=user)
                assert memory.search("heron", user=user).results
        moved = cluster.execute(f"SELECT count(*) FROM citus_shards WHERE nodeport = {cluster.ports[new]}")
        assert moved != [(0,)]
        for user in USERS:
            assert len(memory.search("heron", user=user, limit=10 * count).results) == count


def test_worker_that_does_not_answer_is_refused(cluster: Cluster) -> None:
    """Nothing is left half-made: when it answers, the store is distributed."""
    worker = cluster.workers[1]
    worker.kill()
    with pytest.raises(StoreError, match=f"{cluster.ports[worker]} does not answer"):
        distribute(cluster.url)
    worker.start()
    assert len(distribute(cluster.url).shards) == 2


def test_worker_without_pgvector_is_refused(tmp_path: Path) -> None:
    """The message names the worker."""
    root = programs().parents[4]
    shutil.copytree(root, tmp_path / "root", ignore=shutil.ignore_patterns("vector.control", "bitcode", "*.sgml"))
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o011)
    with contextlib.closing(Cluster(workers=1, extensions=("citus",))) as cluster:
        cluster.add(bare := cluster.start_node(tmp_path / "root" / programs().relative_to(root)))
        with pytest.raises(StoreError, match=f"{cluster.ports[bare]} has no pgvector"):
            distribute(cluster.url)


def test_extension_that_citus_does_not_know_is_refused() -> None:
    """An owner cannot bring it to the workers. The message says what an administrator can do, and then it works."""
    with contextlib.closing(Cluster(workers=1, extensions=("vector", "citus"))) as cluster:
        cluster.execute("CREATE ROLE owner LOGIN")
        cluster.execute("GRANT CREATE ON DATABASE postgres TO owner")
        place = cluster.url.replace("postgres@", "owner@", 1)
        with pytest.raises(StoreError, match="the extension vector was created before Citus") as refused:
            distribute(place)
        cluster.execute((refused.value.hint or "").partition(": ")[2])
        assert len(distribute(place).shards) == 1


def test_cluster_that_does_not_know_its_coordinator_is_refused(cluster: Cluster) -> None:
    """So is one without a node for records, and a worker in place of the coordinator."""
    worker = cluster.workers[0]
    with pytest.raises(StoreError, match="is a worker of the cluster"):
        distribute(worker.url(port=str(cluster.ports[worker])))
    for node in cluster.workers:
        cluster.execute(f"SELECT citus_remove_node('127.0.0.1', {cluster.ports[node]})")
    with pytest.raises(StoreError, match="has no node for the records"):
        distribute(cluster.url)
    cluster.execute(f"SELECT citus_remove_node('127.0.0.1', {cluster.ports[cluster.coordinator]})")
    with pytest.raises(StoreError, match="does not know the address of its coordinator"):
        distribute(cluster.url)
