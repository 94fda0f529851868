"""The tables of docs/performance.md, made from the figures, and what is said about them."""

from __future__ import annotations

import math
import re
from typing import Any

from benchmarks.speed.contender import FLOOR, OWN
from benchmarks.speed.data import ROOT

FIGURES = ROOT / "benchmarks" / "results" / "speed.json"
PAGE = ROOT / "docs" / "performance.md"
RESULTS = re.compile(r"(<!-- results -->\n).*?(<!-- /results -->)", re.DOTALL)
Figures = dict[str, Any]
MISSING = "–"

SEARCH = {
    "p50 ms": "p50_ms", "p95 ms": "p95_ms", "p99 ms": "p99_ms", "CPU p50 ms": "cpu_ms", "a second, 1 thread": "qps_1",
    "2 threads": "qps_2", "one user, p50 ms": "user_p50_ms", "top 10 shared": "shared",
}  # fmt: skip
STORE = {
    "load, records/s": "load_records_s", "add until visible ms": "visible_ms", "cold start ms": "cold_ms",
    "disk MB": "disk_mb", "memory MB": "rss_mb",
}  # fmt: skip


def tables(figures: Figures) -> str:
    """All sizes."""
    return "\n\n".join(size_tables(int(size), measured) for size, measured in figures["sizes"].items())


def size_tables(size: int, measured: Figures) -> str:
    contenders = measured["contenders"]
    loaded = {name: result for name, result in contenders.items() if "load_s" in result}
    parts = [f"### {size:,} records", table(contenders, SEARCH), table(loaded, STORE)]
    parts += ["\n".join(f"- {line}" for line in [*ratios(contenders), *floor(measured["floor"]), *fewer(contenders)])]
    return "\n\n".join(parts)


def table(contenders: Figures, columns: dict[str, str]) -> str:
    lines = [row("", *columns), row("---", *["--:"] * len(columns))]
    for name, result in contenders.items():
        label = f"**{name}**" if name == OWN else name if result.get("hybrid", True) else f"{name}, vectors only"
        cells = [cell(result, column) for column in columns.values()]
        if "failed" in result and MISSING in cells:
            cells[cells.index(MISSING)] = result["failed"]
        lines.append(row(label, *cells))
    return "\n".join(lines)


def cell(result: Figures, column: str) -> str:
    value = result.get(column)
    if value is None:
        return result.get("add_failed", "not measured") if column == "visible_ms" else MISSING
    if column == "user_p50_ms" and (found := f"{result['user_found']:.1f}") != "10.0":
        return f"{number(value)} ({found} found)"
    return f"{value:.2f}" if column == "shared" else number(value)


def number(value: float) -> str:
    """Three digits."""
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def peers(contenders: Figures) -> Figures:
    """The contenders proper: without Recollect, without the floor, and without those that have no hybrid search."""
    hybrid = {name: result for name, result in contenders.items() if result.get("hybrid", True)}
    return {name: result for name, result in hybrid.items() if name not in (OWN, FLOOR) and "p50_ms" in result}


def ratios(contenders: Figures) -> list[str]:
    own = contenders.get(OWN, {})
    if "p50_ms" not in own:
        return []
    lines = []
    if others := peers(contenders):
        fastest = min(others, key=lambda name: others[name]["p50_ms"])
        ratio = own["p50_ms"] / others[fastest]["p50_ms"]
        lines.append(f"Recollect's p50 is {ratio:.2f} times that of the fastest contender, {fastest}.")
    if "p50_ms" in contenders.get(FLOOR, {}):
        lines.append(f"Its p50 is {own['p50_ms'] / contenders[FLOOR]['p50_ms']:.2f} times that of the bare parts.")
    lines.append(f"Its p95 is {own['p95_ms'] / own['p50_ms']:.2f} times its p50.")
    if "add_ms" in own:
        bare = own["bare_commit_ms"]
        lines.append(
            f"A single add takes {number(own['add_ms'])} ms, a bare SQLite commit of the same bytes between the adds"
            f" {number(bare)} ms: {own['add_ms'] / bare:.2f} times."
        )
    return lines


def floor(values: Figures) -> list[str]:
    memory = f"memory was read at {pair(values, 'read_gb_s')} GB/s and copied at {pair(values, 'copy_gb_s')} GB/s"
    disk = f"a flush (fsync) took {pair(values, 'fsync_ms')} ms"
    rows = f"SQLite stored {pair(values, 'bulk_rows_s')} such rows a second without any index"
    return [f"The machine before and after: {memory}, {disk}, and {rows}."]


def fewer(contenders: Figures) -> list[str]:
    """Who was asked fewer questions, because it answered for too long."""
    counts = {name: result["searches"] for name, result in contenders.items() if "searches" in result}
    most = max(counts.values(), default=0)
    few = ", ".join(f"{name} {count}" for name, count in counts.items() if count < most)
    return [f"Searches behind p50, p95 and p99: {most}; {few}."] if few else []


