"""`recollect watch`: folders that stay current by themselves."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import signal
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, json_flag, notice, open_memory, progress
from recollect.cli.plain import echo, one_line, plain, to_json

if TYPE_CHECKING:
    from recollect.errors import RecollectError
    from recollect.ingest import Report
    from recollect.ingest.watch import Pass

KINDS = ("added", "changed", "moved", "removed", "rescoped")


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
@click.option("--include", multiple=True, metavar="GLOB", help="Only files like this, as in .gitignore; repeatable.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="No files like this, as in .gitignore; repeatable.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Put this tag on every chunk; repeat for more.")
@click.option("--force", is_flag=True, help="Watch even a whole home folder.")
@click.option("--once", is_flag=True, help="Mirror once and end.")
@click.option(
    "--rescan",
    type=click.FloatRange(min=0, min_open=True),
    default=10,
    show_default=True,
    metavar="MINUTES",
    help="Compare whole folders this often, whatever the system reports.",
)
@common
@json_flag
def watch(paths: tuple[str, ...], once: bool, rescan: float, as_json: bool, **options: Any) -> int:
    """Mirror the folders PATH…, and go on doing so as their files change, until Ctrl-C."""
    from recollect.ingest import watch as watching

    roots = watching.folders(paths)
    asked = {name: options[name] for name in ("tags", "include", "exclude", "force")}
    show = _Shown(as_json)
    with ending(), open_memory(options) as memory, contextlib.ExitStack() as locks:

        def mirror(root: Path) -> Report:
            return memory.index(root, **asked, progress=progress("embedding"))

        if once:
            passes = [watching.compare(root, mirror) for root in roots]
            for done in passes:
                show(done)
            return 3 if any(done.error for done in passes) else 0
        store = memory.status()["store"]
        file = None if "://" in store else watching.whole(store)
        for root in roots:
            locks.enter_context(watching.sole_watcher(root, str(file or store)))
        for done in watching.watch(roots, mirror, rescan=rescan * 60, ignore=file, announce=notice):
            show(done)
    return 0


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Ctrl-C and SIGTERM are how what runs on is meant to end: what was committed stays, the rest is undone."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Shown:
    """A line for a pass that changed something; with JSON a line for every pass."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._before: dict[Path, Report] = {}

    def __call__(self, done: Pass) -> None:
        if done.error is not None:
            self._say(done.error)
        if done.report is None:
            return
        before = self._before.get(done.root)
        self._before[done.root] = done.report
        at = datetime.now().astimezone()
        if self._as_json:
            line = {"at": at.isoformat(timespec="seconds"), "root": str(done.root), "took_ms": round(done.took_ms, 1)}
            new = dict(done.report.skipped.items() - (before.skipped if before else {}).items())
            report = dataclasses.asdict(done.report) | {"skipped": new}
            echo(to_json(line | report))
            return
        counts = {kind: len(getattr(done.report, kind)) for kind in KINDS}
        if any(counts.values()):
            what = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
            echo(f"{at:%H:%M:%S}  {plain(str(done.root))}: {what}")
        vanished = done.report.unconfirmed
        if vanished and vanished != (before.unconfirmed if before else []):
            notice(
                f"{len(vanished):,} files of {plain(str(done.root))} have vanished at once; they were not removed. "
                f"If that is right: recollect index --confirm {shlex.quote(plain(str(done.root)))}"
            )

    def _say(self, error: RecollectError) -> None:
        if self._as_json:
            echo(to_json(error.as_dict()), err=True)
        else:
            hint = f" ({error.hint})" if error.hint else ""
            message = one_line(f"{error.message}{hint}")
            echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)
