"""A real Citus cluster for tests: a coordinator and two workers, of the programs that RECOLLECT_TEST_CITUS names.

That is the folder that `tests/cluster/build.sh` prints. Without it the tests are skipped.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psycopg
import pytest
from support.postgres import QUICK, Server

SETTINGS = {
    **QUICK,
    "shared_preload_libraries": "citus",
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",  # moving a shard while it is written to
    "max_prepared_transactions": "300",
    "shared_buffers": "64MB",
    "citus.node_connection_timeout": "2s",
    "citus.node_conninfo": "sslmode=disable",
    "citus.shard_count": "8",
}


def programs() -> Path:
    """Where the programs of a server with Citus are."""
    named = os.environ.get("RECOLLECT_TEST_CITUS", "")
    return Path(named).resolve() if named else pytest.skip("RECOLLECT_TEST_CITUS names no server with Citus")


class Cluster:
    """A coordinator and workers on 127.0.0.1, which end with `remove`."""

    def __init__(self, workers: int = 2) -> None:
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
            self.remove()
            raise

    @property
    def url(self) -> str:
        """Where the coordinator is."""
        return self.coordinator.url(port=str(self.ports[self.coordinator]))

    def start_node(self, *extensions: str) -> Server:
        """A new server that is not part of the cluster yet."""
        port = _free_port()
        node = Server.make(programs(), port=str(port), **SETTINGS)
        self.nodes.append(node)
        self.ports[node] = port
        with psycopg.connect(node.url(port=str(port)), autocommit=True) as connection:
            for extension in extensions or ("citus", "vector"):
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

    def remove(self) -> None:
        """Stop all servers, and leave nothing behind."""
        for node in self.nodes:
            node.remove()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
