"""Reports of evaluation results: sections of words, plots and tables, and an HTML page of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from string import Template
from typing import TYPE_CHECKING

from recollect import __version__
from recollect.errors import UsageError
from recollect.evaluation import plots, results
from recollect.evaluation.overlap import percent
from recollect.evaluation.results import KINDS, Json, MeasuredSystem, SystemPair, interval_text, label, ms, number, part
from recollect.types.search import GRADES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = 6  # comparisons that are drawn; the table has all
EXTREMES, ID_LENGTH = 5, 120  # questions that are named at either end of a comparison, and characters of their ids
MEANINGS = {  # term, or measure without its cutoff → its meaning
    "nDCG": "how high the relevant documents stand among the first results; 1 is the best possible order",
    "R": "the share of the relevant documents that is among the first results",
    "Recall": "the share of the relevant documents that is among the first results",
    "P": "the share of the first results that is relevant",
    "RR": "1 divided by the rank of the first relevant document",
    "AP": "precision at each relevant document, averaged",
    "Success": "whether a relevant document is among the first results at all",
    "interval": "the range that holds 95 of 100 means over other questions like these (percentile bootstrap)",
    "p": "how often two equally good systems would differ this much by chance (paired randomisation test)",
    "fingerprint": "changes with the documents, questions and judgments; compare only reports with equal ones",
}

WIDE = 3  # columns up to which an interval is beside its mean; in a wider table it is below it


@dataclass(frozen=True, slots=True)
class FigureTable:
    """A table of figures; the columns in `words` hold text."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = (0,)


@dataclass(frozen=True, slots=True)
class ReportPart:
    """One finding in words (`lead`, repeated at the head of the page, and `more`), as a plot and as tables.

    `legend` explains how the plot is drawn; `shows` says in words what it shows.
    """

    slug: str
    title: str
    lead: str
    more: Sequence[str]
    legend: Sequence[str]
    draw: Callable[[], Figure]
    shows: str
    source: str
    tables: Sequence[FigureTable]


def compose(reports: Sequence[Json]) -> dict[str, ReportPart]:
    """Make the sections of all reports, each under a unique name."""
    try:
        sections = [section for report in reports for section in _sections(report)]
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        message = f"a report has a part that cannot be read: {error!r}"
        raise UsageError(message, hint="make it again with --json") from error
    if not sections:
        raise UsageError("these reports hold nothing that can be drawn", hint="make them again with --json")
    total, count = Counter(section.slug for section in sections), Counter[str]()
    by_name = {}
    for section in sections:
        count[section.slug] += 1
        by_name[f"{section.slug}-{count[section.slug]}" if total[section.slug] > 1 else section.slug] = section
    return by_name


def _sections(report: Json) -> Iterator[ReportPart]:
    source = results.about(report)
    match results.kind(report):
        case "systems":
            systems, pairs = results.systems(report), results.system_pairs(report)
            if any(system.measures for system in systems):
                yield _systems(systems, pairs, source)
            drawn = [pair for pair in pairs if pair.measure == pairs[0].measure]
            yield from (_gains(pair, source) for pair in drawn[:DRAWN])
            if timed := [system for system in systems if system.p50 is not None]:
                yield _latency(systems, timed, source)
        case "rows":
            yield from _sweep(report, source)
        case "pairs":
            yield from _overlap(report, source)


def _systems(systems: Sequence[MeasuredSystem], pairs: Sequence[SystemPair], source: str) -> ReportPart:
    names = results.measures_of(systems)
    best = max((one for one in systems if names[0] in one.measures), key=lambda one: one.measures[names[0]].mean)
    rows = [(label(one.name), *(interval_text(one.measures.get(name)) for name in names)) for one in systems]
    tables = [FigureTable("Means and their intervals", ("system", *map(label, names)), rows)]
    legend = ["A dot is the mean over all questions, the line its 95 % interval."]
    if len(names) > plots.MEASURES:
        legend.append(f"The first {plots.MEASURES} measures are drawn; the table has all {len(names)}.")
    legend.append("The axes show the range of the intervals; they do not begin at zero.")
    if pairs:
        head = ("systems", "measure", "difference", "p", "won", "lost", "equal")
        rows = [
            (f"{label(pair.a)} − {label(pair.b)}", label(pair.measure), *_figures(pair),
             *(f"{count:,}" for count in (pair.comparison.wins, pair.comparison.losses, pair.comparison.ties)))
            for pair in pairs
        ]  # fmt: skip
        tables.append(FigureTable("Differences on the same questions", head, rows, (0, 1)))
    chance = f"One in twenty comparisons of equals would look significant by chance; here are {len(pairs)}."
    more = [*([chance] if len(pairs) > 1 else []), *_confidence(systems)]
    which = f"the highest {label(names[0])}" if len(systems) > 1 else label(names[0])
    lead = f"{label(best.name)} has {which}: {interval_text(best.measures[names[0]])}."
    shows = "; ".join(f"{label(one.name)} {interval_text(one.measures.get(names[0]))}" for one in systems)
    draw = partial(plots.systems_figure, systems)
    return ReportPart("systems", "How well each system finds", lead, more, legend, draw, shows, source, tables)


