"""How results look on a terminal: quiet, one record a paragraph, the ranks that each source gave beside it."""

from __future__ import annotations

import os
import shutil
import textwrap
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from recollect.cli.plain import echo, one_line, plain, plain_text, to_json
from recollect.fusion import METHODS
from recollect.types import Answer, Record, Result, now

WIDTH = 100
"""Columns at the most; a narrower terminal has fewer."""


def width() -> int:
    """How wide a line may be here."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    echo(to_json(value, indent=2))


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


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Columns as wide as they need to be; a cell is one line."""
    rows = [tuple(map(plain, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


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


def as_text(value: Any) -> str:
    """A value as a person reads it."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case tuple() | list():
            return ", ".join(map(str, value))
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}"
        case _:
            return str(value)
