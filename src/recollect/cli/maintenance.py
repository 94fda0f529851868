"""Commands on a whole store: status, doctor, language, copy, export, import, backup, restore, postgres."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.flags import command, common, common_options, json_flag, load_settings, open_memory, settings_flags
from recollect.cli.terminal import (
    as_text,
    counted,
    echo,
    emit,
    interruptible,
    notice,
    one_line,
    plain,
    print_table,
    progress,
    width,
)
from recollect.config import shown_place
from recollect.errors import UsageError
from recollect.network.addresses import offline
from recollect.network.calls import contacts, ledger_file
from recollect.options import SCOPE_PARTS
from recollect.stores import STORES, kind_of, scheme_of
from recollect.stores.rows import analyzer_of

if TYPE_CHECKING:
    from recollect.doctor import Finding
    from recollect.moving import Moved
    from recollect.moving.backups import Restored, SavedBackup

SIGNS = {"ok": ("✓", "green"), "note": ("–", "cyan"), "warning": ("!", "yellow"), "failure": ("✗", "red")}
EXIT_CODES = {"ok": 0, "note": 0, "warning": 1, "failure": 3}

FINDING_MARGIN = 21  # columns of a finding's sign, state and check
NAMED_IDS = 20  # how many ids of different records are printed
NOTHING = "nothing"
NOUNS = {  # kind of line in an export → its name in text
    "record": "record", "history": "history entry", "vector": "vector", "file": "file", "ingested": "extracted chunk",
    "join": "external id", "note": "cached model answer",
}  # fmt: skip


@command()
@click.option("--egress", is_flag=True, help="Show which hosts were contacted, and which the settings can contact.")
def status(egress: bool, as_json: bool, **options: Any) -> None:
    """Show what the store holds and how current its indexes are."""
    if egress:
        _show_egress(options, as_json)
        return
    with open_memory(options, reads=True) as memory:
        state = memory.status()
        place, configured = memory.settings.place, memory.embeddings.configured
    if not state["records"]["total"]:
        state |= _if_missing(place)
    rows = [(name, as_text(value)) for name, value in state.items() if not isinstance(value, dict)]
    tables = [(name, table) for name, table in state.items() if isinstance(table, dict)]
    rows += [(f"{name}.{key}", as_text(value)) for name, table in tables for key, value in table.items()]
    emit(as_json, state, lambda: print_table(rows))
    if configured and state["vectors"]["without"] and "background" not in state["vectors"]:
        notice(f"{counted(state['vectors']['without'], 'record')} without a vector: `recollect embed` computes them")


def _if_missing(place: str) -> dict[str, Any]:
    """The configured place and size 0, for a store that does not exist yet."""
    kind = kind_of(place)
    return {} if place == ":memory:" or kind.exists(place) else {"store": kind.describe(place), "bytes": 0}


def _show_egress(options: Mapping[str, Any], as_json: bool) -> None:
    """Print the calls of all processes of this user, and the hosts that the settings name. Opens no store."""
    from recollect.memory.reach import reach

    value = {
        "offline": offline(),
        "file": str(ledger_file()),
        "contacted": [row.as_dict() for row in contacts()],
        "can_contact": [row.as_dict() for row in reach(load_settings(options).settings)],
    }
    emit(as_json, value, lambda: _print_egress(value))


def _print_egress(value: Mapping[str, Any]) -> None:
    calls = []
    for row in value["contacted"]:
        # Bytes are not known where another library made the calls.
        sent, received = ("?" if row[name] is None else f"{row[name]:,}" for name in ("sent", "received"))
        traffic = (f"{sent} bytes sent", f"{received} bytes received", f"last {row['last']}")
        calls.append((_host(row), row["purpose"], counted(row["calls"], "call"), *traffic))
    reasons = [
        (_host(row), row["purpose"], row["when"] + ("" if row["counted"] else "; calls are not counted"))
        for row in value["can_contact"]
    ]
    for title, rows in (("contacted so far", calls), ("can be contacted with these settings", reasons)):
        echo(f"{title}:" if rows else f"{title}: {NOTHING}")
        print_table(rows)
    if value["offline"]:
        notice("offline: no other machine is contacted")


def _host(row: Mapping[str, Any]) -> str:
    return f"{row['host']} (this machine)" if row["local"] else row["host"]


@command()
@click.option("--fix", is_flag=True, help="Fix what can be fixed safely; your data is never deleted.")
def doctor(fix: bool, as_json: bool, **options: Any) -> int:
    """Check the models, indexes, sources, disk and settings, and say how to fix each problem.

    Without --fix nothing is changed. Exit code 0: no problem; 1: a warning; 3: a failure.
    """
    from recollect.doctor import Reporter, Setup, examine, treat, worst

    file, flags = settings_flags(options)
    setup = Setup.load(named=file, flags=flags)
    findings = examine(setup)
    if fix:
        findings = treat(setup, findings, Reporter(notice, progress))
    state = worst(findings)
    value = {"checks": [finding.as_dict() for finding in findings], "state": state}
    emit(as_json, value, lambda: _print_findings(findings))
    return EXIT_CODES[state]


def _print_findings(findings: Sequence[Finding]) -> None:
    margin, room = " " * FINDING_MARGIN, max(40, width() - FINDING_MARGIN)
    for finding in findings:
        sign, color = SIGNS[finding.state]
        lines = textwrap.wrap(one_line(finding.message), room, break_long_words=False, break_on_hyphens=False)
        head = click.style(f"{sign} {finding.state:<7}  {finding.check:<8}  ", fg=color)
        echo(head + f"\n{margin}".join(lines))
        if finding.mend and finding.state != "ok":
            echo(f"{margin}{click.style('→', bold=True)} {one_line(finding.mend)}")
    counts = {state: sum(finding.state == state for finding in findings) for state in ("failure", "warning")}
    summary = ", ".join(counted(count, state) for state, count in counts.items() if count)
    echo(f"\n{summary or 'no problems found'}")
    if fixable := sum(finding.fix is not None and finding.fixed is None for finding in findings):
        notice(f"`recollect doctor --fix` can fix {fixable} of these")


@command()
@click.argument("name", required=False)
def language(name: str | None, as_json: bool, **options: Any) -> None:
    """Show the language of the store, or change it to NAME and rebuild the keyword index.

    A new store takes its language from the setting `language`. Later only this command changes it.
    """
    from recollect.memory import Memory

    if name is None:
        with open_memory(options, reads=True) as memory:
            current = memory.store.keywords.analyzer.language
        emit(as_json, {"language": current}, current)
        return
    analyzer_of(name)  # refuses an unknown language, before a store is opened
    settings = replace(load_settings(options).settings, language=None)
    with Memory.open(settings=settings, announce=notice) as memory:
        before = memory.store.keywords.analyzer.language
        if name != before:
            notice("rebuilding the keyword index of all records")
            memory.change_language(name)
        current = memory.store.keywords.analyzer.language
    emit(as_json, {"language": current, "before": before}, current)


_dry_run = click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")
_merge = click.option("--merge", is_flag=True, help="Add missing records to a store that holds other records.")


@click.command()
@click.argument("from_", metavar="FROM")
@click.argument("to", metavar="TO")
@_dry_run
@_merge
@click.option("--verify", is_flag=True, help="In a later run too, read back everything, not only what was copied.")
@json_flag
def copy(from_: str, to: str, as_json: bool, merge: bool, **options: bool) -> int:
    """Copy the store FROM into the store TO: files, or URLs like postgresql://user@host/database.

    FROM can be used meanwhile, and the copy can be interrupted. Run again, it brings TO up to date with FROM; if
    somebody else has changed TO, it is refused. What was copied is read back and compared.
    """
    from recollect import moving

    moved = moving.copy(from_, to, merge=merge, **options, steps=progress)
    return _emit_moved(moved, "copied", as_json, merge=merge)


@command()
@click.argument("file", default="-", metavar="[FILE]")
def export(file: str, as_json: bool, **options: Any) -> None:
    """Export the whole store to FILE as JSON lines: `.gz` compresses them, `-` is standard output."""
    from recollect import moving

    if file == "-" and as_json:
        message = "--json needs a FILE, because the export itself goes to standard output"
        raise UsageError(message, hint="name a FILE, or omit --json")
    moved = moving.export(_store(options), file, steps=progress)
    if file == "-":
        notice(f"exported {_totals(moved.total)}")
    else:
        _emit_moved(moved, "exported", as_json)


@command("import")
@click.argument("file", metavar="FILE")
@_dry_run
@_merge
@click.option("--trust", is_flag=True, help="Believe who wrote each record; only for an export of your own.")
@click.option("--with-folders", is_flag=True, help="--trust, and also indexed folders and caches.")
def import_(file: str, *, dry_run: bool, merge: bool, as_json: bool, **options: Any) -> int:
    """Import the records of FILE, or of standard input with `-`, as `recollect export` wrote them.

    Every line is checked first. Records come with their history and vectors. What users, files and agents wrote
    has the origin `import`, which recall leaves out, unless --trust says that the export is your own. Indexed
    folders and caches come only with --with-folders.
    """
    from recollect import moving

    chosen = {"dry_run": dry_run, "merge": merge, "trust": options["trust"], "with_folders": options["with_folders"]}
    moved = moving.import_(_store(options), file, **chosen, steps=progress)
    return _emit_moved(moved, "imported", as_json, merge=merge)


@command()
@click.argument("file", metavar="FILE")
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="In a folder: remove the oldest beyond N.")
@click.option("--force", is_flag=True, help="Replace FILE if it is a backup.")
def backup(file: str, keep: int | None, force: bool, as_json: bool, **options: Any) -> None:
    """Back up the whole store to FILE, while others use the store; the file is read back and checked.

    If FILE is a folder or ends with a slash, the backup gets a dated name there. --keep then removes the oldest
    backups of this store.
    """
    from recollect.moving.backups import backup as write_backup

    with interruptible():
        saved = write_backup(_store(options), file, force=force, keep=keep, steps=progress)
    emit(as_json, saved.as_dict(), lambda: _print_saved(saved))


@command()
@click.argument("file", metavar="FILE")
@click.option("--to", metavar="PLACE", help="The new store, a file or URL; by default that of the settings.")
@click.option("--dry-run", is_flag=True, help="Only check the backup and print what it holds; a store may be there.")
def restore(file: str, to: str | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Restore the backup FILE, one of your own, to a place at which there is no store.

    The backup is checked first, and a new file appears only when it is complete.
    """
    from recollect.moving.backups import restore as restore_backup

    place = to if to is not None else _store(options)
    with interruptible():
        restored = restore_backup(file, place, dry_run=dry_run, steps=progress)
    emit(as_json, restored.as_dict(), lambda: _print_restored(restored))


