"""Workers that are killed, and a new one: nothing acknowledged is lost, and the errors say what to do."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.cluster import Cluster, programs
from support.postgres import GRANTS, Server
from support.tally import note

from recollect import Memory
from recollect.config import Settings
from recollect.errors import Forbidden, RecollectError, StoreError
from recollect.stores.postgres.citus.database import LOOK_SECONDS, NOT_SEARCHED
from recollect.stores.postgres.citus.layout import distribute
from recollect.types import Answer, Filter, Scope

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


def worker_of_the_global_records(cluster: Cluster) -> tuple[Server, list[str]]:
    """The worker that has the records without a user, and users whose records are on another one."""
    users, port = by_worker(cluster), dict(cluster.execute(NODES))[None]
    (down,) = (worker for worker in cluster.workers if cluster.ports[worker] == port)
    return down, [user for worker, here in users.items() if worker is not down for user in here]


def texts(memory: Memory, query: str, **options: Any) -> set[str]:
    return {result.record.text for result in memory.search(query, **options).results}


def test_killed_worker_of_the_global_records_does_not_end_searches_of_users_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Their own records are found, with a warning; who can see nothing else gets an error, and never an empty list."""
    distribute(cluster.url)
    with Memory.open(cluster.url, embedder="hashing:64", settings=Settings()) as memory:
        shared = memory.add("the heron of all").id
        memory.add("the heron of an agent", agent="planner")
        ids = {user: memory.add(f"the heron of {user}", user=user).id for user in USERS}
        down, elsewhere = worker_of_the_global_records(cluster)
        user, view = elsewhere[0], memory.within(Scope(elsewhere[0], "planner"))
        every = {"the heron of all", "the heron of an agent", f"the heron of {user}"}
        assert texts(view, "heron") == every
        down.kill()
        for asked in (memory, view):
            for sources in (["keyword"], ["vector"], None):
                answer = asked.search("heron", user=user, agent="planner", sources=sources)
                assert [result.record.id for result in answer.results] == [ids[user]]
                assert answer.trace.warnings == (NOT_SEARCHED,)
                assert {source.status for source in answer.trace.sources} == {"ok"}
        alone = memory.search("heron", user=user, sources=["keyword"])
        assert NOT_SEARCHED in view.recall("heron").warnings
        for scope in ({}, {"user": "nobody"}, {"agent": "planner"}, {"any_scope": True}):
            with pytest.raises(RecollectError, match="a worker of the cluster does not answer") as refused:
                memory.search("heron", **scope)
            assert "try again" in (refused.value.hint or "")
        memory.add("a heron at dawn", user=user)
        memory.edit(ids[user], text=f"the grey heron of {user}")
        assert memory.get(ids[user]).text == f"the grey heron of {user}"
        assert memory.history(ids[user])[-1].action == "update"
        for refuses in (
            lambda: memory.add("a heron of all"),
            lambda: memory.get(shared),
            lambda: memory.list(user=user),
            lambda: memory.why_not("heron", ids[user], user=user),
        ):
            with pytest.raises(RecollectError, match="a worker of the cluster does not answer"):
                refuses()
        down.start()
        wait_until(
            lambda: (
                texts(memory, "heron", user=user)
                == {"the heron of all", f"the grey heron of {user}", "a heron at dawn"}
            )
        )
        answer = memory.search("heron", user=user, agent="planner")
        assert (len(answer.results), answer.trace.warnings) == (4, ())
    with Memory.open(tmp_path / "alone.db", embedder="hashing:64", settings=Settings()) as single:
        single.add(f"the heron of {user}", user=user)
        expected = single.search("heron", user=user, sources=["keyword"])
    assert alone.results[0].shares == expected.results[0].shares, "its statistics are of what it has read"


