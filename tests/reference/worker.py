"""A process with a memory of its own: does what each line of its input says, and answers with one line."""

from __future__ import annotations

import base64
import contextlib
import pickle
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from recollect import Memory
from recollect.config import Settings
from reference.stores import TinyEmbedder, a_change, described, small_sizes


def encoded(value: Any) -> str:
    """A value as one line."""
    return base64.b64encode(pickle.dumps(value)).decode()


def decoded(line: str) -> Any:
    return pickle.loads(base64.b64decode(line))


def main() -> None:
    place, sizes = sys.argv[1:]
    embedder = TinyEmbedder()
    with contextlib.ExitStack() as stack:
        if sizes == "small":
            stack.enter_context(small_sizes(place))
        memory = Memory.open(place, embedder=embedder, settings=Settings(), announce=lambda _: None)
        stack.enter_context(memory)
        for line in sys.stdin:
            embedder.refuses, name, arguments, options = decoded(line)
            match name:
                case "search":
                    answer = memory.search(*arguments, **options)
                    reply = (described(answer), answer.query.filter.now)
                case "change":
                    seed, known = arguments
                    reply = (a_change(random.Random(seed), memory, known), known)
                case _:
                    reply = getattr(memory, name)(*arguments, **options)
            print(encoded(reply), flush=True)  # noqa: T201  (its only output)


if __name__ == "__main__":
    main()
