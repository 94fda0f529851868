from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.errors import EmbedderError, UsageError
from recollect.models.embedders import open_embedder
from recollect.models.hashing import HashingEmbedder
from recollect.types import Embedder

KEY = "sk-secret-0123456789"
TEXTS = ["tide table", "harbour master", "north wind", "low water"]


def opened(server, **options):
    """An embedder that asks the server of this test."""
    return open_embedder("openai:test-model", **{"base_url": server.url, "api_key": KEY, "retries": 2, **options})


def expected(texts, dimension=16):
    """What the server's vectors are once they have length 1."""
    return HashingEmbedder(dimension).passages(texts)


def vectors(*rows):
    """The body of an answer with these vectors."""
    return json.dumps({"data": [{"index": number, "embedding": row} for number, row in enumerate(rows)]})


def test_it_is_an_embedder(server):
    """It has the four members of the seam."""
    assert isinstance(opened(server), Embedder)
    assert opened(server).name == "openai:test-model"


def test_vectors_come_back_as_unit_rows(server):
    """The server's vectors are made unit length, and the request is the protocol's."""
    rows = opened(server).passages(TEXTS)
    assert rows.dtype == np.float32
    assert rows == pytest.approx(expected(TEXTS), abs=1e-6)
    (asked,) = server.asked
    assert asked.path == "/v1/embeddings"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {"model": "test-model", "input": TEXTS, "encoding_format": "float"}


def test_a_shuffled_answer_is_put_in_order(server, reply):
    """Vectors are placed by their index, not by their order of arrival."""
    server.script = [reply(reverse=True)]
    assert opened(server).passages(TEXTS) == pytest.approx(expected(TEXTS), abs=1e-6)


def test_many_texts_are_sent_in_batches(server):
    """One hundred and thirty texts are three requests of at most 64, and come back in order."""
    texts = [f"text number {number}" for number in range(130)]
    assert opened(server).passages(texts) == pytest.approx(expected(texts), abs=1e-6)
    assert [len(asked.body["input"]) for asked in server.asked] == [64, 64, 2]


def test_no_texts_ask_for_nothing(server):
    """The empty list is answered without a request."""
    assert opened(server, dimensions=32).passages([]).shape == (0, 32)
    assert server.asked == []


def test_prefixes_go_before_queries_and_passages(server):
    """Each kind of text gets its own prefix."""
    embedder = opened(server, query_prefix="query: ", passage_prefix="passage: ")
    embedder.query("tide")
    embedder.passages(["tide"])
    assert [asked.body["input"] for asked in server.asked] == [["query: tide"], ["passage: tide"]]


def test_a_repeated_query_is_asked_once(server):
    """The last queries' vectors are kept."""
    embedder = opened(server)
    assert embedder.query("tide") is embedder.query("tide")
    assert len(server.asked) == 1


def test_hostile_texts_reach_the_server_as_valid_text(server):
    """The empty text, lone surrogates and NUL are replaced by what a server can read."""
    assert opened(server).passages(["", "\ud800x", "a\0b"]).shape == (3, 16)
    assert server.asked[0].body["input"] == [" ", "\ufffdx", "a\ufffdb"]


def test_dimensions_are_asked_for(server):
    """Where a dimension is given, the server is asked for it."""
    assert opened(server, dimensions=32).query("tide").shape == (32,)
    assert server.asked[0].body["dimensions"] == 32


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_tried_again(server, reply, status):
    """A server that is busy or has stumbled is asked again, and the answer counts."""
    server.script = [reply(status=status, body="busy"), reply(status=status, body="busy")]
    assert opened(server).query("tide") == pytest.approx(expected(["tide"])[0], abs=1e-6)
    assert len(server.asked) == 3


