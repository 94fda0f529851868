"""Commands on single records: add, get, list, supersede, edit, forget, undo, history."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.background import ending
from recollect.cli.options import common, filter_options, filters, json_flag, open_memory
from recollect.cli.terminal import echo, notice, plain, progress, to_json
from recollect.errors import UnknownRecord, UsageError

if TYPE_CHECKING:
    from recollect.memory import Memory
    from recollect.types import Event, Record


@click.command()
@click.argument("text")
@click.option("--id", "record_id", help="An id of your own; putting it again updates the record.")
@click.option("--title")
@click.option("--category")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Repeat for more.")
@click.option("--importance", type=float, metavar="0..1", help="0.5 is the middle.")
@click.option("--decay", metavar="CLASS", help="permanent, stable, active, session or checkpoint.")
@click.option("--happened-at", metavar="TIME", help="When it happened, where that is not now.")
@click.option("--expires-at", metavar="TIME", help="From then on it is not found any more.")
@click.option("--source", help="Where it comes from.")
@click.option("--supersedes", metavar="ID", help="The record whose place it takes.")
@common
@json_flag
def add(text: str, record_id: str | None, supersedes: str | None, as_json: bool, **options: Any) -> int:
    """Remember TEXT. With `-`, read JSON lines from standard input: {"text": …, "tags": […], "scope": {…}}."""
    from recollect.cli.terminal import print_json
    from recollect.memory.shapes import record_dict

    fields = {name: options[name] for name in _FIELDS if options[name] not in (None, ())}
    with open_memory(options) as memory:
        if text == "-":
            if fields or record_id or supersedes:
                raise UsageError("with `-` every field comes from its JSON line", hint='{"text": "…", "tags": ["a"]}')
            stored = memory.add_many(_json_lines(), progress=progress("embedding"))
        else:
            if record_id is not None:
                fields["id"] = record_id
            stored = [memory.add(text, supersedes=supersedes, **fields)]
    if as_json:
        print_json([record_dict(record) for record in stored] if text == "-" else record_dict(stored[0]))
    elif text == "-":
        notice(f"remembered {len(stored):,}")
    else:
        echo(plain(stored[0].id))
    return 0


_FIELDS = ("title", "category", "tags", "importance", "decay", "happened_at", "expires_at", "source")


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
@click.argument("record_id", metavar="ID")
@common
@json_flag
def get(record_id: str, as_json: bool, **options: Any) -> int:
    """Show one record."""
    from recollect.cli.output import print_record
    from recollect.cli.terminal import print_json
    from recollect.memory.shapes import record_dict

    with open_memory(options, reads=True) as memory:
        record = memory.get(record_id)
    if record is None:
        raise UnknownRecord(record_id)
    if as_json:
        print_json(record_dict(record))
    else:
        print_record(record)
    return 0


@click.command("list")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="How many to pass over first.")
@click.option("--superseded", is_flag=True, help="Also what has been superseded.")
@click.option("--any-scope", is_flag=True, help="Of every user, agent and session.")
@filters
@common
@json_flag
def list_(limit: int, offset: int, superseded: bool, any_scope: bool, as_json: bool, **options: Any) -> int:
    """Show records, newest first."""
    from recollect.cli.output import print_listing
    from recollect.cli.terminal import print_json
    from recollect.memory.shapes import record_dict

    with open_memory(options, reads=True) as memory:
        narrowed = filter_options(options)
        records = memory.list(limit=limit, offset=offset, superseded=superseded, any_scope=any_scope, **narrowed)
    if as_json:
        print_json([record_dict(record) for record in records])
    else:
        print_listing(records)
        if not records:
            notice("nothing found")
    return 0 if records else 1


@click.command()
@click.argument("record_id", metavar="ID")
@click.argument("by", required=False, metavar="[BY]")
@click.option("--text", help="A new text that takes its place.")
@click.option("--at", metavar="TIME", help="Since when; by default since the new record.")
@common
@json_flag
def supersede(record_id: str, by: str | None, text: str | None, at: str | None, as_json: bool, **options: Any) -> int:
    """Let the record BY, or a new one with --text, take the place of the record ID."""
    with open_memory(options) as memory:
        record = memory.supersede(record_id, by, text=text, at=at)
    return _told(record, as_json)


@click.command()
@click.argument("record_id", metavar="ID")
@click.option("--text", help="The text as it should have been.")
@click.option("--title")
@click.option("--category")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="In place of its tags; repeat for more.")
@click.option("--importance", type=float, metavar="0..1", help="0.5 is the middle.")
@click.option("--decay", metavar="CLASS", help="permanent, stable, active, session or checkpoint.")
@click.option("--happened-at", metavar="TIME", help="When it happened.")
@click.option("--expires-at", metavar="TIME", help="From then on it is not found any more.")
@click.option("--source", help="Where it comes from.")
@click.option("--clear", multiple=True, metavar="FIELD", help="Take a field away: category, tags, decay, …")
@common
@json_flag
def edit(record_id: str, clear: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Change what is said of the fact ID, in place. Where something has become otherwise, `supersede` it instead."""
    said = {name: options[name] for name in ("text", *_FIELDS) if options[name] not in (None, ())}
    if not said and not clear:
        raise UsageError("nothing is to be changed", hint="recollect edit --help")
    with open_memory(options) as memory:
        record = memory.edit(record_id, **said, **dict.fromkeys(clear))
    return _told(record, as_json)


