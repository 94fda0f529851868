"""Text as a model can be given it."""

from __future__ import annotations


def well_formed(text: str) -> str:
    """The text with what neither a tokenizer nor a server can read (lone surrogates, NUL) replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