def _print_saved(saved: SavedBackup) -> None:
    echo(plain(f"wrote {saved.backup.path}, {saved.size:,} bytes"))
    echo(f"checked {_totals(saved.backup.counts)}")
    for path in saved.removed:
        echo(plain(f"removed {path}"))


def _print_restored(restored: Restored) -> None:
    made_at = f"{restored.backup.made_at:%Y-%m-%d %H:%M:%S} UTC"
    if restored.dry_run:
        echo(f"the backup of {made_at} is whole: {_totals(restored.counts)}")
        return
    echo(plain(f"restored {_totals(restored.counts)} to {restored.place}, as of {made_at}"))
    notice("the first search builds the index; `recollect index` brings indexed folders up to date")
    notice(f"to use and check it: recollect doctor --store {shlex.quote(restored.place)}")


def _store(options: dict[str, Any]) -> str:
    """The store of the settings. A scope is refused: the whole store is moved."""
    for part in SCOPE_PARTS:
        if common_options(options)[part] is not None:
            raise UsageError(f"--{part} has no effect here: the whole store is moved", hint=f"omit --{part}")
    return load_settings(options).settings.place


def _emit_moved(moved: Moved, verb: str, as_json: bool, *, merge: bool = False) -> int:
    emit(as_json, moved.as_dict(), lambda: _print_moved(moved, verb))
    for note in moved.notes:
        notice(note)
    refused = moved.dry_run and not merge and bool(moved.others or moved.different)
    if refused:
        notice("this would be refused: the target holds other records; --merge adds the missing ones")
    return 2 if refused else 0


