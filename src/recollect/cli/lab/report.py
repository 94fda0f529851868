"""`recollect eval report`: what the other studies found, on one page with plots."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from recollect.cli.lab.data import read_bytes
from recollect.cli.options import common, given, json_flag, load_settings, notice
from recollect.cli.plain import echo, plain
from recollect.errors import FailedError, UsageError

HINT = "recollect eval run … --json > run.json, and likewise sweep and overlap; or the folder of a set"

HYBRID = (("run", "--compare", "keyword,vector,rrf,weighted,default", "--latency"), ("sweep",), ("overlap",))
KEYWORD = (("run", "--compare", "keyword", "--latency"),)
"""The studies that a set is put to, and without an embedder."""


@click.command()
@click.argument("sources", nargs=-1, metavar="FILE_OR_DATASET…")
@click.option(
    "--out",
    "-o",
    default="report.html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    show_default=True,
    help="The page.",
)
@click.option("--force", is_flag=True, help="Overwrite a page that is there.")
@click.option("--png", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER", help="Each plot as PNG too.")
@common
@json_flag
def report(sources: tuple[str, ...], out: Path, force: bool, png: Path | None, as_json: bool, **options: Any) -> int:
    """Write one page with the plots.

    A FILE is what `eval run`, `sweep` or `overlap` printed with --json; a DATASET, a folder, is put to these studies
    first.
    """
    from recollect.evaluation.page import compose, render, write_pngs

    if not sources:
        raise UsageError("there is nothing to report on", hint=HINT)
    if out.exists() and not force:
        raise UsageError(f"{out} is there already", hint="another name, or --force to overwrite it")
    reports = [told for source in sources for told in _told(source, options)]
    named = compose(reports)
    page = render(reports, named)
    written = [out]
    try:
        out.write_text(page, encoding="utf-8")
        written += write_pngs(named, png) if png else []
    except OSError as error:
        raise FailedError(f"{error.filename or out} cannot be written: {error.strerror or error}") from error
    _say(written, as_json)
    return 0


def _told(source: str, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A file's report, or those of all studies of a set."""
    if not Path(source).is_dir():
        yield _read(source)
        return
    flags = [word for name, value in given(options).items() if value is not None for word in (f"--{name}", value)]
    for name, *words in KEYWORD if load_settings(options).settings.embedder == "none" else HYBRID:
        notice(f"eval {name} {source}")
        yield _study(name, [source, *words, *flags, "--json"])


def _study(name: str, words: list[str]) -> Mapping[str, Any]:
    """What another command of the laboratory prints."""
    context = click.get_current_context()
    group = context.parent.command if context.parent else None
    command = group.get_command(context, name) if isinstance(group, click.Group) else None
    if command is None:
        raise UsageError(f"there is no study {name!r}", hint="recollect eval --help")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), command.make_context(name, words, parent=context.parent) as inner:
        command.invoke(inner)
    return dict(json.loads(printed.getvalue()))


def _read(name: str) -> Mapping[str, Any]:
    """One file's report; what is wrong with it is said with its name."""
    from recollect.evaluation.results import kind

    data = sys.stdin.buffer.read() if name == "-" else read_bytes(name, hint=HINT)
    try:
        found: Any = json.loads(data)
        kind(found)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", hint=error.hint) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}", hint=HINT) from error
    return dict(found)


def _say(written: list[Path], as_json: bool) -> None:
    from recollect.cli.output import print_json

    if as_json:
        print_json({"written": [str(path) for path in written]})
    else:
        echo("\n".join(plain(str(path)) for path in written))
