"""Request bodies that are too large, too slow, too deep or not JSON: each gets an answer, and the server goes on."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time

import pytest
from support.timing import within

from recollect.web.middleware import HEADERS, MOST_BYTES

from .conftest import everything, head_and_body, refused

JSON = {"Content-Type": "application/json"}


def test_too_large_content_length_is_refused_at_once(server):
    """Before any byte of the body arrives."""
    said = f"POST /v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MOST_BYTES + 1}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(said.encode())
        status, headers, body = head_and_body(everything(connection, until=b"}}"))
    assert (status, body["error"]["code"]) == (413, "too_large")
    assert headers["x-request-id"] == body["error"]["request_id"]


@pytest.mark.parametrize("length", ["9" * 30, "0" * 30 + str(MOST_BYTES + 1), "-1", "1e3", "0x10", "5, 6"])
def test_invalid_content_length_is_refused(server, length):
    """Huge, negative, or not a number."""
    said = f"POST /v1/records HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(said.encode())
        assert head_and_body(connection.recv(65536))[0] in (400, 413)


def test_chunked_body_is_limited_while_it_arrives(server):
    """Without a length it is refused at the limit, and the next request is answered."""

    def pieces():
        for _ in range(MOST_BYTES // 65536 + 2):
            yield b" " * 65536

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has heard enough, and said so
        connection.request("POST", "/v1/records", body=pieces(), headers=JSON, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 413
    assert json.load(answer)["error"]["code"] == "too_large"
    connection.close()
    assert server.client().get("/healthz").status_code == 200


def test_client_continues_after_a_body_that_was_too_large(api):
    """The library's client, which reuses connections, gets the error and can send again."""
    answer = api.post("/v1/records", content=b" " * (MOST_BYTES + 1), headers=JSON)
    refused(answer, 413, "too_large")
    assert api.get("/v1/settings").status_code == 200


def test_longest_record_is_accepted(api):
    """A million letters, each six bytes long in JSON."""
    body = b'{"text": "' + rb"\u00e4" * 1_000_000 + b'"}'
    stored = api.post("/v1/records", content=body, headers=JSON)
    assert stored.status_code == 201
    assert stored.json()["text"] == "ä" * 1_000_000
    found = api.post("/v1/records", content=body.replace(b'"}', b'z"}'), headers=JSON)
    refused(found, 422, "invalid")
    api.delete(f"/v1/records/{stored.json()['id']}")


def test_unfinished_body_blocks_no_other_request(server):
    """Half a request stays open; others are answered, and closing it logs no error."""
    head = (
        "POST /v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    )
    waiting = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(60)]
    for connection in waiting:
        connection.sendall(head.encode() + b'{"text": "half')
    start = time.monotonic()
    assert server.client().post("/v1/search", json={"query": "x"}).status_code == 200
    assert within(time.monotonic() - start, 5)
    for connection in waiting:
        connection.close()
    assert server.client().get("/healthz").status_code == 200
    assert "Traceback" not in "".join(server.errors)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 422, "invalid"), (b"{", 422, "invalid"), (b"[]", 422, "invalid"), (b'"text"', 422, "invalid"),
        (b"null", 422, "invalid"), (b"1", 422, "invalid"), (b"\xff\xfe", None, None), (b"\x00", None, None),
        (b'{"query": "\xff"}', 400, "usage"), (b"[" * 100_000, 400, "usage"),
        (b'{"query": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", 400, "usage"),
        (b'{"query": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}", 400, "usage"),
        (b'{"query": "x", "limit": NaN}', 422, "invalid"), (b'{"query": "x", "limit": Infinity}', 422, "invalid"),
        (b'{"query": "x", "rrf_k": NaN}', 422, "invalid"), (b'{"query": "x", "rrf_k": -Infinity}', 422, "invalid"),
        (b'{"query": "x", "rrf_k": 1e999}', 422, "invalid"),
        (b'{"query": "x", "min_score": 1%s}' % (b"0" * 400), 422, "invalid"),
        (b'{"query": "x", "limit": 1%s}' % (b"0" * 400), 422, "invalid"),
        (b'{"query": "x", "limit": 1%s}' % (b"0" * 5000), 400, "usage"),
        (rb'{"query": "\ud800"}', 422, "invalid"), (rb'{"query": "x", "\udfff": 1}', 422, "invalid"),
        (rb'{"query": "x", "category": ["\ud83d"]}', 422, "invalid"),
        (b'{"query": "x", "wish": 1}', 422, "invalid"), (b'{"query": 5}', 422, "invalid"),
        (b'{"query": null}', 422, "invalid"), (b'{"query": "x", "limit": "5x"}', 422, "invalid"),
        (b'{"query": "x", "limit": true}', 422, "invalid"), (b'{"query": "x", "limit": "5"}', 422, "invalid"),
        (b'{"query": "x", "explain": 1}', 422, "invalid"), (b'{"query": "x", "mmr": "yes"}', 422, "invalid"),
        (b'{"query": "x", "rrf_k": "60"}', 422, "invalid"), (b'{"query": "x", "fusion": "magic"}', 422, "invalid"),
        (b'{"query": "x", "sources": ["nothing"]}', 400, None), (b'{"query": "x", "since": "soon"}', 400, "usage"),
        (b'{"query": "x", "scope": {"user": ""}}', 400, "usage"),
        (b'{"query": "x", "scope": {"pet": "x"}}', 422, "invalid"),
        (b'{"query": "%s"}' % (b"x" * 100_001), 422, "invalid"),
    ],
)  # fmt: skip
def test_invalid_requests_are_refused(api, body, status, code):
    """In the common error format, without any of the input, and without a failure."""
    answer = api.post("/v1/search", content=body, headers=JSON)
    assert answer.status_code < 500, answer.text
    if code:
        refused(answer, status, code)
    assert len(answer.content) < 4000 or answer.status_code == 200


