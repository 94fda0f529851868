"""A real `recollect serve` for the tests of its page."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import recollect
from recollect import Memory
from recollect.config import Settings
from support.forking import recollect_words

PATIENCE_SECONDS = 120
HOSTILE = "<script>window.ran = 1</script><img src=http://evil.test/x onerror='window.ran = 2'>"
TURNED = "\u202egnp.exe\u202c"


def environment(home: Path) -> dict[str, str]:
    """A home with nothing in it, and no way to a model."""
    folders = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "RECOLLECT_MODELS")
    return {**os.environ, **dict.fromkeys(folders, str(home)), "RECOLLECT_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def serving(store: Path, home: Path, *flags: str, port: int | None = None) -> Iterator[str]:
    """A server of the store, ended with the block; its address."""
    port = port or free_port()
    address = f"http://127.0.0.1:{port}"
    words = ["serve", "--store", str(store), "--embedder", "hashing:64", "--port", str(port), *flags]
    with (home / "serve.log").open("a") as log:
        process = subprocess.Popen(recollect_words(*words), env=environment(home), stdout=log, stderr=log)
        try:
            wait(address, process, home / "serve.log")
            yield address
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE_SECONDS)


def wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers; what it said where it does not."""
    # No proxy of the machine's may stand between the test and its own server.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(PATIENCE_SECONDS * 20):
        with contextlib.suppress(OSError):  # not listening yet, or too busy to answer
            opener.open(f"{address}/healthz", timeout=10).close()
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"`recollect serve` does not answer: {log.read_text()[-2000:]}")


def fill(store: Path, folder: Path) -> None:
    """The sample notes, one of them changed since, and facts of several kinds, some of them hostile."""
    shutil.copytree(Path(recollect.__file__).parent / "sample" / "notes", folder)
    with Memory.open(store, embedder="hashing:64", settings=Settings()) as memory:
        memory.index(folder)
        memory.add("Prefer PostgreSQL for the job queue.", category="technical", tags=["postgres", "queue"])
        memory.add("Error E4031 means that the connection pool is empty.", category="technical", tags=["postgres"])
        memory.add("Mirela moves to the platform team.", category="people", tags=["team"])
        memory.add("Ada takes her coffee black.", category="preference", user="ada")
        old = memory.add("The connection pool holds twenty connections.", category="technical")
        new = memory.add("The connection pool holds forty connections.", category="technical")
        memory.supersede(old.id, new.id)
        memory.add(f"{HOSTILE} hostile {TURNED} pool", title=f"{HOSTILE} {TURNED}", tags=["<b>bold</b>"])
        memory.add("longline " + "A" * 90_000, category="c" * 90, tags=["t" * 90])
    with (folder / "work" / "connection-pool-postmortem.md").open("a") as note:
        note.write("\nOne more line.\n")
