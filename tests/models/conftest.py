"""A model that is fetched; a private cache, a hub and a Python index on this machine that serve its real files."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.http import Hub

from recollect.models.catalogue import MODELS
from recollect.models.fetch import fetch
from recollect.models.onnx import OnnxEmbedder

ARCTIC_EMBED_S = MODELS["arctic-embed-s"]


@pytest.fixture(scope="session")
def arctic_folder() -> Path:
    """The folder of arctic-embed-s in the user's cache, downloaded once."""
    return fetch(ARCTIC_EMBED_S.name, announce=lambda _: None)


@pytest.fixture(scope="session")
def arctic(arctic_folder: Path) -> OnnxEmbedder:
    """arctic-embed-s, loaded once for all tests."""
    return OnnxEmbedder(ARCTIC_EMBED_S)


@pytest.fixture
def cache(arctic_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache for the test, deleted afterwards (forty models are a gigabyte), and an empty index."""
    monkeypatch.setenv("RECOLLECT_MODELS", str(tmp_path / "models"))
    monkeypatch.delenv("RECOLLECT_OFFLINE", raising=False)
    for setting in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(setting)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    yield tmp_path / "models"
    shutil.rmtree(tmp_path)


@pytest.fixture
def hub(arctic_folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that serves the model at its pinned revision, the tokenizer with the real hub's line ends."""
    with Hub.of_arctic(arctic_folder) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield hub


@pytest.fixture
def index(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, bytes]], None]:
    """Publishes the model's wheel with these files where pip looks."""

    def publish(files: dict[str, bytes]) -> None:
        folder = tmp_path / "index"
        folder.mkdir()
        about = "bot_brain-0.8.0.dist-info"
        with zipfile.ZipFile(folder / "bot_brain-0.8.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: bot-brain\nVersion: 0.8.0\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            for path, content in files.items():
                wheel.writestr(path, content)
            wheel.writestr(f"{about}/RECORD", "")
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    return publish
