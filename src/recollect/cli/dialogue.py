"""Commands on what other programs wrote: import-chat, conversation, import-memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import click

from recollect.cli.answers import record_named, save_answer
from recollect.cli.flags import command, flags, open_memory
from recollect.cli.ingestion import compute_vectors
from recollect.cli.terminal import counted, dim, echo, emit, notice, plain, plain_text, print_table, progress
from recollect.ingest import memories, turns
from recollect.memory import Memory
from recollect.memory.conversations import ChatReport, StoredConversation
from recollect.memory.folders import vectors_may_fail
from recollect.memory.memos import MemoReport
from recollect.options import ORIGINS

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", ChatReport, MemoReport)

NAMED_FILES = 20  # how many skipped files are named; the others are counted


def _import_flags(formats: Collection[str], record: str, origin: str) -> Callable[[F], F]:
    """The argument and the flags of both imports."""
    return flags(
        click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…"),
        click.option(
            "--format", "format_", type=click.Choice(list(formats)), metavar="NAME",
            help=f"The format of all files, if it is not recognised: {', '.join(formats)}.",
        ),
        click.option("--tag", "tags", multiple=True, metavar="TAG", help=f"Tag every {record}; repeat for more tags."),
        click.option(
            "--origin", type=click.Choice(list(ORIGINS)), metavar="NAME",
            help=f"The origin of every {record}; by default {origin}.",
        ),
        click.option(
            "--wait/--background", default=None, help="Compute vectors before the command ends, or afterwards."
        ),
    )  # fmt: skip


def _imported(
    method: Callable[..., R], paths: Sequence[str], format_: str | None, wait: bool | None, options: Mapping[str, Any]
) -> R:
    """Import files with a method of `Memory`, compute the vectors of what is new, and return the report."""
    with open_memory(options) as memory:
        named = {"format": format_, "tags": options["tags"], "origin": options["origin"]}
        report = method(memory, paths, **named, reading=progress("reading"))
        if memory.embeddings.configured and report.added + report.updated:
            with vectors_may_fail(memory):
                report.embedded = compute_vectors(memory, options, wait)
    return report


def _counts(report: ChatReport | MemoReport, *others: str) -> str:
    names = ("added", "updated", "unchanged", *others)
    counts = {name: getattr(report, name) for name in names}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count or name in ("added", "unchanged"))


@command("import-chat")
@_import_flags(turns.FORMATS, "turn", "user, agent or import, by the speaker")
def import_chat(paths: tuple[str, ...], format_: str | None, wait: bool | None, as_json: bool, **options: Any) -> int:
    """Import the conversations in each PATH: an export (.zip or .json), a transcript (.jsonl), or a folder of them.

    Each turn becomes a record with its speaker, its time and its conversation. Run it again at any time: it adds new
    turns and updates edited ones.
    """
    report = _imported(Memory.import_chat, paths, format_, wait, options)
    emit(as_json, dataclasses.asdict(report), lambda: _print_report(report))
    return 0 if report.conversations else 1


def _print_report(report: ChatReport) -> None:
    echo(f"{counted(report.conversations, 'conversation')}; turns: {_counts(report, 'replaced', 'forgotten')}")
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
@_import_flags(memories.FORMATS, "fact", "agent, and file for notes")
def import_memory(paths: tuple[str, ...], format_: str | None, wait: bool | None, as_json: bool, **options: Any) -> int:
    """Import the memories of another program: an export of mem0, memory.json of the MCP server, notes of basic-memory.

    PATH is a file or a folder. Run it again at any time: it adds what is new and updates what was changed.
    """
    report = _imported(Memory.import_memory, paths, format_, wait, options)
    emit(as_json, dataclasses.asdict(report), lambda: _print_memos(report))
    return 0 if report.files else 1


def _print_memos(report: MemoReport) -> None:
    echo(f"facts: {_counts(report, 'known', 'kept', 'forgotten')}")
    if report.kept:
        notice(f"kept: {counted(report.kept, 'fact')} with an edit of yours, or of a writer who is trusted more")
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

    ID is the id of the conversation or its first characters, or names a turn: the id or the number of a result. After a
    list, a number is that of a conversation.
    """
    with open_memory(options, reads=True) as memory:
        if key is not None:
            whole = memory.conversation(record_named(memory, key))
            emit(as_json, whole.as_dict, lambda: _print_conversation(whole))
            return 0
        listed = memory.conversations(limit=limit)
        save_answer(memory, [one.id for one in listed])
    digits = len(str(len(listed)))
    rows = [
        (f"{number:>{digits}}.", one.id, f"{one.last:%Y-%m-%d %H:%M}", one.source, plain_text(one.title))
        for number, one in enumerate(listed, 1)
    ]
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
