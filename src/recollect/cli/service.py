"""`recollect service`: let the system run `recollect watch`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, given, json_flag, load_settings, notice
from recollect.cli.plain import echo, plain

if TYPE_CHECKING:
    from recollect.config import Loaded
    from recollect.ingest.service import Platform


@click.group()
def service() -> None:
    """Let the system run `recollect watch`: systemd's user units, or launchd on macOS."""


_paths = click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH…]")
_platform = click.option(
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
@_platform
@common
@json_flag
def install(
    paths: tuple[str, ...], *, only_print: bool, platform: Platform | None, as_json: bool, **options: Any
) -> int:
    """Write what the system needs to watch the folders PATH…, and switch it on where that can be done from here."""
    from recollect.cli.output import print_json
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
    _say(commands, ran)
    return 0


@service.command()
@_paths
@_platform
@json_flag
def uninstall(paths: tuple[str, ...], platform: Platform | None, as_json: bool) -> int:
    """Switch off and remove the service of the folders PATH…, or every one of ours."""
    from recollect.cli.output import print_json
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
        _say(commands, ran)
    else:
        notice("no service of ours is installed")
    return 0 if files else 1


@service.command()
@_paths
@_platform
@json_flag
def status(paths: tuple[str, ...], platform: Platform | None, as_json: bool) -> int:
    """Show what is installed for the folders PATH…, or at all, and whether it runs."""
    from recollect.cli.output import print_json, print_table
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

    store = loaded.settings.store or str(default_store())
    scheme, separator, where = store.partition("://")
    if not separator:
        return [f"--store={Path(store).expanduser().absolute()}"]
    if scheme == "lancedb" and "://" not in where:
        return [f"--store=lancedb://{Path(where).expanduser().absolute()}"]
    if scheme.startswith("postgres") and loaded.origins["store"] == str(user_file()):
        return []
    if has_secret(store):
        notice("who may list processes will see the password in --store: put it into ~/.pgpass instead")
    return [f"--store={store}"]


def _say(commands: Sequence[Sequence[str]], ran: bool) -> None:
    if commands:
        echo("done:" if ran else "now run:")
    for command in commands:
        echo(plain(f"  {shlex.join(command)}"))
