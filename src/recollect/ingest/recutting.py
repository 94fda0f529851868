"""Cut files again that older rules cut: by default a file that does not change is never read a second time.

Each indexed folder records in its options the oldest rules by which one of its files may have been cut (`rules`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.ingest import documents
from recollect.ingest.discovery import NotAFile, read_file
from recollect.ingest.folder import MISSING, UNREAD, IndexOptions, chunk_changes, chunk_records
from recollect.ingest.forgetting import without_forgotten
from recollect.ingest.readers import Unreadable
from recollect.ingest.readers.worker import Worker
from recollect.types import Change, Files, FileState, Put, Record, SetFileState, SetFolderOptions, Store

FIELD = "rules"
FIRST = 1  # the rules of folders that were indexed before this was recorded


def rules_of(options: Mapping[str, Any] | None) -> int:
    """The rules that the stored options of a folder record; anybody may have written them into an export."""
    rules = (options or {}).get(FIELD)
    return rules if isinstance(rules, int) else FIRST


def rules_after(roots: Mapping[str, Mapping[str, Any] | None], root: Path) -> int:
    """The rules to record after indexing a root: the oldest of the folders around and inside it, whose files stay."""
    related = (folder for folder in roots if Path(folder).is_relative_to(root) or root.is_relative_to(folder))
    return min((rules_of(roots[folder]) for folder in related), default=documents.RULES)


def outdated(files: Files) -> dict[str, int]:
    """The folders that older rules cut, each with how many files it has; files that changed since count, too.

    A folder inside one of them is left out: `recut` of the outer one includes it. So is one whose options are not
    known: row-level security shows them to nobody.
    """
    known = {root: options for root, options in files.roots().items() if options is not None}
    old = {root for root, options in known.items() if rules_of(options) < documents.RULES}
    outermost = [root for root in sorted(old) if old.isdisjoint(map(str, Path(root).parents))]
    counts = {root: len(files.known(root)) for root in outermost}
    return {root: count for root, count in counts.items() if count}


def recut(store: Store, root: str) -> list[Change]:
    """The changes that cut all files of a folder by the present rules. They belong into one transaction.

    A file whose content has changed is left to the next `index`, which cuts it by the present rules. One that cannot
    be read now is marked, so that the next `index` reads it.
    """
    files, changes = store.files, list[Change]()
    with Worker() as worker:
        for path, state in sorted(files.known(root).items()):
            changes += _recut_file(store, path, state, worker)
    for folder, options in files.roots().items():
        if options is not None and Path(folder).is_relative_to(root):
            changes.append(SetFolderOptions(folder, {**options, FIELD: documents.RULES}))
    return changes


def _recut_file(store: Store, path: str, state: FileState, worker: Worker) -> list[Change]:
    try:
        content, _ = read_file(path)
    except (OSError, NotAFile):
        return [] if state.mtime_ns == MISSING else [SetFileState(path, replace(state, mtime_ns=UNREAD))]
    before, forgotten = store.files.chunks(path), store.files.chunks(path, forgotten=True)
    if not before or FileState.digest_of(content) != state.content_digest:
        return []
    try:
        document = documents.read_document(content, path, worker)
    except Unreadable:
        return [SetFileState(path, replace(state, mtime_ns=UNREAD))]
    options = IndexOptions(before[0].scope, before[0].tags)
    known = [*before, *forgotten]
    after = chunk_records(path, document, options=options, before=known, key=store.files.chunk_key())
    return _differences(before, without_forgotten(store, after, before, forgotten))


def _differences(before: Sequence[Record], after: Sequence[Record]) -> list[Change]:
    """What changes; nothing for a chunk that stays as it is."""
    known = {record.id: _shown(record) for record in before}
    changes = chunk_changes(before, after)
    return [
        change
        for change in changes
        if not isinstance(change, Put) or known.get(change.record.id) != _shown(change.record)
    ]


def _shown(record: Record) -> tuple[object, ...]:
    return record.title, record.text, record.lines, record.place, record.happened_at, record.expires_at
