"""`doctor` on external sources: answering, hanging, paused, or invalid."""

import json
import socket
import sys
import threading
import time

import pytest
from support.http import HttpServer, Response
from support.timing import within

from recollect import Memory, config


@pytest.fixture
def wiki():
    """A search system that answers, but without results unless the path is "good"."""
    good, bad = b'[{"id": "1", "text": "a page"}]', b'{"nothing": "of the kind"}'
    with HttpServer(lambda request: Response(content=good if "good" in request.path else bad)) as server:
        yield server


@pytest.fixture
def deaf():
    """The port of a server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def table(name, port, path="good", timeout_ms=2000):
    return (
        f'[[sources]]\nname = "{name}"\nkind = "http"\nurl = "http://127.0.0.1:{port}/{path}?q={{query}}"\n'
        f'timeout_ms = {timeout_ms}\nfields = {{ id = "id", text = "text" }}\n'
    )


def test_answering_source_is_queried_once_and_timed(doctor, settings, wiki):
    """With a word of ours, not of the user's."""
    settings(table("wiki", wiki.port))
    found = doctor()["sources"]
    assert found["state"] == "ok"
    assert found["message"].startswith("wiki (http): answered with 1 row in ")
    assert [request.path for request in wiki.asked] == ["/good?q=test"]


def test_hanging_source_is_a_warning_within_its_timeout(doctor, settings, deaf):
    """Three at once take no longer than one."""
    settings("".join(table(f"deaf{n}", deaf, timeout_ms=1000) for n in range(3)))
    began = time.monotonic()
    told = doctor()
    assert within(time.monotonic() - began, 2.7)
    assert told.code == 1
    assert [found["state"] for found in told.all("sources")] == ["warning"] * 3
    assert all("in time" in found["message"] or "1000 ms" in found["message"] for found in told.all("sources"))
    assert all(found["mend"] for found in told.all("sources"))


def test_source_with_an_invalid_answer_is_a_warning(doctor, settings, wiki):
    """Its fields are read, not only its status."""
    settings(table("odd", wiki.port, path="bad"))
    told = doctor()
    assert (told.code, told["sources"]["state"]) == (1, "warning")
    assert "there is no list" in told["sources"]["message"]


def test_paused_source_is_reported_with_its_time(doctor, settings, kept, untouched):
    """The pause is read from the store and not changed."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    settings(table("gone", port))
    with Memory.open(kept, embedder="none", settings=config.load().settings) as memory:
        for _ in range(3):
            memory.search("heron")
    untouched(kept.parent)
    told = doctor()
    failed, resting = told.all("sources")
    assert (failed["state"], resting["state"], told.code) == ("warning", "warning", 1)
    assert "ConnectError" in failed["message"]
    assert "skip it until" in resting["message"]
    assert "UTC (" in resting["message"]
    assert "after 3 failures" in resting["message"]


def test_command_and_another_store_are_checked(doctor, settings, kept, tmp_path, untouched):
    """The command is run; the store is opened without creating a file."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "their.db").write_bytes(kept.read_bytes())
    (tmp_path / "tool.py").write_text('print(\'[{"id": "1", "text": "x"}]\')')
    command = json.dumps([sys.executable, str(tmp_path / "tool.py")])
    settings(
        f'[[sources]]\nname = "tool"\nkind = "command"\ncommand = {command}\nfields = {{ id = "id" }}\n'
        f'[[sources]]\nname = "their"\nkind = "recollect"\nstore = "{other / "their.db"}"\n'
        f'[[sources]]\nname = "lost"\nkind = "recollect"\nstore = "{other / "lost.db"}"\n'
    )
    untouched(other)
    tool, their, lost = doctor().all("sources")
    assert (tool["state"], their["state"], lost["state"]) == ("ok", "ok", "warning")
    assert "answered with 1 row" in tool["message"]
    assert "can be read" in their["message"]
    assert "there is no store" in lost["message"]


def test_plugin_source_may_raise_or_exit(doctor, settings, stand):
    """That is a finding, and the others are reported."""

    def leave(asked):
        raise SystemExit(7)

    stand.ASK["wild"] = leave
    stand.ASK["tame"] = lambda asked: [{"id": "1"}]
    settings("".join(f'[[sources]]\nname = "{name}"\nkind = "stand"\n' for name in ("wild", "tame")))
    wild, tame = doctor().all("sources")
    assert (wild["state"], "SystemExit: 7" in wild["message"]) == ("warning", True)
    assert tame["state"] == "ok"
    assert sorted(stand.CLOSED) == ["tame", "wild"]


def test_plugin_source_that_ignores_its_deadline_is_abandoned(doctor, settings, stand):
    """The check does not wait for it."""
    done = threading.Event()
    stand.ASK["slow"] = lambda asked: done.wait(20)
    settings('[[sources]]\nname = "slow"\nkind = "stand"\ntimeout_ms = 200\n')
    began = time.monotonic()
    found = doctor()["sources"]
    assert within(time.monotonic() - began, 5)
    done.set()
    assert (found["state"], "no answer after 200 ms" in found["message"]) == ("warning", True)
    assert "timeout_ms" in found["mend"]
