"""What a note is related to: links, backlinks and similar notes, in a file and in PostgreSQL, for each scope."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory, Scope, sample
from recollect.config import Settings
from recollect.errors import Forbidden, UnknownRecord, UsageError
from recollect.ingest.links import LinkTargets, links_of

VAULT = {
    "Garden.md": "# Garden\n\nSee [[Raised beds]], [[tools/Tools#Spade|the spade]] and [Ada](people/Ada%20L.md).\n\n"
    "Again [[Raised beds]]. Later: [[Greenhouse]] and ![[bed.png]]. Itself: [[Garden]].\n",
    "tools/Tools.md": f"# Tools\n\n## Rake\n\n{'Leaves fall in autumn. ' * 100}\n\n## Spade\n\n"
    f"For [[raised beds]]. {'Dig deep. ' * 100}\n",
    "Raised beds.md": "# Raised beds\n\nLarch wood. Back to [the garden](./Garden.md#top).\n",
    "people/Ada L.md": "# Ada\n\nAda makes compost.\n\n```\n[[Garden]]\n```\n",
    "code.py": "matrix = [[Garden]]  # [x](Garden.md)\n",
}  # fmt: skip


def write(folder: Path, notes: Mapping[str, str]) -> Path:
    for name, text in notes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, path: Path, open_memory: Callable[..., Memory]) -> Memory:
    """A memory in each kind of store."""
    place = path if request.param == "sqlite" else request.getfixturevalue("new_schema")()
    return open_memory(place)


@pytest.fixture
def vault(opened: Memory, tmp_path: Path) -> Memory:
    """The notes above, indexed."""
    opened.index(write(tmp_path / "vault", VAULT))
    return opened


def names(notes: Any) -> list[tuple[str, str]]:
    return [(Path(note.record.path or note.record.id).name, note.why) for note in notes]


def test_links_and_backlinks_of_a_file(vault: Memory, tmp_path: Path) -> None:
    """A chunk stands for its file, a note is listed once, and links in code and to itself do not count."""
    answer = vault.related("vault/Garden.md")
    assert names(answer.links) == [
        ("Raised beds.md", "line 3: [[Raised beds]] and 1 more"),
        ("Tools.md", "line 3: [[tools/Tools#Spade|the spade]]"),
        ("Ada L.md", "line 3: [Ada](people/Ada L.md)"),
    ]
    assert "Spade" in answer.links[1].record.title
    assert names(answer.backlinks) == [("Raised beds.md", "line 3: [the garden](./Garden.md#top)")]
    assert [(link.written, link.line) for link in answer.unresolved] == [("[[Greenhouse]]", 5)]
    by_id = vault.related(answer.record.id[-8:])
    assert (by_id.links, by_id.backlinks) == (answer.links, answer.backlinks)
    beds = vault.related(str(tmp_path / "vault" / "Raised beds.md"))
    assert names(beds.backlinks) == [
        ("Garden.md", "line 3: [[Raised beds]] and 1 more"),
        ("Tools.md", "line 9: [[raised beds]]"),
    ]
    assert "Spade" in beds.backlinks[1].record.title
    assert beds.unresolved == ()


def test_relations_have_types_and_notes_are_linked_by_title(opened: Memory, tmp_path: Path) -> None:
    """As in a folder of basic-memory, where names of files differ from titles."""
    notes = {
        "search-engine.md": "---\ntitle: Search Engine\n---\n\nSee [[Ranking Rules]].\n\n## Relations\n\n"
        "- implements [[Ranking Rules]]\n- 'part of' [[Product]] (v2)\n",
        "rules.md": "# Ranking Rules\n\nup:: [[search engine]]\n",
        "product.md": "# Product\n\nA product.\n",
    }  # fmt: skip
    opened.index(write(tmp_path / "bm", notes))
    answer = opened.related("search-engine.md")
    assert names(answer.links) == [
        ("rules.md", "line 9: implements [[Ranking Rules]] and 1 more"),
        ("product.md", "line 10: part of [[Product]]"),
    ]
    assert names(answer.backlinks) == [("rules.md", "line 3: up [[search engine]]")]
    rows = answer.as_dict()
    assert [row["relations"] for row in (*rows["links"], *rows["backlinks"])] == [["implements"], ["part of"], ["up"]]
    assert [row.get("targets") for row in (*rows["links"], *rows["backlinks"])] == [
        ["Ranking Rules"],
        ["Product"],
        None,
    ]
    assert names(opened.related("rules.md").backlinks) == [
        ("search-engine.md", "line 9: implements [[Ranking Rules]] and 1 more")
    ]


def test_similar_notes_are_found_by_vectors(opened: Memory, tmp_path: Path) -> None:
    """Each file once, nearest first, never the note itself; without vectors there are none."""
    texts = {"a.md": "alder birch oak", "b.md": "alder birch elm", "c.md": "iron copper tin"}
    folder = write(tmp_path / "notes", {name: f"# {name}\n\n{text}\n" for name, text in texts.items()})
    opened.index(folder, embed=False)
    assert opened.related("a.md").similar == ()
    opened.embed()
    fact = opened.add("alder birch oak and more")
    similar = opened.related("a.md").similar
    assert [Path(note.record.path or "fact").name for note in similar][:2] in (["fact", "b.md"], ["b.md", "fact"])
    assert [note.similarity for note in similar] == sorted((note.similarity for note in similar), reverse=True)
    assert similar[0].why == f"similarity {similar[0].similarity:.2f}"
    assert len(opened.related("a.md", limit=1).similar) == 1
    assert opened.related("a.md", limit=0).similar == ()
    assert "a.md" in [Path(note.record.path or "").name for note in opened.related(fact.id).similar]


def test_unrelated_notes_are_not_similar(tmp_path: Path) -> None:
    """With the model that is installed; two of the sample notes decide the same question."""
    notes = Path(sample.__file__).parent / "notes"
    with Memory.open(tmp_path / "m.db", embedder="small-embedder", settings=Settings()) as memory:
        memory.index([notes / "work", notes / "reading" / "tardigrades.md", notes / "home" / "sauna.md"])
        memory.embed()
        first = memory.related("job-queue-redis.md").similar[0]
        assert str(first.record.path).endswith("job-queue-postgres.md")
        assert memory.related("tardigrades.md").similar == memory.related("sauna.md").similar == ()


def test_a_fact_links_by_name(vault: Memory) -> None:
    """Its wikilinks are followed, and the file knows of it."""
    fact = vault.add("We moved the [[Raised Beds]] in May, see [[Nothing]].")
    answer = vault.related(fact.id)
    assert names(answer.links) == [("Raised beds.md", "[[Raised Beds]]")]
    assert [link.written for link in answer.unresolved] == ["[[Nothing]]"]
    assert answer.backlinks == ()
    assert (fact.id, "[[Raised Beds]]") in names(vault.related("Raised beds.md").backlinks)
    vault.forget(fact.id)
    assert fact.id not in str(vault.related("Raised beds.md"))


def test_a_scope_sees_only_its_own_notes(opened: Memory, tmp_path: Path) -> None:
    """A note of another scope is no backlink, no target and not similar, and does not make a name ambiguous."""
    shared = {"hub.md": "# Hub\n\nSee [[secret]] and [[plan]].\n"}
    opened.index(write(tmp_path / "shared", shared))
    opened.index(write(tmp_path / "b", {"secret.md": "# S\n\nTo [[hub]].\n", "plan.md": "# P\n\nBob's.\n"}), user="bob")
    opened.index(write(tmp_path / "ada", {"far/off/plan.md": "# P\n\nAda's, to [[hub]].\n"}), user="ada")
    ada, bob = opened.within(Scope("ada")), opened.within(Scope("bob"))
    seen = ada.related("hub.md")
    assert names(seen.links) == [("plan.md", "line 3: [[plan]]")]
    assert seen.links[0].record.scope == Scope("ada")
    assert names(seen.backlinks) == [("plan.md", "line 3: [[hub]]")]
    assert [link.written for link in seen.unresolved] == ["[[secret]]"]
    assert {note.record.scope.user for note in seen.notes} <= {None, "ada"}
    assert {note.record.scope.user for note in bob.related("hub.md").notes} <= {None, "bob"}
    assert len(bob.related("hub.md").backlinks) == 1
    assert opened.related("hub.md").notes == ()
    assert len(opened.related("hub.md", user="bob").links) == 2
    secret = opened.related("secret.md").record  # the owner names a note of any scope, and sees what that scope sees
    assert names(opened.related(secret.id).links) == [("hub.md", "line 3: [[hub]]")]
    for name in (secret.id, secret.id[-8:], "secret.md", secret.path):
        with pytest.raises(UnknownRecord):
            ada.related(name)
    with pytest.raises(Forbidden):
        ada.related("hub.md", user="bob")


def test_wrong_names_are_refused(vault: Memory, tmp_path: Path) -> None:
    """An unknown name, an ambiguous path, a wrong limit."""
    with pytest.raises(UnknownRecord, match="no indexed file"):
        vault.related("no such note.md")
    vault.index(write(tmp_path / "more", {"Garden.md": "# Other\n\nText.\n"}))
    with pytest.raises(UsageError, match="several files"):
        vault.related("Garden.md")
    for limit in (-1, 101, "5"):
        with pytest.raises(UsageError, match="limit"):
            vault.related("Raised beds.md", limit=limit)


def test_line_numbers_of_a_record_may_be_wrong(vault: Memory) -> None:
    """A chunk that a program added may claim any lines; that costs no memory."""
    text = "See [[Raised beds]]."
    vault.add(text, kind="chunk", path="/far.md", lines=[2 * 10**9, 2 * 10**9])
    assert ("far.md", f"line {2 * 10**9}: [[Raised beds]]") in names(vault.related("Raised beds.md").backlinks)


def test_links_follow_the_files(vault: Memory, tmp_path: Path) -> None:
    """A changed file has its new links, and a removed one none."""
    folder = tmp_path / "vault"
    write(folder, {"Garden.md": "# Garden\n\nEmpty.\n", "people/Ada L.md": "# Ada\n\nTo [[garden]].\n"})
    (folder / "Raised beds.md").unlink()
    vault.index(folder, confirm=True)
    answer = vault.related("Garden.md")
    assert names(answer.backlinks) == [("Ada L.md", "line 3: [[garden]]")]
    assert answer.links == ()


def test_a_cycle_and_a_code_block_in_several_chunks(memory: Memory, tmp_path: Path) -> None:
    """Two notes link to each other; a link in code is none, also where the chunk begins inside the code."""
    code = "\n".join(f"value_{number} = compute({number})  # [[b]] and some words" for number in range(200))
    notes = {"a.md": f"# A\n\n```python\n{code}\n```\n\nAfter it [[c]].\n", "b.md": "# B\n\n[[c]]\n", "c.md": "[[b]]\n"}
    memory.index(write(tmp_path / "vault", notes))
    assert len(memory.store.files.chunks(str(tmp_path / "vault" / "a.md"))) > 5
    assert [Path(note.record.path).name for note in memory.related("b.md").backlinks] == ["c.md"]
    assert [Path(note.record.path).name for note in memory.related("c.md").backlinks] == ["a.md", "b.md"]
    assert memory.related("c.md").backlinks[0].line == 206


def test_backlinks_are_all_links_reversed(memory: Memory, tmp_path: Path) -> None:
    """In a random vault with odd names, what `related` finds is what parsing every note finds."""
    chance = random.Random(7)
    stems = ["note", "Note 2", "Größe", "会议", "a.b", "index", "README", "100%", "it's (1)", "x_y", "[z]", "caf\u00e9"]
    paths = [f"{folder}{stem}.md" for folder in ("", "sub/", "sub/deep/", "wiki/") for stem in stems]
    notes = {}
    for path in paths:
        lines = []
        for _ in range(6):
            other = chance.choice(paths)
            stem = Path(other).stem
            lines.append(chance.choice([
                f"[[{stem}]]", f"[[{other.removesuffix('.md').upper()}|x]]", f"[x](/{other.replace(' ', '%20')})",
                f"[x](<{'../' * path.count('/')}{other}>)", f"`[[{stem}]]`", f"[x][{stem}]\n\n[{stem}]: <{stem}.md>",
                f"![[{other}#h]]", f"[x](/{Path(other).parent})", stem,
            ]))  # fmt: skip
        notes[path] = "# T\n\n" + "\n\n".join(lines) + "\n"
    folder = write(tmp_path / "vault", notes)
    memory.index(folder, embed=False)
    targets = LinkTargets({str(folder / path): (str(folder), "T") for path in paths})
    expected: dict[str, set[str]] = {str(folder / path): set() for path in paths}
    for path, text in notes.items():
        source = str(folder / path)
        for link in links_of(text):
            if (target := targets.find(link, source)) and target != source:
                expected[target].add(source)
    found = {path: {note.record.path for note in memory.related(path).backlinks} for path in expected}
    assert found == expected
    assert sum(map(len, expected.values())) > 100


def test_aliases_and_front_matter_are_followed(opened: Memory, tmp_path: Path) -> None:
    """A wikilink may name a note by an alias, a file or a title of that name comes first, and properties hold links."""
    notes = {
        "Heron.md": "---\naliases:\n  - Grey bird\n  - 'Ardea: cinerea'\n  - Mill\n---\n# Heron\n\nIt wades.\n",
        "Egret.md": "---\nalias: Schneereiher\nup: '[[Heron]]'\nsee:\n  - \"[[Mill]]\"\n---\n# Egret\n\nWhite.\n",
        "Mill.md": "# Mill\n\nWhere the [[grey bird]] and the [[Ardea: cinerea|heron]] stand. No [[Stork]].\n",
        "Pond.md": '# Pond\n\nThe [[SCHNEEREIHER]] fishes.\n\n```yaml\naliases: ["Stork"]\n```\n',
    }
    opened.index(write(tmp_path / "vault", notes))
    mill = opened.related("Mill.md")
    assert names(mill.links) == [("Heron.md", "line 3: [[grey bird]] and 1 more")]
    assert mill.links[0].record.text.endswith("It wades.")
    assert [link.target for link in mill.unresolved] == ["Stork"]
    assert names(mill.backlinks) == [("Egret.md", "line 5: [[Mill]]")]
    heron = opened.related("Heron.md")
    assert names(heron.backlinks) == [
        ("Egret.md", "line 3: [[Heron]]"),
        ("Mill.md", "line 3: [[grey bird]] and 1 more"),
    ]
    assert names(opened.related("Egret.md").backlinks) == [("Pond.md", "line 3: [[SCHNEEREIHER]]")]
    assert Path(opened.search("schneereiher").results[0].record.path or "").name in ("Egret.md", "Pond.md")


def test_an_alias_leads_to_no_hidden_note(opened: Memory, tmp_path: Path) -> None:
    """A note of another user does not give its alias to a link."""
    opened.index(write(tmp_path / "ada", {"Secret.md": "---\naliases: [Plan]\n---\nMine.\n"}), user="ada")
    opened.index(write(tmp_path / "all", {"Open.md": "The [[Plan]].\n"}))
    assert [link.target for link in opened.related("Open.md").unresolved] == ["Plan"]
    assert names(opened.related("Open.md", user="ada").links) == [("Secret.md", "line 1: [[Plan]]")]
