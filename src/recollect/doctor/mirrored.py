"""Files that were indexed, beside how they are now."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from recollect.doctor.findings import Finding
from recollect.doctor.server import Server
from recollect.doctor.setup import Setup
from recollect.stages.order import freshness
from recollect.types import FileState

NAMED = 3
"""Folders that are named one by one."""

SELECT = "SELECT path, root, mtime_ns, size, digest FROM files ORDER BY root"

_FLAGGED = """
    SELECT EXISTS (SELECT 1 FROM records JOIN scopes USING (scope) WHERE kind = 'chunk' AND forgotten_at IS NULL
        AND (tags <> '{}' OR coalesce("user", agent, session) IS NOT NULL))
"""


def compared(rows: Sequence[Any], flags: str, flagged: Callable[[], object]) -> Iterator[Finding]:
    """Whether the files are as they were; `flagged` is whether some would be indexed as others without their flags."""
    if not rows:
        yield Finding("files", "ok", "no folder is mirrored")
        return
    marks = [(freshness(row[0], FileState(*row)), str(row[1])) for row in rows]
    stale = [(mark, root) for mark, root in marks if mark != "fresh"]
    if not stale:
        yield Finding("files", "ok", f"all {len(rows):,} are as they were indexed")
        return
    counts = Counter(mark for mark, _ in stale)
    said = " and ".join(f"{count:,} {mark}" for mark, count in sorted(counts.items()))
    roots = list(dict.fromkeys(root for _, root in stale))
    where = shlex.join(roots[:NAMED]) + (" …" if len(roots) > NAMED else "")
    same = ", with the flags that it was indexed with" if flagged() else ""
    mend = f"recollect index {where}{flags}{same}"
    yield Finding("files", "warning", f"{said} since they were indexed, of {len(rows):,}", mend)


def files(server: Server, setup: Setup) -> Iterator[Finding]:
    """The same in PostgreSQL, of what is on this machine: other folders are for the machine that has them."""
    from recollect.stores.postgres.database import plain

    rows = [(plain(path), plain(root), *state) for path, root, *state in server.rows(SELECT)]
    here = {root: Path(root).exists() for _, root, *_ in rows}
    if away := sorted(root for root, there in here.items() if not there):
        count = sum(not here[row[1]] for row in rows)
        named = ", ".join(away[:NAMED]) + (" …" if len(away) > NAMED else "")
        yield Finding("files", "note", f"{count:,} are of folders that are not on this machine: {named}")
    near = [row for row in rows if here[row[1]]]
    if near or not rows:
        yield from compared(near, setup.flags, lambda: server.row(_FLAGGED)[0])
