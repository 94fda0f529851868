"""`Memory`, the public interface to a store, and its parts."""

from recollect.config.settings import default_store
from recollect.memory.memory import Memory

__all__ = ["Memory", "default_store"]
