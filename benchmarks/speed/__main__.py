"""`make bench-quick` (10,000 records), `make bench` (10,000, 100,000 and 1,000,000, writes the page)."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.speed import data, report, starts
from benchmarks.speed.contender import CONTENDERS, contender
from benchmarks.speed.floor import machine
from benchmarks.speed.run import Run

SIZES = (10_000, 100_000, 1_000_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, action="append", help="records; may be repeated (default: all three)")
    parser.add_argument("--only", default="", help="contenders, by the beginning of their names: recollect,bare,lance")
    parser.add_argument("--questions", type=int, default=data.QUESTIONS, help="how many of the 60 questions")
    parser.add_argument("--rounds", type=int, default=3, help="how often every question is asked")
    parser.add_argument("--patience", type=float, default=1.0, help="multiplies every limit of time, on a busy machine")
    parser.add_argument("--minutes", type=float, default=44, help="loading ends after so many minutes")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--write", action="store_true", help="write the figures and docs/performance.md")
    parser.add_argument("--render", action="store_true", help="measure nothing: write docs/performance.md anew")
    options = parser.parse_args()
    if options.render:
        report.write(json.loads(report.FIGURES.read_text(encoding="utf-8")))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # the processes and files of the run go
    print(report.results(measure(options)))


def save(figures: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the figures so far."""
    text = json.dumps(figures, indent=1, ensure_ascii=False) + "\n"
    if options.json:
        options.json.write_text(text, encoding="utf-8")
    if options.write:
        report.FIGURES.parent.mkdir(exist_ok=True)
        report.FIGURES.write_text(text, encoding="utf-8")
        report.write(figures)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of all sizes, saved after each."""
    names = chosen(options.only)
    for size in options.size or SIZES:
        data.prepare(size)
    start = time.monotonic()
    figures: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.speed", *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "notes": {name: contender(name).note for name in names},
        "starts": starts.measure(),
        "embedding_ms": starts.embedding(),
        "planned": sorted(options.size or SIZES),
        "sizes": {},
    }
    smaller: dict[str, dict[str, Any]] = {}
    for size in figures["planned"]:
        measured = Run(names, size, smaller, options, start + 60 * options.minutes).measure()
        smaller = {name: {**result, "size": size} for name, result in measured["contenders"].items()}
        figures["sizes"][str(size)] = measured
        figures["minutes"] = round((time.monotonic() - start) / 60, 1)
        save(figures, options)
    return figures


def chosen(only: str) -> list[str]:
    if not only:
        return list(CONTENDERS)
    starts = tuple(part.strip().lower() for part in only.split(","))
    names = [name for name in CONTENDERS if name.lower().startswith(starts)]
    return names or sys.exit(f"no contender is called so; there are {', '.join(CONTENDERS)}")


if __name__ == "__main__":
    main()
