"""Spans of OpenTelemetry for what a memory does, in an application that uses it.

OpenTelemetry is never imported here: who has set it up has imported it. Nothing is exported here either; spans go where
the application's tracer provider sends them. They hold numbers and names of settings, and no text of a query or record.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from recollect import __version__
from recollect.errors import RecollectError
from recollect.ingest import Report
from recollect.memory.recall import Recall
from recollect.types import Answer, Trace

Given = ParamSpec("Given")
Made = TypeVar("Made")

LIBRARY = "opentelemetry.trace"

WORTH_MS = 1.0
"""Milliseconds from which on a stage has a span: most take less than their span would."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span that has begun; without OpenTelemetry, nothing."""

    trace: Any = None
    tracer: Any = None
    inner: Any = None
    start_ns: int = 0

    @property
    def recording(self) -> bool:
        """Whether anybody will see it."""
        return self.inner is not None and bool(self.inner.is_recording())

    def set(self, **attributes: Any) -> None:
        """Note attributes, under the project's name; what is None is left out."""
        if self.inner is not None:
            self.inner.set_attributes(_attributes(attributes))

    def part(self, name: str, after_ms: float, took_ms: float, *, failed: bool = False, **attributes: Any) -> None:
        """A child that has come and gone: so long after the start of this, for so long."""
        start = self.start_ns + int(after_ms * 1e6)
        child = self.tracer.start_span(f"recollect.{name}", start_time=start, attributes=_attributes(attributes))
        if failed:
            child.set_status(self.trace.StatusCode.ERROR)
        child.end(end_time=start + int(took_ms * 1e6))


_NOTHING = nullcontext(Span())


def span(name: str, **attributes: Any) -> AbstractContextManager[Span]:
    """A span that is current within the block, where OpenTelemetry is loaded; an error that leaves it is noted."""
    trace = sys.modules.get(LIBRARY)
    # Another thread may be importing it at this moment: its last function is there when all is.
    return _begun(trace, name, attributes) if hasattr(trace, "use_span") else _NOTHING


def traced(name: str, tell: Callable[[Span, Any], None]) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """For a function: a span for each call, and `tell` to note what came of it."""

    def decorate(function: Callable[Given, Made]) -> Callable[Given, Made]:
        @wraps(function)
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Made:
            if LIBRARY not in sys.modules:
                return function(*args, **kwargs)
            with span(name) as begun:
                made = function(*args, **kwargs)
                if begun.recording:
                    tell(begun, made)
                return made

        return call

    return decorate


@contextmanager
def _begun(trace: Any, name: str, attributes: dict[str, Any]) -> Iterator[Span]:
    tracer, start = trace.get_tracer("recollect", __version__), time.time_ns()
    inner = tracer.start_span(f"recollect.{name}", start_time=start, attributes=_attributes(attributes))
    with trace.use_span(inner, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield Span(trace, tracer, inner, start)
        except Exception as error:
            _note(trace, inner, error)
            raise


def _note(trace: Any, inner: Any, error: Exception) -> None:
    """What kind of error it was. Its message is left out: it may hold a query, a path or an address."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    inner.add_event("exception", {"exception.type": kind})
    inner.set_attribute("error.type", error.code if isinstance(error, RecollectError) else kind)
    inner.set_status(trace.StatusCode.ERROR)


def _attributes(given: dict[str, Any]) -> dict[str, Any]:
    return {f"recollect.{name}": value for name, value in given.items() if value is not None}


def searched(span: Span, answer: Answer) -> None:
    """What came of a search, and a child for each source and each stage that took its time."""
    query, trace = answer.query, answer.trace
    span.set(
        fusion=query.ranking.fusion,
        limit=query.limit,
        fetch_k=query.fetch_k,
        results=len(answer.results),
        mode=trace.mode,
        grade=trace.grade,
        warnings=len(trace.warnings),
        abstained=bool(trace.abstained),
    )
    for source in trace.sources:
        failed = source.status in ("failed", "timeout")
        marks = {"source": source.name, "status": source.status, "hits": source.hits}
        span.part(f"source {source.name}", 0.0, source.took_ms, failed=failed, **marks)
    _stages(span, trace)


def _stages(span: Span, trace: Trace) -> None:
    """Stages follow one another, and the last one ends with the search."""
    end = trace.took_ms
    for stage in reversed(trace.stages):
        end -= stage.took_ms
        if stage.took_ms >= WORTH_MS:
            span.part(f"stage {stage.name}", max(0.0, end), stage.took_ms, given=stage.given, left=stage.left)


def indexed(span: Span, report: Report) -> None:
    """What became of the files, in numbers."""
    lists = ("added", "changed", "moved", "removed", "rescoped", "skipped", "unconfirmed")
    span.set(**{name: len(getattr(report, name)) for name in lists})
    span.set(unchanged=report.unchanged, chunks=report.chunks, embedded=report.embedded, dry_run=report.dry_run)


def embedded(span: Span, count: int) -> None:
    """How many vectors were computed."""
    span.set(embedded=count)


def recalled(span: Span, recall: Recall) -> None:
    """How large the block is, and what had no room in it."""
    span.set(tokens=recall.tokens, citations=len(recall.citations), left_out=recall.left_out)
