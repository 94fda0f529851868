"""Commands on single records: add, get, list, supersede, edit, forget, undo, history."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.flags import F, common, complete, filters_of, json_flag, list_flags, open_memory
from recollect.cli.terminal import counted, echo, emit, notice, plain, progress, to_json, until_interrupted
from recollect.errors import UnknownRecord, UsageError

if TYPE_CHECKING:
    from recollect.types import Event, Record

_FIELDS = ("title", "category", "tags", "importance", "decay", "happened_at", "expires_at", "source")

_record_id = click.argument("record_id", metavar="ID")


def _decay_classes() -> Iterable[str]:
    from recollect.ranking import HALF_LIVES

    return HALF_LIVES


def _field_flags(tag_help: str) -> Callable[[F], F]:
    """The flags that set the fields of a record, in `add` and `edit`."""
    flags = (
        click.option("--title", help="A short title."),
        click.option("--category", help="One category, such as preference or decision."),
        click.option("--tag", "tags", multiple=True, metavar="TAG", help=tag_help),
        click.option("--importance", type=float, metavar="0..1", help="0 to 1; 0.5 is the default."),
        click.option(
            "--decay", metavar="CLASS", help="How fast it ages: permanent, stable, active, session or checkpoint.",
            shell_complete=complete(_decay_classes),
        ),
        click.option("--happened-at", metavar="TIME", help="When it happened, if not now."),
        click.option("--expires-at", metavar="TIME", help="When it expires; searches do not find it after that."),
        click.option("--source", help="Where it comes from."),
    )  # fmt: skip

    def decorate(command: F) -> F:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return decorate


@click.command()
@click.argument("text")
@click.option("--id", "record_id", help="An id of your choice; adding the same id again updates the record.")
@_field_flags("A tag; repeat for more.")
@click.option("--supersedes", metavar="ID", help="The record that this one replaces.")
@common
@json_flag
def add(text: str, record_id: str | None, supersedes: str | None, as_json: bool, **options: Any) -> None:
    """Add the fact TEXT and print its id.

    With `-` as TEXT, read JSON lines from standard input: {"text": …, "tags": […], "scope": {…}}.
    """
    from recollect.memory.shapes import record_dict

    fields = {name: options[name] for name in _FIELDS if options[name] not in (None, ())}
    if text == "-" and (fields or record_id or supersedes):
        raise UsageError("with `-` every field comes from its JSON line", hint='{"text": "…", "tags": ["a"]}')
    with open_memory(options) as memory:
        if text == "-":
            records = memory.add_many(_json_lines(), progress=progress("embedding"))
        else:
            fields |= {} if record_id is None else {"id": record_id}
            record = memory.add(text, supersedes=supersedes, **fields)
    if text == "-":
        emit(as_json, [record_dict(one) for one in records], lambda: notice(f"added {counted(len(records), 'record')}"))
    else:
        _emit_record(record, as_json)


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


@click.command()
@_record_id
@common
@json_flag
def get(record_id: str, as_json: bool, **options: Any) -> None:
    """Show the record ID."""
    from recollect.cli.output import print_record
    from recollect.memory.shapes import record_dict

    with open_memory(options, reads=True) as memory:
        record = memory.get(record_id)
    if record is None:
        raise UnknownRecord(record_id)
    emit(as_json, record_dict(record), lambda: print_record(record))


@click.command("list")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many records.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="How many records to skip first.")
@list_flags
@common
@json_flag
def list_(limit: int, offset: int, as_json: bool, **options: Any) -> int:
    """List records, newest first."""
    from recollect.cli.output import print_listing
    from recollect.memory.shapes import record_dict

    with open_memory(options, reads=True) as memory:
        records = memory.list(limit=limit, offset=offset, **filters_of(options))
    emit(as_json, [record_dict(record) for record in records], lambda: print_listing(records))
    return 0 if records else 1


@click.command()
@_record_id
@click.argument("by", required=False, metavar="[BY]")
@click.option("--text", help="The text of a new record that replaces it.")
@click.option("--at", metavar="TIME", help="When it was replaced; by default the time of the new record.")
@common
@json_flag
def supersede(record_id: str, by: str | None, text: str | None, at: str | None, as_json: bool, **options: Any) -> None:
    """Replace the record ID by the record BY, or by a new one with --text. The old one stays in the history."""
    with open_memory(options) as memory:
        _emit_record(memory.supersede(record_id, by, text=text, at=at), as_json)


@click.command()
@_record_id
@click.option("--text", help="The corrected text.")
@_field_flags("A tag, in place of the present tags; repeat for more.")
@click.option("--clear", multiple=True, metavar="FIELD", help="Clear a field: category, tags, decay, …")
@common
@json_flag
def edit(record_id: str, clear: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Correct the fact ID in place. If the fact itself has changed, use `supersede` instead."""
    fields = {name: options[name] for name in ("text", *_FIELDS) if options[name] not in (None, ())}
    if not fields and not clear:
        raise UsageError("there is nothing to change", hint="recollect edit --help lists the fields")
    with open_memory(options) as memory:
        _emit_record(memory.edit(record_id, **fields, **dict.fromkeys(clear)), as_json)


