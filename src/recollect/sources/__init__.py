"""Retrievers: each turns a query into a ranked list. The kinds of outside systems are loaded when they are used."""

from recollect.sources.breaker import Breaker
from recollect.sources.external import OutsideSource, Screened, screened
from recollect.sources.local import HydeSource, KeywordSource, VectorSource
from recollect.sources.matcher import Joiner

__all__ = ["Breaker", "HydeSource", "Joiner", "KeywordSource", "OutsideSource", "Screened", "VectorSource", "screened"]
