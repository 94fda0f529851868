"""Facts from conversations: each exchange is sent once, and a fact knows its conversation."""

from pathlib import Path

from recollect import Memory
from recollect.memory.conversations import extract_facts

FILES = Path(__file__).parents[1] / "chats" / "files"
KEY = "0205f437-f816-4704-b6f3-9cf7b060888c"


def test_each_exchange_is_read_once(tmp_path, settings, server, line):
    """Two exchanges, two requests; the second time none. The fact has the conversation and the model."""
    fact = line("The project uses uv, never pip.", "Use uv for this project, never pip.")
    server.answer = lambda prompt: fact if "never pip" in prompt else "[]"
    with Memory.open(tmp_path / "m.db", embedder="hashing:64", settings=settings()) as memory:
        memory.import_chat(FILES / "claude-code.jsonl")
        report = extract_facts(memory, KEY)
        assert (report.sent, report.counts["add"], report.failed) == (2, 1, [])
        (found,) = memory.list(kind="fact")
        assert (found.text, found.origin, found.author) == ("The project uses uv, never pip.", "agent", "scripted")
        assert (found.author_session, found.path, found.source) == (KEY, None, "ingest")
        assert extract_facts(memory, KEY).sent == 0
