"""`config import`: OpenClaw's settings as ours, shown first and written where that is asked for."""

from __future__ import annotations

import contextlib
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import given, json_flag, load_settings, notice
from recollect.cli.plain import echo, one_line, plain
from recollect.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from recollect.config.imported import Imported
    from recollect.config.writing import Written


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--print", "printed", is_flag=True, help="Print the settings file that would be written, and only that.")
@click.option("--write", is_flag=True, help="Write into your own settings file (or the one named by --config).")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write into this file.")
@click.option("--force", is_flag=True, help="Change a file that holds settings already; a copy of it is kept.")
@json_flag
def import_settings(file: Path, as_json: bool, **options: Any) -> int:
    """Turn the memory settings of OpenClaw's FILE (openclaw.json, JSON or JSON5) into ours.

    It says what became of each key, and shows the settings; without --write or --output nothing is changed.
    """
    from recollect.config.openclaw import read_openclaw
    from recollect.config.relaxed import read_document
    from recollect.config.writing import as_toml

    _check(options)
    imported = read_openclaw(read_document(file))
    text = as_toml(imported.settings, _heading(file))
    written = _written(file, imported, options)
    if as_json:
        _print_json(imported, text, written)
    elif options["printed"]:
        echo(text, nl=False)
    else:
        _show(imported, text, written)
    if options["write"]:
        _tell_outranked(imported)
    return 0


def _check(options: dict[str, Any]) -> None:
    places = [f"--{name}" for name in ("printed", "write", "output") if options[name]]
    if len(places) > 1:
        named = " and ".join(places).replace("printed", "print")
        raise UsageError(f"{named} do not go together", hint="choose one")


def _heading(file: Path) -> str:
    return f"From {file.name}, by `recollect config import`"


def _written(file: Path, imported: Imported, options: dict[str, Any]) -> Written | None:
    from recollect.config import user_file
    from recollect.config.writing import write_settings

    place = options["output"]
    if options["write"]:
        named = given({})["config"] or os.environ.get("RECOLLECT_CONFIG")
        place = Path(named) if named else user_file()
    if place is None:
        return None
    return write_settings(place, imported.settings, force=options["force"], heading=_heading(file))


def _print_json(imported: Imported, text: str, written: Written | None) -> None:
    import dataclasses

    from recollect.cli.output import print_json

    print_json(
        {
            "settings": dict(imported.settings),
            "mapped": [dataclasses.asdict(line) | {"key": line.key or None} for line in imported.mapped],
            "ignored": [dataclasses.asdict(line) for line in imported.ignored],
            "toml": text,
            "written": str(written.path) if written else None,
            "changed": written.changed if written else False,
            "backup": str(written.backup) if written and written.backup else None,
        }
    )


def _show(imported: Imported, text: str, written: Written | None) -> None:
    """Each key with what became of it, then the file."""
    for line in imported.mapped:
        value = ", ".join(line.value) if isinstance(line.value, tuple) else str(line.value)
        _entry(f"{line.key or '(not said)'} → {line.setting} = {value}", line.why)
    if imported.ignored:
        echo("\nignored:")
    for left in imported.ignored:
        _entry(left.key, left.why)
    if written is None:
        echo(f"\n{text}", nl=False)
        notice("nothing was changed; --write puts this into your settings, --output FILE into a file for --config")
    elif written.changed:
        kept = f"; what was there is kept in {written.backup}" if written.backup else ""
        notice(f"written to {written.path}{kept}")
    else:
        notice(f"{written.path} has these settings already")


def _tell_outranked(imported: Imported) -> None:
    """Name what the environment or a project's file says otherwise: it goes before what was written."""
    with contextlib.suppress(ConfigError):
        loaded = load_settings({})
        for name, value in imported.settings.items():
            if loaded.value(name) != value:
                notice(f"{name} is {loaded.value(name)} here: {loaded.origins[name]} goes before the file")


def _entry(what: str, why: str) -> None:
    from recollect.cli.output import width

    echo(plain(what))
    indented = textwrap.fill(one_line(why), width(), initial_indent="    ", subsequent_indent="    ")
    echo(click.style(indented, dim=True))
