"""The façade: `Memory` builds everything and holds it together."""

from recollect.memory.memory import Memory
from recollect.memory.opening import default_store

__all__ = ["Memory", "default_store"]