@click.command()
@_record_id
@common
@json_flag
def undo(record_id: str, as_json: bool, **options: Any) -> None:
    """Undo the last change to the record ID: add, edit, supersede or forget."""
    from recollect.memory.shapes import record_dict

    with open_memory(options) as memory:
        undone, record = memory.undo(record_id)
    value = {"undone": undone, "record": record_dict(record) if record else None}
    emit(as_json, value, lambda: notice(f"undone: {undone}"))


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--purge", is_flag=True, help="Erase the text too; this cannot be undone.")
@common
@json_flag
def forget(ids: tuple[str, ...], purge: bool, as_json: bool, **options: Any) -> None:
    """Hide records from every search; `undo` restores them. If one ID is unknown, nothing is changed."""
    with open_memory(options) as memory:
        memory.forget(*ids, purge=purge)
    emit(as_json, {"forgotten": list(ids)}, lambda: notice(f"forgot {counted(len(ids), 'record')}"))


@click.command()
@_record_id
@click.option("--follow", "-f", is_flag=True, help="Go on with new changes until Ctrl-C; JSON line by line.")
@common
@json_flag
def history(record_id: str, follow: bool, as_json: bool, **options: Any) -> None:
    """Show every change to the record ID, oldest first."""
    from recollect.memory.shapes import event_dict

    last = 0
    with open_memory(options, reads=True) as memory:
        if not follow:
            events = memory.history(record_id)
            emit(as_json, [event_dict(event) for event in events], lambda: _print_events(events, as_json=False))
            return
        with until_interrupted(), memory.changes() as ticks:
            for changed in itertools.chain([True], ticks):
                events = [event for event in memory.history(record_id) if event.seq > last] if changed else []
                _print_events(events, as_json)
                last = events[-1].seq if events else last


def _print_events(events: list[Event], as_json: bool) -> None:
    """One line for each change."""
    from recollect.memory.shapes import event_dict

    for event in map(event_dict, events):
        line = f"{event['at'][:19]}  {event['action']:<10}  {_details(event['detail'])}".rstrip()
        echo(to_json(event) if as_json else plain(line))


def _details(detail: dict[str, Any]) -> str:
    values = [f"{name} {value}" for name, value in detail.items() if name != "before"]
    before = [f"{name} was {json.dumps(value, ensure_ascii=False)}" for name, value in detail.get("before", {}).items()]
    return ", ".join(values + before)


def _emit_record(record: Record, as_json: bool) -> None:
    """The whole record for a program, its id for a person."""
    from recollect.memory.shapes import record_dict

    emit(as_json, record_dict(record), plain(record.id))
