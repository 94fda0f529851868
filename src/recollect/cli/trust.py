"""`recollect trust`: show what a project's settings file sets, and let it have effect."""

from __future__ import annotations

from pathlib import Path

import click

from recollect.cli.options import json_flag, notice
from recollect.cli.plain import echo, plain
from recollect.errors import UsageError

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
        return _list(as_json)
    file = _project_path(path)
    return _revoke(file, as_json) if revoke else _trust(file, as_json)


def _project_path(path: Path | None) -> Path:
    from recollect.config.trust import PROJECT_FILE

    path = (path or Path.cwd()).expanduser()
    path = path / PROJECT_FILE if path.is_dir() and path.name != PROJECT_FILE else path
    if path.name != PROJECT_FILE:
        raise UsageError(f"{path} is not named {PROJECT_FILE}", hint="another file is used with --config FILE")
    return path


def _trust(path: Path, as_json: bool) -> int:
    from recollect.cli.output import as_text, print_json, print_table
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


def _revoke(path: Path, as_json: bool) -> int:
    from recollect.cli.output import print_json
    from recollect.config.trust import TrustedFiles, project_path

    known = TrustedFiles().remove(path)
    if as_json:
        print_json({"path": str(project_path(path)), "revoked": known})
    else:
        notice(f"{project_path(path)} {'is no longer trusted' if known else 'was not trusted'}")
    return 0


def _list(as_json: bool) -> int:
    from recollect.cli.output import print_json, print_table
    from recollect.config.trust import TrustedFiles

    rows = [(path, _state(Path(path), digest)) for path, digest in sorted(TrustedFiles().all().items())]
    if as_json:
        print_json([{"path": path, "state": state} for path, state in rows])
    else:
        print_table([(state, path) for path, state in rows])
    if not rows and not as_json:
        notice("no project's settings file is trusted")
    return 0


def _state(path: Path, digest: str) -> str:
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
