"""A real Citus cluster for tests: a coordinator and two workers, of the programs that RECOLLECT_TEST_CITUS names.

That is the folder that `tests/cluster/build.sh` prints. Without it, what `make cluster` has built is used; if there is
nothing, there are no tests of a cluster.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psycopg

from support import ROOT
from support.postgres import QUICK, Server

SETTINGS = {
    **QUICK,
    "synchronous_commit": "on",  # what was acknowledged must outlive a killed server
    "shared_preload_libraries": "citus",
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",  # moving a shard while it is written to
    "max_prepared_transactions": "300",
    "shared_buffers": "64MB",
    "citus.node_connection_timeout": "2s",
    "citus.node_conninfo": "sslmode=disable",
    "citus.shard_count": "4",
}


def programs() -> Path | None:
    """Where the programs of a server with Citus are, if there are any."""
    named = os.environ.get("RECOLLECT_TEST_CITUS", "")
    if named and "://" not in named:
        return Path(named).resolve()
    built = [path.parent for path in (ROOT / ".cluster").glob("*/.built")]
    found = [path.parent for root in built for path in root.glob("usr/**/bin/initdb")]
    return found[0] if found else None


class Cluster:
    """A coordinator and workers on 127.0.0.1, which end with `close`."""

    def __init__(self, workers: int = 2, extensions: tuple[str, ...] = ("citus", "vector"), **settings: str) -> None:
        self.extensions = extensions
        self.settings = {**SETTINGS, **settings}
        self.nodes: list[Server] = []
        self.ports: dict[Server, int] = {}
        try:
            for _ in range(workers + 1):
                self.start_node()
            self.coordinator, *self.workers = self.nodes
            self.execute(f"SELECT citus_set_coordinator_host('127.0.0.1', {self.ports[self.coordinator]})")
            for worker in self.workers:
                self.add(worker)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Where the coordinator is."""
        return self.coordinator.url(port=str(self.ports[self.coordinator]))

    def start_node(self, other: Path | None = None) -> Server:
        """A new server, perhaps of other programs, that is not part of the cluster yet."""
        port = _free_port()
        node = Server.make(other or programs(), port=str(port), **self.settings)
        self.nodes.append(node)
        self.ports[node] = port
        with psycopg.connect(node.url(port=str(port)), autocommit=True) as connection:
            for extension in self.extensions:
                connection.execute(f"CREATE EXTENSION {extension}")
        return node

    def add(self, node: Server) -> None:
        """Make a server a worker of the cluster."""
        self.execute(f"SELECT citus_add_node('127.0.0.1', {self.ports[node]})")

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """The rows of a statement on the coordinator."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Stop all servers, and leave nothing behind."""
        for node in self.nodes:
            node.remove()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
