"""Commands on what other programs wrote: import-chat, conversation, import-memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.answers import record_named
from recollect.cli.flags import command, open_memory
from recollect.cli.ingestion import compute_vectors
from recollect.cli.terminal import counted, dim, echo, emit, notice, plain, plain_text, print_table, progress
from recollect.ingest import memories
from recollect.ingest.turns import FORMATS
from recollect.options import ORIGINS

if TYPE_CHECKING:
    from recollect.memory.conversations import ChatReport, StoredConversation
    from recollect.memory.memos import MemoReport

NAMED_FILES = 20  # how many skipped files are named; the others are counted


@command("import-chat")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
@click.option(
    "--format", "format_", type=click.Choice(list(FORMATS)), metavar="NAME",
    help=f"The format of all files, if it is not recognised: {', '.join(FORMATS)}.",
)  # fmt: skip
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag every turn; repeat for more tags.")
@click.option(
    "--origin", type=click.Choice(list(ORIGINS)), metavar="NAME",
    help="The origin of every turn; by default user, agent or import, by the speaker.",
)  # fmt: skip
@click.option("--wait/--background", default=None, help="Compute vectors before the command ends, or afterwards.")
def import_chat(paths: tuple[str, ...], format_: str | None, wait: bool | None, as_json: bool, **options: Any) -> int:
    """Import the conversations in each PATH: an export (.zip or .json), a transcript (.jsonl), or a folder of them.

    Each turn becomes a record with its speaker, its time and its conversation. Run it again at any time: it adds new
    turns and updates edited ones.
    """
    from recollect.memory.folders import vectors_may_fail

    with open_memory(options) as memory:
        report = memory.import_chat(
            paths, format=format_, tags=options["tags"], origin=options["origin"], reading=progress("reading")
        )
        if memory.embeddings.configured and report.added + report.updated:
            with vectors_may_fail(memory):
                report.embedded = compute_vectors(memory, options, wait)
    emit(as_json, dataclasses.asdict(report), lambda: _print_report(report))
    return 0 if report.conversations else 1


def _print_report(report: ChatReport) -> None:
    counts = {name: getattr(report, name) for name in ("added", "updated", "unchanged", "replaced", "forgotten")}
    words = [f"{count:,} {name}" for name, count in counts.items() if count or name in ("added", "unchanged")]
    echo(f"{counted(report.conversations, 'conversation')}; turns: {', '.join(words)}")
    _print_skipped(report.skipped)
    if report.forgotten:
        notice(
            f"{counted(report.forgotten, 'turn')} that you had forgotten stayed so; `recollect undo ID` restores one"
        )


def _print_skipped(skipped: Mapping[str, Mapping[str, int]]) -> None:
    for name, reasons in list(skipped.items())[:NAMED_FILES]:
        for reason, count in reasons.items():
            notice(f"skipped in {plain(name)}: {plain(reason)}{f' ({count:,} times)' if count > 1 else ''}")
    if (more := len(skipped) - NAMED_FILES) > 0:
        notice(f"skipped parts of {more:,} more files; --json lists them")


@command("import-memory")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
@click.option(
    "--format", "format_", type=click.Choice(memories.FORMATS), metavar="NAME",
    help=f"The format of all files, if it is not recognised: {', '.join(memories.FORMATS)}.",
)  # fmt: skip
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag every fact; repeat for more tags.")
@click.option(
    "--origin", type=click.Choice(list(ORIGINS)), metavar="NAME",
    help="The origin of every fact; by default agent, and file for notes.",
)  # fmt: skip
@click.option("--wait/--background", default=None, help="Compute vectors before the command ends, or afterwards.")
def import_memory(paths: tuple[str, ...], format_: str | None, wait: bool | None, as_json: bool, **options: Any) -> int:
    """Import the memories of another program: an export of mem0, memory.json of the MCP server, notes of basic-memory.

    PATH is a file or a folder. Run it again at any time: it adds what is new and updates what was changed.
    """
    from recollect.memory.folders import vectors_may_fail

    with open_memory(options) as memory:
        report = memory.import_memory(
            paths, format=format_, tags=options["tags"], origin=options["origin"], reading=progress("reading")
        )
        if memory.embeddings.configured and report.added + report.updated:
            with vectors_may_fail(memory):
                report.embedded = compute_vectors(memory, options, wait)
    emit(as_json, dataclasses.asdict(report), lambda: _print_memos(report))
    return 0 if report.files else 1


def _print_memos(report: MemoReport) -> None:
    counts = {name: getattr(report, name) for name in ("added", "updated", "unchanged", "known", "forgotten")}
    words = [f"{count:,} {name}" for name, count in counts.items() if count or name in ("added", "unchanged")]
    echo(f"facts: {', '.join(words)}")
    for owner, count in report.scopes.items():
        notice(f"{counted(count, 'fact')} belong{'s' if count == 1 else ''} to {plain(owner)}, as in the export")
    _print_skipped(report.skipped)
    if "basic-memory" in report.files.values():
        notice("observations and relations were imported; `recollect index FOLDER` finds the other text of the notes")


@command()
@click.argument("key", required=False, metavar="[ID]")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many to list.")
def conversation(key: str | None, limit: int, as_json: bool, **options: Any) -> int:
    """Read the conversation ID from beginning to end; without ID, list the newest conversations.

    ID is the id of the conversation or its first characters, or names a turn: the id or the number of a result.
    """
    with open_memory(options, reads=True) as memory:
        if key is not None:
            whole = memory.conversation(record_named(memory, key))
            emit(as_json, whole.as_dict(), lambda: _print_conversation(whole))
            return 0
        listed = memory.conversations(limit=limit)
    rows = [(plain(one.id), f"{one.last:%Y-%m-%d %H:%M}", one.source, plain_text(one.title)) for one in listed]
    empty = "no conversations yet; `recollect import-chat` imports them"
    emit(as_json, [one.as_dict() for one in listed], lambda: print_table(rows, empty=empty))
    return 0 if listed else 1


def _print_conversation(whole: StoredConversation) -> None:
    echo(click.style(plain_text(whole.title), bold=True))
    echo(dim(plain(f"{whole.id}  {whole.source}  {counted(len(whole.turns), 'turn')}")))
    for turn in whole.turns:
        echo()
        head = click.style(plain(turn.speaker), fg="green" if turn.speaker == "user" else "cyan")
        echo(f"{head}  {dim(f'{turn.time:%Y-%m-%d %H:%M} UTC')}  {dim(plain(turn.ids[0]))}")
        echo("\n".join(map(plain_text, turn.text.splitlines())))
