"""Commands on single records: add, get, list, supersede, edit, forget, undo, history."""

from __future__ import annotations

import itertools
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import click

from recollect.cli import terminal
from recollect.cli.answers import is_number, note_other_scopes, record_named, save_answer
from recollect.cli.flags import command, declared, filters_of, flags, open_memory, option_flags
from recollect.cli.terminal import counted, dim, echo, emit, notice, plain, plain_text, where
from recollect.errors import UnknownRecord, UsageError
from recollect.memory.callers import Rollback
from recollect.memory.resemblance import Resemblance, resembling
from recollect.memory.shapes import event_dict, name_of, record_dict, record_dicts, rollback_dict
from recollect.memory.validation import FIELDS, make_filter
from recollect.options import ORIGINS
from recollect.types import Record, now
from recollect.types.records import short_id, short_ids

_FIELDS = ("text", *(option.name for option in FIELDS), "origin", "author")
LEAST_COLUMNS = 20  # of a text in a list, however narrow the terminal is
_FIRST = 10  # records that the preview of a rollback shows

_record_id = click.argument("record_id", metavar="ID")
_field_flags = flags(  # the flags that set the fields of a record, in `add` and `edit`
    *map(declared, FIELDS),
    click.option(
        "--origin", type=click.Choice(list(ORIGINS)), metavar="NAME",
        help=f"Who wrote it: {', '.join(ORIGINS)}. A new record is the user's.",
    ),
    click.option("--author", metavar="NAME", help="The name of who wrote it."),
)  # fmt: skip


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in _FIELDS if options.get(name) not in (None, ())}


@command()
@click.argument("text")
@click.option("--id", "record_id", help="An id of your choice; adding the same id again updates the record.")
@_field_flags
@click.option("--supersedes", metavar="ID", help="The record that this one replaces.")
def add(text: str, record_id: str | None, supersedes: str | None, as_json: bool, **options: Any) -> None:
    """Add the fact TEXT and print its id.

    With `-` as TEXT, read JSON lines from standard input: {"text": …, "tags": […], "scope": {…}}.
    """
    fields = _fields(options) | ({} if record_id is None else {"id": record_id})
    if text != "-":
        with open_memory(options) as memory:
            old = None if supersedes is None else record_named(memory, supersedes)
            record = memory.add(text, supersedes=old, **fields)
            similar = resembling(memory, record)
        document = record_dict(record) | ({"similar": similar.as_dict()} if similar else {})
        emit(as_json, document, plain(record.id))
        if similar and not as_json:
            _note_similar(record, similar)
        _note_expired([record])
        return
    if fields or supersedes:
        raise UsageError("with `-` every field comes from its JSON line", hint='{"text": "…", "tags": ["a"]}')
    with open_memory(options) as memory:
        records = memory.add_many(_json_lines(), progress=terminal.progress("embedding"))
    emit(as_json, lambda: record_dicts(records), lambda: notice(f"added {counted(len(records), 'record')}"))
    _note_expired(records)


def _note_similar(record: Record, similar: Resemblance) -> None:
    """Name the fact that a new one nearly repeats or contradicts, and the command that replaces it."""
    old, new = (plain(name) for name in short_ids([similar.record.id, record.id]).values())
    notice(f"an earlier fact says something similar: {old}  {plain_text(name_of(similar.record))}")
    if similar.replaceable:
        notice(f"if the new one replaces it: recollect supersede {shlex.quote(old)} {shlex.quote(new)}")


def _note_expired(records: Sequence[Record]) -> None:
    """Say that searches do not find a record whose expiry lies in the past."""
    expired = [record for record in records if record.expires_at and record.expires_at <= now()]
    if expired:
        which = plain(short_id(expired[0].id)) if len(expired) == 1 else f"{len(expired):,} of the records"
        notice(f"searches do not find {which}: the expiry {_time(expired[0].expires_at)} lies in the past")


def _json_lines() -> Iterator[dict[str, Any]]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"line {number} is not JSON: {error}", hint="nothing was stored") from error
            if not isinstance(value, dict):
                raise UsageError(f"line {number} is not a JSON object", hint='{"text": "…"}; nothing was stored')
            yield value


@command()
@_record_id
def get(record_id: str, as_json: bool, **options: Any) -> None:
    """Show the record ID.

    Here and in every other command, ID is an id, a short id as `search` prints it, the first characters of either (at
    least four), or a number: `recollect get 2` shows the second result of the last search, recall or list.
    """
    with open_memory(options, reads=True) as memory:
        record = memory.get(record_named(memory, record_id))
    if record is None:
        raise UnknownRecord(record_id)
    emit(as_json, record_dict(record), lambda: _print_record(record))


