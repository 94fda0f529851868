"""`recollect migrate`: move a store to another model, language or chunker, and check first that it is not worse."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect import config
from recollect.cli.flags import command, common_options, open_memory, settings_flags
from recollect.cli.lab import interval
from recollect.cli.terminal import counted, echo, emit, notice, plain, print_table, progress
from recollect.errors import UsageError
from recollect.memory import Memory, migration
from recollect.memory.filling import exclusive
from recollect.memory.migration import Migration

if TYPE_CHECKING:
    from recollect.evaluation.tryout import SideBySide

EMPTY = "nothing to migrate: there are no records"
NO_VECTORS = "the store has no vectors yet: `recollect embed` computes them with the model of the settings"
NOTHING = "nothing to migrate: the settings and this release ask for no other model, language or chunks"
THERE = "nothing to migrate: the store already has what the flags name"
UNUSED = "there are no vectors that do not answer"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one migration; `reason` says why it was not switched to."""

    migration: Migration
    computed: int = 0
    verdict: SideBySide | None = None
    switched: bool = False
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        step = _step(self.migration)
        evaluation = self.verdict.as_dict() if self.verdict else None
        return {
            **step, "computed": self.computed, "evaluation": evaluation, "switched": self.switched,
            "reason": self.reason,
        }  # fmt: skip


