"""Retrievers: each turns a query into a ranked list."""

from recollect.sources.hyde import HydeSource
from recollect.sources.keyword import KeywordSource
from recollect.sources.vector import VectorSource

__all__ = ["HydeSource", "KeywordSource", "VectorSource"]