def test_a_broken_connection_is_tried_again(server, reply):
    """A server that hangs up in the middle is asked again."""
    server.script = [reply(hang_up=True)]
    assert opened(server).query("tide").shape == (16,)
    assert len(server.asked) == 2


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_honoured(server, reply, form):
    """The next try comes after the time the server asked for, in either form of the header."""
    when = "1" if form == "seconds" else format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    server.script = [reply(status=429, body="slow down", headers={"Retry-After": when})]
    opened(server).query("tide")
    assert server.asked[1].at - server.asked[0].at > 0.7


def test_retry_after_is_bounded(server, reply, monkeypatch):
    """A server that asks for a day is not given one."""
    monkeypatch.setattr("recollect.models.openai.LONGEST_WAIT_S", 0.05)
    server.script = [reply(status=429, body="tomorrow", headers={"Retry-After": "86400"})]
    assert opened(server).query("tide").shape == (16,)


def test_a_server_that_stays_down_is_an_error_with_its_words(server, reply):
    """After the last try the error holds the status and the start of the body, at most 200 characters of it."""
    server.script = [reply(status=500, body="broken " * 100)] * 3
    with pytest.raises(EmbedderError, match=r"127\.0\.0\.1:\d+ answered 500: broken") as caught:
        opened(server).query("tide")
    assert len(server.asked) == 3
    assert caught.value.message.count("broken") <= 29


@pytest.mark.parametrize(("status", "advice"), [(400, "own message"), (401, "API key"), (404, "base_url")])
def test_what_will_not_pass_is_not_tried_again(server, reply, status, advice):
    """A wrong request is an error at once, with advice that fits its status."""
    server.script = [reply(status=status, body="no")]
    with pytest.raises(EmbedderError, match=f"answered {status}: no") as caught:
        opened(server).query("tide")
    assert len(server.asked) == 1
    assert advice in caught.value.hint


def test_the_key_is_never_shown(server, reply):
    """A server that repeats the key in its complaint does not make us show it, in any part of the error."""
    server.script = [reply(status=401, body=f"the key {KEY} is wrong")]
    with pytest.raises(EmbedderError) as caught:
        opened(server).query("tide")
    assert KEY not in f"{caught.value.message} {caught.value.hint} {caught.value!r}"
    assert "the key [key] is wrong" in caught.value.message


def test_a_slow_server_is_given_up_on(server, reply):
    """A server that does not answer in time is an error that says so, after as many tries as were allowed."""
    server.script = [reply(delay_s=1.0)] * 2
    with pytest.raises(EmbedderError, match="did not answer after 2 tries: ReadTimeout"):
        opened(server, timeout=0.2, retries=1).query("tide")
    assert len(server.asked) == 2


def test_a_server_that_is_not_there_is_an_error(server):
    """A refused connection names the host and what to check."""
    server.close()
    with pytest.raises(EmbedderError, match=r"127\.0\.0\.1:\d+ did not answer at the only try") as caught:
        opened(server, retries=0).query("tide")
    assert "base_url" in caught.value.hint


@pytest.mark.parametrize(
    "body",
    [
        "<html>welcome</html>",
        "{}",
        "[]",
        "null",
        '{"data": [{"embedding": [1, 2]}]}',
        '{"data": [{"index": 0, "embedding": "words"}]}',
        '{"data": [{"index": 0, "embedding": []}]}',
        '{"data": [{"index": 0, "embedding": 1.5}]}',
        '{"data": [{"index": 1, "embedding": [1, 2]}]}',
        '{"data": []}',
        vectors([1.0, 2.0], [3.0, 4.0]),
        vectors([0.0, 0.0]),
        '{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}',
        '{"data": [{"index": 0, "embedding": [Infinity, 1.0]}]}',
        '{"data": [{"index": 0, "embedding": [null, 1.0]}]}',
        '{"data": [{"index": 0, "embedding": [1e300, 1.0]}]}',
    ],
)
def test_an_answer_that_is_not_vectors_is_refused(server, reply, body):
    """What is not JSON, not one vector for each text, or not finite is an error and never a vector."""
    server.script = [reply(body=body)]
    with pytest.raises(EmbedderError):
        opened(server).query("tide")


