"""Caches are used only for callers who may see their content: no caller is faster because of another scope's texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory, Scope
from recollect.config import LlmSettings, SearchOptions, Settings
from recollect.errors import EmbedderError, UsageError
from recollect.memory import embeddings
from recollect.models.embedders import open_embedder

ADA, BOB = Scope("ada"), Scope("bob")
TEXT = "The vault opens with 4711."


class Counting:
    """The hashing embedder, which notes the passages that it embeds."""

    def __init__(self) -> None:
        self._inner = open_embedder("hashing:64")
        self.name, self.fingerprint, self.query = self._inner.name, self._inner.fingerprint, self._inner.query
        self.embedded: list[str] = []

    def passages(self, texts: Any) -> Any:
        self.embedded += texts
        return self._inner.passages(texts)

    def new(self, work: Callable[[], Any]) -> list[str]:
        """What is embedded while something is done."""
        self.embedded.clear()
        work()
        return list(self.embedded)


@pytest.fixture
def embedder() -> Counting:
    """The embedder of the test's memory."""
    return Counting()


@pytest.fixture(params=["sqlite", "postgres", "lancedb"])
def memory(request: pytest.FixtureRequest, tmp_path: Path, embedder: Counting) -> Iterator[Memory]:
    """The owner's memory, in each kind of store."""
    place = {"sqlite": str(tmp_path / "memory.db"), "lancedb": f"lancedb://{tmp_path}/memory"}.get(request.param)
    place = place or request.getfixturevalue("new_schema")()
    with Memory.open(place, embedder=embedder, settings=Settings()) as memory:
        yield memory


def known(memory: Memory, *passages: str) -> set[str]:
    """Those of the passages that have a vector in the store."""
    return memory.store.spaces.open(memory.store.spaces.active).known(passages)


WAYS: dict[str, Callable[[Memory], Any]] = {
    "add": lambda memory: memory.add(TEXT),
    "add many": lambda memory: memory.add_many([{"text": TEXT}]),
    "edit": lambda memory: memory.edit(memory.add("A first text.").id, text=TEXT),
    "supersede": lambda memory: memory.supersede(memory.add("A first text.").id, text=TEXT),
}


@pytest.mark.parametrize("way", WAYS)
def test_text_of_another_scope_is_embedded_again(memory: Memory, embedder: Counting, way: str) -> None:
    """Ada's model does as much work as if Bob did not have the text; both have its vector."""
    ada = memory.within(ADA)
    without = embedder.new(lambda: WAYS[way](ada))
    memory.within(BOB).add(TEXT)
    carl = memory.within(Scope("carl"))
    assert embedder.new(lambda: WAYS[way](carl)) == without
    for side in (ada, carl):
        (found,) = side.search("vault 4711", sources=["vector"], limit=1).results
        assert found.record.text == TEXT
    assert memory.status()["vectors"]["without"] == 0


def test_own_or_global_text_is_not_embedded_again(
    memory: Memory, embedder: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vector of a visible record is reused if the model is slower than a look."""
    monkeypatch.setattr(embeddings, "LOOK_S", 0.0)
    ada = memory.within(ADA)
    ada.add(TEXT)
    memory.add("The office closes at ten.")
    assert embedder.new(lambda: ada.add(TEXT, id="again")) == []
    assert embedder.new(lambda: ada.add("The office closes at ten.")) == []
    assert embedder.new(lambda: memory.add(TEXT, user="bob")) == [], "the owner sees all"


def test_undo_does_not_use_another_scopes_vector(memory: Memory, embedder: Counting) -> None:
    """The restored text is embedded again if only another scope has its vector."""
    ada = memory.within(ADA)
    kept = ada.add(TEXT)
    memory.within(BOB).add(TEXT)
    ada.edit(kept.id, text="Something else.")
    assert embedder.new(lambda: ada.undo(kept.id)) == [TEXT]


REFUSED: dict[str, Callable[[Memory], Any]] = {
    "the id is taken": lambda memory: memory.add(TEXT, id="bobs"),
    "the id is a chunk's": lambda memory: memory.add(TEXT, id="chunk"),
    "what it supersedes is superseded": lambda memory: memory.add(TEXT, supersedes="old"),
    "many, of which one is refused": lambda memory: memory.add_many([{"text": TEXT}, {"text": "x", "id": "bobs"}]),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused_text_leaves_no_vector(memory: Memory, why: str) -> None:
    """A vector can be turned back into words."""
    memory.add("What Bob has.", id="bobs", user="bob")
    memory.add("A part of a file.", id="chunk", kind="chunk", path="/n/a.md", lines=(1, 1), user="ada")
    ada = memory.within(ADA)
    ada.add("The old fact.", id="old")
    ada.supersede("old", text="The new fact.")
    with pytest.raises(UsageError):
        REFUSED[why](ada)
    assert known(memory, TEXT) == set()


def test_adding_a_text_without_its_title_leaves_no_extra_vector(memory: Memory) -> None:
    """It is the stored record with the title, and only that has a vector."""
    ada = memory.within(ADA)
    ada.add(TEXT, title="Vault")
    ada.add(TEXT)
    assert known(memory, TEXT, f"Vault\n{TEXT}") == {f"Vault\n{TEXT}"}


def test_record_is_stored_if_its_embedding_fails(path: Path) -> None:
    """The failure is reported once, after the record is stored."""
    told: list[str] = []

    class Failing(Counting):
        def passages(self, texts: Any) -> Any:
            raise EmbedderError("the model is on strike")

    with Memory.open(path, embedder=Failing(), settings=Settings(), announce=told.append) as memory:
        memory.add("What Bob has.", id="bobs", user="bob")
        told.clear()
        with pytest.raises(UsageError, match="taken"):
            memory.within(ADA).add(TEXT, id="bobs")
        assert told == []
        assert memory.within(ADA).add(TEXT).text == TEXT
        assert told == ["stored without vectors: the model is on strike"]


def test_hypothetical_answer_is_cached_per_scope(path: Path, server: Any) -> None:
    """Another scope's is generated again; one's own and the owner's are not."""
    server.answer = lambda _: "The heron stood in the reeds."
    search = SearchOptions(hyde=True, hyde_timeout=20)
    said = Settings(search=search, llm=LlmSettings(base_url=server.url, model="scripted"))
    with Memory.open(path, embedder="hashing:64", settings=said) as memory:
        memory.add("The heron stood in the reeds at dawn.")
        counts = []
        for asker in (memory, memory, memory.within(BOB), memory.within(BOB), memory.within(ADA), memory.within(ADA)):
            assert asker.search("wading bird?").results
            counts.append(len(server.asked))
    assert counts == [1, 1, 2, 2, 3, 3]
