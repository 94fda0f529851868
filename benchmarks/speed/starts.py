"""How long the command takes to start, on a store of one record, and how long a question takes to embed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.speed.data import ROOT, questions
from benchmarks.speed.floor import seconds

TIMES = 7
COMMANDS = {
    "recollect --help": ["--help"],
    "recollect search, keywords only": ["search", "tea", "--embedder", "none"],
    "recollect search, with the model": ["search", "tea"],
}
PEER = "python -c 'import numpy'"


def measure() -> dict[str, list[float]]:
    """The best and the median of seven, in milliseconds, taken in turn."""
    spent: dict[str, list[float]] = {name: [] for name in [*COMMANDS, PEER]}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "RECOLLECT_STORE": f"{folder}/s.db", "XDG_CONFIG_HOME": folder}
        environment["PYTHONPATH"] = str(ROOT / "src")
        recollect = str(Path(sys.executable).parent / "recollect")
        run = {name: [recollect, *arguments] for name, arguments in COMMANDS.items()}
        run[PEER] = [sys.executable, "-c", "import numpy"]
        subprocess.run([recollect, "add", "tea with Ada"], check=True, capture_output=True, env=environment)
        for _ in range(TIMES):
            for name, command in run.items():
                took = seconds(lambda c=command: subprocess.run(c, check=True, capture_output=True, env=environment))
                spent[name].append(took * 1e3)
    return {name: [round(min(times), 1), round(median(times), 1)] for name, times in spent.items()}


def embedding() -> dict[str, float]:
    """Wall and CPU time of embedding one question with the default model, the median of all questions."""
    from recollect.config import Settings
    from recollect.models.embedders import open_embedder

    settings = Settings()
    model = open_embedder(settings.embedder, settings=settings)
    model.query("one to load the model")
    walls, cpus = [], []
    for question in questions()[0]:
        wall, cpu = time.perf_counter(), time.process_time()
        model.query(question)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"wall": round(median(walls) * 1e3, 1), "cpu": round(median(cpus) * 1e3, 1)}
