"""The embedder that is part of the package, the default."""

import os
import subprocess
import sys

from recollect import Memory
from recollect.config import Settings
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


def test_runtime_of_the_model_reports_to_nobody(tmp_path):
    """By itself, onnxruntime 1.31 stores a device id and the events that it sends, in the user's cache."""
    unset = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_TELEMETRY_DISABLED", "PYTEST_CURRENT_TEST")  # it notices tests, too
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    places = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code = "from recollect.models.embedders import open_embedder; open_embedder('small-embedder').query('tea')"
    subprocess.run([sys.executable, "-c", code], env=environment | places, check=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_its_vectors_are_not_those_of_its_teacher():
    """The small embedder and the one it learned from have different vector spaces, which are never compared."""
    small, large = (open_embedder(name, fetch=False).fingerprint for name in ("small-embedder", "arctic-embed-s"))
    assert small != large


def test_store_of_another_model_keeps_it_under_the_defaults(tmp_path, arctic_folder):
    """Nobody chose the default: adding, searching and embedding use the store's model, without a word about it."""
    said = []
    with Memory.open(tmp_path / "m.db", embedder="arctic-embed-s", settings=Settings()) as memory:
        memory.add("The cat sleeps on the sofa.")
    with Memory.open(tmp_path / "m.db", settings=Settings(), announce=said.append) as memory:
        wanted = memory.add("Our car needs new tyres before winter.")
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "otters.md").write_text("An otter holds hands.")
        memory.index(tmp_path / "notes")
        memory.embed()
        answer = memory.search("vehicle maintenance", sources=["vector"])
        assert (answer.results[0].record.id, answer.trace.warnings, said) == (wanted.id, (), [])
        assert memory.status()["vectors"]["embedder"] == "arctic-embed-s"
        memory.embed(move=True)
        assert memory.status()["vectors"] | {"dimension": 384} == {
            "embedder": "small-embedder", "dimension": 384, "with": 3, "without": 0
        }  # fmt: skip
        assert "searches move from arctic-embed-s to small-embedder" in said[0]