@command("list")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many records.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="How many records to skip first.")
@option_flags("list")
def list_(limit: int, offset: int, as_json: bool, **options: Any) -> int:
    """List records, newest first."""
    with open_memory(options, reads=True) as memory:
        where = make_filter(filters_of(options), memory.scope, memory.caller)
        records = memory.list(where, limit=limit, offset=offset)
        save_answer(memory, (record.id for record in records))
        if not records and not as_json:
            note_other_scopes(memory, where)
        left = memory.store.count(where)["total"] - offset - len(records) if len(records) == limit else 0
    emit(as_json, lambda: record_dicts(records), lambda: _print_listing(records, numbered=True))
    if left > 0 and not as_json:
        notice(f"{left:,} more: --offset {offset + limit} shows the next ones")
    return 0 if records else 1


@command()
@_record_id
@click.argument("by", required=False, metavar="[BY]")
@click.option("--text", help="The text of a new record that replaces it.")
@click.option("--at", metavar="TIME", help="When it was replaced; by default the time of the new record.")
def supersede(record_id: str, by: str | None, text: str | None, at: str | None, as_json: bool, **options: Any) -> None:
    """Replace the record ID by the record BY, or by a new one with --text. The old one stays in the history."""
    with open_memory(options) as memory:
        old, new = record_named(memory, record_id), by if by is None else record_named(memory, by)
        record = memory.supersede(old, new, text=text, at=at)
    emit(as_json, record_dict(record), plain(record.id))