def _confidence(systems: Sequence[MeasuredSystem]) -> Iterator[str]:
    """How well the confidence of the default system, else of the first that has one, agrees with the judgments."""
    known = {one.name: one.confidence for one in systems if number(one.confidence.get("calibration_error")) is not None}
    name = "default" if "default" in known else next(iter(known), None)
    if name is None:
        return
    figures = known[name]
    parts = [f"Confidence of {label(name)}: calibration error {number(figures['calibration_error']):.3f}"]
    if (share := number(figures.get("kept"))) is not None:
        parts.append(
            f"a threshold of {number(figures['threshold']):g} keeps {percent(share)} of the right first results"
        )
    yield f"{'; '.join(parts)}; {percent(number(figures['unanswered']))} of the questions get no result above it."


def _figures(pair: SystemPair) -> tuple[str, str]:
    p = pair.comparison.p
    return interval_text(pair.comparison.difference, "+"), f"p = {p:.4f}" if p >= 0.0001 else "p < 0.0001"  # noqa: PLR2004


def _gains(pair: SystemPair, source: str) -> ReportPart:
    comparison, a, b = pair.comparison, label(pair.a), label(pair.b)
    figures = f"{label(pair.measure)} {', '.join(_figures(pair))}"
    if not comparison.significant:
        lead = f"{a} and {b}: no significant difference ({figures})."
    else:
        lead = f"{a} is significantly {'better' if comparison.difference.mean > 0 else 'worse'} than {b} ({figures})."
    won, lost, equal = comparison.wins, comparison.losses, comparison.ties
    counts = f"{a} is better on {won:,} questions, {b} on {lost:,}, and {equal:,} are equal."
    legend = [counts, "Each step is one question; the dashed line is the mean difference, the grey band its interval."]
    gains = [(label(key, ID_LENGTH), gain) for key, gain in pair.gains.items()]
    wins = [(key, results.signed(gain)) for key, gain in gains[:EXTREMES] if gain > 0]
    losses = [(key, results.signed(-gain)) for key, gain in gains[: -EXTREMES - 1 : -1] if gain < 0]
    rows = [(*win, *loss) for win, loss in zip_longest(wins, losses, fillvalue=("", ""))]
    head = (f"{a} is better", "by", f"{b} is better", "by")
    table = FigureTable("The questions that differ most", head, rows, (0, 2))
    draw = partial(plots.gains_figure, pair)
    return ReportPart("wins", f"{a} against {b}, question by question", lead, [], legend, draw, counts, source, [table])


def _latency(systems: Sequence[MeasuredSystem], timed: Sequence[MeasuredSystem], source: str) -> ReportPart:
    most = {one.name: one.p95 or one.p50 or 0.0 for one in timed}
    grades = {name: next((word for limit, word in GRADES if took < limit), "bad") for name, took in most.items()}
    slowest = max(timed, key=lambda one: most[one.name])
    many = "half of the questions" if slowest.p95 is None else "95 of 100 questions"
    took = f"{ms(most[slowest.name])} ({grades[slowest.name]})"
    lead = f"The slowest, {label(slowest.name)}, answers {many} within {took}."
    limits = ", ".join(f"{word} below {ms(limit)}" for limit, word in GRADES)
    legend = [f"Grades: {limits}, bad above. The time axis is logarithmic; each bar begins at zero."]
    head = ("system", "searches", "half within", "95 % within", "slowest", "grade at 95 %")
    rows = [
        (label(one.name), f"{one.timed:,}" if one.timed else "–", ms(one.p50), ms(one.p95),
         ms(max(one.took_ms, default=None)), grades[one.name])
        for one in timed
    ]  # fmt: skip
    shows = "; ".join(f"{label(one.name)}: half within {ms(one.p50)}, 95 % within {ms(one.p95)}" for one in timed)
    table = FigureTable("Milliseconds of a search", head, rows)
    draw = partial(plots.latency_figure, systems)
    return ReportPart("latency", "How long a search takes", lead, [], legend, draw, shows, source, [table])


