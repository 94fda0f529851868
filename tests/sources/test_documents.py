"""Answers of external systems: one JSON document, JSON lines, or an error that quotes the answer."""

from __future__ import annotations

import json

import pytest

from recollect.errors import SourceFailed
from recollect.sources.matcher import SHOWN, excerpt, parse, read_rows


@pytest.mark.parametrize("document", [[], {}, [{"id": 1}], {"hits": [{"id": "ä", "score": 0.5}]}, 7, "x", None])
def test_reads_one_document(document):
    """Any JSON document is read."""
    assert parse(json.dumps(document).encode(), "qmd") == document


def test_reads_json_lines():
    """They become a list, with empty lines and Windows line ends."""
    assert parse(b'{"id": 1}\r\n\r\n{"id": 2}\n\n', "qmd") == [{"id": 1}, {"id": 2}]


def test_indented_document_is_one_document():
    """It is not read as JSON lines."""
    assert parse(json.dumps([{"id": 1}], indent=2).encode(), "qmd") == [{"id": 1}]


def test_unicode_line_separators_end_no_line():
    """U+2028 inside JSON is an ordinary character."""
    lines = '{"text": "a\u2028b"}\n{"text": "c\u0085d"}\n'
    assert parse(lines.encode(), "qmd") == [{"text": "a\u2028b"}, {"text": "c\u0085d"}]


def test_byte_order_mark_is_ignored():
    """Windows tools write one."""
    assert parse(b"\xef\xbb\xbf[1]", "qmd") == [1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "nothing"),
        (b" \n\t ", "nothing"),
        (b"\xef\xbb\xbf", "nothing"),
        (b"Usage: qmd [OPTIONS]", "“Usage: qmd [OPTIONS]”"),
        (b'{"results": [{"id": 1}, {"i', "Unterminated string"),
        (b'{"results": [\n{"id": 1},\n{"id', "Unterminated string"),
        (b'{"id": 1}\n{"id": 2}\n{"id', "number 3"),
        (b'Loading model\n{"id": 1}', "“Loading model"),
        (b'{"id": "\xff\xfe"}', "not UTF-8 (byte 9)"),
        ("[1]".encode("utf-16"), "not UTF-8"),
        (b'{"score": NaN}', "NaN"),
        (b'{"score": 1}\n{"score": -Infinity}', "-Infinity"),
        (b'{"score": 1e999}', "too large"),
        (b'{"score": ' + b"9" * 400 + b"}", "308 digits"),
        (b'{"score": -' + b"9" * 100_000 + b"}", "308 digits"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b"[1]\n" + b"[" * 200_000, "nested too deeply"),
        (b"[1] [2]", "Extra data"),
        (b"\x00\x01\x02", "not JSON"),
        (b"'single'", "not JSON"),
    ],
)
def test_invalid_answer_is_an_error_that_quotes_it(content, said):
    """Garbage, halves, other encodings and invalid numbers are refused with a reason and a hint."""
    with pytest.raises(SourceFailed) as caught:
        parse(content, "qmd")
    assert caught.value.message.startswith("qmd answered")
    assert said in caught.value.message
    assert len(caught.value.message) < SHOWN + 150
    assert caught.value.message.isprintable()
    assert caught.value.hint


def test_error_quotes_the_right_place():
    """In a long document the beginning would not help."""
    content = b"[" + b"1, " * 5000 + b"oops, " + b"2, " * 5000 + b"3]"
    with pytest.raises(SourceFailed, match=r"“….*oops.*…”"):
        parse(content, "qmd")


def test_excerpt_has_no_control_characters():
    """Nor direction marks or line breaks."""
    assert excerpt("a\x1b[31mb\r\nc\u202ed\x00e\u2028f") == "“a [31mb c d e f”"


def test_excerpt_is_short():
    """It is cut, and the cut is shown."""
    assert len(excerpt("x" * 10_000_000)) == SHOWN + 3
    assert excerpt("x" * 10_000_000).endswith("…”")


@pytest.mark.parametrize("echo", ["no: %s", '{"auth": "%s"', "x" * 1000 + "%s"])
@pytest.mark.parametrize(("secret", "form"), [("s3cr3t", "s3cr3t"), ('s"3/', 's\\"3/'), ("a b+", "a%20b%2B")])
def test_answer_with_a_secret_is_not_quoted(echo, secret, form):
    """Plain, as JSON or percent-encoded."""
    with pytest.raises(SourceFailed, match="not shown") as caught:
        parse((echo % form).encode(), "host", [secret])
    assert form not in caught.value.message


def test_rows_with_none_of_the_fields_are_an_error():
    """A wrong name under `fields` must not look like an answer without results; one row may lack them."""
    rows = [{"id": "n1", "text": "night train"}, {"id": "n2"}]
    with pytest.raises(SourceFailed, match="no row of its answer has an id"):
        read_rows(rows, "", {"id": "_id", "text": "body"})
    assert [row.text for row in read_rows(rows, "", {"text": "text"})] == ["night train", ""]
    assert read_rows([], "", {"id": "_id"}) == []
