"""Documents by real writers, indexed: `python -m benchmarks.documents [FOLDER] [--write]`.

Reads the folder that `python -m benchmarks.written FOLDER` makes (20 documents of each kind, and hostile ones), or
makes it. Each kind is indexed into a store of its own, as `recollect index` does. `recovered` is the share of the
words of the source that the stored chunks hold, `foreign` the share of their words that the source does not hold.
"""

from __future__ import annotations

import argparse
import re
import resource
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.readers import source_of, words
from benchmarks.written import make
from recollect import Memory
from recollect.cli.terminal import counted
from recollect.config import Settings

KINDS = ("pdf", "docx", "pptx", "html", "epub", "ipynb", "eml", "mbox")
PAGE = Path(__file__).parents[1] / "docs" / "documents.md"


def source(path: Path) -> Counter[str]:
    """The words that a document was made of. Those of a mailbox are its own, without the names of headers."""
    if path.suffix == ".mbox" and path.name.startswith("patches"):
        return words(path.read_text(encoding="utf-8", errors="replace"))
    if path.suffix == ".mbox":
        first = int(path.name[4:6])
        pages = [path.parents[2] / "source" / f"page{number + 1:02}.txt" for number in range(first, first + 3)]
        return Counter(word for page in pages for word in words(page.read_text(encoding="utf-8")).elements())
    return words(source_of(path))


def scores(path: Path, text: str) -> tuple[float, float]:
    wanted, got = source(path), words(text)
    common = (wanted & got).total()
    return common / max(wanted.total(), 1), 1 - common / max(got.total(), 1)


def cpu() -> float:
    """The processor time of this process and of the readers that have ended."""
    times = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in times)


def measure(folder: Path, kind: str) -> str:
    """The row of a kind."""
    files = sorted((folder / "documents" / kind).iterdir())
    with (
        tempfile.TemporaryDirectory() as place,
        Memory.open(Path(place) / "m.db", embedder="none", settings=Settings()) as memory,
    ):
        wall, used = time.perf_counter(), cpu()
        report = memory.index(folder / "documents" / kind)
        wall, used = time.perf_counter() - wall, cpu() - used
        rows, chunks, places = [], 0, Counter[str]()
        for path in files:
            found = memory.store.files.chunks(str(path))
            chunks += len(found)
            places.update((record.place or "").partition(" ")[0] for record in found)
            text = "\n".join([found[0].title.partition(" › ")[0], *(record.text for record in found)]) if found else ""
            rows.append(scores(path, text))
    recovered, foreign = (sum(column) / len(rows) for column in zip(*rows, strict=True))
    least = min(row[0] for row in rows)
    skipped = ", ".join(sorted(set(report.skipped.values()))) or "none"
    return (
        f"| {kind} | {len(report.added)} of {len(files)} | {recovered:.3f} | {least:.3f} | {foreign:.3f} | {chunks:,}"
        f" | {_places(places)} | {used:.1f} | {wall:.1f} | {skipped} |"
    )


def _places(places: Counter[str]) -> str:
    """`94 % page`: how many of the chunks are on one page; the others are on several."""
    unit = min(places)
    return "–" if unit.startswith("line") else f"{places[unit.rstrip('s')] / places.total():.0%} {unit.rstrip('s')}"


def attack(folder: Path) -> list[str]:
    """A row for each hostile file: how long it took, and what became of it."""
    rows = []
    for path in sorted((folder / "hostile").iterdir()):
        with (
            tempfile.TemporaryDirectory() as place,
            Memory.open(Path(place) / "m.db", embedder="none", settings=Settings()) as memory,
        ):
            wall = time.perf_counter()
            report = memory.index(path)
            wall = time.perf_counter() - wall
            outcome = report.skipped.get(str(path)) or f"read: {counted(report.chunks, 'chunk')}"
        rows.append(f"| {path.name} | {path.stat().st_size / 1024:,.0f} | {wall:.1f} | {outcome} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(tempfile.gettempdir()) / "recollect-documents")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/documents.md")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if not (folder / "hostile").is_dir():
        make(folder)
    lines = [
        f"`python -m benchmarks.documents`, {datetime.now(UTC):%Y-%m-%d}, on a shared machine (upper bounds):",
        "",
        "| kind | read | recovered | least | foreign | chunks | on one | CPU s | wall s | skipped |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(measure(folder, kind) for kind in KINDS),
        "",
        "| hostile file | KiB | wall s | outcome |",
        "|---|---|---|---|",
        *attack(folder),
    ]
    print("\n".join(lines))
    if arguments.write:
        begin, end = "<!-- documents:begin -->", "<!-- documents:end -->"
        text = PAGE.read_text(encoding="utf-8")
        made = "\n".join([begin, *lines, end])
        PAGE.write_text(re.sub(f"{begin}.*{end}", lambda _: made, text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