def test_role_of_a_service_sees_its_scope_alone_while_the_worker_of_the_global_records_is_down(
    cluster: Cluster,
) -> None:
    """Row-level security holds for what can be reached, too."""
    distribute(cluster.url)
    with Memory.open(cluster.url, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("the heron of all")
        for user in USERS:
            memory.add(f"the heron of {user}", user=user)
    down, (user, other, *_) = worker_of_the_global_records(cluster)
    cluster.execute("CREATE ROLE service LOGIN")
    for statement in filter(str.strip, GRANTS.format(schema="recollect", role="service").split(";")):
        cluster.execute(statement)
    place = cluster.url.replace("postgres@", "service@", 1)
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        view = memory.within(Scope(user))
        assert texts(view, "heron") == {"the heron of all", f"the heron of {user}"}
        down.kill()
        answer = view.search("heron")
        assert [result.record.text for result in answer.results] == [f"the heron of {user}"]
        assert answer.trace.warnings == (NOT_SEARCHED,)
        key = view.add("a heron at dawn").id
        view.edit(key, text="a heron at noon")
        newer = view.supersede(key, text="a heron at dusk").id
        view.undo(newer)
        view.forget(key)
        view.undo(key)
        assert (view.get(key).text, len(view.history(key))) == ("a heron at noon", 8)
        with pytest.raises(Forbidden):
            view.search("heron", user=other)
        down.start()
        wait_until(lambda: len(view.search("heron").results) == 3)


def test_look_for_a_lost_shard_costs_nothing_while_all_is_well(place: str) -> None:
    """No statement is sent."""
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        memory.close()
        assert memory.store.narrowed(Filter(scope=Scope("ada"))) is None


@contextlib.contextmanager
def working(place: str, tasks: Sequence[Callable[[Memory, int], None]]) -> Iterator[list[BaseException]]:
    """Repeat each task in a thread with a memory of its own until the block ends; yields the errors."""
    stop, failures = threading.Event(), list[BaseException]()

    def work(task: Callable[[Memory, int], None], number: int) -> None:
        try:
            with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
                while not stop.is_set():
                    task(memory, number := number + 1)
        except BaseException as error:  # noqa: BLE001  (the test looks at it)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(task, 100_000 * number)) for number, task in enumerate(tasks)]
    for thread in threads:
        thread.start()
    try:
        yield failures
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait as long as it may be remembered that a worker did not answer."""
    end = time.monotonic() + LOOK_SECONDS + 2
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("clients", "kills"), [pytest.param(1, 2, id="short"), pytest.param(3, 8, id="long", marks=pytest.mark.torture)]
)
@pytest.mark.timeout(1200)
def test_users_elsewhere_notice_nothing_of_killed_workers_of_the_global_records(
    cluster: Cluster, clients: int, kills: int
) -> None:
    """They search and write without an error while that worker is killed and comes back; nothing is lost."""
    distribute(cluster.url)
    with Memory.open(cluster.url, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("the heron of all")
        for user in USERS:
            memory.add(f"the heron of {user}", user=user)
    down, elsewhere = worker_of_the_global_records(cluster)
    found, acknowledged = list[Answer](), list[str]()

    def of_user(memory: Memory, number: int) -> tuple[str, Memory]:
        """A user, and the memory as a server gives it to that user, or as its owner has it."""
        user = elsewhere[number // 2 % len(elsewhere)]
        return user, memory.within(Scope(user)) if number % 2 else memory

    def search(memory: Memory, number: int) -> None:
        user, view = of_user(memory, number)
        answer = view.search("heron", user=user)
        assert f"the heron of {user}" in {result.record.text for result in answer.results}
        found.append(answer)

    def write(memory: Memory, number: int) -> None:
        user, view = of_user(memory, number)
        acknowledged.append(view.add(f"a reed, number {number}", user=user).id)
        view.edit(acknowledged[-1], category="plant")

    def write_global(memory: Memory, number: int) -> None:
        with contextlib.suppress(RecollectError):
            acknowledged.append(memory.add(f"a tide, number {number}").id)

    with working(cluster.url, [search, write, write_global] * clients) as failures:
        for _ in range(kills):
            time.sleep(4)
            down.kill()
            time.sleep(4)
            down.start()
        time.sleep(LOOK_SECONDS + 2)
    assert failures == []
    warned = [NOT_SEARCHED in answer.trace.warnings for answer in found]
    assert True in warned
    assert not any(warned[-5:])
    for answer, lacks in zip(found, warned, strict=True):
        assert lacks != ("the heron of all" in {result.record.text for result in answer.results})
    cluster.execute("SELECT recover_prepared_transactions()")
    with Memory.open(cluster.url, embedder="hashing:64", settings=Settings()) as memory:
        stored = {record.id for record in memory.store.records.get(acknowledged)}
        assert [key for key in acknowledged if key not in stored] == []
    numbers = {"searches": len(warned), "without global records": sum(warned), "acknowledged": len(acknowledged)}
    note("killed worker of the global records", clients=clients, kills=kills, errors=0, **numbers)


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
    assert len(distribute(cluster.url)) == 2


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
        assert len(distribute(place)) == 1


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