def pair(values: Figures, name: str) -> str:
    return f"{number(values[name])} and {number(values[name + '_after'])}"


def results(figures: Figures) -> str:
    """What stands between the marks of the page."""
    parts = [about(figures), tables(figures)]
    if len(figures["sizes"]) > 1:
        parts.append(growth(figures))
    return "\n\n".join([*parts, starts(figures), setups(figures)]) + "\n"


def write(figures: Figures) -> None:
    """Write the page's results and its plots."""
    from benchmarks.speed import plots

    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(RESULTS.sub(lambda found: found[1] + results(figures) + found[2], page), encoding="utf-8")
    if len(figures["sizes"]) > 1:
        plots.write(figures, PAGE.parent)


def about(figures: Figures) -> str:
    machine = figures["machine"]
    unmeasured = [f"{size:,}" for size in figures["planned"] if str(size) not in figures["sizes"]]
    cut_off = f" The run was cut off: {' and '.join(unmeasured)} records were not measured." if unmeasured else ""
    return (
        f"Measured on {figures['date']} with `{figures['command']}` in {figures['minutes']:.0f} minutes:"
        f" {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB of memory, {machine['system']},"
        f" Python {machine['python']}; the load of the machine before the run was {machine['load']:.2f}.{cut_off}"
    )


CURVES = {
    "p50_ms": "search, p50 ms",
    "p95_ms": "search, p95 ms",
    "user_p50_ms": "search for one user of 1,000, p50 ms",
    "visible_ms": "add until visible, ms",
    "load_s": "load, s",
    "cold_ms": "cold start, ms",
    "disk_mb": "disk, MB",
    "rss_mb": "memory, MB",
}
"""What is drawn, and its title."""

PLOTS = {"performance-search.svg": tuple(CURVES)[:4], "performance-store.svg": tuple(CURVES)[4:]}


def growth(figures: Figures) -> str:
    """The plots, and a sentence on each curve."""
    parts = ["### Growth", "n^1 means ten times as much for ten times the records, n^0.5 about three times as much."]
    for file, names in PLOTS.items():
        parts += [f"![{'; '.join(CURVES[name] for name in names)}; over the number of records]({file})"]
        parts += ["\n".join(f"- {sentence(figures, name)}" for name in names)]
    return "\n\n".join(parts)


def sentence(figures: Figures, column: str) -> str:
    """How one curve of each contender grows between the smallest and the largest size at which it ran."""
    grown = {name: exponent(line) for name, line in lines(figures, column).items() if len(line) > 1}
    others = ", ".join(f"{name} n^{power:.2f}" for name, power in grown.items() if name != OWN)
    own = f"Recollect grows {in_words(grown[OWN])} (n^{grown[OWN]:.2f}); " if OWN in grown else ""
    others = others or "no contender has it at two sizes"
    return f"**{CURVES[column].rpartition(' ')[0].rstrip(',').capitalize()}**: {own}{others}."


def in_words(power: float) -> str:
    if power < 0.15:
        return "hardly"
    if power < 0.85:
        return "more slowly than the number of records"
    return "with the number of records" if power < 1.15 else "faster than the number of records"


def lines(figures: Figures, column: str) -> dict[str, list[tuple[int, float]]]:
    """Each contender's values by size."""
    found: dict[str, list[tuple[int, float]]] = {}
    for size, measured in figures["sizes"].items():
        for name, result in measured["contenders"].items():
            if column in result:
                found.setdefault(name, []).append((int(size), result[column]))
    return found


def exponent(line: list[tuple[int, float]]) -> float:
    (first, low), (last, high) = line[0], line[-1]
    return math.log(high / low) / math.log(last / first)


def starts(figures: Figures) -> str:
    heading = "### Starting the command\n\nNew processes on a store of one record."
    body = [row("command", "best ms", "median ms"), row("---", "--:", "--:")]
    body += [row(f"`{name}`", f"{best:.0f}", f"{middle:.0f}") for name, (best, middle) in figures["starts"].items()]
    parts = [heading, "\n".join(body)]
    if spent := figures.get("embedding_ms"):
        took = f"Embedding a question with the model took {spent['wall']} ms ({spent['cpu']} ms of CPU time)"
        parts.append(f"{took}, the median of all questions. Only the command with the model contains it.")
    return "\n\n".join(parts)


def setups(figures: Figures) -> str:
    """How each contender was set up, with the versions of the run."""
    versions: dict[str, dict[str, str]] = {}
    for measured in figures["sizes"].values():
        for name, result in measured["contenders"].items():
            versions.setdefault(name, {}).update(result.get("versions", {}))
    body = []
    for name, note in figures["notes"].items():
        packages = ", ".join(f"{package} {version}" for package, version in versions[name].items())
        body.append(f"- **{name}** ({packages or 'not installed'}): {note}.")
    return "### The contenders\n\n" + "\n".join(body)
