"""A store in PostgreSQL with pgvector, for many machines (the extra `postgres`)."""

from recollect.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
