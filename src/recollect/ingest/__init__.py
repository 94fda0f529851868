"""Files into records: discovery, documents, chunks, and folders that are kept indexed."""

from recollect.ingest.chunks import Chunk
from recollect.ingest.discovery import Wishes, roots_of
from recollect.ingest.documents import Note, read_note
from recollect.ingest.folder import Mirror, Report, Step, Telling, in_batches

__all__ = ["Chunk", "Mirror", "Note", "Report", "Step", "Telling", "Wishes", "in_batches", "read_note", "roots_of"]
