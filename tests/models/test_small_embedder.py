"""The embedder that is part of the package."""

from recollect import Memory
from recollect.models.catalogue import MODELS, is_here
from recollect.models.embedders import open_embedder


def test_it_is_here_and_finds_by_meaning(tmp_path):
    """The small embedder opens without a download and finds a record that shares no word with the question."""
    assert is_here(MODELS["small-embedder"])
    with Memory.open(tmp_path / "m.db", embedder="small-embedder") as memory:
        memory.add("The cat sleeps on the sofa.")
        wanted = memory.add("Our car needs new tyres before winter.")
        memory.embed()
        [first, *_] = memory.search("vehicle maintenance", sources=["vector"]).results
        assert first.record.id == wanted.id


def test_its_vectors_are_not_those_of_its_teacher():
    """The small embedder and the one it learned from have different vector spaces, which are never compared."""
    small, large = (open_embedder(name, fetch=False).fingerprint for name in ("small-embedder", "arctic-embed-s"))
    assert small != large
