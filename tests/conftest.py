"""Common fixtures: a real file, memories that are closed, and processes that end with their test."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from support import postgres
from support.http import ModelServer, Reply

from recollect import Memory
from recollect.config import Settings

# A busy machine makes examples slowly, which is no fault of theirs.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """A background shell ignores Ctrl-C in all its children, but tests send it."""
    with contextlib.suppress(ValueError):  # not in the main thread
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Calls are counted in a folder of the tests, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a test's store."""
    return tmp_path / "memory.db"


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once: copying it is faster than creating one."""
    place = tmp_path_factory.mktemp("blank") / "memory.db"
    Memory.open(place, embedder="none", settings=Settings()).close()
    return place


@pytest.fixture
def open_memory(path: Path) -> Iterator[Callable[..., Memory]]:
    """Opens memories on the test's store, and closes them when the test ends."""
    opened: list[Memory] = []

    def open_one(place: Path = path, *, embedder: Any = "hashing:64", **options: Any) -> Memory:
        opened.append(Memory.open(place, embedder=embedder, **{"settings": Settings(), **options}))
        return opened[-1]

    yield open_one
    for memory in opened:
        memory.close()


@pytest.fixture
def sealed() -> Iterator[Callable[[Path], Path]]:
    """Copies a store, with its index if there is one, to a folder that is readable but not writable."""
    folder = Path(tempfile.mkdtemp(prefix="recollect-sealed-"))

    def seal(path: Path) -> Path:
        shutil.copy(path, folder / "memory.db")
        if Path(f"{path}-index").is_dir():
            shutil.copytree(f"{path}-index", folder / "memory.db-index")
        for part in (*folder.rglob("*"), folder):
            part.chmod(0o555 if part.is_dir() else 0o444)
        return folder / "memory.db"

    yield seal
    for part in (folder, *folder.iterdir()):
        part.chmod(0o700)
    shutil.rmtree(folder)


@pytest.fixture
def memory(open_memory: Callable[..., Memory]) -> Memory:
    """A new memory with the hashing embedder."""
    return open_memory()


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python processes with pipes, and ends the remaining ones when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, *map(str, arguments)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A server with OpenAI's protocol for the test, and no key or address in the environment."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture
def reply() -> Any:
    """Writes one line of the server's script."""
    return Reply


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], ModuleType]:
    """Installs a package on the path with its `open` as an entry point; returns the package."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def install(group: str, name: str, code: str) -> ModuleType:
        module = f"offered_{uuid.uuid4().hex}"
        (site / f"{module}.py").write_text(code)
        metadata = site / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:open\n")
        importlib.invalidate_caches()
        return importlib.import_module(module)

    return install


STAND = """
ASK, CLOSED, OPENED = {}, [], []

class open:
    def __init__(self, said):
        self.name = said.name
        OPENED.append(said)

    def ask(self, asked):
        return ASK[self.name](asked)

    def close(self):
        CLOSED.append(self.name)
"""


@pytest.fixture
def stand(offer: Callable[..., ModuleType]) -> ModuleType:
    """A package with a source kind "stand", whose answers a test sets: `stand.ASK[name] = lambda asked: …`."""
    return offer("recollect.sources", "stand", STAND)


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """A PostgreSQL server, one for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / "postgres"
    folder.mkdir(exist_ok=True)
    with postgres.shared_server(folder) as url:
        yield url


@pytest.fixture
def new_schema(postgres_url: str) -> Iterator[Callable[[], str]]:
    """Returns an unused place in PostgreSQL, a new one at each call."""
    with postgres.new_schemas(postgres_url) as name:
        yield name


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The place of the test's store: a file, or a schema of a server."""
    if request.param == "sqlite":
        return str(tmp_path / "memory.db")
    new: Callable[[], str] = request.getfixturevalue("new_schema")
    return new()
