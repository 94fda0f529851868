"""Bytes into text: which are text at all, and in which encoding, without losing the rest to one bad byte."""

from __future__ import annotations

import codecs
import re

HEAD = 8 * 1024
"""Bytes at a file's top by which it is judged; a NUL among them means that it is not text."""

SAMPLE = 64 * 1024
"""Bytes by which an encoding is guessed."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WESTERN = ("cp1252", "cp1250", "cp1254", "cp1257")
_OTHER = (
    "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", "cp874", "cp932", "euc_jp", "gb18030", "big5", "euc_kr", "cp949",
)  # fmt: skip
_MOSTLY = 0.3
"""Share of bytes beyond ASCII from which on a text is not in the Latin alphabet."""

_CONTROLS = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_MULTIBYTE = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
_HIGH = re.compile(rb"[\x80-\xff]")


def is_text(content: bytes) -> bool:
    """Whether this is text, by its head: no NUL (but for UTF-16 and UTF-32 with their mark), hardly a control sign."""
    head = content[:HEAD]
    if any(head.startswith(mark) for mark, _ in _BOMS):
        return True
    return b"\0" not in head and len(_CONTROLS.findall(head)) * 50 <= len(head)


def decode(content: bytes) -> str:
    """The text, whatever its encoding; a NUL or a byte that fits nowhere costs only itself."""
    return _decode(content).replace("\0", "\ufffd")


def _decode(content: bytes) -> str:
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return content.decode(encoding, "replace")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        pass
    good = len(_MULTIBYTE.findall(content))
    text = content.decode("utf-8", "recollect.bytes")
    # UTF-8 with a bad byte here and there, or another encoding that looks like it by chance now and then?
    bad = len(_HIGH.findall(content)) - sum(len(found) for found in _MULTIBYTE.findall(content))
    return text if good > bad else _guess(content)


def _guess(content: bytes) -> str:
    """Western or central European by default; what is mostly beyond ASCII is judged by charset-normalizer."""
    from charset_normalizer import from_bytes

    sample = content[:SAMPLE]
    letters = sum(chr(byte).isalpha() or byte >= 0x80 for byte in sample)  # noqa: PLR2004  (the end of ASCII)
    if len(_HIGH.findall(sample)) >= _MOSTLY * max(letters, 1):
        best = from_bytes(sample, cp_isolation=list(_OTHER)).best()
        return content.decode(best.encoding if best else "cp1252", "recollect.bytes")
    matches = from_bytes(sample, cp_isolation=list(_WESTERN))
    coherence = {match.encoding: match.coherence for match in matches}
    encoding = max(_WESTERN, key=lambda name: coherence.get(name, 0.0))  # the first among equals
    return content.decode(encoding, "recollect.bytes")


def _as_latin(error: UnicodeError) -> tuple[str, int]:
    """Bytes that an encoding has no place for, as Latin-1: every one of them is some letter there."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("recollect.bytes", _as_latin)
