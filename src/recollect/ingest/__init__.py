"""Files in: texts into chunks, folders into changes."""

from recollect.ingest.chunks import Chunk
from recollect.ingest.discover import Wishes, roots_of
from recollect.ingest.folder import Mirror, Report, Step, Telling, in_batches
from recollect.ingest.markdown import Note, read_note

__all__ = ["Chunk", "Mirror", "Note", "Report", "Step", "Telling", "Wishes", "in_batches", "read_note", "roots_of"]