@pytest.mark.parametrize(
    "query",
    ["", " ", "\x00", "a\x00b", "🔑", "AND OR NEAR(", '"', "*", "%", "x" * 100_000, "\u202e", "\ufffe", "col:x"]
)  # fmt: skip
def test_any_text_is_a_valid_query(api, query):
    """It is answered, and the answer repeats it unchanged."""
    answer = api.post("/v1/search", json={"query": query})
    assert answer.status_code == 200
    assert answer.json()["query"] == query


def test_last_of_two_equal_keys_counts(api):
    """As usual in JSON; values are not merged."""
    answer = api.post("/v1/search", content=b'{"query": "a", "query": "b"}', headers=JSON)
    assert answer.json()["query"] == "b"


@pytest.mark.parametrize("text", ["a\x00b", "\x00", "😀" * 10, "\u2028", "a\r\nb", "</script>", "\ufeff"])
def test_any_text_is_stored_unchanged(api, text):
    """Also invisible characters; white space alone is refused."""
    stored = api.post("/v1/records", json={"text": f"kept {text}"})
    assert stored.status_code == 201
    assert api.get(f"/v1/records/{stored.json()['id']}").json()["text"] == f"kept {text}"


@pytest.mark.parametrize(
    "kind",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml",
     "application/jsonp", "json", ""]
)  # fmt: skip
def test_body_without_json_content_type_is_refused(server, kind):
    """415, because a form on another site can send other types."""
    body = b'{"query": "x"}'
    lines = [
        "POST /v1/search HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        "Connection: close",
        f"Content-Length: {len(body)}",
    ]
    lines += [] if kind is None else [f"Content-Type: {kind}"]
    status, _, told = head_and_body(server.raw("\r\n".join([*lines, "", ""]).encode() + body))
    assert (status, told["error"]["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/json;x=y"])
def test_content_type_may_have_any_case_and_parameters(api, kind):
    """All spellings of application/json are accepted."""
    assert api.post("/v1/search", content=b'{"query": "x"}', headers={"Content-Type": kind}).status_code == 200


def test_body_of_a_get_request_is_ignored(api):
    """The request is answered as without one."""
    assert api.request("GET", "/v1/status", content=b'{"a": 1}', headers=JSON).status_code == 200


def test_invalid_http_is_answered_and_closed(server):
    """A TLS greeting, garbage, an endless line: the server goes on afterwards."""
    for said in (b"\x16\x03\x01\x02\x00", b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"x" * 100_000):
        answered = server.raw(said, patience=1)
        assert not answered or answered.split()[1] in (b"400", b"403", b"505")
    assert server.client().get("/healthz").json() == {"status": "ok"}


def test_invalid_http_is_answered_like_every_error(server):
    """In JSON, with an id and the headers of every answer."""
    status, headers, said = head_and_body(server.raw(b"GARBAGE\r\n\r\n"))
    assert (status, said["error"]["code"], headers["connection"]) == (400, "usage", "close")
    assert said["error"]["request_id"] == headers["x-request-id"]
    assert headers.items() >= {name.lower(): value.lower() for name, value in HEADERS.items()}.items()
    assert headers["cache-control"] == "no-store"
