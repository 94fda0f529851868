"""Files into records: discovery, documents, chunks, and folders that are indexed again when they change."""
