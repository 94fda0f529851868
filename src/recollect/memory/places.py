"""Where things are kept for a person who named no place."""

from __future__ import annotations

from pathlib import Path


def default_store() -> Path:
    """The store of a person who named none."""
    import platformdirs

    return Path(platformdirs.user_data_dir("recollect")) / "memory.db"
