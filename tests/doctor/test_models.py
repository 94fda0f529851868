"""`doctor` on models: real files with a flipped byte, an embedding server, a language model."""

import os
import shutil
from pathlib import Path

import pytest
from support.http import Hub

from recollect import Memory
from recollect.config import Settings
from recollect.errors import ModelError
from recollect.models.catalogue import MODELS, model_path
from recollect.models.fetch import fetch

ARCTIC_EMBED_S = MODELS["arctic-embed-s"]

NAME = ARCTIC_EMBED_S.name


@pytest.fixture(scope="session")
def arctic():
    """The folder of arctic-embed-s in the user's cache, downloaded once."""
    return fetch(NAME, announce=lambda _: None)


@pytest.fixture(autouse=True)
def _first(arctic, home):
    """Finds the user's own cache before the home is replaced."""


@pytest.fixture
def models(arctic, tmp_path, monkeypatch):
    """A copy of the model in a cache for the test, and no index to download from."""
    monkeypatch.setenv("RECOLLECT_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", NAME)
    for setting in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(setting)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = ARCTIC_EMBED_S.folder
    shutil.copytree(arctic, folder)
    yield folder
    shutil.rmtree(tmp_path)


@pytest.fixture
def hub(arctic, monkeypatch):
    """A local hub that serves the model's files at their pinned revision."""
    with Hub.of_arctic(arctic) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield


