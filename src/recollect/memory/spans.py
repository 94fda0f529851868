"""OpenTelemetry spans for the operations of a memory, in an application that uses OpenTelemetry.

This module never imports OpenTelemetry: an application that has set it up has imported it. Spans go where the
application's tracer provider sends them. They hold numbers and names of settings, never text of a query or a record.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from recollect import __version__
from recollect.dataclass import dataclass
from recollect.errors import RecollectError
from recollect.types import Answer

if TYPE_CHECKING:
    from recollect.ingest.folder import Report
    from recollect.memory.recall import Recall

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

LIBRARY = "opentelemetry.trace"
SHORTEST_STAGE_MS = 1.0  # a stage has a span if it takes at least this long; most take less time than a span would


@dataclass(frozen=True, slots=True)
class Span:
    """A span that has been started."""

    trace: Any
    tracer: Any
    inner: Any
    start_ns: int

    def set(self, **attributes: Any) -> None:
        """Set attributes, prefixed with `recollect.`; those that are None are left out."""
        self.inner.set_attributes(_attributes(attributes))

    def part(self, name: str, after_ms: float, took_ms: float, *, failed: bool = False, **attributes: Any) -> None:
        """Add a finished child span, which started `after_ms` after this one and took `took_ms`."""
        start = self.start_ns + int(after_ms * 1e6)
        child = self.tracer.start_span(f"recollect.{name}", start_time=start, attributes=_attributes(attributes))
        if failed:
            child.set_status(self.trace.StatusCode.ERROR)
        child.end(end_time=start + int(took_ms * 1e6))


@contextmanager
def _span(trace: Any, name: str) -> Iterator[Span]:
    """A span that is current in the block.

    An error that leaves the block is recorded by its kind. Its message may hold a query, a path or an address.
    """
    tracer, start = trace.get_tracer("recollect", __version__), time.time_ns()
    inner = tracer.start_span(f"recollect.{name}", start_time=start)
    with trace.use_span(inner, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield Span(trace, tracer, inner, start)
        except Exception as error:
            kind = f"{type(error).__module__}.{type(error).__qualname__}"
            inner.add_event("exception", {"exception.type": kind})
            inner.set_attribute("error.type", error.code if isinstance(error, RecollectError) else kind)
            inner.set_status(trace.StatusCode.ERROR)
            raise


def traced(
    name: str, describe: Callable[[Span, Any], None]
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Decorate a function with a span for each call, if OpenTelemetry is loaded.

    `describe` sets the attributes of its result.
    """

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        @wraps(function)
        def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            trace: Any = sys.modules.get(LIBRARY)
            if not hasattr(trace, "use_span"):  # defined last: another thread may be importing the module right now
                return function(*args, **kwargs)
            with _span(trace, name) as started:
                result = function(*args, **kwargs)
                if started.inner.is_recording():
                    describe(started, result)
                return result

        return call

    return decorate


def _attributes(values: dict[str, Any]) -> dict[str, Any]:
    return {f"recollect.{name}": value for name, value in values.items() if value is not None}


def searched(span: Span, answer: Answer) -> None:
    """Describe a search, with a child span for each source and each longer stage."""
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
    end = trace.took_ms  # stages follow one another; the last one ends with the search
    for stage in reversed(trace.stages):
        end -= stage.took_ms
        if stage.took_ms >= SHORTEST_STAGE_MS:
            span.part(f"stage {stage.name}", max(0.0, end), stage.took_ms, given=stage.given, left=stage.left)


def indexed(span: Span, report: Report) -> None:
    """Describe an indexing run by the numbers of files."""
    lists = ("added", "changed", "moved", "removed", "rescoped", "skipped", "unconfirmed")
    span.set(**{name: len(getattr(report, name)) for name in lists})
    span.set(unchanged=report.unchanged, chunks=report.chunks, embedded=report.embedded, dry_run=report.dry_run)


def embedded(span: Span, count: int) -> None:
    """Describe how many vectors were computed."""
    span.set(embedded=count)


def recalled(span: Span, recall: Recall) -> None:
    """Describe the size of a recall block, and how many results had no room."""
    span.set(tokens=recall.tokens, citations=len(recall.citations), left_out=recall.left_out)
