from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.errors import ModelError, UsageError
from recollect.models import catalogue as cache_module
from recollect.models.catalogue import MODELS, digest, installed, model_path, remove, staging
from recollect.models.embedders import open_embedder
from recollect.models.fetch import fetch
from recollect.network import wheels

ARCTIC_EMBED_S = MODELS["arctic-embed-s"]

NAME = ARCTIC_EMBED_S.name
MODEL, TOKENIZER = ARCTIC_EMBED_S.files
INSTALLED = {"model.onnx", "tokenizer.json"}
FETCH_FROM_HUB = f"from recollect.models.fetch import fetch; fetch({NAME!r}, origin='hub', announce=print)"


def quiet(_: str) -> None:
    """Where the announcement is not what is tested."""


def carried(folder: Path) -> dict[str, bytes]:
    """The model's files under the paths at which the real wheel carries them."""
    return {file.path: (folder / file.name).read_bytes() for file in ARCTIC_EMBED_S.files}


def spoil(path: Path) -> None:
    """Change one byte in the middle of a file."""
    with path.open("r+b") as stream:
        stream.seek(path.stat().st_size // 2)
        byte = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte[0] ^ 1]))


def spoiled(content: bytes) -> bytes:
    """The content with one byte changed, at the same length."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_real_wheel_has_the_pinned_files(arctic_folder):
    """File by file, as in the catalogue."""
    for file in ARCTIC_EMBED_S.files:
        assert digest(arctic_folder / file.name) in {copy.sha256 for copy in file.copies}


@pytest.mark.ci
def test_only_named_files_are_taken_from_a_wheel(arctic_folder, cache, index):
    """The code in it neither runs nor stays."""
    marker = cache.parent / "was-run"
    trap = f"open({str(marker)!r}, 'w')".encode()
    index({**carried(arctic_folder), "project_brain/__init__.py": trap, "setup.py": trap, "tokenizer.json": b"{}"})
    folder = fetch(NAME, origin="wheel", announce=quiet)
    assert {path.name for path in folder.iterdir()} == INSTALLED
    assert [path.name for path in cache.iterdir()] == [folder.name]
    assert not marker.exists()


@pytest.mark.ci
def test_tampered_wheel_is_refused_and_leaves_nothing(arctic_folder, cache, index):
    """One changed byte in one file is refused by that file's name."""
    files = carried(arctic_folder)
    files[TOKENIZER.path] = spoiled(files[TOKENIZER.path])
    index(files)
    with pytest.raises(ModelError, match=r"tokenizer\.json is not the pinned file"):
        fetch(NAME, origin="wheel", announce=quiet)
    assert list(cache.iterdir()) == []


@pytest.mark.ci
def test_wheel_without_the_file_is_refused(arctic_folder, cache, index):
    """With the missing path."""
    index({TOKENIZER.path: carried(arctic_folder)[TOKENIZER.path]})
    with pytest.raises(ModelError, match=r"does not contain.*onnx/model\.onnx"):
        fetch(NAME, origin="wheel", announce=quiet)
    assert list(cache.iterdir()) == []


@pytest.mark.ci
def test_index_without_the_wheel_is_reported(cache):
    """With pip's message and the command to try again."""
    with pytest.raises(ModelError, match=r"No matching distribution found for bot-brain==0\.8\.0") as caught:
        fetch(NAME, origin="wheel", announce=quiet)
    assert "`recollect model fetch arctic-embed-s`" in caught.value.hint


def test_hub_gives_the_files_of_the_pinned_revision(cache, hub):
    """The model is then complete."""
    folder = fetch(NAME, origin="hub", announce=quiet)
    assert folder == model_path(NAME)
    assert {path.name for path in folder.iterdir()} == INSTALLED
    assert [request.path.split("/resolve/")[1] for request in hub.asked] == [
        f"{ARCTIC_EMBED_S.revision}/onnx/model_int8.onnx",
        f"{ARCTIC_EMBED_S.revision}/tokenizer.json",
    ]