def flip(path: Path) -> None:
    """One byte in the middle is another."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0xFF]))


def test_intact_model_passes(doctor, models):
    """Every file is hashed."""
    assert doctor()["model"]["message"] == f"{NAME}: 2 files, every SHA-256 as pinned"


@pytest.mark.ci
@pytest.mark.parametrize("file", [file.name for file in ARCTIC_EMBED_S.files])
def test_flipped_byte_is_found_and_the_model_downloaded_again(doctor, models, hub, file):
    """It is not loaded either; after --fix it is used again."""
    flip(models / file)
    with pytest.raises(ModelError):
        model_path(NAME)
    told = doctor()
    assert (told.code, told["model"]["state"]) == (3, "failure")
    assert f"{models / file} is damaged" in told["model"]["message"]
    assert f"recollect model fetch {NAME}" in told["model"]["mend"]
    mended = doctor("--fix")
    assert (mended.code, mended["model"]["state"], mended["model"]["fixed"]) == (0, "ok", True)
    assert "from the hub 127.0.0.1" in mended.err
    assert model_path(NAME) == models


def test_missing_file_without_network_is_a_failure(doctor, models, monkeypatch):
    """--fix without a network leaves the finding, with the reason."""
    (models / "tokenizer.json").unlink()
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    told = doctor("--fix")
    assert (told.code, told["model"]["state"], told["model"]["fixed"]) == (3, "failure", False)
    assert "cannot be read: No such file" in told["model"]["message"]
    assert "offline: " in told["model"]["message"]


@pytest.mark.ci
def test_missing_model_is_a_note_until_a_store_needs_it(doctor, models, hub, kept):
    """With a store it is a warning; --fix downloads it."""
    shutil.rmtree(models)
    assert doctor("--store", "none-yet.db")["model"]["state"] == "note"
    assert not models.exists()
    told = doctor()
    assert (told.code, told["model"]["state"]) == (1, "warning")
    mended = doctor("--fix")
    assert mended["model"]["fixed"] is True
    assert model_path(NAME) == models
    assert mended["vectors"]["message"] == f"all 40 records have a vector of {NAME}"
    assert mended.code == 0


def test_missing_model_is_not_promised_offline(doctor, models, kept, monkeypatch):
    """Nothing downloads it there, so `--fix` does not try to."""
    shutil.rmtree(models)
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    found = doctor()["model"]
    assert found["state"] == "warning"
    assert "; without --offline, the first command that needs it downloads it" in found["message"]
    assert doctor("--fix")["model"]["message"] == found["message"]


@pytest.mark.ci
def test_missing_model_that_only_the_store_needs_is_reported(doctor, models, hub, path, monkeypatch):
    """With the command that gets it and the one that moves away from it; --fix fetches it."""
    with Memory.open(path, embedder=NAME, settings=Settings()) as memory:
        memory.add("the heron stands in the reeds")
        assert memory.search("heron").results
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "small-embedder")
    assert doctor()["model"]["state"] == "ok"
    shutil.rmtree(models)
    told = doctor()
    configured, stored = told.all("model")
    assert (told.code, configured["state"], stored["state"]) == (1, "ok", "warning")
    assert stored["message"].startswith(f"the store's vectors are of {NAME}: {NAME} is not on this machine")
    assert stored["mend"] == f"recollect model fetch {NAME}, or recollect migrate --embedder small-embedder"
    assert {found["state"] for found in doctor("--fix").all("model")} == {"ok"}
    assert model_path(NAME) == models


def test_reranker_is_checked_if_switched_on(doctor, settings, tmp_path, monkeypatch):
    """Its files must be there; an unknown name is a failure. If only the model is set, it is said how to get it."""
    monkeypatch.setenv("RECOLLECT_MODELS", str(tmp_path / "models"))
    assert doctor()["reranker"]["message"].startswith("small-reranker")
    settings('[search]\nrerank_model = "minilm-l12-reranker"\n')
    assert "recollect model fetch minilm-l12-reranker" in doctor()["reranker"]["message"]
    settings("[search]\nrerank = false\n")
    assert doctor()["reranker"]["message"] == "switched off"
    settings('[search]\nrerank = true\nrerank_model = "minilm-l12-reranker"\n')
    told = doctor()
    assert (told.code, told["reranker"]["state"]) == (1, "warning")
    assert told["reranker"]["mend"] == "recollect model fetch minilm-l12-reranker"
    settings('[search]\nrerank = true\nrerank_model = "acme:large"\n')
    assert doctor()["reranker"]["state"] == "failure"


def test_unknown_embedder_is_a_failure(doctor):
    """With the known names."""
    told = doctor("--embedder", "magic:1")
    assert (told.code, told["model"]["state"]) == (3, "failure")
    assert "available" in told["model"]["message"]


def test_missing_extra_is_named(doctor):
    """The setting that needs it, and what to install."""
    found = doctor("--embedder", "fastembed:BAAI/bge-small-en")["extras"]
    try:
        import fastembed  # noqa: F401
    except ImportError:
        assert (found["state"], found["mend"]) == ("failure", "pip install 'recollect-search[fastembed]'")
        assert "fastembed:BAAI/bge-small-en" in found["message"]
    else:
        assert found["state"] == "ok"


# -- language models ----------------------------------------------------------------------------------------


def test_language_model_that_answers_passes(doctor, settings, server):
    """It is called once, for one token, and the time is shown."""
    settings(f'[llm]\nbase_url = "{server.url}"\nmodel = "tiny"\n')
    found = doctor()["llm"]
    assert found["state"] == "ok"
    assert found["message"].startswith("tiny at 127.0.0.1")
    assert [asked.body["max_tokens"] for asked in server.asked] == [1]


@pytest.mark.parametrize("case", [(401, "API key"), (404, "base_url"), (503, "later")])
def test_language_model_that_refuses_is_a_warning(doctor, settings, server, reply, case):
    """With its message and a hint; it is not retried."""
    status, word = case
    settings(f'[llm]\nbase_url = "{server.url}"\nmodel = "tiny"\n')
    server.script.append(reply("no", status=status))
    told = doctor()
    assert (told.code, told["llm"]["state"]) == (1, "warning")
    assert str(status) in told["llm"]["message"]
    assert word in told["llm"]["mend"]
    assert len(server.asked) == 1


def test_other_json_endpoint_is_a_warning(doctor, settings, server, reply):
    """An address that is no chat endpoint."""
    settings(f'[llm]\nbase_url = "{server.url}"\nmodel = "tiny"\n')
    server.script.append(reply(body='{"hello": "world"}'))
    assert "not a chat completion" in doctor()["llm"]["message"]


def test_hyde_without_a_language_model_is_a_warning(doctor, settings):
    """A setting that needs one, and none is set up."""
    settings("[search]\nhyde = true\n")
    told = doctor()
    assert (told.code, told["llm"]["state"]) == (1, "warning")
    assert "no language model is set up" in told["llm"]["message"]
