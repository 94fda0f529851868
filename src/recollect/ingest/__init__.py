"""Files into records: discovery, documents, chunks, and folders that are kept indexed."""

from recollect.ingest.discovery import resolve_roots
from recollect.ingest.documents import Chunk, Document, read_markdown
from recollect.ingest.folder import FileChanges, IndexOptions, IndexRun, Report, in_batches

__all__ = [
    "Chunk",
    "Document",
    "FileChanges",
    "IndexOptions",
    "IndexRun",
    "Report",
    "in_batches",
    "read_markdown",
    "resolve_roots",
]
