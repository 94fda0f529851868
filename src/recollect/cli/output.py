"""Answers, records and verdicts of `why-not` as text for a terminal."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.terminal import MARGIN, counted, echo, indented, notice, one_line, plain, plain_text, width
from recollect.fusion import METHODS
from recollect.options import FILTERS, SEARCH
from recollect.types import Answer, Record, Result, now

if TYPE_CHECKING:
    from recollect.memory.explain import Placement, Verdict


def print_answer(answer: Answer, *, explain: bool = False) -> None:
    """Print the results on standard output, the summary and the warnings on standard error."""
    for rank, result in enumerate(answer.results, 1):
        echo(_headline(rank, result))
        if place := where(result.record):
            stale = f" ({result.freshness} since it was indexed)" if result.freshness in ("changed", "missing") else ""
            echo(click.style(f"    {place}{stale}", dim=True))
        echo(indented(plain_text(result.snippet)))
        if explain:
            echo(_explanation(result))
    if explain:
        echo(click.style(_stages(answer), dim=True), err=True)
    echo(click.style(_summary(answer), dim=True), err=True)
    for warning in answer.trace.warnings:
        echo(click.style(one_line(f"note: {warning}"), fg="yellow"), err=True)


def print_record(record: Record) -> None:
    """Print a record in full."""
    details = [
        ("id", record.id),
        ("kind", record.kind),
        ("scope", " ".join(f"{part}={name}" for part, name in record.scope.as_dict().items())),
        ("category", record.category),
        ("tags", ", ".join(record.tags)),
        ("importance", f"{record.importance:g}"),
        ("decay", record.decay),
        ("stored", _time(record.created_at)),
        ("happened", _time(record.happened_at)),
        ("expires", _time(record.expires_at)),
        ("superseded", f"by {record.superseded_by} from {_time(record.superseded_at)}" if record.superseded_by else ""),
        ("source", record.source),
        ("where", where(record)),
    ]
    if record.title:
        echo(click.style(plain(record.title), bold=True))
    echo(plain_text(record.text))
    echo()
    for name, value in details:
        if value:
            echo(click.style(plain(f"{name:>10}  {value}"), dim=True))


def print_listing(records: list[Record]) -> None:
    """Print one line for each record."""
    if not records:
        notice("nothing found")
    longest = min(32, max((len(record.id) for record in records), default=0))
    for record in records:
        words = " ".join((f"{record.title} — " if record.title else "").split() + record.text.split())
        line = plain_text(textwrap.shorten(words, width() - 24, placeholder=" …"))
        key = click.style(plain(record.id)[:32].ljust(longest), fg="cyan")
        echo(f"{key}  {click.style(_time(record.time)[:10], dim=True)}  {line}")


def where(record: Record) -> str:
    """The file and lines of a record, relative to the current folder or the home folder where possible."""
    if record.path is None:
        return ""
    path = Path(record.path)
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            path = Path(prefix) / path.relative_to(base)
            break
    if record.lines is None:
        return plain(os.fspath(path))
    first, last = record.lines
    return plain(f"{path}:{first}-{last}" if last > first else f"{path}:{first}")


def _headline(rank: int, result: Result) -> str:
    record = result.record
    name = plain_text(textwrap.shorten(record.title or record.text, max(30, width() - 40), placeholder=" …"))
    score = f"{result.score:.2f}"
    score += "" if result.confidence is None else f" (confidence {result.confidence:.2f})"
    ranks = "  ".join(f"{plain(source)} #{share.rank}" for source, share in result.shares.items())
    ranks += "  superseded" if record.superseded_at and record.superseded_at <= now() else ""
    name, score, ranks = click.style(name, bold=True), click.style(score, fg="green"), click.style(ranks, fg="cyan")
    return f"{rank:>2}. {name}  {score}  {ranks}"


def _explanation(result: Result) -> str:
    lines = []
    for name, share in result.shares.items():
        score = "–" if share.score is None else f"{share.score:.4f}"
        lines.append(f"      {plain(name)}: rank {share.rank}, score {score} → {share.contribution:.6f}")
    factors = "".join(f" × {name} {factor:.4f}" for name, factor in result.factors.items())
    moves = "".join(f", moved by {stage} from {old} to {new}" for stage, (old, new) in result.moves.items())
    fused = f"fused score {result.fused:.6f}, {result.base:.4f} of the highest possible"
    lines.append(f"      {fused}{factors} → {result.total:.4f}{moves}")
    return click.style("\n".join(lines), dim=True)


def _stages(answer: Answer) -> str:
    """One line for each source and each stage: hits or records in and out, and the time it took."""
    trace = answer.trace
    rows = [
        plain(f"  {source.name:<10} {source.status:<8} {source.hits:>5} hits {source.took_ms:8.1f} ms  {source.reason}")
        for source in trace.sources
    ]
    rows += [
        f"  {stage.name:<10} {stage.given:>5} → {stage.left:<5} {'':>9}{stage.took_ms:8.1f} ms"
        for stage in trace.stages
    ]
    return "\n".join(row.rstrip() for row in rows)


def _summary(answer: Answer) -> str:
    ranking, trace = answer.query.ranking, answer.trace
    how = f"{ranking.fusion} k={ranking.rrf_k:g}" if "rrf_k" in METHODS[ranking.fusion].reads else ranking.fusion
    outcome = counted(len(answer.results), "result") if answer.results else "nothing found"
    if trace.abstained:
        outcome = one_line(f"no answer: {trace.abstained}")
    return f"{outcome} · {trace.mode} · {how} · {trace.took_ms:.0f} ms"


def _time(at: datetime | None) -> str:
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M UTC")


FLAGS = {option.name: option.flag_names[0] for option in (*SEARCH, *FILTERS) if option.flag_names}
"""Option → its flag."""


def print_verdict(verdict: Verdict, tags: Sequence[str] = ()) -> None:
    """Print where the record was lost, its rank in each source's list, and what to do."""
    if verdict.record is not None:
        name = textwrap.shorten(verdict.record.title or verdict.record.text, width() - 4, placeholder=" …")
        echo(click.style(plain_text(name), bold=True))
        echo(click.style(f"{MARGIN}{plain(verdict.record.id)}  {where(verdict.record)}".rstrip(), dim=True))
    in_results = verdict.stage == "found"
    echo(click.style("found", fg="green") if in_results else click.style(f"lost at: {verdict.stage}", fg="yellow"))
    echo(indented(one_line(verdict.reason)))
    for source, place in verdict.places.items():
        echo(click.style(f"{MARGIN}{plain(source):<10} {_rank(place)}", dim=True))
    if verdict.change:
        echo(plain(f"brings it back: the same search {_changed_flags(verdict.change, tags)}"))
    elif verdict.advice:
        echo(f"what to do: {one_line(verdict.advice)}")
    elif not in_results:
        echo("no single option of search brings it back")


