"""The page docs/performance.md, made from the figures: tables, plots, and a sentence on each curve."""

from __future__ import annotations

from typing import Any

from benchmarks.speed.contender import FLOOR, OWN
from benchmarks.speed.data import ROOT

FIGURES = ROOT / "benchmarks" / "results" / "speed.json"
PAGE = ROOT / "docs" / "performance.md"
Figures = dict[str, Any]

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
    ran = {name: result for name, result in contenders.items() if "failed" not in result}
    parts = [f"### {size:,} records", table(ran, SEARCH), table(ran, STORE)]
    parts += ["\n".join(f"- {line}" for line in [*ratios(ran), *floor(measured["floor"]), *failures(contenders)])]
    return "\n\n".join(parts)


def table(contenders: Figures, columns: dict[str, str]) -> str:
    lines = [row("", *columns), row("---", *["--:"] * len(columns))]
    for name, result in contenders.items():
        label = f"**{name}**" if name == OWN else name
        lines.append(row(label, *(cell(result, column) for column in columns.values())))
    return "\n".join(lines)


def cell(result: Figures, column: str) -> str:
    value = result.get(column)
    if value is None:
        return {"visible_ms": result.get("no_add", "–"), "qps_2": result.get("no_threads", "–")}.get(column, "–")
    if column == "user_p50_ms" and result["user_found"] < 9.5:
        return f"{number(value)} ({result['user_found']:.1f} found)"
    return f"{value:.2f}" if column == "shared" else number(value)


def number(value: float) -> str:
    """Three digits."""
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def peers(contenders: Figures) -> Figures:
    """The contenders proper: without Recollect and without the floor."""
    return {name: result for name, result in contenders.items() if name not in (OWN, FLOOR) and "p50_ms" in result}


def ratios(contenders: Figures) -> list[str]:
    own = contenders.get(OWN)
    if not own:
        return []
    lines = []
    if others := peers(contenders):
        fastest = min(others, key=lambda name: others[name]["p50_ms"])
        ratio = own["p50_ms"] / others[fastest]["p50_ms"]
        lines.append(f"Recollect's p50 is {ratio:.2f} times that of the fastest contender, {fastest}.")
    if FLOOR in contenders:
        lines.append(f"It is {own['p50_ms'] / contenders[FLOOR]['p50_ms']:.2f} times that of the bare parts.")
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


def pair(values: Figures, name: str) -> str:
    return f"{number(values[name])} and {number(values[name + '_after'])}"


def failures(contenders: Figures) -> list[str]:
    return [f"{name} did not finish: {result['failed']}" for name, result in contenders.items() if "failed" in result]


def write(figures: Figures) -> None:
    """Write the page."""
    raise NotImplementedError
