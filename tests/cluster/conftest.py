"""A cluster for all tests of this folder, and distributed stores in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moving.conftest import new_file as new_file  # noqa: PLC0414  (fixtures)
from moving.conftest import rich as rich  # noqa: PLC0414
from moving.conftest import rich_store as rich_store  # noqa: PLC0414
from support.cluster import Cluster, programs
from support.postgres import new_schemas

from recollect.cli import main
from recollect.stores.postgres.citus.layout import distribute

NAMED = os.environ.get("RECOLLECT_TEST_CITUS", "")
if not NAMED and programs() is None:
    collect_ignore_glob = ["test_*.py"]  # `make cluster` builds the servers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They take long, and share one cluster."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.ci)
            item.add_marker(pytest.mark.xdist_group("cluster"))


@pytest.fixture(scope="session")
def cluster_url() -> Iterator[str]:
    """The coordinator of a cluster, perhaps of one that runs (RECOLLECT_TEST_CITUS is a URL)."""
    if "://" in NAMED:
        yield NAMED
        return
    with contextlib.closing(Cluster()) as cluster:
        yield cluster.url


@pytest.fixture
def new_cluster_place(cluster_url: str) -> Iterator[Callable[[], str]]:
    """Returns a new distributed store at each call."""
    with new_schemas(cluster_url) as name:

        def place() -> str:
            distribute(named := name())
            return named

        yield place


@pytest.fixture
def new_place(new_cluster_place: Callable[[], str]) -> Callable[[], str]:
    """The same, for tests that other stores have, too."""
    return new_cluster_place


@pytest.fixture
def place(new_cluster_place: Callable[[], str]) -> str:
    """A distributed store."""
    return new_cluster_place()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command in an empty home and returns what it printed."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))

    def call(*words: str, codes: tuple[int, ...] = (0,)) -> str:
        code = main(list(words))
        captured = capsys.readouterr()
        assert code in codes, captured.err
        return captured.out

    return call
