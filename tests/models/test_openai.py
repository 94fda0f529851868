from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest

from recollect import Memory, Scope
from recollect.config import OpenAISettings, Settings
from recollect.errors import EmbedderError, UsageError
from recollect.models.embedders import open_embedder
from recollect.models.hashing import HashingEmbedder
from recollect.types import Embedder

KEY = "sk-secret-0123456789"
TEXTS = ["tide table", "harbour master", "north wind", "low water"]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    """The key of the settings of this test."""
    monkeypatch.setenv("TIDE_KEY", KEY)


def opened(server, spec="openai:test-model", **options):
    """An embedder that asks the server of this test."""
    options = {"base_url": server.url, "api_key_env": "TIDE_KEY", "retries": 2, **options}
    return open_embedder(spec, settings=Settings(openai=OpenAISettings(**options)))


def expected(texts, dimension=16):
    """What the server's vectors are once they have length 1."""
    return HashingEmbedder(dimension).passages(texts)


def vectors(*rows):
    """The body of an answer with these vectors."""
    return json.dumps({"data": [{"index": number, "embedding": row} for number, row in enumerate(rows)]})


def test_implements_the_embedder_protocol(server):
    """It has the four members."""
    assert isinstance(opened(server), Embedder)
    assert opened(server).name == "openai:test-model"


def test_vectors_are_unit_rows(server):
    """The request follows the protocol."""
    rows = opened(server).passages(TEXTS)
    assert rows.dtype == np.float32
    assert rows == pytest.approx(expected(TEXTS), abs=1e-6)
    (asked,) = server.asked
    assert asked.path == "/v1/embeddings"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {"model": "test-model", "input": TEXTS, "encoding_format": "float"}


def test_shuffled_answer_is_put_in_order(server, reply):
    """Vectors are placed by their index."""
    server.script = [reply(reverse=True)]
    assert opened(server).passages(TEXTS) == pytest.approx(expected(TEXTS), abs=1e-6)


def test_many_texts_are_sent_in_batches(server):
    """130 texts are three requests of at most 64, in order."""
    texts = [f"text number {number}" for number in range(130)]
    assert opened(server).passages(texts) == pytest.approx(expected(texts), abs=1e-6)
    assert [len(asked.body["input"]) for asked in server.asked] == [64, 64, 2]


def test_no_texts_send_no_request(server):
    """The empty list is answered without a request."""
    assert opened(server, dimensions=32).passages([]).shape == (0, 32)
    assert server.asked == []


def test_prefixes_are_added_to_queries_and_passages(server):
    """Each kind of text gets its own prefix."""
    embedder = opened(server, query_prefix="query: ", passage_prefix="passage: ")
    embedder.query("tide")
    embedder.passages(["tide"])
    assert [asked.body["input"] for asked in server.asked] == [["query: tide"], ["passage: tide"]]


def test_repeated_query_is_cached(server):
    """The last queries' vectors are stored in memory."""
    embedder = opened(server)
    assert embedder.query("tide") is embedder.query("tide")
    assert len(server.asked) == 1


def test_hostile_texts_are_sent_as_valid_text(server):
    """The empty text, lone surrogates and NUL are replaced."""
    assert opened(server).passages(["", "\ud800x", "a\0b"]).shape == (3, 16)
    assert server.asked[0].body["input"] == [" ", "\ufffdx", "a\ufffdb"]


def test_dimensions_are_requested(server):
    """If a dimension is set."""
    assert opened(server, dimensions=32).query("tide").shape == (32,)
    assert server.asked[0].body["dimensions"] == 32


@pytest.mark.parametrize("status", [429, 500, 503])
def test_temporary_failure_is_retried(server, reply, status):
    """A busy or failing server is called again."""
    server.script = [reply(status=status, body="busy"), reply(status=status, body="busy")]
    assert opened(server).query("tide") == pytest.approx(expected(["tide"])[0], abs=1e-6)
    assert len(server.asked) == 3


def test_broken_connection_is_retried(server, reply):
    """A server that closes the connection is called again."""
    server.script = [reply(hang_up=True)]
    assert opened(server).query("tide").shape == (16,)
    assert len(server.asked) == 2


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_respected(server, reply, form):
    """In either form of the header."""
    when = "1" if form == "seconds" else format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    server.script = [reply(status=429, body="slow down", headers={"Retry-After": when})]
    opened(server).query("tide")
    assert server.asked[1].at - server.asked[0].at > 0.7


def test_retry_after_is_limited(server, reply, monkeypatch):
    """A server that requests a day does not get one."""
    monkeypatch.setattr("recollect.models.openai.LONGEST_WAIT_S", 0.05)
    server.script = [reply(status=429, body="tomorrow", headers={"Retry-After": "86400"})]
    assert opened(server).query("tide").shape == (16,)


def test_server_that_stays_down_is_an_error_with_its_message(server, reply):
    """The status and at most 200 characters of the body."""
    server.script = [reply(status=500, body="broken " * 100)] * 3
    with pytest.raises(EmbedderError, match=r"127\.0\.0\.1:\d+ answered 500: broken") as caught:
        opened(server).query("tide")
    assert len(server.asked) == 3
    assert caught.value.message.count("broken") <= 29


@pytest.mark.parametrize(("status", "advice"), [(400, "own message"), (401, "API key"), (404, "base_url")])
def test_permanent_failure_is_not_retried(server, reply, status, advice):
    """With a hint for its status."""
    server.script = [reply(status=status, body="no")]
    with pytest.raises(EmbedderError, match=f"answered {status}: no") as caught:
        opened(server).query("tide")
    assert len(server.asked) == 1
    assert advice in caught.value.hint


