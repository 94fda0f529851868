"""Values of the wrong kind, anywhere in a file: every reader of conversations and memories goes on."""

import json
import random
from pathlib import Path

import pytest

from recollect.ingest.chats import read_chats
from recollect.ingest.memories import read_memos
from recollect.ingest.turns import FORMATS

FILES = Path(__file__).parent / "files"
MEMORIES = Path(__file__).parents[1] / "memories" / "files"
JUNK = (
    None, 3, -1.5, 1e308, "", "x", [], {}, [1], ["a", {"text": 3}], {"type": "text"}, True, "\ud800", "\0", [[]],
    float("inf"),
)  # fmt: skip


def places(value, path=()):
    """The paths to everything inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def spoilt(value, chance):
    """The value with some of its parts replaced or removed."""
    for _ in range(chance.randint(1, 4)):
        if not (paths := list(places(value))):
            break
        *above, last = chance.choice(paths)
        container = value
        for key in above:
            container = container[key]
        if isinstance(container, dict) and chance.random() < 0.2:
            del container[last]
        else:
            container[last] = json.loads(json.dumps(chance.choice(JUNK)))
    return value


@pytest.mark.parametrize("rounds", [150, pytest.param(20_000, marks=pytest.mark.torture)])
def test_wrong_kinds_of_values_stop_nothing(tmp_path, rounds):
    """Every turn that is read has text and a speaker, whichever format is named."""
    chance = random.Random(rounds)
    files = [*sorted(FILES.iterdir()), MEMORIES / "mem0.json", MEMORIES / "memory.json"]
    read = 0
    for _ in range(rounds):
        file = chance.choice(files)
        text = file.read_text(encoding="utf-8")
        by_line = file.suffix == ".jsonl" or file.name == "memory.json"
        values = spoilt([json.loads(line) for line in text.splitlines()] if by_line else [json.loads(text)], chance)
        written = tmp_path / file.name
        written.write_text("\n".join(map(json.dumps, values)), encoding="utf-8")
        for _, conversations in read_chats(written, chance.choice([None, None, *FORMATS])):
            turns = [turn for one in conversations for turn in one.turns]
            assert all(isinstance(part, str) and part for turn in turns for part in (turn.text, turn.speaker, turn.id))
            read += len(turns)
        _, memos = read_memos(written, chance.choice([None, "mem0", "mcp-memory"]))
        assert all(isinstance(memo.text, str) and memo.text for memo in memos)
    assert read > rounds / 2
