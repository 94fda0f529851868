from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from recollect.config import LlmSettings
from recollect.errors import FailedError, LlmError, UsageError
from recollect.models.openai import open_llm

KEY = "sk-secret-0123456789"
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "When is low water?"}]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    """The key of the settings of this test."""
    monkeypatch.setenv("TIDE_KEY", KEY)


def opened(server, **options):
    """A model that is asked at the server of this test."""
    options = {"base_url": server.url, "model": "tide-1", "api_key_env": "TIDE_KEY", "retries": 2, **options}
    return open_llm(LlmSettings(**options))


def test_request_follows_the_protocol(server, reply):
    """Path, key, model and messages, and the text comes back."""
    server.script = [reply("At six.")]
    assert opened(server, max_tokens=50, temperature=0.5).chat(ASKED) == "At six."
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {"model": "tide-1", "messages": ASKED, "max_tokens": 50, "temperature": 0.5}


def test_hostile_text_is_sent_as_valid_text(server):
    """Lone surrogates and NUL are replaced."""
    opened(server).chat([{"role": "user", "content": "a\ud800b\0c"}])
    assert server.asked[0].prompt == "a\ufffdb\ufffdc"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_temporary_failure_is_retried(server, reply, status):
    """A busy or failing server is called again."""
    server.script = [reply(status=status, body="busy"), reply(status=status, body="busy"), reply("At six.")]
    assert opened(server).chat(ASKED) == "At six."
    assert len(server.asked) == 3


def test_broken_connection_is_retried(server, reply):
    """A server that closes the connection is called again."""
    server.script = [reply(hang_up=True), reply("At six.")]
    assert opened(server).chat(ASKED) == "At six."


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_respected(server, reply, form):
    """In either form of the header."""
    when = "1" if form == "seconds" else format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    server.script = [reply(status=429, body="slow down", headers={"Retry-After": when})]
    opened(server).chat(ASKED)
    assert server.asked[1].at - server.asked[0].at > 0.7


def test_server_that_stays_down_is_a_recollect_error(server, reply):
    """An `LlmError` with the status and the server's message, and exit code 3."""
    server.script = [reply(status=500, body="broken")] * 3
    with pytest.raises(LlmError, match=r"127\.0\.0\.1:\d+ answered 500: broken") as caught:
        opened(server).chat(ASKED)
    assert isinstance(caught.value, FailedError)
    assert (caught.value.code, caught.value.exit_code, len(server.asked)) == ("llm", 3, 3)


def test_slow_server_times_out(server, reply):
    """After the allowed number of tries."""
    server.script = [reply("late", delay_s=1.0)] * 2
    with pytest.raises(LlmError, match="did not answer after 2 tries: ReadTimeout"):
        opened(server, timeout=0.2, retries=1).chat(ASKED)


@pytest.mark.parametrize("status", [400, 401, 404])
def test_permanent_failure_is_not_retried(server, reply, status):
    """A wrong request is an error at once."""
    server.script = [reply(status=status, body="no")]
    with pytest.raises(LlmError, match=f"answered {status}: no"):
        opened(server).chat(ASKED)
    assert len(server.asked) == 1


def test_key_is_never_shown(server, reply):
    """Even if the server repeats it in its message."""
    server.script = [reply(status=401, body=f"the key {KEY} is wrong")]
    with pytest.raises(LlmError, match=r"the key \[key\] is wrong") as caught:
        opened(server).chat(ASKED)
    assert KEY not in f"{caught.value.message} {caught.value.hint} {caught.value!r}"


def test_redirect_is_not_followed(server, reply):
    """Neither key nor text goes to another host."""
    server.script = [reply(status=307, body="", headers={"Location": "http://elsewhere.invalid/v1"})]
    with pytest.raises(LlmError, match=r"a redirect to elsewhere\.invalid, which is not followed"):
        opened(server).chat(ASKED)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "body",
    ["<html>welcome</html>", "{}", "[]", "null", '{"choices": []}', '{"choices": [{"text": "old"}]}', '{"choices": 5}',
     '{"choices":' * 50_000],
)  # fmt: skip
def test_answer_that_is_no_completion_is_refused(server, reply, body):
    """Not JSON, or not a chat completion."""
    server.script = [reply(body=body)]
    with pytest.raises(LlmError, match=r"not JSON|not a chat completion"):
        opened(server).chat(ASKED)


@pytest.mark.parametrize("text", [None, 5, ["part"]])
def test_answer_without_text_is_refused(server, reply, text):
    """A completion whose content is not text is an error."""
    server.script = [reply(text)]
    with pytest.raises(LlmError, match="answered without text"):
        opened(server).chat(ASKED)


def test_answer_cut_off_before_its_first_word_is_refused(server, reply):
    """A model that used its tokens on thinking has not answered."""
    server.script = [reply("", finish="length"), reply("", finish="stop")]
    with pytest.raises(LlmError, match="reached the token limit") as caught:
        opened(server).chat(ASKED)
    assert "max_tokens" in caught.value.hint
    assert opened(server).chat(ASKED) == ""


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_tokens"), ("content_filter", "content_filter")])
def test_truncated_answer_is_refused_if_it_must_be_complete(server, reply, finish, reason):
    """Other callers get the beginning."""
    server.script = [reply("At s", finish=finish), reply("At s", finish=finish), reply("At six.")]
    assert opened(server).chat(ASKED) == "At s"
    with pytest.raises(LlmError, match=reason):
        opened(server).chat(ASKED, complete=True)
    assert opened(server).chat(ASKED, complete=True) == "At six."


def test_missing_key_and_endpoint_names_the_settings(monkeypatch):
    """The variables and settings, before anything is sent."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="no API key and no endpoint") as caught:
        open_llm(LlmSettings())
    for name in ("OPENAI_API_KEY", "RECOLLECT_LLM_BASE_URL", "RECOLLECT_LLM_MODEL", "[llm]"):
        assert name in caught.value.hint


def test_other_server_needs_a_model_name(server, monkeypatch):
    """Only OpenAI has a default model."""
    settings = LlmSettings(api_key_env="TIDE_KEY")
    assert open_llm(settings).model
    with pytest.raises(UsageError, match="no model is named"):
        open_llm(settings, base_url=server.url)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    with pytest.raises(UsageError, match="no model is named"):
        open_llm(settings)


def test_invalid_address_is_refused():
    """A base URL without a scheme is a usage error."""
    with pytest.raises(UsageError, match="is not an http or https address"):
        open_llm(LlmSettings(base_url="localhost:8080", model="m"))