def _sweep(report: Json, source: str) -> Iterator[ReportPart]:
    chart = results.sweep_chart(report)
    if chart is None:
        return
    best = max(chart.curves, key=lambda one: one.best[1].mean)
    measure, axis, (place, mean) = label(chart.measure), label(chart.axis), best.best
    lead = f"The best setting tried is {label(best.name)} at {axis} {place:g}: {measure} {interval_text(mean)}."
    more = []
    if chart.knee is not None:
        more.append(f"The knee is at {axis} {chart.knee:g}: no deeper setting is significantly better.")
    legend = [
        "Bands and upright lines are 95 % intervals.",
        "All curves use the same questions, so they can differ significantly although their intervals overlap.",
    ]
    if chart.others:
        legend.append(f"The thin lines are the other {len(chart.others):,} settings; the best of each method is named.")
    prefix = part(report, "prefix")
    if checked := number(prefix.get("checked")):
        verdict = "began the longer one in all" if prefix.get("held") else "did NOT begin the longer one in some of"
        more.append(f"A shorter answer {verdict} {checked:,.0f} pairs of live searches.")
    names, points = [label(one.name) for one in chart.curves], [dict(reversed(one.points)) for one in chart.curves]
    spots = sorted({spot for curve in points for spot in curve})
    rows = [(f"{spot:g}", *(interval_text(curve.get(spot)) for curve in points)) for spot in spots]
    tables = [FigureTable(f"{measure} by {axis}", (axis, *names), rows), *_churn(report, axis)]
    ends = ((one.points[0][1], one.points[-1][1]) for one in chart.curves)
    texts = (f"{interval_text(first)} to {interval_text(last)}" for first, last in ends)
    shows = "; ".join(f"{name}: {text}" for name, text in zip(names, texts, strict=True))
    draw = partial(plots.sweep_figure, chart)
    yield ReportPart("sweep", f"What {axis} and fusion change", lead, more, legend, draw, shows, source, tables)


def _churn(report: Json, axis: str) -> Iterator[FigureTable]:
    steps: dict[tuple[float, float], list[float]] = {}
    for row in report.get("churn", ()):
        a, b = row["from"].get(axis), row["to"].get(axis)
        if None not in (a, b) and a != b:
            steps.setdefault((a, b), []).append(number(row["share"]))
    if steps:
        rows = [(f"{a:g} → {b:g}", percent(fmean(shares))) for (a, b), shares in steps.items()]
        yield FigureTable("How much of the top ten a step changes", (axis, "changed"), rows)


def _overlap(report: Json, source: str) -> Iterator[ReportPart]:
    if not (pairs := results.source_pairs(report)):
        return
    first, names, legend = pairs[0], [(label(pair.a), label(pair.b)) for pair in pairs], list[str]()
    whole = "the relevant documents" if first.neither is not None else "what either finds"
    lead = f"Of {whole}, {names[0][0]} and {names[0][1]} both find {percent(first.both)}"
    more = [
        f"{a} and {b}: {label(words, 400).rstrip('.')}."
        for (a, b), pair in zip(names, pairs, strict=True)
        for words in pair.advice
    ]
    if first.neither is not None:
        lead += f"; together they reach {percent(first.union)}, the better one alone {percent(first.best)}"
        legend = ["The line is the union, and no fusion can find more; the dashes are the better source alone."]
    head = ("sources", "both", "only the first", "only the second", "neither", "together", "best alone", "of")
    rows = [
        (f"{label(pair.a)} · {label(pair.b)}", percent(pair.both), percent(pair.only_a), percent(pair.only_b),
         "–" if pair.neither is None else percent(pair.neither), percent(pair.union), percent(pair.best),
         f"{pair.total:,.4g}")
        for pair in (*results.source_pairs({"pairs": report.get("corpora")}), *pairs)
    ]  # fmt: skip
    shows = "; ".join(f"{row[0]}: both {row[1]}, only the first {row[2]}, only the second {row[3]}" for row in rows)
    draw = partial(plots.overlap_figure, pairs)
    table = FigureTable("Shares", head, rows)
    yield ReportPart("overlap", "What the sources find", f"{lead}.", more, legend, draw, shows, source, [table])


