"""The keyword index beside what is stored: how far it has read, whether it agrees, and building it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw

from recollect.analysis import Analyzer
from recollect.doctor.findings import Telling
from recollect.doctor.looking import DERIVED, damage
from recollect.stores.sqlite import SqliteStore
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.rows import meta, sequence

SAMPLE = 50
"""Records whose words are looked up one by one; of the others it is only asked whether they are there at all."""

MOST_CHARACTERS = 20_000
"""Longer records are not analysed again for a look."""

LIVE = "SELECT row FROM records WHERE forgotten_at IS NULL"


def state_of(connection: apsw.Connection) -> int | None:
    """How many changes the index has not read; None where there is no index of this analysis."""
    noted = meta(connection, "keywords")
    tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('terms', 'terms_instance', 'terms_docsize', 'lengths')"
    if noted is None or connection.execute(tables).get != 4:  # noqa: PLR2004  (as many as are named)
        return None if sequence(connection) else 0
    fingerprint, done = noted.rsplit(" ", 1)
    return sequence(connection) - int(done) if fingerprint == _analyzer(connection).fingerprint else None


def disagreements(path: Path, connection: apsw.Connection) -> list[str]:
    """Where an index that has read everything is not what is stored."""
    if meta(connection, "keywords") is None:
        return []  # nothing was ever stored
    return damage(path, DERIVED)[0] or list(_counted(connection)) or list(_sampled(connection))


def _counted(connection: apsw.Connection) -> Iterator[str]:
    """Records that it does not hold, and what it holds beyond them."""
    indexed = "SELECT id FROM terms_docsize INTERSECT SELECT row FROM lengths"
    held = "SELECT id FROM terms_docsize UNION SELECT row FROM lengths"
    for words, sql in (
        ("records are not in it", f"{LIVE} EXCEPT SELECT * FROM ({indexed})"),
        ("of its rows are of no record", f"SELECT * FROM ({held}) EXCEPT {LIVE}"),
    ):
        count = connection.execute(f"SELECT count(*) FROM ({sql})").get
        if count:
            yield f"{count:,} {words}"


def _sampled(connection: apsw.Connection) -> Iterator[str]:
    """Records, spread over all, whose words are not the ones that it has of them."""
    analyzer = _analyzer(connection)
    step = max(1, int(connection.execute(f"SELECT count(*) FROM ({LIVE})").get) // SAMPLE)
    rows = connection.execute(
        "SELECT row, id, title, text, length FROM records JOIN lengths USING (row) WHERE forgotten_at IS NULL"
        " AND row % ? = 0 AND length(text) <= ? LIMIT ?",
        (step, MOST_CHARACTERS, SAMPLE),
    ).fetchall()
    for row, name, title, text, length in rows:
        tokens = [token for part in (title, text) for token in analyzer.tokens(str(part))]
        if max(1, sum(not token.stop for token in tokens)) != length:
            yield f"it counts other words than the record {name} has"
        elif tokens and not _holds(connection, max((token.term for token in tokens), key=len), int(str(row))):
            yield f"it does not have the words of the record {name}"


def _holds(connection: apsw.Connection, term: str, row: int) -> bool:
    find = "SELECT EXISTS (SELECT 1 FROM terms_instance WHERE term = ? AND doc = ?)"
    return bool(connection.execute(find, (term, row)).get)


def _analyzer(connection: apsw.Connection) -> Analyzer:
    return Analyzer(meta(connection, "language") or "english")


def rebuild(path: Path, telling: Telling, *, anew: bool) -> None:
    """Let the index catch up; `anew` from the first change on, as if there had never been one."""
    telling.announce(f"building the keyword index of {path}" if anew else "letting the keyword index catch up")
    if anew:
        database = Database(path)
        try:
            with database.write() as connection:
                connection.execute("DELETE FROM meta WHERE key = 'keywords'")
        finally:
            database.close()
    store = SqliteStore(path)
    try:
        store.keywords.catch_up()
    finally:
        store.close()
