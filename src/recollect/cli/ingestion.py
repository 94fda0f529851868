"""Commands on files and vectors: index, watch, service, embed, ingest-files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from recollect.cli import terminal
from recollect.cli.flags import (
    backup_schedule,
    command,
    common,
    common_options,
    environment_of,
    flags,
    json_flag,
    load_settings,
    open_memory,
    scheduled_backups,
)
from recollect.cli.terminal import counted, dim, echo, emit, notice, one_line, plain, progress
from recollect.config import has_secret, user_file
from recollect.errors import LlmError, UsageError
from recollect.ingest import service as services
from recollect.ingest import watch as watching
from recollect.ingest.discovery import LARGER
from recollect.ingest.facts import FactVerdict, Piece
from recollect.ingest.folder import Report
from recollect.ingest.readers import EXTRA
from recollect.ingest.service import Platform
from recollect.ingest.watch import Pass
from recollect.memory import Memory
from recollect.memory.filling import FillingThread, fill, fill_in_background, start
from recollect.memory.folders import Extraction, announce_model, redactions_counted, vectors_may_fail
from recollect.network.addresses import offline
from recollect.options import SCOPE_PARTS
from recollect.stores import kind_of
from recollect.types.records import first_words

NAMED_FILES = 5  # how many skipped files are named for one reason; the others are counted
FACT_WIDTH = 100
MANY_VECTORS = 500  # on two cores they take a quarter of a minute
CHANGES = ("added", "changed", "moved", "removed", "rescoped")  # fields of a report that list files with a change
NO_SERVICE = "no Recollect service is installed"

_paths = click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
_index_flags = flags(  # the flags that choose and tag files, in `index`, `watch` and `service install`
    click.option("--include", multiple=True, metavar="GLOB", help="Only these files, as in .gitignore; repeatable."),
    click.option("--exclude", multiple=True, metavar="GLOB", help="Skip these files, as in .gitignore; repeatable."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag every chunk; repeat for more tags."),
    click.option("--force", is_flag=True, help="Allow a whole home folder."),
)  # fmt: skip


def _index_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("tags", "include", "exclude", "force")}


@command()
@_paths
@_index_flags
@click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")
@click.option("--confirm", is_flag=True, help="Remove missing files from the index, however many.")
@click.option(
    "--wait/--background", default=None,
    help="Compute vectors before the command ends, or afterwards in a process of their own. "
    f"[default: on a terminal, {MANY_VECTORS} or more in the background]",
)  # fmt: skip
def index(
    paths: tuple[str, ...], dry_run: bool, confirm: bool, wait: bool | None, as_json: bool, **options: Any
) -> int:
    """Index each PATH, a folder or a file: notes, source code, PDF, DOCX, HTML, notebooks and mail.

    Run it again at any time: it reads only files that changed, and removes files that are gone from the index. Keywords
    find a file as soon as it is read, its meaning when its vectors are computed.
    """
    chosen = {**_index_options(options), "dry_run": dry_run, "confirm": confirm, "embed": False}
    with open_memory(options) as memory:
        report = memory.index(paths, **chosen, reading=progress("reading"))
        if memory.embeddings.configured and not dry_run:
            announce_model(memory)
            with redactions_counted(memory, report), vectors_may_fail(memory):
                report.embedded = compute_vectors(memory, options, wait)
    owner = ", ".join(f"{part} {name}" for part, name in memory.scope.as_dict().items()) or "everybody"
    if tags := options["tags"]:
        owner += f", with the tag{'s' if len(tags) > 1 else ''} {', '.join(tags)}"
    emit(as_json, lambda: dataclasses.asdict(report), lambda: _print_report(report, owner))
    done = report.unchanged or any(getattr(report, name) for name in CHANGES)
    return 1 if report.skipped and not done and all(map(os.path.isfile, paths)) else 0


def compute_vectors(memory: Memory, options: Mapping[str, Any], wait: bool | None) -> int:
    """Compute missing vectors and return how many, or start a process that computes them and return 0.

    If `wait` is None, a process is started only for many vectors on a terminal. A script needs a complete store.
    """
    lacking = memory.embeddings.missing_count()  # fetches a model that is not here
    if wait is None:
        wait = lacking < MANY_VECTORS or not sys.stderr.isatty()
    if wait or not lacking or memory.settings.place == ":memory:":
        return fill(memory, progress("embedding"))
    pid = _start_filling(memory, options)
    many = counted(lacking, "vector")
    notice(f"computing {many} in the background (process {pid}); `recollect status` shows how far it is")
    return 0


def _start_filling(memory: Memory, options: Mapping[str, Any], *, move: bool = False) -> int:
    """Start a process that computes the vectors of this memory."""
    embedder = memory.settings.embedder
    flags = [f"--{part}={name}" for part, name in memory.scope.as_dict().items()]
    flags += [f"--embedder={embedder}"] if move else []
    return start(memory.store, {**environment_of(memory, options), "RECOLLECT_EMBEDDER": embedder}, tuple(flags))


def _print_report(report: Report, owner: str) -> None:
    files = {name: len(getattr(report, name)) for name in ("added", "changed", "moved", "removed")}
    files |= {"unchanged": report.unchanged, "skipped": len(report.skipped)}
    counts = ", ".join(f"{count:,} {name}" for name, count in files.items() if count or name != "moved")
    echo(f"would be: {counts}" if report.dry_run else counts)
    if count := len(report.rescoped):
        belong = "would belong" if report.dry_run else "now belong" if count > 1 else "now belongs"
        echo(plain(f"{counted(count, 'file')} {belong} to {owner}"))
    if report.dry_run:
        signs = {"+": report.added, "~": report.changed, "-": report.removed}
        lines = [f"{sign} {path}" for sign, paths in signs.items() for path in paths]
        for line in lines + [f"> {old} → {new}" for old, new in report.moved.items()]:
            echo(plain(line))
    reasons: dict[str, list[str]] = {}
    for path, reason in report.skipped.items():
        reasons.setdefault(reason, []).append(path)
    for reason, paths in sorted(reasons.items()):
        if reason.endswith(EXTRA):
            notice(f"skipped {counted(len(paths), 'file')}: {reason}")
            continue
        advice = "; split it into smaller files" if reason.startswith(LARGER) and ";" not in reason else ""
        for path in paths[:NAMED_FILES]:
            notice(f"skipped {plain(path)}: {reason}{advice}")
        if len(paths) > NAMED_FILES:
            notice(f"skipped {len(paths) - NAMED_FILES:,} more: {reason}")
    _print_redacted(report.redacted)
    if report.unconfirmed:
        notice(f"{_kept(report, '')}, run again with --confirm")


def _print_redacted(count: int) -> None:
    if count:
        notice(f"{counted(count, 'secret')} in the text {'was' if count == 1 else 'were'} not sent to another machine")


def _kept(report: Report, root: str) -> str:
    files = counted(len(report.unconfirmed), "file")
    return f"{files}{root} disappeared at once and were kept in the index. If they are really gone"


@command()
@_paths
@_index_flags
@click.option("--once", is_flag=True, help="Index once and exit.")
@click.option(
    "--rescan", type=click.FloatRange(min=0, min_open=True), default=10, show_default=True, metavar="MINUTES",
    help="Also compare whole folders this often, in case the system missed a change.",
)  # fmt: skip
def watch(paths: tuple[str, ...], once: bool, rescan: float, as_json: bool, **options: Any) -> int:
    """Index the folders PATH…, and again whenever their files change, until Ctrl-C."""
    roots = watching.folders(paths)
    reports: dict[Path, Report] = {}
    with terminal.until_interrupted(), open_memory(options) as memory, contextlib.ExitStack() as locks:
        vectors = locks.enter_context(contextlib.closing(FillingThread(memory)))
        announce_model(memory)

        def index(root: Path) -> Report:
            report = memory.index(root, **_index_options(options), embed=False)
            if memory.embeddings.configured:
                with vectors_may_fail(memory):
                    report.embedded = fill(memory, progress("embedding")) if once else _keep_up(memory, vectors)
            return report

        if once:
            passes = [watching.compare(root, index) for root in roots]
            for done in passes:
                _print_pass(done, reports, as_json)
            if schedule := backup_schedule(memory, options):
                schedule.run_if_due()
            return 3 if any(done.error for done in passes) else 0
        store = memory.status()["store"]
        file = None if "://" in store else watching.absolute(store)
        for root in roots:
            locks.enter_context(watching.sole_watcher(root, str(file or store)))
        locks.enter_context(scheduled_backups(memory, options))
        for done in watching.watch(roots, index, rescan=rescan * 60, ignore=file, announce=notice):
            _print_pass(done, reports, as_json)
    return 0


def _keep_up(memory: Memory, vectors: FillingThread) -> int:
    """Compute a few missing vectors and return how many; leave many to the thread, so that the watch goes on."""
    if not vectors.running and memory.embeddings.missing_count() < MANY_VECTORS:
        return memory.embed(move=False, progress=progress("embedding"))
    vectors.begin()
    return 0


def _print_pass(done: Pass, reports: dict[Path, Report], as_json: bool) -> None:
    """Print a line for a pass that changed something; as JSON a line for every pass. `reports` has the last ones."""
    if done.error is not None:
        terminal.print_error(done.error, as_json)
    if done.report is None:
        return
    before, reports[done.root] = reports.get(done.root), done.report
    at = datetime.now().astimezone()
    if as_json:
        line = {"at": at.isoformat(timespec="seconds"), "root": str(done.root), "took_ms": round(done.took_ms, 1)}
        skipped = dict(done.report.skipped.items() - (before.skipped if before else {}).items())
        echo(terminal.to_json(line | dataclasses.asdict(done.report) | {"skipped": skipped}))
        return
    root = plain(str(done.root))
    counts = {kind: len(getattr(done.report, kind)) for kind in CHANGES}
    if any(counts.values()):
        echo(f"{at:%H:%M:%S}  {root}: {', '.join(f'{count:,} {kind}' for kind, count in counts.items() if count)}")
    missing = done.report.unconfirmed
    if missing and missing != (before.unconfirmed if before else []):
        notice(f"{_kept(done.report, f' of {root}')}: recollect index --confirm {shlex.quote(root)}")


@click.group()
def service() -> None:
    """Run `recollect watch` in the background: as a systemd user unit, or with launchd on macOS."""


_any_paths = click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH…]")
_platform = click.option(
    "--platform", type=click.Choice(["systemd", "launchd"]), default=services.native_platform,
    help="The service manager, if not that of this machine.",
)  # fmt: skip


@service.command()
@_paths
@_index_flags
@click.option("--timer", is_flag=True, help="Index every ten minutes instead of watching; for network drives.")
@click.option("--print", "only_print", is_flag=True, help="Print the unit files without installing them.")
@_platform
@common
@json_flag
def install(paths: tuple[str, ...], *, only_print: bool, platform: Platform, as_json: bool, **options: Any) -> None:
    """Install a service that watches the folders PATH…, and start it if the service manager can be reached."""
    watcher = services.Service(watching.folders(paths), tuple(_watch_flags(options)), options["timer"])
    files, commands = services.units(watcher, platform), services.enable_commands(watcher, platform)
    if only_print:
        text = "\n".join(f"# {plain(str(path))}\n{content}" for path, content in files.items())
        value = [{"path": str(path), "text": content} for path, content in files.items()]
        emit(as_json, value, lambda: echo(text, nl=False))
        return
    services.write(files)
    if ran := services.reachable(platform):
        services.run(commands)
    _emit_actions("wrote", list(files), commands, ran, as_json)


@service.command()
@_any_paths
@_platform
@json_flag
def uninstall(paths: tuple[str, ...], platform: Platform, as_json: bool) -> int:
    """Stop and remove the service of the folders PATH…; without PATH, every service of Recollect."""
    files = _installed(paths, platform)
    commands = services.disable_commands(files, platform)
    if ran := services.reachable(platform):
        services.run(commands)
    for path in files:
        path.unlink()
    if ran and files:
        services.run(services.reload_commands(platform))
    _emit_actions("removed", files, commands, ran, as_json)
    return 0 if files else 1


def _emit_actions(
    verb: str, files: Sequence[Path], commands: Sequence[Sequence[str]], ran: bool, as_json: bool
) -> None:
    lines = [f"{verb} {path}" for path in files]
    if commands:
        lines += ["done:" if ran else "now run:", *(f"  {shlex.join(command)}" for command in commands)]
    value = {"files": [str(path) for path in files], "commands": commands, "ran": ran}
    emit(as_json, value, lambda: echo("\n".join(map(plain, lines))) if files else notice(NO_SERVICE))


@service.command()
@_any_paths
@_platform
@json_flag
def status(paths: tuple[str, ...], platform: Platform, as_json: bool) -> int:
    """Show the service of the folders PATH… and whether it runs; without PATH, every service of Recollect."""
    reachable = services.reachable(platform)
    files = _installed(paths, platform)
    rows = [(services.state(path, platform) if reachable else "unknown", str(path)) for path in files]
    value = [{"path": path, "state": state} for state, path in rows]
    emit(as_json, value, lambda: terminal.print_table(rows, empty=NO_SERVICE))
    return 0 if rows else 1


def _installed(paths: Sequence[str], platform: Platform) -> list[Path]:
    folders = tuple(dict.fromkeys(map(watching.absolute, paths)))
    return services.installed(platform, services.Service(folders).name if folders else None)


def _watch_flags(options: Mapping[str, Any]) -> list[str]:
    """The flags of `watch` in the unit file: a service has neither this folder nor this environment."""
    loaded = load_settings(options)
    own_file = str(user_file())  # the service reads it too, and it may change later
    flags = []
    store = loaded.settings.place
    kind = kind_of(store)
    if not kind.shared or loaded.origins["store"] != own_file:  # the URL of a server may hold a password
        flags.append(f"--store={kind.absolute(store)}")
        if has_secret(store):
            notice("other users of this machine can see the password in --store; put it into ~/.pgpass instead")
    if config := common_options(options)["config"] or os.environ.get("RECOLLECT_CONFIG"):
        flags.append(f"--config={Path(config).absolute()}")
    named = ("embedder", *(f"scope.{part}" for part in SCOPE_PARTS))
    elsewhere = [name for name in named if loaded.origins[name] not in ("default", own_file)]
    flags += [f"--{name.removeprefix('scope.')}={value}" for name in elsewhere if (value := loaded.value(name))]
    for flag, name in (("include", "include"), ("exclude", "exclude"), ("tag", "tags")):
        flags += [f"--{flag}={value}" for value in options[name]]
    return [*flags, *(["--offline"] if offline() else []), *(["--force"] if options["force"] else [])]


@command()
@click.option("--background", is_flag=True, help="Compute them in a process of their own; see `status`.")
@click.option("--detached", is_flag=True, hidden=True)
def embed(background: bool, detached: bool, as_json: bool, **options: Any) -> None:
    """Compute missing vectors of the store's model. With --embedder, move the store to that model.

    The old model answers until all vectors of the new one are there. `recollect migrate` compares the two first.
    """
    move = common_options(options)["embedder"] is not None
    with open_memory(options) as memory:
        if not move:
            announce_model(memory)
            memory.embeddings.missing_count()  # an error is shown now
        elif background and not memory.embeddings.is_active() and (moving := memory.embeddings.move_notice()):
            notice(moving)
        if background:
            pid = _start_filling(memory, options, move=move)
            emit(as_json, {"process": pid}, f"computing vectors in the background (process {pid})")
            return
        count = fill_in_background(memory, move=move) if detached else fill(memory, progress("embedding"), move=move)
    emit(as_json, {"embedded": count}, f"{count:,} embedded")


@command("ingest-files")
@click.option("--dry-run", is_flag=True, help="Show which files and chunks would be sent; send nothing.")
@click.option("--plan", is_flag=True, help="Ask the model and show its facts; store nothing.")
@click.option("--workspace", metavar="DIR", help="The folder to read: OPENCLAW_WORKSPACE, else the current folder.")
@click.option("--paths", metavar="GLOBS", help='Files in the workspace: "skills/**/*.md,TOOLS.md,AGENTS.md".')
def ingest_files(
    dry_run: bool, plan: bool, workspace: str | None, paths: str | None, as_json: bool, **options: Any
) -> int:
    """Extract facts from files with the language model of [llm]. Unchanged chunks are not sent again."""
    if dry_run and plan:
        raise UsageError("--dry-run and --plan exclude each other", hint="--plan asks the model and stores nothing")
    mode = "dry-run" if dry_run else "plan" if plan else "run"
    with open_memory(options, reads=mode != "run") as memory:
        report = memory.ingest_files(workspace, paths=paths, mode=mode, progress=progress("reading"))
    emit(as_json, report.as_dict(), lambda: _print_extraction(report))
    if report.failed:
        failed = f"{len(report.failed)} of {counted(report.sent, 'chunk')} failed"
        message = f"{failed}; the first error: {report.failed[0][1]}"
        raise LlmError(message, hint="run it again: only missing chunks are sent")
    return 0 if report.pieces else 1


def _print_extraction(report: Extraction) -> None:
    for path, reason in report.skipped.items():
        notice(f"skipped {plain(path)}: {reason}")
    for warning in report.warnings:
        notice(warning)
    if report.redacted:
        notice(f"{counted(report.redacted, 'secret')} in the files replaced: neither the model nor a fact gets them")
    summary = report.as_dict()
    chunks = summary["chunks"]
    files = counted(len(summary["files"]), "file")
    outcome = f"{files}, {counted(chunks['total'], 'chunk')}, {chunks['done']} read before"
    if report.mode == "dry-run":
        outcome += f"; {chunks['waiting']} to send, about {summary['tokens']:,} tokens; nothing was sent"
        for file in summary["files"]:
            to_send = f"{len(file['waiting'])} to send, about {file['tokens']:,} tokens"
            echo(f"{plain(file['name'])}  {counted(file['chunks'], 'chunk')}, {to_send}")
            for chunk in file["waiting"]:
                echo(dim(f"    lines {chunk['lines'][0]}-{chunk['lines'][1]}"))
    else:
        counts = ", ".join(f"{count} {action}" for action, count in summary["counts"].items())
        outcome += f", {chunks['sent']} sent, {chunks['failed']} failed: {counts}"
    if report.mode == "plan":
        outcome += "; nothing was stored"
        for piece, verdict in report.verdicts:
            _print_fact(piece, verdict)
    for piece, error in report.failed:
        place = one_line(f"{piece.name}:{piece.lines[0]}-{piece.lines[1]}  {error}")
        echo(f"{click.style('failed', fg='red')} {place}", err=True)
    echo(outcome if report.pieces else f"no file to read in {plain(str(report.workspace))}")


def _print_fact(piece: Piece, verdict: FactVerdict) -> None:
    color = {"add": "green", "supersedes": "yellow"}.get(verdict.action, "white")
    echo(f"{click.style(verdict.action.ljust(11), fg=color)} {_short(verdict.text)}")
    first, last = verdict.lines or piece.lines
    quote = f"  “{_short(verdict.span, FACT_WIDTH - 30)}”" if verdict.span else ""
    place = f"{piece.name}, {piece.place}" if piece.place else f"{piece.name}:{first}-{last}"
    echo(dim(f"{'':12}{plain(place)}{quote}"))
    reason = plain(verdict.reason)
    if verdict.other:
        reason = f"{'instead of' if verdict.action == 'supersedes' else reason}: {_short(verdict.other.text)}"
    if reason:
        echo(dim(f"{'':12}{reason}"))


def _short(text: str, width: int = FACT_WIDTH) -> str:
    return plain(first_words(text, width))
