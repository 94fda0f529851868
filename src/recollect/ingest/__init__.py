"""Files in: markdown into chunks, folders into changes."""

from recollect.ingest.folder import Report, mirror
from recollect.ingest.markdown import Chunk, Note, read_note

__all__ = ["Chunk", "Note", "Report", "mirror", "read_note"]