def test_download_is_announced_before_it_starts(cache, hub):
    """With model, licence, size and place."""
    heard: list[tuple[str, int]] = []
    fetch(NAME, origin="hub", announce=lambda message: heard.append((message, len(hub.asked))))
    assert heard == [("fetching arctic-embed-s (Apache-2.0): 35 MB from the hub 127.0.0.1", 0)]


def test_progress_rises_to_the_total(cache, hub):
    """It never falls, and ends at the number of bytes."""
    seen: list[tuple[int, int]] = []
    fetch(NAME, origin="hub", announce=quiet, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (34_015_111 + 711_649, 34_015_111 + 711_649)


def test_watching_pips_progress_never_fails(tmp_path):
    """Even if pip deletes its folders meanwhile."""
    gone = threading.Event()

    def tidy() -> None:
        for number in range(200):
            folder = tmp_path / f"pip-{number}" / "inner"
            folder.mkdir(parents=True)
            (folder / "a.whl").write_bytes(b"1234")
            shutil.rmtree(folder.parent)
        gone.set()

    worker = threading.Thread(target=tidy)
    worker.start()
    try:
        while not gone.is_set():
            assert wheels._arrived(tmp_path) in (0, 4)
    finally:
        worker.join()


def test_an_interrupted_download_leaves_nothing(cache, hub):
    """A connection that breaks half way is an error, and no file stays behind."""
    hub.cut_after = 5_000_000
    with pytest.raises(ModelError, match="the download failed"):
        fetch(NAME, origin="hub", announce=quiet)
    assert list(cache.iterdir()) == []


def test_ctrl_c_during_a_download_leaves_nothing(cache, hub):
    """It is passed on, and no file stays behind."""

    def press(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(NAME, origin="hub", announce=quiet, progress=press)
    assert list(cache.iterdir()) == []


def test_tampered_content_from_the_hub_is_refused(cache, hub):
    """A file of the right length with one changed byte is refused by name, and nothing stays behind."""
    hub.files = {path: spoiled(content) for path, content in hub.files.items()}
    with pytest.raises(ModelError, match=r"model\.onnx is not the pinned file"):
        fetch(NAME, origin="hub", announce=quiet)
    assert list(cache.iterdir()) == []


def test_endless_file_is_cut_off(cache, hub):
    """At the pinned size."""
    hub.files = {path: content * 4 for path, content in hub.files.items()}
    with pytest.raises(ModelError, match=r"model\.onnx is larger than its pinned size of 34,015,111 bytes"):
        fetch(NAME, origin="hub", announce=quiet)
    assert hub.sent < 2 * MODEL.size


def test_hub_without_the_model_is_reported(cache, hub):
    """A 404 with its status and the path."""
    hub.files = {}
    with pytest.raises(ModelError, match=r"answered 404 for .*/onnx/model_int8\.onnx"):
        fetch(NAME, origin="hub", announce=quiet)


@pytest.mark.ci
def test_refused_wheel_falls_back_to_the_hub(arctic_folder, cache, hub, index):
    """The reason is announced."""
    index({path: spoiled(content) for path, content in carried(arctic_folder).items()})
    heard: list[str] = []
    folder = fetch(NAME, announce=heard.append)
    assert digest(folder / "tokenizer.json") == TOKENIZER.hub.sha256
    assert [line.split(" ")[0] for line in heard] == ["fetching", "fetching", "the"]
    assert "model.onnx is not the pinned file" in heard[2]


@pytest.mark.ci
def test_failure_of_every_place_names_each_reason(cache, hub):
    """With the commands that help."""
    hub.files = {}
    with pytest.raises(ModelError) as caught:
        fetch(NAME, announce=quiet)
    assert "pip could not download it" in caught.value.message
    assert "the hub 127.0.0.1: it answered 404" in caught.value.message
    assert "--from FOLDER" in caught.value.hint
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("origin", [None, "hub", "wheel"])
def test_offline_nothing_is_downloaded(cache, hub, monkeypatch, origin):
    """RECOLLECT_OFFLINE=1 is an error, and no request is sent."""
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    with pytest.raises(ModelError, match="offline: "):
        fetch(NAME, origin=origin, announce=quiet)
    assert hub.asked == []


def test_offline_a_folder_still_works(arctic_folder, cache, monkeypatch):
    """The way to bring a model to a machine without a network."""
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    assert fetch(NAME, origin=arctic_folder, announce=quiet) == model_path(NAME)


def test_folder_may_have_the_hubs_paths(arctic_folder, cache, tmp_path):
    """A clone of the hub's repository works."""
    (tmp_path / "clone/onnx").mkdir(parents=True)
    shutil.copy(arctic_folder / "model.onnx", tmp_path / "clone/onnx/model_int8.onnx")
    shutil.copy(arctic_folder / "tokenizer.json", tmp_path / "clone")
    assert fetch(NAME, origin=str(tmp_path / "clone"), announce=quiet) == model_path(NAME)


def test_folder_without_the_files_is_refused(cache, tmp_path):
    """The error names the missing file."""
    with pytest.raises(ModelError, match=r"model\.onnx is not in it"):
        fetch(NAME, origin=tmp_path, announce=quiet)


@pytest.mark.parametrize(
    ("name", "origin", "message"),
    [
        ("no-such-model", None, "unknown model 'no-such-model'; available: arctic-embed-s"),
        (NAME, "/no/such/folder", "/no/such/folder is not a folder"),
        ("bge-small-en", "hub", "the hub does not have the files of bge-small-en"),
    ],
)
def test_unknown_model_or_place_is_a_usage_error(cache, name, origin, message):
    """With the known ones."""
    with pytest.raises(UsageError, match=message):
        fetch(name, origin=origin, announce=quiet)


def test_missing_model_names_the_command(cache):
    """The exact command that downloads it."""
    assert not installed(NAME)
    with pytest.raises(ModelError, match="not on this machine") as caught:
        model_path(NAME)
    assert caught.value.hint == "recollect model fetch arctic-embed-s"


def test_second_fetch_downloads_nothing(cache, hub):
    """The model is complete."""
    fetch(NAME, origin="hub", announce=quiet)
    hub.asked.clear()
    heard: list[str] = []
    assert fetch(NAME, origin="hub", announce=heard.append) == model_path(NAME)
    assert hub.asked == []
    assert heard == [f"arctic-embed-s is here already: {model_path(NAME)}"]


def test_changed_file_is_refused_even_with_its_old_times(arctic_folder, cache):
    """Also with the old size; fetching repairs it."""
    path = fetch(NAME, origin=arctic_folder, announce=quiet) / "model.onnx"
    before = path.stat()
    spoil(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ModelError, match=r"model\.onnx is damaged: .* of the model arctic-embed-s") as caught:
        model_path(NAME)
    assert caught.value.hint == "recollect model fetch arctic-embed-s"
    fetch(NAME, origin=arctic_folder, announce=quiet)
    assert installed(NAME)
    assert [path.name for path in cache.iterdir()] == [ARCTIC_EMBED_S.folder.name]


def test_missing_file_is_refused(arctic_folder, cache):
    """An incomplete folder is not a model."""
    (fetch(NAME, origin=arctic_folder, announce=quiet) / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json of the model arctic-embed-s cannot be read"):
        model_path(NAME)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_every_file_is_hashed_on_each_load(arctic_folder, cache, name):
    """A note that it was verified could be written by whoever changed the file."""
    folder = fetch(NAME, origin=arctic_folder, announce=quiet)
    pinned = {file.name: digest(folder / file.name) for file in ARCTIC_EMBED_S.files}
    embedder = open_embedder(NAME)
    spoil(folder / name)
    stamps = {}
    for file, sha256 in pinned.items():
        state = (folder / file).stat()
        times = {"size": state.st_size, "mtime_ns": state.st_mtime_ns, "ctime_ns": state.st_ctime_ns}
        stamps[file] = {**times, "sha256": sha256}
    (folder / "verified.json").write_text(json.dumps({"files": stamps}))
    for load in (lambda: model_path(NAME), lambda: embedder.query("a question"), open_embedder(NAME).query):
        with pytest.raises(ModelError, match=f"{name} of the model arctic-embed-s") as caught:
            load(*["a question"] if load.__name__ == "query" else [])
        assert caught.value.hint == "recollect model fetch arctic-embed-s"
    assert not installed(NAME)


def test_loaded_model_is_hashed_once(arctic_folder, cache, monkeypatch):
    """Opening it and using it twice reads each file once, since hashing is most of the cost."""
    fetch(NAME, origin=arctic_folder, announce=quiet)
    read: list[str] = []
    monkeypatch.setattr(cache_module, "digest", lambda path: read.append(path.name) or digest(path))
    embedder = open_embedder(NAME)
    embedder.query("a question")
    embedder.passages(["an answer"])
    assert sorted(read) == ["model.onnx", "tokenizer.json"]


def test_removing_leaves_nothing(arctic_folder, cache):
    """Removing it again does nothing."""
    fetch(NAME, origin=arctic_folder, announce=quiet)
    assert remove(NAME) is True
    assert list(cache.iterdir()) == []
    assert remove(NAME) is False


def test_leftovers_of_a_killed_fetch_are_removed_by_the_next(arctic_folder, cache, hub):
    """What a process killed half way left behind is deleted by the next fetch."""
    hub.pause_s = 0.05
    process = subprocess.Popen([sys.executable, "-c", FETCH_FROM_HUB], stdout=subprocess.DEVNULL)
    wait_until(lambda: hub.sent > 1_000_000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert {path.name[:9] for path in cache.iterdir()} == {".staging-"}
    fetch(NAME, origin=arctic_folder, announce=quiet)
    assert [path.name for path in cache.iterdir()] == [ARCTIC_EMBED_S.folder.name]


def test_fetch_does_not_remove_the_folder_of_another(arctic_folder, cache):
    """The folder in which another fetch works is left alone."""
    with staging(cache) as busy:
        fetch(NAME, origin=arctic_folder, announce=quiet)
        assert busy.is_dir()
    assert not busy.exists()


@pytest.mark.ci
def test_two_processes_fetching_at_once_both_succeed(cache, hub):
    """The model is complete, and nothing else is left."""
    hub.pause_s = 0.001
    both = [subprocess.Popen([sys.executable, "-c", FETCH_FROM_HUB], stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    paths = [request.path for request in hub.asked]
    assert paths.count(paths[0]) == 2, "they did not overlap, so nothing was tested"
    assert installed(NAME)
    assert [path.name for path in cache.iterdir()] == [ARCTIC_EMBED_S.folder.name]


def test_first_of_two_fetches_stays(arctic_folder, cache, hub):
    """A model is not replaced while others have it open."""
    brought: list[int] = []

    def meanwhile(done: int, total: int) -> None:
        if not brought:
            brought.append(fetch(NAME, origin=arctic_folder, announce=quiet).stat().st_ino)

    folder = fetch(NAME, origin="hub", announce=quiet, progress=meanwhile)
    assert [folder.stat().st_ino] == brought
    assert [path.name for path in cache.iterdir()] == [folder.name]


def test_unwritable_cache_is_reported(arctic_folder, cache):
    """With the place and the setting that moves it."""
    cache.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match=str(cache)) as caught:
        fetch(NAME, origin=arctic_folder, announce=quiet)
    assert "RECOLLECT_MODELS" in caught.value.hint


@pytest.mark.ci
def test_opening_an_embedder_downloads_its_model(cache, hub):
    """With an announcement."""
    heard: list[str] = []
    assert open_embedder(NAME, announce=heard.append).query("hello").shape == (384,)
    assert heard[0].startswith("fetching arctic-embed-s (Apache-2.0): 26 MB from the package bot-brain==0.8.0")


def test_offline_embedder_without_its_model_does_not_open(cache, hub, monkeypatch):
    """With the reason, and without a wait."""
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    with pytest.raises(ModelError, match="offline: "):
        open_embedder(NAME)


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that another process brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
