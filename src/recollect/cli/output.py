"""How answers, records and verdicts look on a terminal."""

from __future__ import annotations

import os
import textwrap
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.terminal import echo, one_line, plain, plain_text
from recollect.fusion import METHODS
from recollect.types import Answer, Record, Result, now

if TYPE_CHECKING:
    from recollect.memory.explain import Place, Verdict
import shlex
from collections.abc import Mapping, Sequence

from recollect.cli.terminal import width


def print_answer(answer: Answer, *, explain: bool = False) -> None:
    """The results on standard output, what happened on standard error."""
    for rank, result in enumerate(answer.results, 1):
        echo(_headline(rank, result))
        if place := where(result.record):
            stale = f" ({result.freshness} since it was indexed)" if result.freshness in ("changed", "missing") else ""
            echo(click.style(f"    {place}{stale}", dim=True))
        echo(textwrap.fill(plain_text(result.snippet), width(), initial_indent="    ", subsequent_indent="    "))
        if explain:
            echo(_explanation(result))
    if explain:
        echo(click.style(_stages(answer), dim=True), err=True)
    echo(click.style(_summary(answer), dim=True), err=True)
    for warning in answer.trace.warnings:
        echo(click.style(one_line(f"note: {warning}"), fg="yellow"), err=True)


def print_record(record: Record) -> None:
    """A record in full."""
    about = [
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
    for name, value in about:
        if value:
            echo(click.style(plain(f"{name:>10}  {value}"), dim=True))


def print_listing(records: list[Record]) -> None:
    """A line a record."""
    longest = min(32, max((len(record.id) for record in records), default=0))
    for record in records:
        words = " ".join((f"{record.title} — " if record.title else "").split() + record.text.split())
        line = plain_text(textwrap.shorten(words, width() - 24, placeholder=" …"))
        key = click.style(plain(record.id)[:32].ljust(longest), fg="cyan")
        echo(f"{key}  {click.style(_time(record.time)[:10], dim=True)}  {line}")


def where(record: Record) -> str:
    """The record's file and lines, as short as they can be from here."""
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
    ranks = "  ".join(f"{plain(source)} #{share.rank}" for source, share in result.shares.items())
    ranks += "  superseded" if record.superseded_at and record.superseded_at <= now() else ""
    return (
        f"{rank:>2}. {click.style(name, bold=True)}  "
        f"{click.style(_scores(result), fg='green')}  {click.style(ranks, fg='cyan')}"
    )


def _scores(result: Result) -> str:
    sure = "" if result.confidence is None else f" (confidence {result.confidence:.2f})"
    return f"{result.score:.2f}{sure}"


def _explanation(result: Result) -> str:
    lines = [
        f"      {plain(name)}: rank {share.rank}, score {_number(share.score)} → {share.contribution:.6f}"
        for name, share in result.shares.items()
    ]
    factors = "".join(f" × {name} {factor:.4f}" for name, factor in result.factors.items())
    moved = "".join(f", moved by {stage} from {old} to {new}" for stage, (old, new) in result.moves.items())
    most = f"{result.fused:.6f} in all, {result.base:.4f} of the most possible"
    lines.append(f"      {most}{factors} → {result.total:.4f}{moved}")
    return click.style("\n".join(lines), dim=True)


def _stages(answer: Answer) -> str:
    """What each source and each stage was given, left and took."""
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
    count = len(answer.results)
    found = "nothing found" if not count else f"{count} result{'s' if count > 1 else ''}"
    if trace.abstained:
        found = one_line(f"no answer: {trace.abstained}")
    return f"{found} · {trace.mode} · {how} · {trace.took_ms:.0f} ms"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _time(at: datetime | None) -> str:
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M UTC")


FLAGS = {"tags": "--tag"}
"""Options whose flag has another name."""


def print_verdict(verdict: Verdict, tags: Sequence[str] = ()) -> None:
    """What became of the record, each source's rank of it, and what to do."""
    if verdict.record is not None:
        name = textwrap.shorten(verdict.record.title or verdict.record.text, width() - 4, placeholder=" …")
        echo(click.style(plain_text(name), bold=True))
        echo(click.style(f"    {plain(verdict.record.id)}  {where(verdict.record)}".rstrip(), dim=True))
    color = "green" if verdict.stage == "found" else "yellow"
    label = "found" if verdict.stage == "found" else f"lost at: {verdict.stage}"
    echo(f"{click.style(label, fg=color)}")
    echo(textwrap.fill(one_line(verdict.reason), width(), initial_indent="    ", subsequent_indent="    "))
    for source, place in verdict.places.items():
        echo(click.style(f"    {plain(source):<10} {_verdict_place(place)}", dim=True))
    if verdict.change:
        kept = verdict.change.get("tags", ())
        wrong = [f"--tag {shlex.quote(tag)}" for tag in tags if kept and tag not in kept]
        dropped = [flag(name) for name, value in verdict.change.items() if value in (None, ())] + wrong
        added = flags({name: value for name, value in verdict.change.items() if name != "tags"})
        words = [added, f"without {', '.join(dropped)}" if dropped else ""]
        echo(plain(f"brings it back: the same search {' and '.join(word for word in words if word)}"))
    elif verdict.advice:
        echo(f"what to do: {one_line(verdict.advice)}")
    elif verdict.stage != "found":
        echo("no single option of search brings it back")


def flags(change: Mapping[str, Any]) -> str:
    """Options of `search` as they are written on the command line; what is taken away is not written."""
    words: list[str] = []
    for name, value in change.items():
        match value:
            case None | ():
                continue
            case True:
                words.append(flag(name))
            case False:
                words.append(f"--no-{name.replace('_', '-')}")
            case tuple() | list():
                words += [f"{flag(name)} {shlex.quote(str(part))}" for part in value]
            case _:
                words.append(f"{flag(name)} {shlex.quote(str(value))}")
    return " ".join(words)


def flag(name: str) -> str:
    """The flag of an option."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def _verdict_place(place: Place) -> str:
    if place.rank is None:
        return plain(place.note)
    score = "" if place.score is None else f", score {place.score:.4f}"
    return plain(f"rank {place.rank:,} of a list read to {place.fetch_k:,}{score} {place.note}".rstrip())
