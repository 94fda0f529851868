"""Conversations in the store: imported once, updated, forgotten, read in order, in their scope."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.errors import AmbiguousId, Forbidden, UnknownRecord, UsageError
from recollect.types import Scope
from recollect.types.records import Put

FILES = Path(__file__).parents[1] / "ingest" / "chats" / "files"
KEY = "7c0f1a52-8a31-4c0e-9b39-0d0a5a1f0001"


@pytest.fixture
def memory(tmp_path):
    with Memory.open(tmp_path / "m.db", embedder="none", settings=Settings()) as opened:
        yield opened


def chat(*messages, **fields):
    return [{"role": role, "content": text, **fields} for role, text in messages]


def wrote(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def counts(report):
    return report.added, report.updated, report.unchanged, report.replaced, report.forgotten


def test_import_adds_only_what_is_new(memory):
    """A second import of all formats changes nothing; the same session in two files is one conversation."""
    first = memory.import_chat(FILES)
    assert (first.conversations, first.added, first.skipped) == (10, 26, {})
    newest = memory.store.changes.newest(None)
    assert counts(memory.import_chat(FILES)) == (0, 0, 28, 0, 0)
    assert memory.store.changes.newest(None) == newest
    assert memory.status()["records"]["turns"] == 26


def test_turn_is_a_record_with_speaker_time_and_conversation(memory):
    """Whose words they are decides about the origin, and recall finds those of the user and the assistant."""
    memory.import_chat(FILES)
    by_text = {record.text: record for record in memory.list(kind="turn", limit=100)}
    asked = by_text["Where did I put the spare key of the boathouse?"]
    assert (asked.author, asked.author_session, asked.title, asked.origin) == ("user", KEY, "The spare key", "user")
    assert (asked.happened_at.isoformat(), asked.source) == ("2025-10-09T08:53:21+00:00", "chatgpt")
    assert by_text["Noted: it is in the shed now."].origin == "agent"
    assert by_text["The wheel was built in 1871."].origin == "import"
    block = memory.recall("where is the spare key of the boathouse", min_confidence=0)
    assert "said by user)" in block.text  # the first turn has the title already
    block = memory.recall("under the blue pot", min_confidence=0)
    assert "said by assistant in The spare key)" in block.text
    assert KEY in {memory.get(citation.id).author_session for citation in block.citations}


def test_whole_conversation_in_order(memory):
    """By its own id, and by the id of any of its turns."""
    memory.import_chat(FILES)
    whole = memory.conversation(KEY)
    assert [turn.speaker for turn in whole.turns] == ["user", "assistant", "user", "assistant"]
    assert whole.turns[-1].text == "Noted: it is in the shed now."
    assert memory.conversation(whole.turns[2].ids[0]) == whole
    assert memory.conversation(KEY[:-1] + "1") == memory.conversation(whole.turns[2].ids[0][-8:]) == whole
    with pytest.raises(AmbiguousId, match=KEY):
        memory.conversation(KEY[:-1])
    assert memory.conversation("019a").source == "codex"
    listed = {one.id: one for one in memory.conversations()}
    assert (listed[KEY].title, listed[KEY].source, len(listed)) == ("The spare key", "chatgpt", 10)
    assert [one.id for one in memory.conversations(limit=1)] == ["0205f437-f816-4704-b6f3-9cf7b060888c"]
    with pytest.raises(UnknownRecord):
        memory.conversation("nothing")


def test_title_is_that_of_the_first_turn_only(memory, tmp_path):
    """A prompt like the first one does not find what else was said; each turn names its conversation all the same."""
    said = ("Which varnish suits the rowing boat?", "Tung oil.", "Book a table for nine.", "Done: Friday, at the mill.")
    file = wrote(tmp_path / "c.jsonl", chat(*zip(("user", "assistant") * 2, said, strict=True)))
    memory.import_chat(file)
    assert [one.record.text for one in memory.search("varnish for a boat", min_confidence=0).results] == [said[0]]
    records = memory.list(kind="turn")
    assert ({one.place for one in records}, sum(bool(one.title) for one in records)) == ({said[0]}, 1)
    assert memory.conversation("c").title == memory.conversations()[0].title == said[0]


def test_turns_of_an_earlier_version_are_updated(memory, tmp_path):
    """They have the title of the conversation as their own; the next import of the file corrects that."""
    file = wrote(tmp_path / "c.jsonl", chat(("user", "Which varnish?"), ("assistant", "Tung oil.")))
    memory.import_chat(file)
    early = [replace(one, title="Which varnish?", place=None) for one in memory.list(kind="turn")]
    memory.store.records.apply([[Put(one) for one in early]])
    assert memory.conversation("c").title == memory.conversations()[0].title == "Which varnish?"
    assert len(memory.search("varnish", min_confidence=0).results) == 2
    assert counts(memory.import_chat(file)) == (0, 2, 0, 0, 0)
    assert len(memory.search("varnish", min_confidence=0).results) == 1


def test_fork_of_a_session_adds_only_its_own_turns(memory, tmp_path):
    """As Claude Code 2.1 writes it: the turns before the fork again, and an answer among them names its session."""

    def line(key, speaker, session, **more):
        said = {"uuid": key, "type": speaker, "sessionId": session, "message": {"content": f"Remark {key}."}}
        return {**said, "timestamp": f"2026-11-17T19:14:5{key}Z", **more}

    before = [("1", "user"), ("2", "assistant"), ("3", "user"), ("4", "assistant")]
    memory.import_chat(wrote(tmp_path / "a.jsonl", [line(*one, "a") for one in before]))
    repeated = [line(*one, "b", **({"requestSessionId": "a"} if one[1] == "assistant" else {})) for one in before]
    fork = wrote(tmp_path / "b.jsonl", [*repeated, line("5", "user", "b"), line("6", "assistant", "b")])
    assert counts(memory.import_chat(fork)) == (2, 0, 4, 0, 0)
    assert [turn.text for turn in memory.conversation("b").turns] == ["Remark 5.", "Remark 6."]
    assert len(memory.conversation("a").turns) == 4


def test_turns_without_times_stay_in_order(memory, tmp_path):
    """Also when later imports add to them."""
    rows = chat(*(("user" if at % 2 else "assistant", f"Remark number {at}.") for at in range(30)))
    memory.import_chat(wrote(tmp_path / "c.jsonl", rows[:20]))
    memory.import_chat(wrote(tmp_path / "c.jsonl", rows))
    assert [turn.text for turn in memory.conversation("c").turns] == [row["content"] for row in rows]


LONG = "# The heron\n\n" + "\n\n".join(f"## Year {at}\n\n" + "It came back to the mill again. " * 60 for at in range(4))
ONE_LINE = "The wheel turns, and the heron waits for it to stop. " * 200


@pytest.mark.parametrize("text", [LONG.strip(), ONE_LINE.strip(), "```\n" + "x = 1\n" * 900 + "```"])
def test_long_turn_is_cut_and_joined_again(memory, tmp_path, text):
    """Every part is found by itself; the whole is the text that was said, before and after other turns."""
    rows = chat(("user", "Tell me."), ("assistant", text), ("assistant", text), ("user", "Thanks."))
    memory.import_chat(wrote(tmp_path / "c.jsonl", rows))
    turns = memory.conversation("c").turns
    assert [turn.text for turn in turns] == ["Tell me.", text, text, "Thanks."]
    assert len(turns[1].ids) > 2
    assert max(len(record.text) for record in memory.list(kind="turn", limit=1000)) < len(text) / 2


def test_edited_turn_is_updated(memory, tmp_path):
    """The record keeps its id; parts that it has no more are gone; the history has the text before."""
    file = tmp_path / "c.jsonl"
    told = chat(("user", "The ferry leaves at six."), id="m1") + chat(("assistant", LONG), id="m2")
    memory.import_chat(wrote(file, told))
    before = memory.conversation("c").turns
    told[0]["content"], told[1]["content"] = "The ferry leaves at seven.", "Short."
    assert counts(memory.import_chat(wrote(file, told))) == (0, 2, 0, 0, 0)
    after = memory.conversation("c").turns
    assert [turn.text for turn in after] == ["The ferry leaves at seven.", "Short."]
    assert after[0].ids == before[0].ids
    assert memory.history(after[0].ids[0])[-1].detail["before"]["text"] == "The ferry leaves at six."
    assert memory.status()["records"]["turns"] == 2
    told[1]["content"] = LONG
    memory.import_chat(wrote(file, told))
    assert memory.conversation("c").turns[1].text == LONG.strip()


def test_other_branch_replaces_turns(memory, tmp_path):
    """A prompt that was edited in ChatGPT: the old branch is forgotten, the new one stored."""
    value = json.loads((FILES / "chatgpt.json").read_text(encoding="utf-8"))[:1]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(value), encoding="utf-8")
    memory.import_chat(file)
    mapping = value[0]["mapping"]
    mapping["u3"] = json.loads(json.dumps(mapping["u2"]).replace("shed", "cellar").replace('"u2"', '"u3"'))
    mapping["a1"]["children"].append("u3")
    value[0]["current_node"] = "u3"
    file.write_text(json.dumps(value), encoding="utf-8")
    assert counts(memory.import_chat(file)) == (1, 0, 2, 2, 0)
    assert [turn.text for turn in memory.conversation(KEY).turns][2:] == ["I moved it to the cellar."]


def test_forgotten_turn_does_not_come_back(memory):
    """Not with the next import; `undo` restores it."""
    memory.import_chat(FILES / "codex.jsonl")
    (first, _) = memory.conversation("019a2d7a-41c4-78b1-b7cc-a45d62a89cd5").turns
    memory.forget(first.ids[0])
    assert counts(memory.import_chat(FILES / "codex.jsonl")) == (0, 0, 1, 0, 1)
    memory.undo(first.ids[0])
    assert counts(memory.import_chat(FILES / "codex.jsonl")) == (0, 0, 2, 0, 0)


def branches(path, current, answer):
    """An export of ChatGPT: a question with two answers, of which one is the current one."""

    def node(key, parent, role, text, at):
        content = {"content_type": "text", "parts": [text]}
        message = {"id": key, "author": {"role": role}, "create_time": 1_700_000_000 + at, "content": content}
        return {"id": key, "parent": parent, "children": [], "message": message}

    nodes = [node("q", None, "user", "Who built it?", 0), node("a1", "q", "assistant", answer, 1)]
    nodes.append(node("a2", "q", "assistant", "Joss built it.", 2))
    mapping = {one["id"]: one for one in nodes}
    value = {"conversation_id": "c", "title": "The wheel", "mapping": mapping, "current_node": current}
    path.write_text(json.dumps([value]), encoding="utf-8")
    return path


def spoken(memory, key="c"):
    return [turn.text for turn in memory.conversation(key).turns]


def test_replaced_turn_comes_back_with_its_branch(memory, tmp_path):
    """All parts of a long one are forgotten, and stored again when its branch is the current one again."""
    file = tmp_path / "conversations.json"
    answers = {"a1": LONG.strip(), "a2": "Joss built it."}
    expected = {"a1": [(2, 0, 0, 0, 0), (1, 0, 1, 1, 0)], "a2": [(1, 0, 1, 1, 0)]}
    for current in ("a1", "a2", "a1", "a2"):
        assert counts(memory.import_chat(branches(file, current, LONG))) == expected[current][0]
        expected[current] = expected[current][1:] or expected[current]
        assert spoken(memory) == ["Who built it?", answers[current]]
    assert memory.status()["records"]["turns"] == 2


def test_what_the_user_forgot_stays_forgotten_in_every_branch(memory, tmp_path):
    """A whole turn, and one part of a long turn, whether or not its branch was replaced meanwhile."""
    file = tmp_path / "conversations.json"
    memory.import_chat(branches(file, "a1", LONG))
    parts = memory.conversation("c").turns[1].ids
    memory.forget(parts[1])
    assert counts(memory.import_chat(file)) == (0, 0, 2, 0, 0)
    memory.import_chat(branches(file, "a2", LONG))
    memory.forget(memory.conversation("c").turns[1].ids[0])
    assert counts(memory.import_chat(branches(file, "a1", LONG))) == (1, 0, 1, 0, 0)
    assert {key for turn in memory.conversation("c").turns[1:] for key in turn.ids} == {*parts} - {parts[1]}
    assert counts(memory.import_chat(branches(file, "a2", LONG))) == (0, 0, 1, 1, 1)
    assert spoken(memory) == ["Who built it?"]


def test_edited_turn_without_its_first_part_is_updated(memory, tmp_path):
    """The forgotten part stays forgotten, and a short turn that was forgotten does not come back by being longer."""
    file = tmp_path / "c.jsonl"
    told = chat(("user", "A short remark."), id="m1") + chat(("assistant", LONG), id="m2")
    memory.import_chat(wrote(file, told))
    first, second = memory.conversation("c").turns
    memory.forget(first.ids[0], second.ids[0])
    told[0]["content"], told[1]["content"] = LONG.replace("heron", "otter"), LONG.replace("heron", "stork")
    assert counts(memory.import_chat(wrote(file, told))) == (0, 1, 0, 0, 1)
    turns = memory.conversation("c").turns
    assert {key for turn in turns for key in turn.ids} == set(second.ids[1:])
    assert "otter" not in "".join(spoken(memory))


def test_long_conversation_keeps_order_and_title(memory, tmp_path):
    """Only its first turn has the title, and turns without a time have that of the turn before, in every run."""
    rows = chat(*(("user", f"Remark {at}.") for at in range(2503)), time="2020-01-01T00:00:00Z")
    for row in rows[1:-1]:
        del row["time"]
    rows[-1]["time"] = "2020-01-02T00:00:00Z"
    memory.import_chat(wrote(tmp_path / "c.jsonl", rows))
    assert spoken(memory) == [row["content"] for row in rows]
    assert [one.text for one in memory.list(kind="turn", limit=3000) if one.title] == ["Remark 0."]


def test_new_turns_need_no_history(memory, tmp_path, monkeypatch):
    """Which ids are taken is asked once for many turns."""
    monkeypatch.setattr(type(memory.store.records), "history", lambda *_: pytest.fail("a query for one turn"))
    rows = chat(*(("user", f"Remark {at}.") for at in range(20)))
    assert memory.import_chat(wrote(tmp_path / "c.jsonl", rows)).added == 20
    assert memory.import_chat(tmp_path / "c.jsonl").unchanged == 20


def test_conversation_can_be_rolled_back(memory):
    """`forget --author-session` names all its turns, and those of no other."""
    memory.import_chat(FILES)
    rollback = memory.roll_back(author_session=KEY, confirm=True)
    assert len(rollback.forgotten) == 4
    assert memory.status()["records"]["turns"] == 22


def test_turns_are_not_facts(memory):
    """They cannot be edited in place, and a filter tells them apart."""
    memory.import_chat(FILES / "plain.jsonl")
    memory.add("The heron nests behind the mill.")
    (turn,) = [record for record in memory.list(kind="turn") if record.text.startswith("The heron")]
    with pytest.raises(UsageError, match="turn of a conversation"):
        memory.edit(turn.id, text="x")
    assert [record.text for record in memory.list(kind="fact")] == ["The heron nests behind the mill."]
    assert memory.status()["records"] == {"total": 5, "facts": 1, "chunks": 0, "turns": 4, "superseded": 0} | {
        "forgotten": memory.status()["records"]["forgotten"]
    }


def test_scopes_do_not_mix(memory):
    """The same chat of two users is two conversations; each sees its own, and a scoped caller imports nothing."""
    for user in ("ada", "bob"):
        memory.scoped(Scope(user=user)).import_chat(FILES / "codex.jsonl")
    key = "019a2d7a-41c4-78b1-b7cc-a45d62a89cd5"
    ada, bob = (memory.within(Scope(user=user)) for user in ("ada", "bob"))
    assert set(ada.conversation(key).turns[0].ids).isdisjoint(bob.conversation(key).turns[0].ids)
    assert [one.id for one in ada.conversations()] == [key]
    with pytest.raises(UnknownRecord):
        memory.within(Scope(user="eve")).conversation(key)
    with pytest.raises(UnknownRecord):
        ada.conversation(bob.conversation(key).turns[0].ids[0])
    with pytest.raises(Forbidden):
        ada.import_chat(FILES)


def test_copy_of_another_scope_is_not_read_twice(memory):
    """A user who also sees a global copy of a conversation reads their own."""
    memory.import_chat(FILES / "codex.jsonl")
    ada = memory.scoped(Scope(user="ada"))
    ada.import_chat(FILES / "codex.jsonl")
    key = "019a2d7a-41c4-78b1-b7cc-a45d62a89cd5"
    (first, _) = ada.conversation(key).turns
    assert memory.get(first.ids[0]).scope == Scope(user="ada")
    assert len(memory.conversation(key).turns) == 2


@pytest.mark.ci
def test_every_store_holds_conversations(place, tmp_path):
    """Imported twice, edited, read in order, with zero bytes and halves of surrogate pairs in them."""
    file = tmp_path / "c.jsonl"
    told = chat(("user", "half \ud83d of a smile \0 here"), ("assistant", LONG))
    for number, row in enumerate(told):
        row |= {"id": f"m{number}\0", "conversation": "c\0d"}
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        assert counts(memory.import_chat([FILES, wrote(file, told)])) == (28, 0, 2, 0, 0)
        assert counts(memory.import_chat([FILES, file])) == (0, 0, 30, 0, 0)
        told[1]["content"] = "Short."
        assert counts(memory.import_chat(wrote(file, told))) == (0, 1, 1, 0, 0)
        smile, short = memory.conversation("c\ufffdd").turns
        assert (smile.text, short.text) == ("half \ufffd of a smile \ufffd here", "Short.")
        assert len(memory.conversation(KEY).turns) == 4
        assert len(memory.conversations()) == 11


def test_wrong_arguments_are_named(memory):
    """A format and an origin that do not exist."""
    with pytest.raises(UsageError, match="unknown format"):
        memory.import_chat(FILES, format="slack")
    with pytest.raises(UsageError, match="unknown origin"):
        memory.import_chat(FILES, origin="friend")


def test_hostile_text_is_stored(memory, tmp_path):
    """Halves of surrogate pairs, zero bytes, tags: the conversation can be read afterwards."""
    file = tmp_path / "c.jsonl"
    file.write_text('{"role": "user", "content": "half \\ud83d of a smile \\u0000 <system>"}\n', encoding="utf-8")
    memory.import_chat(file, origin="import", tags=["x"])
    (turn,) = memory.conversation("c").turns
    assert turn.text.startswith("half \ufffd of a smile")
    (record,) = memory.list(tags=["x"])
    assert record.origin == "import"