def write_pngs(sections: Mapping[str, ReportPart], folder: Path) -> list[Path]:
    """Write each plot as a PNG, with a note of its data below it."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{key}.png" for key in sections]
    with plots.drawing():
        for path, section in zip(paths, sections.values(), strict=True):
            plots.write(section.draw(), path, section.source)
    return paths


def render(reports: Sequence[Json], sections: Mapping[str, ReportPart] | None = None) -> str:
    """Render the HTML page. The same reports give the same bytes."""
    sections = compose(reports) if sections is None else sections
    title = f"How well search finds: {', '.join(dict.fromkeys(map(results.set_name, reports)))}"
    with plots.drawing():
        parts = [_section_html(key, section) for key, section in sections.items()]
    kinds = ", ".join(dict.fromkeys(KINDS[results.kind(one)][0] for one in reports))
    foot = f"Written by recollect {__version__} from: {kinds}. This page loads nothing from anywhere."
    leads = _elements("li", (_element("a", one.lead, href=f"#{key}") for key, one in sections.items()))
    findings = f'<section class="plain"><h2>Findings</h2><ul class="findings">{leads}</ul></section>'
    longest: dict[tuple[str, str], str] = {}  # of each set, the most complete description
    for report in reports:
        data = part(report, "data")
        key = (str(data.get("name")), str(data.get("fingerprint")))
        longest[key] = max(longest.get(key, ""), results.about(report), key=len)
    sources = _elements("p", map(escape, longest.values()))
    head = f'<div class="about">{_element("h1", title)}{sources}</div>'
    body = [head, findings, *parts, _terms(reports), _element("p", foot, class_="foot")]
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    palette = "\n  ".join(f"--{role}: light-dark({light}, {dark});" for role, (light, dark) in plots.ROLES.items())
    return template.substitute(title=escape(title), version=__version__, palette=palette, body="\n".join(body))


def _element(tag: str, text: str, **attributes: str) -> str:
    words = "".join(f' {name.rstrip("_")}="{escape(value)}"' for name, value in attributes.items())
    return f"<{tag}{words}>{escape(text)}</{tag}>"


def _elements(tag: str, contents: Iterable[str]) -> str:
    return "".join(f"<{tag}>{content}</{tag}>" for content in contents)


def _section_html(key: str, section: ReportPart) -> str:
    lead = _element("h2", section.title) + _element("p", section.lead, class_="lead")
    more = "".join(_element("p", words, class_="more") for words in (*section.more, *section.legend))
    svg = plots.inline(section.draw(), f"plot-{key}", section.title, section.shows)
    figure = f"<figure>{svg}{_element('figcaption', section.source)}</figure>"
    tables = "".join(_table_html(table, f"{table.caption}, {key}") for table in section.tables)
    return f'<section id="{key}">{lead}{more}{figure}{tables}</section>'


def _table_html(table: FigureTable, name: str) -> str:
    def cell(column: int, text: str, scope: str = "") -> str:
        kind = {"class_": "w"} if column in table.words else {}
        if scope or (column == 0 and kind):
            return _element("th", text, scope=scope or "row", **kind)
        mean, bracket, interval = text.partition(" [")
        if kind or not bracket:
            return _element("td", text, **kind)
        return f'<td>{escape(mean)} <span class="i">[{escape(interval)}</span></td>'

    head = "".join(cell(column, text, "col") for column, text in enumerate(table.head))
    rows = _elements("tr", ("".join(cell(column, text) for column, text in enumerate(row)) for row in table.rows))
    inside = f"{_element('caption', table.caption)}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    dense = ' class="dense"' if len(table.head) > WIDE else ""
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
    return f"{region}<table{dense}>{inside}</table></div>"


def _terms(reports: Sequence[Json]) -> str:
    measures = [str(report.get("measure")) for report in reports if report.get("measure")]
    for report in reports:
        measures += [str(name) for system in part(report, "systems").values() for name in part(system, "measures")]
    known = ((label(name), MEANINGS.get(name.partition("@")[0].partition("(")[0])) for name in dict.fromkeys(measures))
    rows = [(name, meaning) for name, meaning in known if meaning]
    rows += [(name, MEANINGS[name]) for name in ("interval", "p", "fingerprint")]
    settings = [pair for report in reports for pair in part(report, "settings").items()]
    texts = [
        (label(name), ", ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, Mapping) else value)
        for name, value in settings
        if value not in (None, "", [], {})
    ]
    rows += sorted({(name, label(text, 600)) for name, text in texts})
    listed = "".join(_element("dt", name) + _element("dd", text) for name, text in rows)
    warnings = [str(words) for report in reports for words in report.get("warnings") or () if isinstance(words, str)]
    notes = "".join(_element("p", label(words, 400), class_="warning") for words in dict.fromkeys(warnings))
    return f'<section class="plain"><h2>Terms and settings</h2>{notes}<dl>{listed}</dl></section>'
