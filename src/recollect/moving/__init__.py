"""Moving between stores: all that one holds into another, into a file, and back."""

from recollect.moving.transfer import Moved, copy, export, import_

__all__ = ["Moved", "copy", "export", "import_"]