@click.command()
@click.argument("record_id", metavar="ID")
@common
@json_flag
def undo(record_id: str, as_json: bool, **options: Any) -> int:
    """Take back the last that happened to the record ID: that it was added, edited, superseded or forgotten."""
    from recollect.cli.terminal import print_json
    from recollect.memory.shapes import record_dict

    with open_memory(options) as memory:
        undone, record = memory.undo(record_id)
    if as_json:
        print_json({"undone": undone, "record": record_dict(record) if record else None})
    else:
        notice(f"undone: {undone}")
    return 0


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--purge", is_flag=True, help="Wipe the content too, for good.")
@common
@json_flag
def forget(ids: tuple[str, ...], purge: bool, as_json: bool, **options: Any) -> int:
    """Take records out of every answer; all of them, or none if one is unknown."""
    from recollect.cli.terminal import print_json

    with open_memory(options) as memory:
        memory.forget(*ids, purge=purge)
    if as_json:
        print_json({"forgotten": list(ids)})
    else:
        notice(f"forgot {len(ids)}")
    return 0


@click.command()
@click.argument("record_id", metavar="ID")
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens next, until Ctrl-C; JSON line by line.")
@common
@json_flag
def history(record_id: str, follow: bool, as_json: bool, **options: Any) -> int:
    """Show everything that happened to a record, oldest first."""
    from recollect.cli.terminal import print_json
    from recollect.memory.shapes import event_dict

    with open_memory(options, reads=True) as memory:
        if follow:
            follow_history(memory, record_id, lambda event: echo(_event_line(event, as_json)))
            return 0
        events = memory.history(record_id)
    if as_json:
        print_json([event_dict(event) for event in events])
        return 0
    for event in events:
        echo(_event_line(event))
    return 0


def _event_line(event: Event, as_json: bool = False) -> str:
    from recollect.memory.shapes import event_dict

    told = event_dict(event)
    if as_json:
        return to_json(told)
    return plain(f"{told['at'][:19]}  {told['action']:<10}  {_in_words(told['detail'])}".rstrip())


def _in_words(detail: dict[str, Any]) -> str:
    """What an event says beside its name, in one line."""
    before = detail.get("before", {})
    told = [f"{name} {value}" for name, value in detail.items() if name != "before"]
    changed = [f"{name} was {json.dumps(value, ensure_ascii=False)}" for name, value in before.items()]
    return ", ".join(told + changed)


def _told(record: Record, as_json: bool) -> int:
    """The record that holds now: all of it for a program, its id for a person."""
    from recollect.cli.terminal import print_json
    from recollect.memory.shapes import record_dict

    if as_json:
        print_json(record_dict(record))
    else:
        echo(plain(record.id))
    return 0


def follow_history(memory: Memory, record_id: str, show: Callable[[Event], None]) -> None:
    """Show everything that happened to a record, oldest first, and then what happens to it, until it is ended."""
    seen = 0
    with ending(), memory.changes() as ticks:
        for told in itertools.chain([True], ticks):
            for event in memory.history(record_id) if told else ():
                if event.seq > seen:
                    show(event)
                    seen = event.seq
