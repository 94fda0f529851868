"""Searches a store until its input ends, and prints the counts and the errors (run by test_concurrency.py)."""

from __future__ import annotations

import json
import sys
import threading

from recollect import Memory
from recollect.config import Settings


def main(store: str) -> None:
    """Search until standard input ends."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    searches, found, errors = 0, 0, []
    with Memory.open(store, embedder="hashing:64", settings=Settings()) as memory:
        while not stop.is_set():
            try:
                answer = memory.search("the words of a note", limit=5)
            except Exception as error:  # noqa: BLE001  (any error that reaches a caller is what this looks for)
                errors.append(f"{type(error).__name__}: {error}")
                continue
            searches, found = searches + 1, found + len(answer.results)
            errors += [f"{source.name}: {source.reason}" for source in answer.trace.sources if source.status != "ok"]
    print(json.dumps({"searches": searches, "found": found, "errors": errors}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
