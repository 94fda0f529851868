"""Moving between stores: all that one holds into another, into a file, and back."""

from recollect.moving.commands import copy, export, import_
from recollect.moving.transfer import Moved

__all__ = ["Moved", "copy", "export", "import_"]
