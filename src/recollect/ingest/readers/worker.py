"""The process that reads documents: with a limit on its time and memory, and restarted when it ends."""

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
from subprocess import Popen
from typing import IO, Any

from recollect import process
from recollect.ingest.readers import MIB, DocumentText, Kind, Unreadable

SECONDS = 60.0  # for one document
MAX_MEMORY = 3 * 1024 * MIB  # of the process, where the system can limit it


class Worker(process.ChildProcess):
    """Reads documents in another process, which is started with the first one and ended by `close`."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds

    def read(self, content: bytes, kind: Kind) -> DocumentText:
        """The blocks of a document. Raises Unreadable with the reason if it cannot be read."""
        self._process = worker = self._process or process.start(__name__)
        late = threading.Event()

        def stop() -> None:
            late.set()
            worker.kill()

        timer = threading.Timer(self._seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            answer = _ask(worker, content, kind)
        except (OSError, ValueError):
            answer = None
        finally:
            timer.cancel()
        if answer is None:
            self.close()
            reason = f"reading it takes longer than {self._seconds:g} s" if late.is_set() else "reading it fails"
            raise Unreadable(reason)
        if "problem" in answer:
            raise Unreadable(answer["problem"])
        return DocumentText.from_json(answer)


def _ask(worker: Popen[bytes], content: bytes, kind: Kind) -> dict[str, Any] | None:
    """Send a document and wait for the answer; None if the process has ended."""
    assert worker.stdin  # noqa: S101  (for mypy)
    assert worker.stdout  # noqa: S101
    worker.stdin.write(json.dumps({"module": kind.module, "size": len(content)}).encode() + b"\n")
    worker.stdin.write(content)
    worker.stdin.flush()
    line = worker.stdout.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    while line := requests.readline():
        request = json.loads(line)
        content = requests.read(request["size"])
        answers.write(json.dumps(answer(content, request["module"])).encode() + b"\n")
        answers.flush()


def answer(content: bytes, module: str) -> dict[str, Any]:
    """The reading of a document as JSON, or `problem` with the reason why there is none."""
    try:
        reading = importlib.import_module(module).read(content)
        return reading.as_json()  # type: ignore[no-any-return]
    except Unreadable as error:
        return {"problem": str(error)}
    except MemoryError:
        return {"problem": "reading it takes too much memory"}
    except RecursionError:
        return {"problem": "damaged: nested too deeply"}
    except Exception as error:  # noqa: BLE001  (whatever a library raises for a broken file)
        return {"problem": f"damaged: {type(error).__name__}"}


def _refuse(event: str, _arguments: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"):
        raise Unreadable("damaged: reading it would use the network or start a program")


def main() -> None:
    """Serve the process that started this one; without network, without programs."""
    sys.addaudithook(_refuse)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not write into the answers
    with contextlib.suppress(BrokenPipeError):
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