def test_a_ragged_answer_is_refused(server, reply):
    """Vectors of two lengths in one answer are an error."""
    server.script = [reply(body=vectors([1.0, 2.0], [1.0, 2.0, 3.0]))]
    with pytest.raises(EmbedderError, match="not a list of vectors"):
        opened(server).passages(["a", "b"])


def test_another_dimension_than_asked_for_is_refused(server, reply):
    """A server that ignores the dimension it was asked for is found out."""
    server.script = [reply(body=vectors([1.0, 2.0, 3.0]))]
    with pytest.raises(EmbedderError, match="dimension 3 where 32 was expected"):
        opened(server, dimensions=32).query("tide")


def test_a_dimension_that_changes_is_refused(server, reply):
    """A server whose model was exchanged behind our back is found out."""
    embedder = opened(server)
    embedder.query("tide")
    server.script = [reply(dimension=8)]
    with pytest.raises(EmbedderError, match="dimension 8 where 16 was expected"):
        embedder.query("wind")


def test_a_redirect_is_not_followed(server, reply):
    """Neither key nor text goes to a host that a redirect names; the error says which it was."""
    server.script = [reply(status=307, body="", headers={"Location": "http://elsewhere.invalid/v1/embeddings"})]
    with pytest.raises(EmbedderError, match=r"307, a redirect to elsewhere\.invalid, which is not followed"):
        opened(server).query("tide")
    assert len(server.asked) == 1


def test_the_environment_says_where_and_who(server, monkeypatch):
    """OPENAI_BASE_URL and OPENAI_API_KEY serve where no option is given."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    open_embedder("openai:test-model").query("tide")
    assert server.asked[0].headers["authorization"] == "Bearer from-the-environment"


def test_ollama_is_not_given_openais_key(server, monkeypatch):
    """The key in the environment is for OpenAI, and does not leave for another service."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    open_embedder("ollama:nomic-embed-text", base_url=server.url).query("tide")
    assert "authorization" not in server.asked[0].headers
    assert server.asked[0].body["model"] == "nomic-embed-text"


def test_the_fingerprint_is_of_the_vectors_and_not_of_the_way_to_them(server):
    """Address and key may change; model, dimension and prefixes may not."""
    base = opened(server).fingerprint
    assert opened(server, base_url="http://other.invalid/v1", api_key="other", timeout=1.0).fingerprint == base
    changes = [{"dimensions": 32}, {"query_prefix": "q: "}, {"passage_prefix": "q: "}]
    others = [opened(server, **change).fingerprint for change in changes]
    others.append(open_embedder("openai:other-model", base_url=server.url, api_key=KEY).fingerprint)
    assert len({base, *others}) == 5
    assert KEY not in base
    assert "127.0.0.1" not in base


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("openai", {}, "'openai' does not name a model"),
        ("openai:m", {}, "openai:m needs an API key"),
        ("openai:m", {"base_url": "localhost:8080"}, "is not an http or https address"),
        ("openai:m", {"base_url": "http://localhost", "timeout": 0}, "timeout must be above 0"),
        ("ollama:m", {"colour": "red"}, "colour"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_sent(server, spec, options, message):
    """Missing models, keys and addresses, and options that do not exist, are usage errors."""
    with pytest.raises(UsageError, match=message):
        open_embedder(spec, **options)


def test_the_vector_of_a_query_is_kept_for_the_scope_that_asked(server, path):
    """A service is asked again for a question of another scope, and once for each scope's own."""
    with Memory.open(path, embedder=opened(server), settings=Settings()) as memory:
        memory.add("The heron stood in the reeds at dawn.")
        server.asked.clear()
        ada, bob = memory.within(Scope("ada")), memory.within(Scope("bob"))
        counts = []
        for asker in (memory, memory, bob, bob, ada, ada):
            assert asker.search("wading bird?", sources=["vector"]).results
            counts.append(len(server.asked))
    assert counts == [1, 1, 2, 2, 3, 3]
