"""Documents are read in a process of its own, which may hang, fail or end without harm."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.ingest.readers import KINDS, Kind, Unreadable
from recollect.ingest.readers.worker import Worker

CALLING = "import socket\n\ndef read(content):\n    socket.create_connection(('127.0.0.1', 9))\n"
HANGING = "import time\n\ndef read(content):\n    time.sleep(600)\n"
DYING = "import os\n\ndef read(content):\n    os._exit(1)\n"
RAISING = "def read(content):\n    print('noise')\n    raise KeyError('page')\n"
HUNGRY = "def read(content):\n    return bytearray(1 << 40)\n"
ENDLESS = "def read(content):\n    return endless(content)\n\ndef endless(content):\n    return endless(content)\n"


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(seconds=120) as made:
        yield made


def test_the_process_is_used_again(worker: Worker) -> None:
    """Several documents are read by one process, also after one that could not be read."""
    first = worker.read(b"<p>tea", KINDS[".html"])
    process = worker._process
    with pytest.raises(Unreadable, match="no text in it"):
        worker.read(b"<p>", KINDS[".html"])
    assert worker.read("<p>Tür 湖".encode(), KINDS[".html"]).blocks[0].text == "Tür 湖"
    assert first.blocks[0].text == "tea"
    assert worker._process is process


def kind(folder: Path, name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> Kind:
    """A kind of document whose reader is this code."""
    (folder / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    return Kind(name, name)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (DYING, "reading it fails"),
        (RAISING, "damaged: KeyError"),
        (ENDLESS, "nested too deeply"),
        (CALLING, "would use the network"),
        pytest.param(HUNGRY, "too much memory", marks=pytest.mark.skipif(sys.platform == "darwin", reason="no limit")),
    ],
)
def test_readers_that_fail(code: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that raises, ends its process or takes all memory is a reason, and the next document is read."""
    broken = kind(tmp_path, "broken", code, monkeypatch)
    with Worker(seconds=120) as worker:
        with pytest.raises(Unreadable, match=reason):
            worker.read(b"x", broken)
        assert worker.read(b"<p>tea", KINDS[".html"]).blocks[0].text == "tea"


def test_reader_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that does not end is ended after the limit."""
    hanging = kind(tmp_path, "hanging", HANGING, monkeypatch)
    with Worker(seconds=0.2) as worker:
        with pytest.raises(Unreadable, match="longer than 0"):
            worker.read(b"x", hanging)
        assert worker._process is None
