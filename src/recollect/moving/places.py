"""Where stores are: opened where they must be there, recognised where two names are one store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from recollect.config import shown_place
from recollect.errors import UsageError
from recollect.stores import check_kind, open_store
from recollect.types import Store
from recollect.types.moving import Moving

Place: TypeAlias = str | Path | Store
"""A path, a URL, or a store that is open."""


@contextlib.contextmanager
def opened(place: Place) -> Iterator[Moving]:
    """The store of a place, to be moved from or to; one that was opened here is closed again."""
    if not isinstance(place, str | Path):
        yield _moving(place)
        return
    store = open_store(str(place))
    try:
        yield _moving(store)
    finally:
        store.close()


def exists(place: Place) -> bool:
    """Whether there is a store; nothing is made."""
    if not isinstance(place, str | Path):
        return True
    scheme, separator, _ = str(place).partition("://")
    check_kind(str(place))
    if separator and scheme in ("postgresql", "postgres"):
        from recollect.stores.postgres.moving import has_store

        return has_store(str(place))
    if scheme == "lancedb" and separator:
        from recollect.stores.lance.place import read_place

        path = Path(read_place(str(place)).truth)
    else:
        path = Path(unquote(urlsplit(str(place)).path) if separator else place).expanduser()
    return path.exists()  # an empty file too: opening it says what may have happened


def require(place: Place) -> None:
    """Refuse a place where there is no store: nothing could come from it."""
    if not exists(place):
        raise UsageError(
            f"there is no store at {shown_place(str(place))}", hint="check the name; nothing was made there"
        )


def _moving(store: Store) -> Moving:
    moving: Moving | None = getattr(store, "moving", None)
    if moving is None:
        raise UsageError(f"{type(store).__name__} cannot be moved", hint="a file or PostgreSQL can")
    return moving