def test_key_is_never_shown(server, reply):
    """Even if the server repeats it, in any part of the error."""
    server.script = [reply(status=401, body=f"the key {KEY} is wrong")]
    with pytest.raises(EmbedderError) as caught:
        opened(server).query("tide")
    assert KEY not in f"{caught.value.message} {caught.value.hint} {caught.value!r}"
    assert "the key [key] is wrong" in caught.value.message


def test_slow_server_times_out(server, reply):
    """After the allowed number of tries."""
    server.script = [reply(delay_s=1.0)] * 2
    with pytest.raises(EmbedderError, match="did not answer after 2 tries: ReadTimeout"):
        opened(server, timeout=0.2, retries=1).query("tide")
    assert len(server.asked) == 2


def test_missing_server_is_an_error(server):
    """With the host and a hint."""
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
        '{"data": [{"index": Infinity, "embedding": [1.0, 2.0]}]}',
        '{"data": [{"index": 0, "embedding": [' + "9" * 400 + ", 1.0]}]}",
        "[" * 60_000,
    ],
)
def test_answer_that_is_not_vectors_is_refused(server, reply, body):
    """Not JSON, not one vector for each text, or not finite."""
    server.script = [reply(body=body)]
    with pytest.raises(EmbedderError):
        opened(server).query("tide")


def test_vectors_of_two_lengths_are_refused(server, reply):
    """Vectors of two lengths in one answer are an error."""
    server.script = [reply(body=vectors([1.0, 2.0], [1.0, 2.0, 3.0]))]
    with pytest.raises(EmbedderError, match="not a list of vectors"):
        opened(server).passages(["a", "b"])


def test_wrong_dimension_is_refused(server, reply):
    """A server that ignores the requested dimension is detected."""
    server.script = [reply(body=vectors([1.0, 2.0, 3.0]))]
    with pytest.raises(EmbedderError, match="dimension 3 where 32 was expected"):
        opened(server, dimensions=32).query("tide")


def test_changing_dimension_is_refused(server, reply):
    """A server whose model was replaced is detected."""
    embedder = opened(server)
    embedder.query("tide")
    server.script = [reply(dimension=8)]
    with pytest.raises(EmbedderError, match="dimension 8 where 16 was expected"):
        embedder.query("wind")


def test_redirect_is_not_followed(server, reply):
    """Neither key nor text goes to another host; the error names it."""
    server.script = [reply(status=307, body="", headers={"Location": "http://elsewhere.invalid/v1/embeddings"})]
    with pytest.raises(EmbedderError, match=r"307, a redirect to elsewhere\.invalid, which is not followed"):
        opened(server).query("tide")
    assert len(server.asked) == 1


def test_environment_sets_address_and_key(server, monkeypatch):
    """OPENAI_BASE_URL and OPENAI_API_KEY, unless there are settings."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    open_embedder("openai:test-model").query("tide")
    assert server.asked[0].headers["authorization"] == "Bearer from-the-environment"


def test_only_the_key_of_the_named_variable_is_sent(server, monkeypatch):
    """Where that variable is not set, OpenAI's key is not sent to another server in its place."""
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai")
    monkeypatch.delenv("TIDE_KEY")
    opened(server).query("tide")
    assert "authorization" not in server.asked[0].headers


def test_ollama_does_not_get_openais_key(server, monkeypatch):
    """The key in the environment is for OpenAI, and does not leave for another service."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    opened(server, "ollama:nomic-embed-text").query("tide")
    assert "authorization" not in server.asked[0].headers
    assert server.asked[0].body["model"] == "nomic-embed-text"


def test_fingerprint_ignores_address_and_key(server):
    """Model, dimension and prefixes count."""
    base = opened(server).fingerprint
    assert opened(server, base_url="http://other.invalid/v1", api_key_env="OTHER", timeout=1.0).fingerprint == base
    changes = [{"dimensions": 32}, {"query_prefix": "q: "}, {"passage_prefix": "q: "}]
    others = [opened(server, **change).fingerprint for change in changes]
    others.append(opened(server, "openai:other-model").fingerprint)
    assert len({base, *others}) == 5
    assert KEY not in base
    assert "127.0.0.1" not in base


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("openai", {}, "'openai' does not name a model"),
        ("openai:m", {}, "openai:m needs an API key"),
        ("openai:m", {"base_url": "localhost:8080"}, "is not an http or https address"),
        ("openai:m", {"base_url": "http://localhost:abc/v1"}, "is not an http or https address"),
        ("openai:m", {"base_url": "http://[::1/v1"}, "is not an http or https address"),
        ("openai:m", {"base_url": "http://localhost", "timeout": 0}, "timeout must be above 0"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_sent(server, spec, options, message):
    """Missing models, keys and addresses."""
    with pytest.raises(UsageError, match=message):
        open_embedder(spec, settings=Settings(openai=OpenAISettings(**options)))


def test_query_vector_is_cached_per_scope(server, path):
    """A service is called again for a query of another scope."""
    with Memory.open(path, embedder=opened(server), settings=Settings()) as memory:
        memory.add("The heron stood in the reeds at dawn.")
        memory.search("heron")  # the first search measures the model, for confidence
        server.asked.clear()
        ada, bob = memory.within(Scope("ada")), memory.within(Scope("bob"))
        counts = []
        for asker in (memory, memory, bob, bob, ada, ada):
            assert asker.search("wading bird?", sources=["vector"]).results
            counts.append(len(server.asked))
    assert counts == [1, 1, 2, 2, 3, 3]
