"""What several test folders share. `pythonpath = ["tests"]` makes it importable as `support`."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository."""

DOCS = ROOT / "docs"
DATA = Path(os.environ.get("RECOLLECT_DATA", ROOT / "../shared/data"))
"""The development sets, where this machine has them."""
