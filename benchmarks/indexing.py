"""How fast files become searchable: `python -m benchmarks.indexing [--embedder arctic-embed-s] [--files N]`.

Builds a folder of RECOLLECT_DATA/openclaw_docs (default ../shared/data), a file a record, and measures a first index,
one of the unchanged folder, one after an edited line, one after 100 renamed files. `--files` takes only the first N
records, for a model that needs long for all. `--write` puts the table into docs/indexing.md, below those of others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from recollect.config import Settings
from recollect.ingest.folder import Report
from recollect.memory import Memory

DOCS = Path(__file__).parent.parent / "docs" / "indexing.md"
HEAD = ("embedder", "run", "files", "seconds", "files/s", "chunks", "chunks/s", "embeddings", "added / changed / moved")
RENAMED = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", default="hashing")
    parser.add_argument("--files", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    corpus = Path(os.environ.get("RECOLLECT_DATA", "../shared/data")) / "openclaw_docs" / "corpus.jsonl"
    if not corpus.is_file():
        sys.exit(f"no {corpus}; set RECOLLECT_DATA")
    with tempfile.TemporaryDirectory() as folder:
        files = grow(corpus, Path(folder) / "docs", arguments.files)
        rows = measure(files, Path(folder), arguments.embedder)
    table = "\n".join(f"| {' | '.join(row)} |" for row in (HEAD, tuple("---" for _ in HEAD), *rows))
    print(table)
    if arguments.write:
        write(table, " ".join(sys.argv[1:]).replace("--write", "").strip())


def measure(files: list[Path], folder: Path, embedder: str) -> list[tuple[str, ...]]:
    root = folder / "docs"
    rows = []
    with Memory.open(folder / "memory.db", embedder=embedder, settings=Settings()) as memory:
        if memory.embeddings.configured:
            memory.embeddings.serving()  # the model is loaded before the clock runs

        def run(name: str) -> None:
            start = time.perf_counter()
            report = memory.index(root)
            rows.append(row(embedder, name, len(files), time.perf_counter() - start, report))

        run("first")
        run("unchanged")
        edited = max(files, key=lambda path: path.stat().st_size)
        edited.write_text(edited.read_text().replace("\n\n", "\n\nOne new line at the top of a long file.\n\n", 1))
        run("one line added at the top of the longest file")
        for number, path in enumerate(files[:RENAMED]):
            path.rename(path.with_name(f"renamed-{number}.md"))
        run(f"{RENAMED} files renamed")
    return rows


def grow(corpus: Path, root: Path, most: int) -> list[Path]:
    files = []
    for line in corpus.read_text().splitlines()[: most or None]:
        record = json.loads(line)
        # A name that begins with a dot is hidden, and would not be indexed.
        path = root / "/".join(part.lstrip(".") for part in f"{record['_id']}.md".split("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(record["text"])
        files.append(path)
    # As on a day after they were written: a file changed a moment ago is read twice.
    for path in files:
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return files


def row(embedder: str, name: str, files: int, seconds: float, report: Report) -> tuple[str, ...]:
    counts = f"{len(report.added)} / {len(report.changed)} / {len(report.moved)}"
    return (
        embedder,
        name,
        f"{files:,}",
        f"{seconds:.2f}",
        f"{files / seconds:,.0f}",
        f"{report.chunks:,}",
        f"{report.chunks / seconds:,.0f}",
        f"{report.embedded:,}",
        counts,
    )


def write(table: str, flags: str) -> None:
    """The table of one command, in the place of an older one of the same command."""
    begin, end = f"<!-- indexing {flags}: begin -->", "<!-- end -->"
    before, found, rest = DOCS.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2] if found else "\n"
    made = f"`python -m benchmarks.indexing {flags}`, {os.cpu_count()} processors, {time.strftime('%Y-%m-%d')}:"
    DOCS.write_text(f"{before if found else before + chr(10)}{begin}\n{made}\n\n{table}\n{end}{after}")


if __name__ == "__main__":
    main()
