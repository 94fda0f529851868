"""Reports as one page that needs nothing else: no script, no font, no picture, no address that it asks for anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from recollect import __version__
from recollect.errors import UsageError
from recollect.evaluation.drawing import ROLES, drawing, inline, write
from recollect.evaluation.results import about, kind, label, part
from recollect.evaluation.sections import Section, Table, sections

MEANINGS = {
    "nDCG": "how high the relevant documents stand among the first results; 1 is the best possible order",
    "R": "the part of the relevant documents that is among the first results",
    "Recall": "the part of the relevant documents that is among the first results",
    "P": "the part of the first results that is relevant",
    "RR": "one over the place of the first relevant document",
    "AP": "precision at each relevant document, averaged",
    "Success": "whether a relevant document is among the first results at all",
}
"""Measure, without its depth → what it says."""

WIDE = 3
"""Columns of a table in which an interval stands beside its mean; in a wider one it stands below."""

INTERVAL = "the range in which 95 of 100 means over other questions like these would lie (percentile bootstrap)"
CHANCE = "how often two equally good systems would differ as much by chance (paired randomisation test)"
MARK = "changes as soon as a document, a question or a judgment does: only equal ones can be compared"


def compose(reports: Sequence[Mapping[str, Any]]) -> dict[str, Section]:
    """The sections of all reports, each under a name of its own that is also its file's."""
    found = [section for report in reports for section in sections(report)]
    if not found:
        raise UsageError("these reports hold nothing that can be drawn", hint="make them again with --json")
    often, seen = Counter(section.slug for section in found), Counter[str]()
    named = {}
    for section in found:
        seen[section.slug] += 1
        named[f"{section.slug}-{seen[section.slug]}" if often[section.slug] > 1 else section.slug] = section
    return named


def write_pngs(named: Mapping[str, Section], folder: Path) -> list[Path]:
    """Each plot as a file of its own in that folder, with what it was made of below it."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{key}.png" for key in named]
    with drawing():
        for path, section in zip(paths, named.values(), strict=True):
            write(section.draw(), path, section.source)
    return paths


def render(reports: Sequence[Mapping[str, Any]], named: Mapping[str, Section] | None = None) -> str:
    """The whole page. The same reports make the same page, to the letter."""
    named = compose(reports) if named is None else named
    sets = dict.fromkeys(label(part(report, "data").get("name") or "data without a name") for report in reports)
    title = f"How well search finds: {', '.join(sets)}"
    with drawing():
        parts = [_section(key, section) for key, section in named.items()]
    body = "\n".join([_head(title, reports), _findings(named), *parts, _words(reports), _foot(reports)])
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), version=__version__, palette=_palette(), body=body)


def _palette() -> str:
    return "\n  ".join(f"--{role}: light-dark({light}, {dark});" for role, (light, dark) in ROLES.items())


def _head(title: str, reports: Iterable[Mapping[str, Any]]) -> str:
    fullest: dict[tuple[str, str], str] = {}
    for report in reports:
        data = part(report, "data")
        key = (str(data.get("name")), str(data.get("fingerprint")))
        fullest[key] = max(fullest.get(key, ""), about(report), key=len)
    sources = "".join(f"<p>{escape(source)}</p>" for source in fullest.values())
    return f'<div class="about"><h1>{escape(title)}</h1>{sources}</div>'


def _findings(named: Mapping[str, Section]) -> str:
    rows = (f'<li><a href="#{key}">{escape(section.lead)}</a></li>' for key, section in named.items())
    return f'<section class="plain"><h2>What it says</h2><ul class="findings">{"".join(rows)}</ul></section>'


def _section(key: str, section: Section) -> str:
    more = "".join(f'<p class="more">{escape(words)}</p>' for words in section.more)
    drawn = inline(section.draw(), f"plot-{key}", section.title, section.shows)
    figure = f"<figure>{drawn}<figcaption>{escape(section.source)}</figcaption></figure>"
    tables = "".join(_table(table, f"{table.caption}, {key}") for table in section.tables)
    lead = f'<h2>{escape(section.title)}</h2><p class="lead">{escape(section.lead)}</p>'
    return f'<section id="{key}">{lead}{more}{figure}{tables}</section>'


def _table(table: Table, name: str) -> str:
    head = "".join(f'<th scope="col"{_kind(at, table)}>{escape(name)}</th>' for at, name in enumerate(table.head))
    rows = "".join(f"<tr>{''.join(_cell(at, cell, table) for at, cell in enumerate(row))}</tr>" for row in table.rows)
    inside = f"<caption>{escape(table.caption)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    dense = ' class="dense"' if len(table.head) > WIDE else ""
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
    return f"{region}<table{dense}>{inside}</table></div>"


def _cell(at: int, cell: str, table: Table) -> str:
    """The first cell heads its row; an interval steps back behind its mean."""
    if at in table.words:
        name = 'th scope="row"' if at == 0 else "td"
        return f"<{name}{_kind(at, table)}>{escape(cell)}</{name[:2]}>"
    mean, opened, interval = escape(cell).partition(" [")
    return f'<td>{mean} <span class="i">[{interval}</span></td>' if opened else f"<td>{mean}</td>"


def _kind(at: int, table: Table) -> str:
    return ' class="w"' if at in table.words else ""


def _words(reports: Sequence[Mapping[str, Any]]) -> str:
    """What the words mean, and with which settings the numbers were made."""
    rows = [*_meanings(reports), ("interval", INTERVAL), ("p", CHANCE), ("fingerprint", MARK)]
    said = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in rows)
    warned = [str(words) for report in reports for words in report.get("warnings") or () if isinstance(words, str)]
    notes = "".join(f'<p class="warning">{escape(label(words, 400))}</p>' for words in dict.fromkeys(warned))
    settings = _settings(reports)
    return f'<section class="plain"><h2>Words and settings</h2>{notes}<dl>{said}{settings}</dl></section>'


def _meanings(reports: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    names = [str(report.get("measure")) for report in reports if report.get("measure")]
    for report in reports:
        names += [str(name) for system in part(report, "systems").values() for name in part(system, "measures")]
    known = ((label(name), MEANINGS.get(name.partition("@")[0].partition("(")[0])) for name in dict.fromkeys(names))
    return [(name, meaning) for name, meaning in known if meaning]


def _settings(reports: Iterable[Mapping[str, Any]]) -> str:
    told = [pair for report in reports for pair in part(report, "settings").items()]
    rows = {(label(name), _plain(value)) for name, value in told if value not in (None, "", [], {})}
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in sorted(rows))


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return label(", ".join(f"{key} {inner}" for key, inner in value.items()), 600)
    return label(value, 200)


def _foot(reports: Sequence[Mapping[str, Any]]) -> str:
    kinds = ", ".join(
        dict.fromkeys({"systems": "run", "rows": "sweep", "pairs": "overlap"}[kind(one)] for one in reports)
    )
    return f'<p class="foot">Written by recollect {__version__} from: {kinds}. This page asks no one for anything.</p>'
