"""What a set is made of and checked against: the records that may be seen, their words, and a search by words."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.config import Settings
from recollect.errors import UsageError
from recollect.evaluation.questions.folders import Line
from recollect.evaluation.questions.leakage import Leak, Vocabulary, target_of
from recollect.evaluation.questions.making import is_note
from recollect.ingest.markdown import MAX_FRONT_MATTER
from recollect.ingest.records import origin_of
from recollect.memory import Memory
from recollect.types import FileState, Filter, KeywordIndex, Progress, Record, Store

DEPTH = 100
"""How many passages the search by words is asked for; a target beyond them has no rank."""

MOST_RECORDS = 1_000_000_000
_ALIASES = ("aliases", "alias")


@dataclass(frozen=True, slots=True)
class Look:
    """The records that a filter lets through, in the order of their ids, and the index that finds them by words."""

    records: Sequence[Record]
    vocabulary: Vocabulary
    keywords: KeywordIndex
    where: Filter
    aliases: Mapping[str, Sequence[str]]

    @classmethod
    def at(cls, memory: Memory, filters: Mapping[str, Any], progress: Progress | None = None) -> Look:
        """What a search with these filters could see; a path with a tab or a line end cannot be judged."""
        _, query = memory.prepare("", **filters)
        seen = memory.store.records.list(query.filter, limit=MOST_RECORDS)
        records = sorted((one for one in seen if not set("\t\r\n") & set(target_of(one))), key=lambda one: one.id)
        if not records:
            hint = "`recollect index FOLDER` or `recollect add TEXT` first; or are scope and filters too narrow?"
            raise UsageError("there is nothing in the store to ask about", hint=hint)
        keywords = memory.store.keywords
        aliases = _aliases(memory.store, records)
        return cls(records, Vocabulary.of(records, keywords.analyzer, progress), keywords, query.filter, aliases)

    @property
    def fingerprint(self) -> str:
        """Changes with what may be seen, and with nothing else."""
        return hashlib.blake2b("\0".join(record.id for record in self.records).encode(), digest_size=8).hexdigest()

    @property
    def targets(self) -> set[str]:
        """All that can be asked for."""
        return set(self.vocabulary.passages)

    def leaks(self, lines: Sequence[Line], progress: Progress | None = None) -> dict[str, Leak]:
        """What each question with a target gives away, by its id."""
        found: dict[str, Leak] = {}
        for number, line in enumerate(lines, 1):
            if line.target is not None:
                found[line.id] = self._leak(line.text, line.target)
            if progress:
                progress(number, len(lines))
        return found

    def _leak(self, text: str, target: str) -> Leak:
        matches = self.keywords.search(self.vocabulary.analyzer.query(text), self.where, DEPTH).found
        ranked = list(dict.fromkeys(target_of(match.record) for match in matches))
        rank = ranked.index(target) + 1 if target in ranked else None
        return Leak(self.vocabulary.share(text, target), self.vocabulary.gives_away(text, target), rank)


def in_a_store(records: Sequence[Record], language: str, use: Callable[[Look], dict[str, Leak]]) -> dict[str, Leak]:
    """Use a look at records that are stored nowhere else, each a document of its own."""
    with Memory.open(":memory:", embedder="none", settings=Settings(language=language)) as memory:
        memory.add_many({"id": record.id, "title": record.title, "text": record.text or "-"} for record in records)
        return use(Look.at(memory, {}))


def _aliases(store: Store, records: Sequence[Record]) -> dict[str, list[str]]:
    """Other names of files, from the front matter of those that still are what was indexed."""
    paths = sorted({record.path for record in records if record.path and is_note(record)})
    found = {path: _named(path, state) for path, state in sorted(store.files.states(paths).items())}
    return {path: names for path, names in found.items() if names}


def _named(path: str, state: FileState) -> list[str]:
    try:
        content = Path(path).read_bytes()
    except OSError:
        return []
    if (
        not content.startswith(b"---")
        or b"alias" not in content[:MAX_FRONT_MATTER]
        or FileState.digest_of(content) != state.digest
    ):
        return []
    metadata = origin_of(content, path).note.metadata
    said = next((metadata[name] for name in _ALIASES if metadata.get(name)), ())
    names = said.split(",") if isinstance(said, str) else said if isinstance(said, list) else ()
    return [name.strip() for name in names if isinstance(name, str) and name.strip()]
