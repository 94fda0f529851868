"""Bytes into text, in any encoding, without losing the rest."""

from __future__ import annotations

import codecs
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.ingest.discovery import decode, is_text

SAMPLES = {
    "cp1250": "Zażółć gęślą jaźń i pijemy herbatę w ogrodzie",
    "cp1252": "Größe und Übung für “Äpfel” — naïve Café",
    "cp1251": "Привет, мир. Это обычный русский текст о чае.",
    "koi8_r": "Привет, мир. Это обычный русский текст о чае.",
    "cp932": "日本語のテキストです。お茶を飲みます。",
    "gb18030": "中文文本，关于茶的故事。",
    "cp949": "안녕하세요 차를 마십니다",
    "utf-8": "Tee 🫖 für dich",
    "utf-8-sig": "Tee 🫖 für dich",
    "utf-16": "Tee 🫖 für dich",
    "utf-32": "Tee 🫖 für dich",
}


@pytest.mark.parametrize("encoding", SAMPLES)
def test_old_and_new_encodings_come_back_whole(encoding: str) -> None:
    """A sentence in each of the usual encodings of notes."""
    content = SAMPLES[encoding].encode(encoding)
    assert is_text(content)
    assert decode(content) == SAMPLES[encoding]


def test_utf_16_of_both_byte_orders_is_read() -> None:
    """The mark says which end comes first."""
    assert decode(codecs.BOM_UTF16_BE + "Tee für dich".encode("utf-16-be")) == "Tee für dich"


def test_invalid_byte_costs_only_itself() -> None:
    """UTF-8 stays UTF-8 around it, and a NUL far down is replaced."""
    assert (
        decode("Grüße aus Köln ".encode() + b"\xff, caf\xe9 and " + "Übung".encode())
        == "Grüße aus Köln ÿ, café and Übung"
    )
    assert decode(b"tea\0pot") == "tea\ufffdpot"


@given(st.binary(max_size=400))
def test_any_content_becomes_storable_text(content: bytes) -> None:
    """No exception, no NUL, and it can be written as UTF-8."""
    text = decode(content)
    assert "\0" not in text
    text.encode("utf-8")


@pytest.mark.ci
@given(st.text(max_size=300))
def test_utf_8_is_unchanged(text: str) -> None:
    """Except for NUL, and a byte order mark."""
    assert decode(text.encode()) == text.removeprefix("\ufeff").replace("\0", "\ufffd")


def test_binaries_are_detected_by_their_head() -> None:
    """A NUL or many control characters in the first 8 KiB; colour codes and form feeds do not count."""
    assert not is_text(b"PK\x03\x04\x00\x00")
    assert not is_text(bytes(range(1, 32)) * 20)
    assert not is_text(b"x" * 8000 + b"\0")
    assert is_text(b"x" * 9000 + b"\0")
    assert is_text(b"\x1b[31mred\x1b[0m\f page\n")
    assert not is_text(b"\x7fELF\x02\x01\x01\x00" + os.urandom(100))
