"""A program as a search system: started for each question, read until it ends, killed with all it started."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from recollect.config.sources import SourceSettings
from recollect.config.templates import fields, fill
from recollect.errors import SourceFailed, TimedOut, TooLong, UsageError
from recollect.sources.documents import MOST_BYTES, excerpt, parse, secrets_of
from recollect.types import Asked

STDERR_KEPT = 2048
"""Bytes of the end of what it says on standard error: the reason of a failure stands there."""

REASON_SHOWN = 300
"""Characters of it that an error quotes."""

DRAIN_S = 0.1
"""How long an ended program's output is still read when something it started holds it open."""

LOOK_S = 0.02
"""How often is looked whether the program has ended while its output stays open."""

REAP_S = 1.0
"""How long a killed program is waited for before a thread of its own does that."""

_READ_BYTES = 65536


class CommandSystem:
    """Runs one command, never through a shell. What is asked fills its arguments, each of which stays one."""

    def __init__(self, said: SourceSettings) -> None:
        if not hasattr(os, "killpg"):
            raise UsageError(
                f"the source {said.name!r} runs a command, and this system has no process groups to end it by",
                hint='use kind = "http", or run this on Linux or macOS',
            )
        program, *self._arguments = said.options["command"]
        if fields(program):
            raise UsageError(
                f"the source {said.name!r} takes the program to run from what is asked: {program!r}",
                hint="write the program's own name; {query} belongs into its arguments",
            )
        self._program = os.path.expanduser(fill(program, {}))  # noqa: PTH111 - a bare name is looked up in PATH
        self._env: dict[str, str] = dict(said.options.get("env", {}))
        self._cwd = os.path.expanduser(said.options["cwd"]) if "cwd" in said.options else None  # noqa: PTH111

    def ask(self, asked: Asked) -> Any:
        """What the program prints, as JSON is read."""
        if asked.seconds_left <= 0:
            raise TimedOut(f"no time was left to run {self._program}")
        with self._started(asked) as process:
            reading = _Reading(process, asked, self._program)
            reading.run()
        if process.returncode:
            raise self._failed(process.returncode, reading.err)
        if not reading.out.strip():
            return []  # as grep does: it ended well and found nothing
        return parse(bytes(reading.out), self._program, secrets_of(self._env))

    def close(self) -> None:
        """Nothing is held open between two questions."""

    @contextlib.contextmanager
    def _started(self, asked: Asked) -> Iterator[subprocess.Popen[bytes]]:
        """The running program, of which nothing is left afterwards."""
        try:
            process = self._start(asked)
        except (OSError, ValueError) as error:
            raise self._not_started(error) from error
        try:
            yield process
        except OSError as error:
            raise SourceFailed(f"{self._program} cannot be read: {error}") from error
        finally:
            _end(process)

    def _start(self, asked: Asked) -> subprocess.Popen[bytes]:
        values = {"query": asked.text, "fetch_k": asked.fetch_k, "scope": asked.scope.as_dict()}
        arguments = [_bytes(fill(argument, values)) for argument in self._arguments]
        env: dict[str, str | bytes] = dict(os.environ)
        env.update({name: _bytes(fill(value, values)) for name, value in self._env.items()})
        return subprocess.Popen(  # noqa: S603 - the program is the settings' own; what is asked only fills arguments
            [_bytes(self._program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=self._cwd,
            env=env,
            start_new_session=True,
        )

    def _not_started(self, error: OSError | ValueError) -> SourceFailed:
        if self._cwd is not None and not os.path.isdir(self._cwd):  # noqa: PTH112
            return SourceFailed(
                f"{self._program} cannot be run in {self._cwd}, which is no folder", hint="check `cwd` in its settings"
            )
        reason = error.strerror if isinstance(error, OSError) else str(error)
        failure = TooLong if isinstance(error, OSError) and error.errno == errno.E2BIG else SourceFailed
        return failure(f"{self._program} cannot be started: {reason}", hint=_advice(error, self._program))

    def _failed(self, code: int, err: bytearray) -> SourceFailed:
        how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        said = err.decode("utf-8", "replace").strip()[-REASON_SHOWN:]
        reason = excerpt(said, secrets_of(self._env), most=REASON_SHOWN) if said else "nothing on standard error"
        return SourceFailed(f"{self._program} {how}: {reason}", hint="run the same command by hand to see why")


@dataclass(slots=True)
class _Reading:
    """Both outputs of a running program, read side by side until it has ended or the time is up."""

    process: subprocess.Popen[bytes]
    asked: Asked
    program: str
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    _until: float | None = None

    def run(self) -> None:
        """Read until the program has ended and its outputs are closed, or nearly until then: see `_over`."""
        with selectors.DefaultSelector() as selector:
            for stream, keep in ((self.process.stdout, self._keep_out), (self.process.stderr, self._keep_err)):
                if stream is not None:
                    selector.register(stream, selectors.EVENT_READ, keep)
            while selector.get_map() and not self._over():
                self._read(selector)
        pause = 0.0005  # outputs close just before a program ends
        while not _ended(self.process):
            self._check_time()
            time.sleep(min(pause, self.asked.seconds_left))
            pause = min(2 * pause, LOOK_S)

    def _read(self, selector: selectors.BaseSelector) -> None:
        for key, _ in selector.select(min(LOOK_S, self.asked.seconds_left)):
            content = os.read(key.fd, _READ_BYTES)
            if content:
                key.data(content)
            else:
                selector.unregister(key.fileobj)

    def _over(self) -> bool:
        """Whether nobody reads on: the program has ended, and what it left running has had its moment."""
        if self._until is None and _ended(self.process):
            self._until = min(self.asked.deadline, time.monotonic() + DRAIN_S)
        if self._until is not None:
            return time.monotonic() >= self._until
        self._check_time()
        return False

    def _check_time(self) -> None:
        if self.asked.seconds_left <= 0:
            raise TimedOut(f"{self.program} did not end in time", hint="raise timeout_ms of this source")

    def _keep_out(self, content: bytes) -> None:
        self.out += content
        if len(self.out) > MOST_BYTES:
            raise SourceFailed(
                f"{self.program} printed more than {MOST_BYTES // 2**20} MiB",
                hint="have it print fewer or shorter results",
            )

    def _keep_err(self, content: bytes) -> None:
        self.err += content
        del self.err[:-STDERR_KEPT]


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the program has ended. It is not reaped: as long as it is there, no other group bears its number."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # this process ignores SIGCHLD, and the kernel has reaped it
        return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and what it started, reap it, and close its outputs."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(REAP_S)
    except subprocess.TimeoutExpired:  # it runs as somebody else, or hangs in the kernel
        threading.Thread(target=process.wait, name=f"reaps {process.pid}", daemon=True).start()


def _bytes(text: str) -> bytes:
    """A text as an argument. It ends at a NUL for the kernel, so there must be none."""
    text = text.replace("\0", "")
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # half a surrogate pair
        return text.encode("utf-8", "replace")


def _advice(error: OSError | ValueError, program: str) -> str:
    match error:
        case FileNotFoundError():
            return f"check that {program} is installed and in PATH, and that the interpreter it names is there"
        case PermissionError():
            return f"check that {program} may be executed"
        case OSError(errno=errno.E2BIG):
            return "ask something shorter: a system lets one argument be so long, usually 128 KiB"
    return "run the same command by hand to see why"
