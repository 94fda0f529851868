"""Memories of mem0, the MCP memory server and basic-memory become facts, once, in their scope."""

import json
import shutil
from pathlib import Path

import pytest

from recollect import Memory
from recollect.cli import main
from recollect.config import Settings
from recollect.errors import Forbidden, UsageError
from recollect.ingest.memories import read_memos
from recollect.moving import export, import_
from recollect.types import Scope

FILES = Path(__file__).parent / "files"


@pytest.fixture
def memory(tmp_path):
    with Memory.open(tmp_path / "m.db", embedder="none", settings=Settings()) as opened:
        yield opened


def facts(memory, **filters):
    return {record.text: record for record in memory.list(kind="fact", limit=100, any_scope=True, **filters)}


def counts(report):
    return report.added, report.updated, report.unchanged, report.known, report.forgotten


def test_mem0(memory):
    """Its memories keep their time, their category and, where none is named, their user; an empty one is counted."""
    report = memory.import_memory(FILES / "mem0.json")
    assert (counts(report), report.scopes) == ((3, 0, 0, 0, 0), {"user=ada": 3})
    assert list(report.skipped.values()) == [{"no memory in it": 1}]
    found = facts(memory)
    mill, tea = found["Ada works at the mill as a carpenter"], found["Prefers lapsang souchong in the morning"]
    assert (mill.scope, mill.category, mill.origin, mill.author) == (Scope(user="ada"), "professional", "agent", "mem0")
    assert mill.happened_at.isoformat() == "2026-01-10T17:00:00+00:00"
    assert (tea.tags, tea.happened_at.isoformat()) == (("food", "preferences"), "2026-02-11T17:00:00+00:00")
    relation = found["ada works at mill"]
    assert (relation.tags, relation.scope) == (("relation",), Scope(user="ada"))
    assert list(report.files.values()) == ["mem0"]


def test_relation_belongs_to_the_owner_of_all_memories_beside_it(memory, tmp_path):
    """What belonged to one of several users there does not become everybody's, and nothing is left out silently."""
    ada, bob = ({"id": name, "memory": f"{name} rows", "user_id": name} for name in ("ada", "bob"))
    relations = [{"source": "ada", "relationship": "owns", "destination": "boat"}, {"source": "ada"}]
    (tmp_path / "two.json").write_text(json.dumps({"results": [ada, bob], "relations": relations}))
    report = memory.import_memory(tmp_path / "two.json")
    unnamed = "a relation without a source, a relationship or a target"
    assert list(report.skipped.values()) == [{"a relation beside memories of several owners": 1, unnamed: 1}]
    assert set(facts(memory)) == {"ada rows", "bob rows"}
    (tmp_path / "one.json").write_text(json.dumps({"results": [ada], "relations": relations}))
    memory.import_memory(tmp_path / "one.json")
    assert facts(memory)["ada owns boat"].scope == Scope(user="ada")


def test_file_of_which_a_part_is_skipped_is_imported(tmp_path, monkeypatch):
    """The exit code is 0 if any of its memories was read, and 1 if none was."""
    monkeypatch.setenv("RECOLLECT_STORE", str(tmp_path / "m.db"))
    assert main(["import-memory", "--embedder", "none", str(FILES / "mem0.json")]) == 0
    assert main(["import-memory", "--embedder", "none", "--format", "mcp-memory", str(FILES / "mem0.json")]) == 1


def test_named_scope_wins(memory):
    """Everything belongs to the user of the flags."""
    memory.scoped(Scope(user="bob")).import_memory(FILES / "mem0.json")
    assert {record.scope for record in facts(memory).values()} == {Scope(user="bob")}


def test_mcp_memory(memory, tmp_path):
    """Each observation under the name of its entity, and each relation as a sentence; also as one graph."""
    assert counts(memory.import_memory(FILES / "memory.json")) == (3, 0, 0, 0, 0)
    wheel = facts(memory)["Built the water wheel"]
    assert (wheel.title, wheel.category, wheel.source) == ("Joss", "person", "mcp-memory")
    assert "Joss works at Mill" in facts(memory)
    lines = [json.loads(line) for line in (FILES / "memory.json").read_text(encoding="utf-8").splitlines()]
    graph = tmp_path / "graph.json"
    kinds = {"entities": lines[:2], "relations": lines[2:]}
    graph.write_text(json.dumps(kinds, indent=1), encoding="utf-8")
    assert counts(memory.import_memory(graph)) == (0, 0, 3, 0, 0)