@command()
@click.option("--language", metavar="NAME", help="Move the keyword index to this language.")
@click.option("--chunks", is_flag=True, help="Cut files again that an older release cut by other rules.")
@click.option(
    "--evaluate", "questions", metavar="[SET]", is_flag=False, flag_value="",
    help="Before the switch, ask both the questions of SET (by default made from your records); keep the old one if "
    "the new one is significantly worse.",
)  # fmt: skip
@click.option("--switch", is_flag=True, help="Switch even if the new one is worse, or too few questions can be asked.")
@click.option("--abandon", is_flag=True, help="Delete vectors that do not answer; with --embedder, of that model only.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
def migrate(as_json: bool, **options: Any) -> int:
    """Move the store to another model (--embedder), language or chunker. Without flags, show what could be moved.

    The old one answers until the new one is complete, then one switch follows. It can be interrupted: run again, it
    computes only the rest. --evaluate and --switch alone do all that the settings and this release ask for.

    Exit code 1: the old one stays.
    """
    others = [name for name in ("language", "chunks", "switch") if options[name]]
    if options["abandon"] and (others or options["questions"] is not None):
        raise UsageError("--abandon deletes vectors and migrates nothing", hint="run it alone, or with --embedder")
    with open_memory(options, reads=True) as memory:
        if options["abandon"]:
            return _abandon(memory, common_options(options)["embedder"], as_json, dry_run=options["dry_run"])
        if not memory.store.status()["records"]["total"]:
            emit(as_json, {"steps": []}, EMPTY)
            return 0
        steps, is_chosen = _chosen(memory, options)
        targets = (common_options(options)["embedder"], options["language"], options["chunks"])
        nothing = THERE if any(targets) else NOTHING
        if not is_chosen or options["dry_run"]:
            _show(memory, steps, as_json, nothing=nothing)
            return 0
        outcomes = _migrate(memory, steps, options)
    value = {"steps": [outcome.as_dict() for outcome in outcomes]}
    emit(as_json, value, lambda: _print(outcomes, nothing))
    for outcome in outcomes:
        _advise(outcome, _settings_embedder(options), memory.settings.language)
    return 0 if all(outcome.switched for outcome in outcomes) else 1


def _chosen(memory: Memory, options: Mapping[str, Any]) -> tuple[list[Migration], bool]:
    """The migrations that flags name, or else all that are waiting; and whether they are to be done."""
    embedder, language, chunks = common_options(options)["embedder"], options["language"], options["chunks"]
    if embedder == "none":
        raise UsageError("`none` is no model to migrate to", hint='for keyword search only, set embedder = "none"')
    if not (embedder or language or chunks):
        return migration.waiting(memory), options["questions"] is not None or options["switch"]
    named = (
        migration.to_model(memory, opens=not options["dry_run"]) if embedder else None,
        migration.to_language(memory, language) if language else None,
        migration.to_chunks(memory) if chunks else None,
    )
    return [step for step in named if step is not None], True


def _migrate(memory: Memory, steps: Sequence[Migration], options: Mapping[str, Any]) -> list[Outcome]:
    """Make one migration after the other, until one is not switched to."""
    outcomes: list[Outcome] = []
    with exclusive(memory) as reported:
        for step in steps:
            outcomes.append(_one(memory, step, options, lambda label: reported(progress(label))))
            if not outcomes[-1].switched:
                break
    return outcomes


def _one(memory: Memory, step: Migration, options: Mapping[str, Any], bars: Any) -> Outcome:
    """Prepare one migration, compare both sides if asked to, and switch unless the new side is worse."""
    verdict, reason = None, ""
    if (place := options["questions"]) is not None:
        from recollect.evaluation import tryout

        dataset = tryout.questions_for(memory, Path(place) if place else None, progress)
        reason = tryout.too_few(dataset)
        if reason and not options["switch"]:
            return Outcome(step, reason=reason)
    computed = step.prepare(memory, bars("preparing"))
    if place is not None and not reason:
        named = _settings_embedder(options)
        verdict = tryout.try_out(memory, step, dataset, named=named, steps=progress)
        reason = f"{' and '.join(verdict.fell)} fell significantly" if verdict.fell else ""
    if reason and not options["switch"]:
        return Outcome(step, computed, verdict, reason=reason)
    step.switch(memory, bars("switching"))
    return Outcome(step, computed, verdict, switched=True, reason=reason)


def _settings_embedder(options: Mapping[str, Any]) -> str:
    """The model that the settings name, without the flag."""
    file, flags = settings_flags(options)
    return config.load(config=file, flags={**flags, "embedder": None}).settings.embedder


def _step(migration: Migration) -> dict[str, str]:
    return {"kind": migration.kind, "old": migration.old, "new": migration.new}


def _show(memory: Memory, steps: Sequence[Migration], as_json: bool, *, nothing: str) -> None:
    """What would be done, and the vectors that do not answer."""
    rest = migration.unused(memory)
    listed = [{**_step(step), "work": step.work(memory), "command": _command(step)} for step in steps]
    value = {"steps": listed, "unused": [{"embedder": one.embedder, "vectors": rest[one]} for one in rest]}
    rows = [(f"{step['kind']}: {step['old']} → {step['new']}", step["work"], step["command"]) for step in listed]
    rows += [(f"vectors of {one.embedder}", f"{count:,} that do not answer", _drop(one.embedder))
             for one, count in rest.items()]  # fmt: skip
    emit(as_json, value, lambda: print_table(rows) if rows else echo(nothing))
    if memory.embeddings.configured and memory.store.spaces.active is None:
        notice(NO_VECTORS)


def _command(step: Migration, *, switch: bool = False) -> str:
    flag = "--chunks" if step.kind == "chunks" else f"--{step.kind} {shlex.quote(step.new)}"
    return f"recollect migrate {flag} {'--switch' if switch else '--evaluate'}"


def _drop(embedder: str) -> str:
    return f"recollect migrate --embedder {shlex.quote(embedder)} --abandon"


def _abandon(memory: Memory, embedder: str | None, as_json: bool, *, dry_run: bool) -> int:
    if dry_run:
        spaces = {one: count for one, count in migration.unused(memory).items() if embedder in (None, one.embedder)}
    else:
        with exclusive(memory):
            spaces = migration.abandon(memory, embedder)
    rows = [{"embedder": one.embedder, "vectors": count} for one, count in spaces.items()]
    verb = "would be deleted" if dry_run else "deleted"
    text = "\n".join(f"{verb}: {counted(count, 'vector')} of {plain(one.embedder)}" for one, count in spaces.items())
    nothing = UNUSED if embedder is None else f"there are no vectors of {plain(embedder)}"
    if (active := memory.store.spaces.active) and active.embedder == embedder:
        nothing = f"{plain(embedder)} answers now, so its vectors stay"
    emit(as_json, {"deleted": rows, "dry_run": dry_run}, text or nothing)
    return 0


def _print(outcomes: Sequence[Outcome], nothing: str) -> None:
    if not outcomes:
        echo(nothing)
    for outcome in outcomes:
        step = outcome.migration
        if outcome.verdict:
            _print_verdict(outcome.verdict, step)
        state = "switched to" if outcome.switched else "not switched to"
        reason = f": {outcome.reason}" if outcome.reason else ""
        done = f" ({counted(outcome.computed, 'vector')} computed)" if outcome.computed else ""
        echo(plain(f"{step.kind}: {state} {step.new} from {step.old}{done}{reason}"))


def _print_verdict(verdict: SideBySide, step: Migration) -> None:
    rows: list[tuple[str, ...]] = [("measure", step.old, step.new, "difference", "p")]
    for measure, figures in verdict.measures.items():
        means = [interval(figures[side]) for side in ("old", "new")]
        rows.append((measure, *means, interval(figures["difference"], signed=True), f"{figures['p']:.4f}"))
    print_table(rows)
    first, figures = next(iter(verdict.measures.items()))
    edge = figures["noticeable"]
    size = f"a fall of {first} by more than {edge:.3f} would be significant" if edge else "too few answers changed"
    notice(f"{counted(verdict.questions, 'question')} ({verdict.name}) · means with 95 % intervals · {size}")
    for warning in verdict.warnings:
        notice(f"note: {warning}")


def _advise(outcome: Outcome, named: str, language: str | None) -> None:
    """Say how to go on: after a refusal, and where the settings name another model than the one that answers now."""
    step = outcome.migration
    if not outcome.switched:
        notice(f"{step.old} still answers; `{_command(step, switch=True)}` switches all the same")
        if step.kind == "embedder" and outcome.verdict:
            notice(f"`{_drop(step.new)}` deletes the new vectors")
    answers = step.new if outcome.switched else step.old
    if step.kind == "embedder" and named != answers:
        back = "`recollect migrate --evaluate` without a model would move to that one"
        notice(f'now set embedder = "{answers}" in your settings (`recollect config path`), which name {named}: {back}')
    if step.kind == "language" and language not in (None, answers):
        notice(f'now set language = "{answers}" in your settings, which say {language}')
