"""`Memory`, the public interface to a store, and its parts."""

from recollect.memory.memory import Memory, default_store

__all__ = ["Memory", "default_store"]
