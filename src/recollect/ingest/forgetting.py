"""Chunks that somebody has forgotten or purged: they are not stored again while the text in their file is unchanged."""

from collections.abc import Sequence
from dataclasses import replace

from recollect.types import Change, Forget, Provenance, Put, Record, Store

WRITER = Provenance("file")
"""Of chunks that indexing purges because their text or their file is gone: they come back with it."""


def without_forgotten(
    store: Store, chunks: Sequence[Record], before: Sequence[Record], forgotten: Sequence[Record]
) -> list[Record]:
    """The chunks of a file without those that somebody has forgotten or purged.

    `before` are the stored chunks of the file, and `forgotten` its chunks that are forgotten and not purged: indexing
    itself always purges. A text that is both stored and forgotten occurs twice; one of them is left out.
    """
    stored = {record.id for record in before}
    hidden = {record.id for record in forgotten}
    texts = {record.text for record in forgotten} - {record.text for record in before}
    others = [chunk for chunk in chunks if chunk.id not in hidden and chunk.text not in texts]
    purged = _purged_by_user(store, [chunk.id for chunk in others if chunk.id not in stored])
    return [chunk for chunk in others if chunk.id not in purged]


def stay_forgotten(forgotten: Sequence[Record], unwanted: Sequence[Record], path: str) -> list[Change]:
    """Let the forgotten chunks of a file that has moved have its new path, and keep the ids of purged ones in use.

    `unwanted` are the chunks at the new path that are not to be stored. Nothing of a purged text is written.
    """
    changes: list[Change] = []
    for record in forgotten:
        changes += [Put(replace(record, path=path)), Forget(record.id)]
    texts = {record.text for record in forgotten}
    for record in unwanted:
        if record.text not in texts:
            empty = Record(record.id, "", scope=record.scope, kind="chunk", origin="file")
            changes += [Put(empty), Forget(record.id, purge=True)]
    return changes


def _purged_by_user(store: Store, ids: Sequence[str]) -> set[str]:
    """Which of these chunks the user has purged. A purge by an older version does not say who made it, and is none."""
    taken, _, _ = store.joins.taken(ids, (), ())
    histories = {key: store.records.history(key) for key in taken}
    purges = {key: [event for event in history if event.action == "purge"] for key, history in histories.items()}
    return {key for key, events in purges.items() if events and events[-1].detail.get("origin") == "user"}
