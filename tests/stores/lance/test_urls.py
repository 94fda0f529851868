"""URLs of stores with LanceDB, and the errors for wrong ones."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.stores import open_store
from recollect.stores.lance.table import LanceUrl, parse_url


def test_folder_has_the_file_and_the_vectors(tmp_path: Path) -> None:
    """Absolute, relative, and with a space in its name; the file may be in another place."""
    assert parse_url("lancedb:///srv/my%20memory") == LanceUrl(
        Path("/srv/my memory/memory.db"), "/srv/my memory/vectors"
    )
    assert parse_url("lancedb://notes/lance?batch=5") == LanceUrl(
        Path("notes/lance/memory.db"), "notes/lance/vectors", batch=5
    )
    assert parse_url(f"lancedb:///srv/lance?truth={tmp_path}/a.db").truth == tmp_path / "a.db"


def test_url_of_object_storage_names_the_records_file() -> None:
    """It may name endpoint and region, but no keys."""
    place = parse_url("lancedb://s3://team/memory/?truth=/srv/a.db&endpoint=http://10.0.0.7:9000&region=eu-west-1")
    assert (place.dataset, place.truth, place.remote) == ("s3://team/memory", Path("/srv/a.db"), True)
    assert place.options == {"endpoint": "http://10.0.0.7:9000", "region": "eu-west-1", "allow_http": "true"}
    assert "allow_http" not in parse_url("lancedb://s3://team?truth=a.db&endpoint=https://s3.example").options


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("lancedb://", "names no folder"),
        ("lancedb://s3://bucket/prefix", "file of the records"),
        ("lancedb://ftp://bucket?truth=a.db", "ftp://"),
        ("lancedb:///srv?secret_key=x", "secret_key"),
        ("lancedb:///srv?batch=none", "batch"),
        ("lancedb:///srv?batch=0", "batch"),
    ],
)
def test_wrong_url_is_a_usage_error(url: str, said: str) -> None:
    """The error says what is wrong. Keys are refused because process lists show URLs."""
    with pytest.raises(UsageError, match=said) as raised:
        open_store(url)
    assert raised.value.hint


def test_file_is_refused_as_a_folder(tmp_path: Path) -> None:
    """The hint shows how to use an existing file with LanceDB."""
    file = tmp_path / "memory.db"
    Memory.open(file, embedder="none", settings=Settings()).close()
    with pytest.raises(UsageError, match="is a file") as raised:
        open_store(f"lancedb://{file}")
    open_store(raised.value.hint).close()


def test_missing_package_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is created."""
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(UsageError, match="'lancedb'") as raised:
        open_store(f"lancedb://{tmp_path}/memory")
    assert raised.value.hint == "pip install 'recollect-search[lancedb]'"
    assert list(tmp_path.iterdir()) == []


def test_lancedb_is_loaded_on_the_first_commit(tmp_path: Path) -> None:
    """Importing it takes a second or more; a store without committed vectors does not need it."""
    import subprocess

    script = (
        "import sys; from recollect import Memory; from recollect.config import Settings\n"
        "memory = Memory.open(sys.argv[1], embedder='hashing:64', settings=Settings())\n"
        "memory.add('an otter'); print(memory.search('otter').results[0].record.text, 'lancedb' in sys.modules)"
    )
    command = [sys.executable, "-c", script, f"lancedb://{tmp_path}/memory"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "an otter False\n"


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files are POSIX's")
def test_folder_of_the_vectors_is_private(tmp_path: Path) -> None:
    """Also in an existing folder, whose mode does not change."""
    tmp_path.chmod(0o755)
    with Memory.open(f"lancedb://{tmp_path}?batch=10", embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many({"text": f"private note {n}"} for n in range(30))
        memory.embed()
    held = [file for file in tmp_path.iterdir() if file.stat().st_size]  # the lock file is empty
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in held}
    assert modes == {"memory.db": 0o600, "vectors": 0o700}
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
