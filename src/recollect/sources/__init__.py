"""Retrievers: each turns a query into a ranked list. The kinds of outside systems are loaded when they are used."""

from recollect.sources.external import Breaker, ExternalSource, Screened, screened
from recollect.sources.local import HydeSource, KeywordSource, VectorSource
from recollect.sources.matcher import ResultMatcher

__all__ = [
    "Breaker",
    "ExternalSource",
    "HydeSource",
    "KeywordSource",
    "ResultMatcher",
    "Screened",
    "VectorSource",
    "screened",
]
