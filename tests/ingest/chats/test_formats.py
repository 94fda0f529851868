"""The formats of conversations: who said what and when, from files in the shapes that the programs write."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from recollect.ingest.chats import read_chats
from recollect.ingest.turns import moment

FILES = Path(__file__).parent / "files"

SAID = {
    "chatgpt.json": (
        "chatgpt",
        [
            ("user", "Where did I put the spare key of the boathouse?"),
            ("assistant", "You told me that it is under the blue pot."),
            ("user", "I moved it to the shed."),
            ("assistant", "Noted: it is in the shed now."),
            ("user", "Which tea does Ada like?"),
            ("assistant", "Ada likes lapsang souchong."),
        ],
    ),
    "claude.json": (
        "claude",
        [
            ("user", "When is the moving van booked?"),
            ("assistant", "The van comes on Friday at nine."),
            ("user", "Inventory: nine boxes of books."),
            ("assistant", "Nine boxes fit into the van."),
        ],
    ),
    "claude-code.jsonl": (
        "claude-code",
        [
            ("user", "Use uv for this project, never pip."),
            ("assistant", "I will use uv and look at the lock file first."),
            ("user", "Good. The tests need Postgres 18."),
            ("assistant", "Understood: Postgres 18 for the tests."),
        ],
    ),
    "codex.jsonl": (
        "codex",
        [
            ("user", "The water wheel turns clockwise; write that into the README."),
            ("assistant", "The README now says that the wheel turns clockwise."),
        ],
    ),
    "codex-older.jsonl": (
        "codex",
        [("user", "Name the branch after the heron."), ("assistant", "The branch is called heron.")],
    ),
    "openclaw.jsonl": (
        "openclaw",
        [
            ("user", "Remind me that the ferry leaves at six."),
            ("assistant", "I will remind you at half past five."),
        ],
    ),
    "gemini.json": (
        "gemini",
        [("user", "Which port does the mill service use?"), ("assistant", "It uses port 8377.")],
    ),
    "gemini.jsonl": (
        "gemini",
        [("user", "Which port does the mill service use?"), ("assistant", "It uses port 8377.")],
    ),
    "plain.jsonl": (
        "plain",
        [
            ("user", "The heron nests behind the mill."),
            ("assistant", "I will remember the heron."),
            ("Joss", "The wheel was built in 1871."),
            ("user", "And repaired in 1950."),
        ],
    ),
}


def read(path, format_=None):
    """The only file that is read, and its conversations."""
    ((file, conversations),) = ((file, list(found)) for file, found in read_chats(path, format_))
    return file, conversations


def said(conversations):
    return [(turn.speaker, turn.text) for one in conversations for turn in one.turns]


@pytest.mark.parametrize("name", SAID)
def test_format_is_recognised_and_read(name):
    """Turns of people and assistants, in order; no tool calls, system text, reasoning or subagents."""
    file, conversations = read(FILES / name)
    assert (file.format, said(conversations)) == SAID[name]
    assert not file.skipped


def test_every_fixture_is_read():
    """A new file needs its row."""
    assert {path.name for path in FILES.iterdir()} == SAID.keys()


def test_turns_have_ids_times_and_titles():
    """Those of the export; without a title, how the user began."""
    _, (key, tea) = read(FILES / "chatgpt.json")
    assert (key.id, key.title) == ("7c0f1a52-8a31-4c0e-9b39-0d0a5a1f0001", "The spare key")
    assert [turn.id for turn in key.turns] == ["u1", "a1", "u2", "a2"]
    assert key.turns[0].time == datetime(2025, 10, 9, 8, 53, 21, tzinfo=UTC)
    assert key.replaced == ("a0",)
    assert tea.title == "Which tea does Ada like?"
    _, (older,) = read(FILES / "codex-older.jsonl")
    assert [turn.time for turn in older.turns] == [datetime(2025, 6, 1, 8, tzinfo=UTC)] * 2


def test_export_of_opencode(tmp_path):
    """As version 1.18 prints it. Tools, reasoning, what a plug-in added and a summary are no turns."""

    def message(key, role, *parts, **more):
        about = {"id": key, "role": role, "time": {"created": 1794946030884}, **more}
        return {"info": about, "parts": [{"type": "text", **part} for part in parts]}

    value = {"info": {"id": "ses_1", "title": "The mill"}, "messages": [
        message("m1", "user", {"text": "Which port?"}, {"text": "Memory.", "synthetic": True}, summary={"diffs": []}),
        message("m2", "assistant", {"type": "reasoning", "text": "Hm."}, {"type": "tool"}, {"text": "It is 8377."}),
        message("m3", "assistant", {"text": "What we did so far."}, summary=True),
    ]}  # fmt: skip
    (tmp_path / "export.json").write_text(json.dumps(value, indent=2))
    file, (one,) = read(tmp_path / "export.json")
    assert (file.format, one.id, one.title, one.source) == ("opencode", "ses_1", "The mill", "opencode")
    assert said([one]) == [("user", "Which port?"), ("assistant", "It is 8377.")]
    assert one.turns[0].time == datetime(2026, 11, 17, 20, 7, 10, 884000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, datetime(1970, 1, 1, tzinfo=UTC)), (1770364143489, datetime(2026, 2, 6, 7, 49, 3, 489000, tzinfo=UTC)),
     ("2026-03-14T15:09:00Z", datetime(2026, 3, 14, 15, 9, tzinfo=UTC)), ("yesterday", None), (1e300, None),
     (float("nan"), None), (True, None), ("", None), ({}, None)],
)  # fmt: skip
def test_times_of_every_kind(value, expected):
    """Seconds, milliseconds and ISO 8601; anything else is no time."""
    assert moment(value) == expected


def test_circle_of_parents_ends(tmp_path):
    """A broken tree is read as far as it goes."""
    conversation = json.loads((FILES / "chatgpt.json").read_text(encoding="utf-8"))[0]
    conversation["mapping"]["u1"]["parent"] = "a2"
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([conversation]), encoding="utf-8")
    _, conversations = read(file)
    assert {text for _, text in said(conversations)} == {text for _, text in SAID["chatgpt.json"][1][:4]}


def test_lines_without_ids_are_told_apart(tmp_path):
    """The same words twice are two turns, with ids that depend on nothing but the file's content."""
    file = tmp_path / "chat.jsonl"
    file.write_text('{"role": "user", "content": "Go on."}\n' * 3, encoding="utf-8")
    _, (first,) = read(file)
    _, (again,) = read(file)
    assert len({turn.id for turn in first.turns}) == 3
    assert first == again
    assert first.id == "chat"


def test_messages_in_one_object(tmp_path):
    """An object with a list of messages is a conversation."""
    file = tmp_path / "data.jsonl"
    line = {"id": "d1", "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "Hello heron."}]}
    file.write_text(json.dumps(line), encoding="utf-8")
    _, conversations = read(file)
    assert [(one.id, said([one])) for one in conversations] == [("d1", [("user", "Hello heron.")])]
