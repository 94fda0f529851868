"""Folders that stay current: watch, and service, which lets the system run it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, given, json_flag, load_settings, open_memory
from recollect.cli.terminal import echo, notice, one_line, plain, progress, to_json

if TYPE_CHECKING:
    from recollect.config import Loaded
    from recollect.errors import RecollectError
    from recollect.ingest import Report
    from recollect.ingest.service import Platform
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


@click.group()
def service() -> None:
    """Let the system run `recollect watch`: systemd's user units, or launchd on macOS."""


paths_argument = click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH…]")
platform_option = click.option(
    "--platform", type=click.Choice(["systemd", "launchd"]), help="Instead of what this machine has."
)


@service.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
@click.option("--include", multiple=True, metavar="GLOB", help="Only files like this, as in .gitignore; repeatable.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="No files like this, as in .gitignore; repeatable.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Put this tag on every chunk; repeat for more.")
@click.option("--force", is_flag=True, help="Watch even a whole home folder.")
@click.option("--timer", is_flag=True, help="Mirror every ten minutes instead of watching, as for a network drive.")
@click.option("--print", "only_print", is_flag=True, help="Show the files without installing them.")
@platform_option
@common
@json_flag
def install(
    paths: tuple[str, ...], *, only_print: bool, platform: Platform | None, as_json: bool, **options: Any
) -> int:
    """Write what the system needs to watch the folders PATH…, and switch it on where that can be done from here."""
    from recollect.cli.terminal import print_json
    from recollect.ingest import service as services
    from recollect.ingest.watch import folders

    chosen = platform or services.here()
    wanted = services.Service(folders(paths), tuple(_flags(options)), options["timer"])
    files, commands = services.units(wanted, chosen), services.switching_on(wanted, chosen)
    if only_print:
        if as_json:
            print_json([{"path": str(unit.path), "text": unit.text} for unit in files])
        else:
            echo("\n".join(f"# {plain(str(unit.path))}\n{unit.text}" for unit in files), nl=False)
        return 0
    services.write(files)
    ran = services.reachable(chosen)
    if ran:
        services.run(commands)
    if as_json:
        print_json({"files": [str(unit.path) for unit in files], "commands": commands, "ran": ran})
        return 0
    for unit in files:
        echo(plain(f"wrote {unit.path}"))
    _print_commands(commands, ran)
    return 0


@service.command()
@paths_argument
@platform_option
@json_flag
def uninstall(paths: tuple[str, ...], platform: Platform | None, as_json: bool) -> int:
    """Switch off and remove the service of the folders PATH…, or every one of ours."""
    from recollect.cli.terminal import print_json
    from recollect.ingest import service as services

    chosen = platform or services.here()
    files = services.installed(chosen, _name(paths))
    commands = services.switching_off(files, chosen)
    ran = services.reachable(chosen)
    if ran:
        services.run(commands)
    for path in files:
        path.unlink()
    if ran and files:
        services.run(services.reloading(chosen))
    if as_json:
        print_json({"files": [str(path) for path in files], "commands": commands, "ran": ran})
    elif files:
        for path in files:
            echo(plain(f"removed {path}"))
        _print_commands(commands, ran)
    else:
        notice("no service of ours is installed")
    return 0 if files else 1


@service.command()
@paths_argument
@platform_option
@json_flag
def status(paths: tuple[str, ...], platform: Platform | None, as_json: bool) -> int:
    """Show what is installed for the folders PATH…, or at all, and whether it runs."""
    from recollect.cli.terminal import print_json, print_table
    from recollect.ingest import service as services

    chosen = platform or services.here()
    asked = services.reachable(chosen)
    rows = [
        (services.state(path, chosen) if asked else "unknown", path)
        for path in services.installed(chosen, _name(paths))
    ]
    if as_json:
        print_json([{"path": str(path), "state": state} for state, path in rows])
    elif rows:
        print_table([(state, str(path)) for state, path in rows])
    else:
        notice("no service of ours is installed")
    return 0 if rows else 1


def _name(paths: Sequence[str]) -> str | None:
    """The name of the folders' service; the folders themselves may be gone by now."""
    from recollect.ingest.service import Service
    from recollect.ingest.watch import whole

    return Service(tuple(dict.fromkeys(whole(path) for path in paths))).name if paths else None


def _flags(options: Mapping[str, Any]) -> list[str]:
    """What a service must be told, since it has neither this folder nor this environment."""
    from recollect.config import user_file

    loaded = load_settings(options)
    flags = _place(loaded)
    if config := given(options)["config"] or os.environ.get("RECOLLECT_CONFIG"):
        flags.append(f"--config={Path(config).absolute()}")
    for flag, name in (("embedder", "embedder"), *((part, f"scope.{part}") for part in ("user", "agent", "session"))):
        # What the user's own file says is left to it: the service reads it too, and it may change.
        if loaded.origins[name] not in ("default", str(user_file())) and loaded.value(name) is not None:
            flags.append(f"--{flag}={loaded.value(name)}")
    for flag, name in (("include", "include"), ("exclude", "exclude"), ("tag", "tags")):
        flags += [f"--{flag}={value}" for value in options[name]]
    return [*flags, *(["--force"] if options["force"] else [])]


def _place(loaded: Loaded) -> list[str]:
    """Where the store is; a server in the user's own file is left to that, since it may have a password."""
    from recollect.config import has_secret, user_file
    from recollect.memory import default_store
    from recollect.stores import kind_of

    store = loaded.settings.store or str(default_store())
    kind = kind_of(store)
    if kind.shared and loaded.origins["store"] == str(user_file()):
        return []
    if has_secret(store):
        notice("who may list processes will see the password in --store: put it into ~/.pgpass instead")
    return [f"--store={kind.absolute(store)}"]


def _print_commands(commands: Sequence[Sequence[str]], ran: bool) -> None:
    if commands:
        echo("done:" if ran else "now run:")
    for command in commands:
        echo(plain(f"  {shlex.join(command)}"))
