"""Builds segments with two processes at once: reading the words of texts keeps one core busy.

The second process gets records, as they are selected, and returns segments; it opens no store. If it cannot be started
or ends, this process builds the rest.
"""

import contextlib
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

from recollect import process
from recollect.analysis import Analyzer
from recollect.stores.sqlite.segments import Ints, Segment, build

MOST_CHARACTERS = 50_000_000  # of texts that are sent at once

Select = Callable[[Ints], Iterable[Sequence[Any]]]
"""Rows → their records, as `build` reads them."""


def segments(parts: Sequence[Ints], select: Select, analyzer: Analyzer) -> Iterator[tuple[Ints, Segment]]:
    """An even number of parts, each with the segment of its rows, in their order."""
    with Helper(analyzer.language) as helper:
        for own, other in zip(parts[::2], parts[1::2], strict=True):
            sent = helper.send(select(other))
            yield own, build(select(own), analyzer)
            yield other, (helper.receive() if sent else None) or build(select(other), analyzer)


class Helper(process.ChildProcess):
    """The second process. After an error it is not asked again."""

    def __init__(self, language: str) -> None:
        with contextlib.suppress(OSError, TypeError):  # no more processes are allowed, or Python is no program here
            self._process = process.start(__name__, language)

    def send(self, records: Iterable[Sequence[Any]]) -> bool:
        """Send the records of a segment; False where they are too large, or nobody reads them."""
        batch, size = list[Sequence[Any]](), 0
        for record in records if self._process else ():
            batch.append(record)
            size += len(record[3])
            if size > MOST_CHARACTERS:
                return False
        if self._process and self._process.stdin:
            with contextlib.suppress(OSError):
                pickle.dump(batch, self._process.stdin, pickle.HIGHEST_PROTOCOL)
                self._process.stdin.flush()
                return True
            self.close()
        return False

    def receive(self) -> Segment | None:
        """The segment of the records that were sent; None if the process has ended."""
        if self._process and self._process.stdout:
            with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
                segment: Segment = pickle.load(self._process.stdout)  # noqa: S301  (written by our own process)
                return segment
            self.close()
        return None


def serve(records: IO[bytes], answers: IO[bytes], analyzer: Analyzer) -> None:
    """Return a segment for each batch of records, until there are no more."""
    with contextlib.suppress(EOFError):
        while True:
            segment = build(pickle.load(records), analyzer)  # noqa: S301  (written by our own process)
            pickle.dump(segment, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, Analyzer(sys.argv[1]))