@command()
@_record_id
@click.option("--text", help="The corrected text.")
@_field_flags
@click.option("--clear", multiple=True, metavar="FIELD", help="Clear a field: category, tags, decay, …")
def edit(record_id: str, clear: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Correct the fact ID in place. If the fact itself has changed, use `supersede` instead."""
    fields = _fields(options)
    if not fields and not clear:
        raise UsageError("there is nothing to change", hint="recollect edit --help lists the fields")
    for name in fields.keys() & set(clear):
        raise UsageError(f"{name} cannot be set and cleared at once", hint=f"leave out --clear {name} or the new value")
    with open_memory(options) as memory:
        record = memory.edit(record_named(memory, record_id), **fields, **dict.fromkeys(clear))
    emit(as_json, record_dict(record), plain(record.id))
    if "expires_at" in fields:
        _note_expired([record])


@command()
@_record_id
def undo(record_id: str, as_json: bool, **options: Any) -> None:
    """Undo the last change to the record ID: add, edit, supersede or forget.

    Another undo goes back one change further, and one of a forgotten record brings it back. If an undone supersession
    had forgotten it, it supersedes the old record again.
    """
    with open_memory(options) as memory:
        undone, record, forgotten = memory.undo_details(record_named(memory, record_id))
    document = {"undone": undone, "record": record_dict(record) if record else None, "forgotten": forgotten}
    name = shlex.quote(plain(forgotten[0])) if forgotten else ""
    more = f"; this forgot {name}: `recollect undo {name}` brings it back" if forgotten else ""
    emit(as_json, document, lambda: notice(f"undone: {undone}{more}"))


@command()
@click.argument("ids", nargs=-1, metavar="[ID…]")
@click.option("--origin", type=click.Choice(list(ORIGINS)), multiple=True, metavar="NAME", help="Facts of this origin.")
@click.option("--author", multiple=True, metavar="NAME", help="Facts that this author wrote.")
@click.option("--author-session", multiple=True, metavar="NAME", help="Facts that were written in this session.")
@click.option("--since", metavar="TIME", help="Facts that were written from this time on: 2026-03-14, or a span: 2h.")
@click.option("--until", metavar="TIME", help="Facts that were written before this time.")
@click.option("--confirm", is_flag=True, help="Forget the facts that these flags name, instead of showing them.")
@click.option("--purge", is_flag=True, help="Erase the text too; this cannot be undone.")
def forget(ids: tuple[str, ...], purge: bool, confirm: bool, as_json: bool, **options: Any) -> None:
    """Hide records from every search; `undo` restores them. If one ID is unknown, nothing is changed.

    Without an ID, roll back what the flags name: the facts are forgotten, and records that they superseded are
    current again. Without --confirm, the facts are only shown.
    """
    filters = {
        name: options[name] for name in ("origin", "author", "author_session", "since", "until") if options[name]
    }
    if bool(ids) == bool(filters):
        by = "by ID, or by --origin, --author, --author-session, --since and --until"
        raise UsageError(f"name records either {by}", hint="nothing was changed; recollect forget --help")
    if filters:
        with open_memory(options, reads=not confirm) as memory:
            rollback = memory.roll_back(**filters, purge=purge, confirm=confirm)
        emit(as_json, rollback_dict(rollback), lambda: _print_rollback(rollback))
    else:
        with open_memory(options) as memory:
            names = [record_named(memory, name, for_good=purge) for name in ids]
            records = {record.id: record for name in names if (record := memory.get(name))}
            keys = memory.forget(*names, purge=purge)
        outcome = f"{'purged' if purge else 'forgot'} {counted(len(keys), 'record')}"
        emit(as_json, {"forgotten": keys}, lambda: notice(outcome))
        if not as_json and not purge and any(map(is_number, ids)):
            _print_listing([records.get(key) or Record(key, "") for key in keys])
    if purge and (ids or rollback.done):
        notice("backups and exports that were made before still hold what was purged")


def _print_rollback(rollback: Rollback) -> None:
    would = "" if rollback.done else "would be "
    for records, verb in (
        (rollback.forgotten, "purged" if rollback.purge else "forgotten"),
        (rollback.reverted, "set back to the text before"),
        (rollback.restored, "current again"),
    ):
        if records:
            echo(f"{counted(len(records), 'fact')} {would}{verb}:")
            _print_listing(records[:_FIRST])
            if len(records) > _FIRST:
                echo(dim(f"… and {len(records) - _FIRST:,} more"))
    if not rollback.groups:
        notice("no fact is of this writer and time")
    elif not rollback.done:
        notice("nothing was changed; the same command with --confirm does it")


@command()
@_record_id
@click.option("--follow", "-f", is_flag=True, help="Go on with new changes until Ctrl-C; JSON line by line.")
def history(record_id: str, follow: bool, as_json: bool, **options: Any) -> None:
    """Show every change to the record ID, oldest first: its number, when, what was done."""
    with open_memory(options, reads=True) as memory:
        record_id = memory.resolve(record_named(memory, record_id))
        if not follow:
            events = [event_dict(event) for event in memory.history(record_id)]
            emit(as_json, events, "\n".join(map(_event_line, events)))
            return
        last = 0
        with terminal.until_interrupted(), memory.changes() as ticks:
            for changed in itertools.chain([True], ticks):
                for event in memory.history(record_id) if changed else []:
                    if event.seq > last:
                        echo(terminal.to_json(event_dict(event)) if as_json else _event_line(event_dict(event)))
                        last = event.seq


def _event_line(event: dict[str, Any]) -> str:
    details = [f"{name} {value}" for name, value in event["detail"].items() if name != "before"]
    for name, value in event["detail"].get("before", {}).items():
        details.append(f"{name} was {json.dumps(value, ensure_ascii=False)}")
    return plain(f"{event['seq']:>4}  {event['at'][:19]}  {event['action']:<10}  {', '.join(details)}".rstrip())


def _print_record(record: Record) -> None:
    details = {
        "id": record.id,
        "short id": short if (short := short_id(record.id)) != record.id else "",
        "kind": record.kind,
        "scope": " ".join(f"{part}={name}" for part, name in record.scope.as_dict().items()),
        "category": record.category,
        "tags": ", ".join(record.tags),
        "importance": f"{record.importance:g}",
        "decay": record.decay,
        "stored": _time(record.created_at),
        "happened": _time(record.happened_at),
        "expires": _time(record.expires_at),
        "superseded": record.superseded_by and f"by {record.superseded_by} from {_time(record.superseded_at)}",
        "source": record.source,
        "where": where(record),
        "written": _writer(record),
    }
    if record.title:
        echo(click.style(plain(record.title), bold=True))
    echo(plain_text(record.text))
    echo()
    for name, value in details.items():
        if value:
            echo(dim(plain(f"{name:>10}  {value}")))


def _writer(record: Record) -> str:
    """Who wrote a record."""
    named = f"by {record.author} ({record.origin})" if record.author else f"by {record.origin}"
    return f"{named} in {record.author_session}" if record.author_session else named


def _print_listing(records: Sequence[Record], *, numbered: bool = False) -> None:
    if not records:
        notice("nothing found")
    short = {key: plain(name)[:32] for key, name in short_ids(record.id for record in records).items()}
    longest, digits = max(map(len, short.values()), default=0), len(str(len(records)))
    for number, record in enumerate(records, 1):
        words = " ".join((f"{record.title} — " if record.title else "").split() + record.text.split())
        place = f"{number:>{digits}}. " if numbered else ""
        key = place + click.style(short[record.id].ljust(longest), fg="cyan")
        marks = "" if record.origin in ("user", "file") else f"  {record.origin}"
        marks += "  superseded" if record.superseded_at and record.superseded_at <= now() else ""
        room = terminal.width() - len(place) - longest - len("  2026-11-18  ") - len(marks)
        line = plain_text(terminal.fitting(words, max(LEAST_COLUMNS, room)))
        echo(f"{key}  {dim(_time(record.time)[:10])}  {line}{dim(marks)}")


def _time(at: datetime | None) -> str:
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M UTC")
