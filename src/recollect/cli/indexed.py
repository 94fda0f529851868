"""The command `folders`: list, describe, remove and rename what is indexed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from recollect.cli.flags import common, flags, json_flag, open_memory
from recollect.cli.terminal import counted, dim, echo, emit, notice, plain
from recollect.memory import roots

_path = click.argument("path", metavar="PATH")
_flags = flags(common, json_flag)


@click.group(invoke_without_command=True)
@_flags
@click.pass_context
def folders(context: click.Context, /, as_json: bool, **options: Any) -> None:
    """List the indexed folders: files, chunks, when they were indexed, and the description that agents read."""
    if context.invoked_subcommand is not None:
        # Flags before the subcommand count for it, too.
        named = {name: value for name, value in options.items() if value is not None}
        context.find_root().obj = {**(context.find_root().obj or {}), **named}
        return
    with open_memory(options, reads=True) as memory:
        listed = roots.folders(memory.store)
    emit(as_json, [asdict(folder) for folder in listed], lambda: _print(listed))


def _print(listed: Sequence[roots.IndexedFolder]) -> None:
    if not listed:
        notice("no folder is indexed; `recollect index PATH` does it")
    for folder in listed:
        echo(click.style(plain(folder.path), bold=True) + ("" if folder.exists else click.style("  gone", fg="yellow")))
        counts = f"{counted(folder.files, 'file')}, {counted(folder.chunks, 'chunk')}"
        day = f", indexed {folder.indexed_at[:16].replace('T', ' ')} UTC" if folder.indexed_at else ""
        scope = "".join(f", {part}={name}" for part, name in folder.scope.items())
        tags = f", tags {', '.join(folder.tags)}" if folder.tags else ""
        echo(dim(plain(f"    {counts}{day}{scope}{tags}")))
        if folder.description:
            echo(f"    {plain(folder.description)}")
        if not folder.exists:
            notice("    moved: `recollect folders rename OLD NEW`; gone: `recollect folders remove PATH`")


@folders.command()
@_path
@click.argument("text")
@_flags
def describe(path: str, text: str, as_json: bool, **options: Any) -> None:
    """Describe the folder PATH for agents in a sentence; an empty TEXT removes the description."""
    with open_memory(options) as memory:
        folder = roots.describe(memory, path, text)
    emit(as_json, asdict(folder), lambda: notice(f"{folder.path}: {folder.description or 'no description'}"))


@folders.command()
@_path
@_flags
def remove(path: str, as_json: bool, **options: Any) -> None:
    """Remove the folder PATH and its chunks from the index, also if it is gone. Files are not touched."""
    with open_memory(options) as memory:
        folder = roots.remove(memory, path)
    removed = f"{counted(folder.files, 'file')}, {counted(folder.chunks, 'chunk')}"
    emit(as_json, asdict(folder), lambda: notice(f"removed {folder.path} from the index: {removed}"))


@folders.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@_flags
def rename(old: str, new: str, as_json: bool, **options: Any) -> None:
    """Let the indexed folder OLD, which was moved, be NEW from now on. Nothing is read or embedded again."""
    with open_memory(options) as memory:
        folder = roots.rename(memory, old, new)
    emit(as_json, asdict(folder), lambda: notice(f"{folder.path}: {counted(folder.files, 'file')} followed"))
