"""Where records are kept: one module per system, loaded when used."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from recollect.config import misspelt, shown_place
from recollect.errors import UsageError
from recollect.registry import missing_package

KINDS = ("sqlite", "postgresql", "postgres", "lancedb")

if TYPE_CHECKING:
    from recollect.types import Store


def open_store(place: str, *, language: str | None = None, read_only: bool = False) -> Store:
    """The store at a path (`notes.db`, `:memory:`) or a URL (`sqlite:///home/ada/notes.db`, `postgresql://…`, …).

    `language` is that of a store that is made; one that exists keeps its own.
    """
    check_kind(place)
    scheme, separator, _ = place.partition("://")
    if separator and scheme in ("postgresql", "postgres"):
        return _postgres(place, language, read_only)
    if separator and scheme == "lancedb":
        from recollect.stores.lance import LanceStore

        return LanceStore(place, language=language, read_only=read_only)
    from recollect.stores.sqlite import SqliteStore

    path = unquote(urlsplit(place).path) if separator else place
    return SqliteStore(path, language=language, read_only=read_only)


def check_kind(place: str) -> None:
    """Refuse a URL of a system that there is no store for, or that is none because its slashes are missing."""
    scheme, separator, _ = place.partition("://")
    if separator and scheme not in KINDS:
        raise UsageError(f"unknown kind of store {scheme!r}", hint="name a file, postgresql://… or lancedb://…")
    if misspelt(place):
        raise UsageError(f"{shown_place(place)!r} is no address of a store", hint="two slashes belong after the colon")


def _postgres(url: str, language: str | None, read_only: bool) -> Store:
    try:
        from recollect.stores.postgres import PostgresStore
    except ImportError as error:
        raise missing_package(error, "a store in PostgreSQL", "postgres") from error
    return PostgresStore(url, language=language, read_only=read_only)
