"""Commands that keep folders indexed: watch, and service, which runs it in the background."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.flags import common, common_options, json_flag, load_settings, open_memory
from recollect.cli.ingestion import index_flags
from recollect.cli.terminal import (
    counted,
    echo,
    emit,
    notice,
    one_line,
    plain,
    print_table,
    progress,
    to_json,
    until_interrupted,
)

if TYPE_CHECKING:
    from recollect.config import Loaded
    from recollect.ingest import Report
    from recollect.ingest.service import Platform
    from recollect.ingest.watch import Pass

CHANGES = ("added", "changed", "moved", "removed", "rescoped")
"""Fields of a report that list files with a change."""

NO_SERVICE = "no Recollect service is installed"


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
@index_flags
@click.option("--once", is_flag=True, help="Index once and exit.")
@click.option(
    "--rescan", type=click.FloatRange(min=0, min_open=True), default=10, show_default=True, metavar="MINUTES",
    help="Also compare whole folders this often, in case the system missed a change.",
)  # fmt: skip
@common
@json_flag
def watch(paths: tuple[str, ...], once: bool, rescan: float, as_json: bool, **options: Any) -> int:
    """Index the folders PATH…, and again whenever their files change, until Ctrl-C."""
    from recollect.ingest import watch as watching

    roots = watching.folders(paths)
    index_options = {name: options[name] for name in ("tags", "include", "exclude", "force")}
    printer = _PassPrinter(as_json)
    with until_interrupted(), open_memory(options) as memory, contextlib.ExitStack() as locks:

        def index(root: Path) -> Report:
            return memory.index(root, **index_options, progress=progress("embedding"))

        if once:
            passes = [watching.compare(root, index) for root in roots]
            for done in passes:
                printer.show(done)
            return 3 if any(done.error for done in passes) else 0
        store = memory.status()["store"]
        file = None if "://" in store else watching.absolute(store)
        for root in roots:
            locks.enter_context(watching.sole_watcher(root, str(file or store)))
        for done in watching.watch(roots, index, rescan=rescan * 60, ignore=file, announce=notice):
            printer.show(done)
    return 0


class _PassPrinter:
    """Prints a line for each pass that changed something; as JSON a line for every pass."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._reports: dict[Path, Report] = {}

    def show(self, done: Pass) -> None:
        if done.error is not None:
            hint = f" ({done.error.hint})" if done.error.hint else ""
            text = f"{click.style('error:', fg='red', bold=True)} {one_line(done.error.message + hint)}"
            echo(to_json(done.error.as_dict()) if self._as_json else text, err=True)
        if done.report is None:
            return
        before = self._reports.get(done.root)
        self._reports[done.root] = done.report
        at = datetime.now().astimezone()
        if self._as_json:
            line = {"at": at.isoformat(timespec="seconds"), "root": str(done.root), "took_ms": round(done.took_ms, 1)}
            skipped = dict(done.report.skipped.items() - (before.skipped if before else {}).items())
            echo(to_json(line | dataclasses.asdict(done.report) | {"skipped": skipped}))
            return
        counts = {kind: len(getattr(done.report, kind)) for kind in CHANGES}
        if any(counts.values()):
            text = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
            echo(f"{at:%H:%M:%S}  {plain(str(done.root))}: {text}")
        missing = done.report.unconfirmed
        if missing and missing != (before.unconfirmed if before else []):
            root = plain(str(done.root))
            notice(
                f"{counted(len(missing), 'file')} of {root} disappeared at once and were kept in the index. "
                f"If they are really gone: recollect index --confirm {shlex.quote(root)}"
            )


@click.group()
def service() -> None:
    """Run `recollect watch` in the background: as a systemd user unit, or with launchd on macOS."""


_paths = click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH…]")
_platform = click.option(
    "--platform", type=click.Choice(["systemd", "launchd"]), help="The service manager, if not that of this machine."
)


