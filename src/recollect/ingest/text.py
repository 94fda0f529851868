"""Files as text: open them safely, tell text from data, and decode it; a bad byte does not spoil the rest."""

from __future__ import annotations

import codecs
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

HEAD = 8 * 1024
"""Bytes at the start of a file that decide whether it is text."""

SAMPLE = 64 * 1024
"""Bytes from which an encoding is guessed."""

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Do not wait, and follow no link: what was a file when it was listed may be a pipe by now."""

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
_NOT_LATIN = 0.3
"""Share of bytes beyond ASCII from which a text is not in the Latin alphabet."""

_CONTROLS = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_MULTIBYTE = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
_HIGH = re.compile(rb"[\x80-\xff]")


class NotAFile(OSError):
    """The path is a folder, a pipe or a device."""


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading; raises NotAFile for anything else. Does not wait and follows no link."""
    file = open(os.open(path, _READ_FLAGS), "rb")  # noqa: PTH123, SIM115  (of a descriptor; the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotAFile(0, "not a file", str(path))
    return file


def reason_of(error: OSError) -> str:
    """Why a file cannot be read, in a few words."""
    return (error.strerror or "cannot be read").lower()


def is_text(content: bytes) -> bool:
    """Whether this is text, by its head: no NUL (unless marked as UTF-16 or UTF-32), and few control characters."""
    head = content[:HEAD]
    if any(head.startswith(mark) for mark, _ in _BOMS):
        return True
    return b"\0" not in head and len(_CONTROLS.findall(head)) * 50 <= len(head)


def holds_key(head: bytes) -> bool:
    """Whether the first line of a file says that it is a private key."""
    return head.startswith(b"-----BEGIN") and b"PRIVATE KEY-----" in head.partition(b"\n")[0]


def decode(content: bytes) -> str:
    """Decode text in whatever encoding. NUL becomes U+FFFD; a byte that fits nowhere changes only itself."""
    return _decode(content).replace("\0", "\ufffd")


def _decode(content: bytes) -> str:
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return content.decode(encoding, "replace")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        pass
    # UTF-8 with a bad byte here and there, or another encoding that looks like it by chance now and then?
    sequences = _MULTIBYTE.findall(content)
    bad = len(_HIGH.findall(content)) - sum(map(len, sequences))
    return content.decode("utf-8", "recollect.bytes") if len(sequences) > bad else _guess(content)


def _guess(content: bytes) -> str:
    """Western or central European by default; charset-normalizer decides about text that is mostly beyond ASCII."""
    from charset_normalizer import from_bytes

    sample = content[:SAMPLE]
    letters = sum(chr(byte).isalpha() or byte >= 0x80 for byte in sample)  # noqa: PLR2004  (the end of ASCII)
    if len(_HIGH.findall(sample)) >= _NOT_LATIN * max(letters, 1):
        best = from_bytes(sample, cp_isolation=list(_OTHER)).best()
        return content.decode(best.encoding if best else "cp1252", "recollect.bytes")
    matches = from_bytes(sample, cp_isolation=list(_WESTERN))
    coherence = {match.encoding: match.coherence for match in matches}
    encoding = max(_WESTERN, key=lambda name: coherence.get(name, 0.0))  # the first among equals
    return content.decode(encoding, "recollect.bytes")


def _as_latin(error: UnicodeError) -> tuple[str, int]:
    """Decode the bytes that an encoding does not know as Latin-1, in which every byte is a character."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("recollect.bytes", _as_latin)
