"""Retrievers: each turns a query into a ranked list. The kinds of outside systems are loaded when they are used."""

from recollect.sources.breaker import Breaker
from recollect.sources.hyde import HydeSource
from recollect.sources.joining import Joiner
from recollect.sources.keyword import KeywordSource
from recollect.sources.outside import OutsideSource
from recollect.sources.screened import Screened, screened
from recollect.sources.vector import VectorSource

__all__ = ["Breaker", "HydeSource", "Joiner", "KeywordSource", "OutsideSource", "Screened", "VectorSource", "screened"]
