"""What the torture tests did, as a table: `make torture` collects it, `python tests/support/tally.py FILE` writes it.

A test of the programme calls the fixture `tally` once, when its checks have passed. `make torture` names the file in
TORTURE_REPORT; without it nothing is written. The table goes into docs/guarantees.md, between its marks.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
BEGIN, END = "<!-- torture:begin -->", "<!-- torture:end -->"


def note(row: str, **figures: Any) -> None:
    """Append what a test did, as one line of JSON, to the file that TORTURE_REPORT names."""
    if place := os.environ.get("TORTURE_REPORT"):
        line = json.dumps({"row": row, **figures}, ensure_ascii=False)
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def table(lines: list[dict[str, Any]]) -> str:
    """One row for each test, in the order of their names."""
    rows = ["| test | what was done |", "|---|---|"]
    for line in sorted(lines, key=lambda line: line["row"]):
        done = {name: value for name, value in line.items() if name != "row"}
        figures = ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in done.items())
        rows.append(f"| {line['row']} | {figures} |")
    return "\n".join(rows)


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Write the table of the file that is named on the command line."""
    lines = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
    page = PAGE.read_text(encoding="utf-8")
    written = re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{table(lines)}\n{END}", page, flags=re.DOTALL)
    PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
