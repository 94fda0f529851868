"""Learning of changes as they happen: PostgreSQL tells whoever listens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from recollect.stores.postgres.database import Database
from recollect.stores.postgres.failures import translated
from recollect.stores.postgres.records import CHANNEL


@contextlib.contextmanager
def listening(database: Database) -> Iterator[Iterator[bool]]:
    """Within it, one `True` for each time something has changed, and `False` for each quiet second."""
    with database.alone() as connection:
        with translated(database.shown):
            connection.execute(f"LISTEN {CHANNEL}")

        def told() -> Iterator[bool]:
            while True:
                with translated(database.shown):
                    heard = list(connection.notifies(timeout=1.0, stop_after=1))
                yield any(notice.payload == database.schema for notice in heard)

        yield told()
