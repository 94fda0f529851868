"""What the server counts of itself, for Prometheus and for its own page."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from recollect.types import Trace

BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
REMEMBERED = 1000
"""Searches over which the page's percentiles go."""


class Metrics:
    """One server's counts. They say how much and how long, never what about."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        seconds = [edge / 1000 for edge in BUCKETS_MS]
        kept: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter("recollect_requests", "Requests answered.", ["route", "method", "status"], **kept)
        self._request_seconds = Histogram(
            "recollect_request_seconds", "How long requests took.", ["route"], buckets=seconds, **kept
        )
        self._searches = Histogram(
            "recollect_search_seconds", "How long searches took.", ["mode"], buckets=seconds, **kept
        )
        self._sources = Histogram(
            "recollect_source_seconds", "How long sources took.", ["source", "status"], buckets=seconds, **kept
        )
        self._held = Gauge("recollect_records", "Records in the store.", ["kind"], **kept)
        self._without = Gauge("recollect_records_without_vector", "Records that only words can find yet.", **kept)
        self._bytes = Gauge("recollect_store_bytes", "Size of the store.", **kept)
        self._counts = [0] * (len(BUCKETS_MS) + 1)
        self._recent: deque[float] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()

    def saw_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request was answered."""
        method = method if method in ("GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS") else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def saw_search(self, trace: Trace) -> None:
        """One search was answered."""
        self._searches.labels(trace.mode).observe(trace.took_ms / 1000)
        for source in trace.sources:
            self._sources.labels(source.name, source.status).observe(source.took_ms / 1000)
        with self._lock:
            self._counts[bisect_left(BUCKETS_MS, trace.took_ms)] += 1
            self._recent.append(trace.took_ms)

    def latency(self) -> dict[str, Any]:
        """The histogram of searches since the start, and percentiles of the last ones."""
        with self._lock:
            counts, recent = list(self._counts), sorted(self._recent)
        edges: list[float | None] = [*BUCKETS_MS, None]
        return {
            "count": sum(counts),
            "p50_ms": _percentile(recent, 0.5),
            "p95_ms": _percentile(recent, 0.95),
            "buckets": [{"le_ms": edge, "count": count} for edge, count in zip(edges, counts, strict=True)],
        }

    def exposition(self, status: Mapping[str, Any]) -> bytes:
        """All of it in Prometheus's own format, with what the store holds."""
        for kind, count in status["records"].items():
            self._held.labels(kind).set(count)
        self._without.set(status["vectors"]["without"])
        self._bytes.set(status["bytes"])
        return generate_latest(self.registry)


def _percentile(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
