"""The façade: `Memory` builds everything and holds it together."""

from recollect.memory.facade import Memory, default_store

__all__ = ["Memory", "default_store"]
