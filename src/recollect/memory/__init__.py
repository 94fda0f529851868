"""`Memory`, the public interface to a store, and its parts."""

from recollect.memory.memory import Memory
from recollect.memory.opening import default_store

__all__ = ["Memory", "default_store"]