def test_basic_memory(memory):
    """Observations with category, tags and place; relations; no tasks, no code, no prose."""
    report = memory.import_memory(FILES / "notes")
    assert counts(report) == (4, 0, 0, 0, 0)
    found = facts(memory)
    water = found["Water at 96 °C extracts best (from the course)"]
    assert (water.title, water.category) == ("Coffee Brewing Methods", "technique")
    assert water.tags == ("coffee", "brewing", "temperature")
    assert (Path(water.path).name, water.lines, water.origin) == ("Coffee.md", (17, 17), "file")
    assert "Coffee Brewing Methods relates to Coffee Bean Origins" in found
    assert "Coffee Brewing Methods requires Proper Grinding" in found


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_of_an_observation_is_that_of_an_editor(memory, tmp_path, end):
    """A form feed and the separators of Unicode end no line."""
    note = end.join(["# Ink", "", "first\x0cline\u2028and \x85 more", "- [idea] Ink is blue", ""])
    (tmp_path / "ink.md").write_bytes(note.encode())
    memory.import_memory(tmp_path / "ink.md")
    assert facts(memory)["Ink is blue"].lines == (4, 4)


def test_period_of_an_observation_is_that_of_its_fact(memory, tmp_path):
    """As basic-memory writes it. A period that cannot be read, and other kinds of time, stay in the text."""
    (tmp_path / "cache.md").write_text(
        "# Cache\n\n- [decision] @effective[2026-01-10,2026-02-27) We use Redis. #cache\n"
        "- [decision] @2026-02-27 We use Memcached.\n"
        "- [plan] @valid(,2026-03-01] We meet on Mondays.\n- [event] @occurred:2026-01-05T10:00:00Z It failed.\n"
        "- [task] @due:2026-05-01 Pay.\n- [note] @valid[spring,) Swim.\n- [who] @ada Said so.\n"
    )
    _, memos = read_memos(tmp_path / "cache.md")
    assert [(memo.text, *(at and f"{at:%m-%d}" for at in (memo.time, memo.expires))) for memo in memos] == [
        ("We use Redis.", "01-10", "02-27"), ("We use Memcached.", "02-27", None),
        ("We meet on Mondays.", None, "03-02"),
        ("It failed.", "01-05", None), ("@due:2026-05-01 Pay.", None, None), ("@valid[spring,) Swim.", None, None),
        ("@ada Said so.", None, None),
    ]  # fmt: skip
    memory.import_memory(tmp_path / "cache.md")
    assert "We use Memcached." in facts(memory)
    assert "We use Redis." not in facts(memory)
    assert set(facts(memory, as_of="2026-02-01")) == {"We use Redis.", "It failed."}


def test_second_import_adds_only_what_is_new(memory, tmp_path):
    """An edited memory is updated, a forgotten one stays so, and one that was known as a fact is not stored twice."""
    file = tmp_path / "mem0.json"
    shutil.copy(FILES / "mem0.json", file)
    memory.scope = Scope(user="ada")
    memory.add("Prefers lapsang souchong in the morning")
    assert counts(memory.import_memory(file)) == (2, 0, 0, 1, 0)
    assert counts(memory.import_memory(file)) == (0, 0, 2, 1, 0)
    file.write_text(file.read_text(encoding="utf-8").replace("carpenter", "miller"), encoding="utf-8")
    assert counts(memory.import_memory(file)) == (0, 1, 1, 1, 0)
    memory.forget(facts(memory)["Ada works at the mill as a miller"].id)
    assert counts(memory.import_memory(file)) == (0, 0, 1, 1, 1)


def mem0(path, *texts, **fields):
    """An export of mem0."""
    memories = [{"id": str(number), "memory": text, **fields} for number, text in enumerate(texts)]
    path.write_text(json.dumps({"results": memories}), encoding="utf-8")
    return path


def test_edited_fields_are_kept_and_others_follow_the_file(memory, tmp_path):
    """However often it is imported, and also after an import has changed another field of the same fact."""
    file = tmp_path / "mem0.json"
    memory.import_memory(mem0(file, "Ada likes tea.", "Bob likes rum."))
    key = facts(memory)["Ada likes tea."].id
    memory.edit(key, text="Ada likes green tea.", importance=1.0)
    for _ in range(2):
        report = memory.import_memory(file)
        assert (counts(report), report.kept) == ((0, 0, 1, 0, 0), 1)
        assert (memory.get(key).text, memory.get(key).importance) == ("Ada likes green tea.", 1.0)
    report = memory.import_memory(mem0(file, "Ada likes mint tea.", "Bob likes gin.", categories=["food"]))
    assert (counts(report), report.kept) == ((0, 2, 0, 0, 0), 0)
    edited = memory.get(key)
    assert (edited.text, edited.tags, edited.importance) == ("Ada likes green tea.", ("food",), 1.0)
    assert (memory.import_memory(file).kept, memory.get(key).text) == (1, "Ada likes green tea.")
    report = memory.import_memory(mem0(file, "Ada likes mint tea.", "Bob likes whisky.", categories=["food"]))
    assert (counts(report), report.kept) == ((0, 1, 0, 0, 0), 1)
    assert "Bob likes whisky." in facts(memory), "what an import updated is not an edit"


