"""Stop words: words such as "the" and "of", which say little about a text, by language."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

LEAST_FOREIGN = 2  # stop words of another language that show that a query is in it


def stopwords(language: str) -> frozenset[str]:
    """The stop words of a language; of `contracted`, the beginnings of contractions (`don` of `don't`)."""
    return _all().get(language, frozenset())


def are_stopwords(words: Iterable[str]) -> bool:
    """Whether each of the words is a stop word of some language."""
    return _every().issuperset(words)


def foreign_stopwords(language: str, words: Sequence[str]) -> frozenset[str]:
    """The stop words of the language that a query is in, if that is plainly not the store's; else none.

    In a store of English notes "ist" and "die" are rare, and would make the one German note an answer to any question.
    """
    if _only_foreign(language).isdisjoint(words):
        return frozenset()
    counts = {name: sum(map(stops.__contains__, words)) for name, stops in _all().items()}
    likely = max(counts, key=lambda name: (counts[name], name == language))
    is_foreign = counts[likely] >= LEAST_FOREIGN and likely not in (language, "contracted")
    return stopwords(likely) if is_foreign else frozenset()


@cache
def _all() -> dict[str, frozenset[str]]:
    lines = Path(__file__).with_name("stopwords.txt").read_text("utf-8").splitlines()
    return {name: frozenset(words.split()) for name, _, words in (line.partition(":") for line in lines)}


@cache
def _every() -> frozenset[str]:
    return frozenset().union(*_all().values())


@cache
def _only_foreign(language: str) -> frozenset[str]:
    """Words that are stop words in other languages only; none for a language whose own are not known."""
    own = stopwords(language)
    return _every() - own if own else own
