"""Files in: texts into chunks, folders into changes."""

from recollect.ingest.chunks import Chunk
from recollect.ingest.discover import Wishes, roots_of
from recollect.ingest.folder import Report, Telling, in_batches, mirror
from recollect.ingest.markdown import Note, read_note

__all__ = ["Chunk", "Note", "Report", "Telling", "Wishes", "in_batches", "mirror", "read_note", "roots_of"]