def _changed_flags(change: Mapping[str, Any], tags: Sequence[str]) -> str:
    """The flags to add and to leave out, for a change of options and the tags of the query."""
    right = change.get("tags", ())
    removed = [_flag(name) for name, value in change.items() if value in (None, ())]
    removed += [f"--tag {shlex.quote(tag)}" for tag in tags if right and tag not in right]
    added = _flags({name: value for name, value in change.items() if name != "tags"})
    words = [added, f"without {', '.join(removed)}" if removed else ""]
    return " and ".join(word for word in words if word)


def _flags(options: Mapping[str, Any]) -> str:
    """Options of `search` as flags; an option without a value gives none."""
    words: list[str] = []
    for name, value in options.items():
        match value:
            case None | ():
                continue
            case True:
                words.append(_flag(name))
            case False:
                words.append(f"--no-{name.replace('_', '-')}")
            case tuple() | list():
                words += [f"{_flag(name)} {shlex.quote(str(part))}" for part in value]
            case _:
                words.append(f"{_flag(name)} {shlex.quote(str(value))}")
    return " ".join(words)


def _flag(option: str) -> str:
    return FLAGS.get(option, f"--{option.replace('_', '-')}")


def _rank(place: Placement) -> str:
    if place.rank is None:
        return plain(place.note)
    score = "" if place.score is None else f", score {place.score:.4f}"
    return plain(f"rank {place.rank:,} of a list read to {place.fetch_k:,}{score} {place.note}".rstrip())