def _print_moved(moved: Moved, verb: str) -> None:
    other = (moved.added, moved.not_copied, moved.changed)
    same = {kind: total - sum(each.get(kind, 0) for each in other) for kind, total in moved.total.items()}
    caches = {**moved.not_copied, "record": 0}
    would = "would be " if moved.dry_run else ""
    echo(f"{would}{verb}{':' if would else ''} {_totals(moved.added)}")
    numbers = {f"{would}brought up to date": moved.changed, f"{would}removed": moved.removed, "already there": same}
    for words, totals in ((words, _totals(counts)) for words, counts in numbers.items()):
        if totals != NOTHING:
            echo(f"{words}: {totals}")
    if moved.different:
        echo(f"different in the target, and left as they are: {counted(len(moved.different), 'record')}")
        for record_id in moved.different[:NAMED_IDS]:
            echo(plain(f"  {record_id}"))
        if len(moved.different) > NAMED_IDS:
            echo(f"  and {len(moved.different) - NAMED_IDS:,} more; --json lists all")
    if _totals(caches) != NOTHING:
        echo(f"not copied, or left as they are in the target: {_totals(caches)}")
    if moved.others:
        echo(f"the target holds {counted(moved.others, 'other record')}")
    if any(moved.left_out.values()):
        left = _totals(moved.left_out, {"root": "folder", **NOUNS})
        echo(f"left out: {left}; --with-folders imports them, for an export of your own")
    if moved.sha256:
        echo(f"sha256 {moved.sha256}")


def _totals(numbers: Mapping[str, int], nouns: Mapping[str, str] = NOUNS) -> str:
    return ", ".join(counted(numbers[kind], noun) for kind, noun in nouns.items() if numbers.get(kind)) or NOTHING


@click.group()
def postgres() -> None:
    """Distribute a PostgreSQL store over a Citus cluster."""


@postgres.command()
@common
@json_flag
def distribute(as_json: bool, **options: Any) -> None:
    """Distribute the tables of an empty store over the workers of its Citus cluster.

    The store is that of the settings, or of --store. All records of one user are in one shard, and all that have no
    user are in another. A store with records is copied to a distributed one: recollect copy OLD NEW.
    """
    place = load_settings(options).settings.place
    if scheme_of(place) not in ("postgresql", "postgres"):
        message = f"{shown_place(place)!r} is not the address of a PostgreSQL server"
        raise UsageError(message, hint="name one: recollect postgres distribute --store postgresql://…")
    STORES.load("postgresql")  # says what to install where the driver is missing
    from recollect.stores.postgres.citus.layout import distribute

    shards = distribute(place)
    document = {"store": shown_place(place), "shards": shards}
    emit(as_json, document, lambda: print_table([(node, counted(count, "shard")) for node, count in shards.items()]))
