"""Both embedding models of the catalogue on the held-out questions: `python -m benchmarks.models [SET…] [--write]`.

Embeds every development set with each model the first time, which takes long.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from statistics import mean
from typing import Any

from benchmarks.quality import SETS, gain, measure_set, table, write
from recollect.evaluation.scoring import compare

MODELS = ("arctic-embed-s", "bge-small-en")
MEASURE = "nDCG@10"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found: list[list[dict[str, Any]]] = []
    with ProcessPoolExecutor(2) as pool:
        for model in MODELS:
            jobs = [(name, "held-out", model, False) for name in arguments.sets]
            found.append([row for rows in pool.map(measure_set, *zip(*jobs, strict=True)) for row in rows])
    titles = [f"{model} {how}" for how in ("alone", "fused") for model in MODELS]
    shown = [("set", "questions", *titles, "fused: second − first")]
    means: list[list[float]] = []
    for pair in zip(*found, strict=True):
        values = [row["values"][system][MEASURE] for system in ("vector", "default") for row in pair]
        means.append([mean(one.values()) for one in values])
        shown.append((pair[0]["set"], f"{len(values[0]):,}", *(f"{one:.3f}" for one in means[-1]),
                      gain(compare(values[3], values[2]))))  # fmt: skip
    shown.append(("mean of the rows", "", *(f"{mean(column):.3f}" for column in zip(*means, strict=True)), ""))
    print(table(shown))
    if arguments.write:
        write("benchmarks.md", "models", table(shown))


if __name__ == "__main__":
    main()