@service.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
@index_flags
@click.option("--timer", is_flag=True, help="Index every ten minutes instead of watching; for network drives.")
@click.option("--print", "only_print", is_flag=True, help="Print the unit files without installing them.")
@_platform
@common
@json_flag
def install(
    paths: tuple[str, ...], *, only_print: bool, platform: Platform | None, as_json: bool, **options: Any
) -> None:
    """Install a service that watches the folders PATH…, and start it if the service manager can be reached."""
    from recollect.ingest import service as services
    from recollect.ingest.watch import folders

    manager = platform or services.native_platform()
    watcher = services.Service(folders(paths), tuple(_watch_flags(options)), options["timer"])
    files, commands = services.units(watcher, manager), services.enable_commands(watcher, manager)
    if only_print:
        text = "\n".join(f"# {plain(str(unit.path))}\n{unit.text}" for unit in files)
        value = [{"path": str(unit.path), "text": unit.text} for unit in files]
        emit(as_json, value, lambda: echo(text, nl=False))
        return
    services.write(files)
    ran = services.reachable(manager)
    if ran:
        services.run(commands)
    _emit_actions("wrote", [unit.path for unit in files], commands, ran, as_json)


@service.command()
@_paths
@_platform
@json_flag
def uninstall(paths: tuple[str, ...], platform: Platform | None, as_json: bool) -> int:
    """Stop and remove the service of the folders PATH…; without PATH, every service of Recollect."""
    from recollect.ingest import service as services

    manager = platform or services.native_platform()
    files = services.installed(manager, _name(paths))
    commands = services.disable_commands(files, manager)
    ran = services.reachable(manager)
    if ran:
        services.run(commands)
    for path in files:
        path.unlink()
    if ran and files:
        services.run(services.reload_commands(manager))
    _emit_actions("removed", files, commands, ran, as_json)
    return 0 if files else 1


def _emit_actions(
    verb: str, files: Sequence[Path], commands: Sequence[Sequence[str]], ran: bool, as_json: bool
) -> None:
    """The files that were written or removed, and the commands that were run or are left to the user."""
    lines = [f"{verb} {path}" for path in files]
    if commands:
        lines += ["done:" if ran else "now run:", *(f"  {shlex.join(command)}" for command in commands)]
    value = {"files": [str(path) for path in files], "commands": commands, "ran": ran}
    emit(as_json, value, lambda: echo("\n".join(map(plain, lines))) if files else notice(NO_SERVICE))


@service.command()
@_paths
@_platform
@json_flag
def status(paths: tuple[str, ...], platform: Platform | None, as_json: bool) -> int:
    """Show the service of the folders PATH… and whether it runs; without PATH, every service of Recollect."""
    from recollect.ingest import service as services

    manager = platform or services.native_platform()
    reachable = services.reachable(manager)
    rows = [
        (services.state(path, manager) if reachable else "unknown", str(path))
        for path in services.installed(manager, _name(paths))
    ]
    value = [{"path": path, "state": state} for state, path in rows]
    emit(as_json, value, lambda: print_table(rows, empty=NO_SERVICE))
    return 0 if rows else 1


def _name(paths: Sequence[str]) -> str | None:
    """The name of the service of these folders, which need not exist any more."""
    from recollect.ingest.service import Service
    from recollect.ingest.watch import absolute

    return Service(tuple(dict.fromkeys(absolute(path) for path in paths))).name if paths else None


def _watch_flags(options: Mapping[str, Any]) -> list[str]:
    """The flags of `watch` in the unit file: a service has neither this folder nor this environment."""
    from recollect.config import user_file

    loaded = load_settings(options)
    flags = _store_flag(loaded)
    if config := common_options(options)["config"] or os.environ.get("RECOLLECT_CONFIG"):
        flags.append(f"--config={Path(config).absolute()}")
    for flag, name in (("embedder", "embedder"), *((part, f"scope.{part}") for part in ("user", "agent", "session"))):
        # The service reads the user's own settings file itself, and that may change later.
        if loaded.origins[name] not in ("default", str(user_file())) and loaded.value(name) is not None:
            flags.append(f"--{flag}={loaded.value(name)}")
    for flag, name in (("include", "include"), ("exclude", "exclude"), ("tag", "tags")):
        flags += [f"--{flag}={value}" for value in options[name]]
    return [*flags, *(["--force"] if options["force"] else [])]


def _store_flag(loaded: Loaded) -> list[str]:
    """--store with a full path or URL; none for a server in the user's own file, whose URL may hold a password."""
    from recollect.config import has_secret, user_file
    from recollect.memory import default_store
    from recollect.stores import kind_of

    store = loaded.settings.store or str(default_store())
    kind = kind_of(store)
    if kind.shared and loaded.origins["store"] == str(user_file()):
        return []
    if has_secret(store):
        notice("other users of this machine can see the password in --store; put it into ~/.pgpass instead")
    return [f"--store={kind.absolute(store)}"]