def test_undone_edit_is_no_edit(memory, tmp_path):
    file = mem0(tmp_path / "mem0.json", "Ada likes tea.")
    memory.import_memory(file)
    key = facts(memory)["Ada likes tea."].id
    memory.edit(key, text="Ada likes green tea.")
    memory.undo(key)
    assert counts(memory.import_memory(mem0(file, "Ada likes mint tea."))) == (0, 1, 0, 0, 0)
    assert memory.get(key).text == "Ada likes mint tea."


def test_fact_of_a_more_trusted_writer_does_not_stop_an_import(memory, tmp_path):
    """It stays, and the other memories of the file are stored; so it is with an import that is trusted less."""
    file = tmp_path / "mem0.json"
    memory.import_memory(mem0(file, "Ada likes tea."))
    memory.edit(facts(memory)["Ada likes tea."].id, text="Ada likes green tea.", origin="user")
    report = memory.import_memory(mem0(file, "Ada likes tea.", "Carl likes beer."))
    assert (counts(report), report.kept) == ((1, 0, 0, 0, 0), 1)
    report = memory.import_memory(mem0(file, "Ada likes mint.", "Carl likes ale.", "Dora likes mead."), origin="import")
    assert (counts(report), report.kept) == ((1, 0, 0, 0, 0), 2)
    assert {*facts(memory)} == {"Ada likes green tea.", "Carl likes beer.", "Dora likes mead."}


def test_history_of_an_imported_update_can_be_exported(memory, tmp_path):
    """The event names the import, and undo restores the text before."""
    file = mem0(tmp_path / "mem0.json", "Ada likes tea.")
    memory.import_memory(file)
    key = facts(memory)["Ada likes tea."].id
    memory.import_memory(mem0(file, "Ada likes mint tea."))
    assert memory.history(key)[-1].detail["author"] == "import-memory"
    export(memory.store, tmp_path / "all.jsonl")
    assert import_(tmp_path / "copy.db", tmp_path / "all.jsonl").added["record"] == 1
    memory.undo(key)
    assert memory.get(key).text == "Ada likes tea."


def test_new_memories_need_no_history(memory, monkeypatch):
    """Which ids are taken is asked once for many memories."""
    monkeypatch.setattr(type(memory.store.records), "history", lambda *_: pytest.fail("a query for one memory"))
    assert memory.import_memory(FILES).added == 10
    assert memory.import_memory(FILES).unchanged == 10


def test_broken_files_lose_nothing(memory, tmp_path):
    """Broken lines, other JSON and strange values are counted; the rest is stored."""
    good = (FILES / "memory.json").read_text(encoding="utf-8")
    strange = '{"type": "entity", "name": 3}\n{"type": "relation", "from": "a"}\nnot json\n7\n'
    (tmp_path / "memory.json").write_text(good + strange, encoding="utf-8")
    (tmp_path / "other.json").write_text('{"a": 1}', encoding="utf-8")
    (tmp_path / "empty.json").write_text("", encoding="utf-8")
    (tmp_path / "README.md").write_text("# A page\n\nOf another program.\n", encoding="utf-8")
    (tmp_path / "note.md").write_text("---\npermalink: a\n---\n# Nothing observed yet\n", encoding="utf-8")
    report = memory.import_memory(tmp_path)
    assert report.added == 3
    assert {Path(name).name: reasons for name, reasons in report.skipped.items()} == {
        "memory.json": {"a line that is not JSON": 1, "not a JSON object": 1, "neither an entity nor a relation": 2},
        "other.json": {"no memories in a known format": 1},
        "empty.json": {"empty": 1},
        "README.md": {"no memories in a known format": 1},
    }


def test_wrong_use_is_named(memory, tmp_path):
    """A missing path, a format that does not exist, a caller with a scope."""
    with pytest.raises(UsageError, match="does not exist"):
        memory.import_memory(tmp_path / "gone")
    with pytest.raises(UsageError, match="unknown format"):
        memory.import_memory(FILES, format="zep")
    with pytest.raises(Forbidden):
        memory.within(Scope(user="ada")).import_memory(FILES)


def test_command_line(tmp_path, capfd, monkeypatch):
    """What was imported, for whom, and what was left out."""
    monkeypatch.setenv("RECOLLECT_STORE", str(tmp_path / "m.db"))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "none")
    assert main(["import-memory", str(FILES)]) == 0
    out, err = capfd.readouterr()
    assert out == "facts: 10 added, 0 unchanged\n"
    assert "3 facts belong to user=ada, as in the export" in err
    assert "recollect index FOLDER" in err
    assert main(["search", "water wheel"]) == 0
    assert "Built the water wheel" in capfd.readouterr().out
