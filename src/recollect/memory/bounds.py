"""How much text a server gives at once."""

from __future__ import annotations

from typing import Any

FOUND_CHARACTERS = 4_000
"""Of a text in a list of results; `memory_get` has all of it."""

READ_CHARACTERS = 40_000
"""Of a text that is read; the rest is read from `next_offset` on."""


def bounded(record: dict[str, Any], most: int = FOUND_CHARACTERS, offset: int = 0) -> dict[str, Any]:
    """A record as JSON with no more text than that; where it was cut, how much there is and where to read on."""
    text, title = record["text"], record["title"]
    if len(text) <= most and not offset and len(title) <= most:
        return record
    cut = {**record, "text": text[offset : offset + most], "title": title[:most], "text_chars": len(text)}
    return cut | ({"next_offset": offset + most} if offset + most < len(text) else {})
