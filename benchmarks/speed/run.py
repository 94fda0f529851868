"""One size: every contender is loaded by itself, then all are asked in turn, question by question."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.speed import data
from benchmarks.speed.contender import OWN, Contender, contender
from benchmarks.speed.floor import BareTable, measure, seconds
from benchmarks.speed.process import MEMORY_LIMIT, Failed, NotTried, Process
from benchmarks.speed.worker import word

WARM, COLD_STARTS, ADDS, SLICES, SLICE_SECONDS = 3, 3, 20, 3, 0.5
PHASE_SECONDS = 30
"""A contender that has answered for so long is asked no more in this phase."""

ANSWER_SECONDS, VISIBLE_SECONDS = 60, 10
"""Limits of one answer, and of the time until an add is visible."""

LEAST_SECONDS = 10
"""A load that has less time left is not begun."""

Results = dict[str, dict[str, Any]]


def load_limit(size: int) -> float:
    """Seconds: one minute up to 24,000 records, four at 100,000 and fifteen at 1,000,000."""
    return min(900.0, max(60.0, size / 400))


class Run:
    """The contenders of one size, and what was measured of them. One that fails leaves with a reason.

    `smaller` has the results of the size before; nothing is loaded after `deadline`, a time of `time.monotonic`.
    """

    def __init__(
        self, names: list[str], size: int, smaller: Results, options: argparse.Namespace, deadline: float
    ) -> None:
        self.size, self.rounds, self.questions = size, options.rounds, options.questions
        self.patience: float = options.patience
        self.deadline = deadline
        self.folder = data.HOME / f"work-{os.getpid()}"
        self.results: Results = {name: {} for name in names}
        self.serving: dict[str, Process] = {}
        self.smaller = smaller

    def measure(self) -> dict[str, Any]:
        for left in data.HOME.glob("work-*"):  # of runs that were killed
            if not Path("/proc", left.name.removeprefix("work-")).exists():
                shutil.rmtree(left, ignore_errors=True)
        self.folder.mkdir()
        try:
            floor = measure(self.size)
            for phase in (self.load, self.start, self.ask, self.ask_one_user, self.throughput, self.memory, self.add):
                start = time.monotonic()
                phase()
                say(f"{self.size:,} records: {phase.__name__} took {time.monotonic() - start:.0f} s")
            floor |= {f"{name}_after": value for name, value in measure(self.size).items()}
        finally:
            for process in self.serving.values():
                process.end()
            shutil.rmtree(self.folder, ignore_errors=True)
        own = self.results.get(OWN, {}).pop("top", {})
        for result in self.results.values():
            top = result.pop("top", {})
            if own and top:
                result["shared"] = mean(len({*top[key]} & {*own[key]}) / len(own[key]) for key in top if own.get(key))
        return {"floor": rounded(floor), "contenders": {name: rounded(each) for name, each in self.results.items()}}

    def fail(self, name: str, error: Failed) -> None:
        reason = str(error) if isinstance(error, NotTried) else f"did not finish: {error}"
        say(f"  {name} {reason}")
        self.results[name]["failed"] = reason
        if process := self.serving.pop(name, None):
            process.end()

    def left(self, spent: dict[str, float] | None = None) -> list[str]:
        """Those that are still in the run, and have time left in this phase."""
        alive = [name for name, result in self.results.items() if "failed" not in result]
        return [name for name in alive if spent is None or spent.get(name, 0.0) < PHASE_SECONDS]

    def seconds(self, limit: float) -> float:
        """A limit on this machine."""
        return limit * self.patience

    def place(self, name: str) -> Path:
        return self.folder / name.lower().replace(" ", "-")

    def load(self) -> None:
        """Each alone, in a process of its own."""
        for name in sorted(self.left(), key=self.order):
            self.place(name).mkdir()
            try:
                self.expect(name)
                process = Process.of(name, self.place(name), self.size)
                try:
                    self.results[name] |= process.ask("about", self.seconds(ANSWER_SECONDS))
                    limit = min(self.seconds(load_limit(self.size)), self.deadline - time.monotonic())
                    reply = process.ask("load", limit)
                finally:
                    process.end()
            except Failed as error:
                self.fail(name, error)
                shutil.rmtree(self.place(name))
                continue
            disk = sum(path.stat().st_size for path in self.place(name).rglob("*") if path.is_file())
            self.results[name] |= {
                "load_s": reply["seconds"], "load_records_s": self.size / reply["seconds"], "load_cpu_s": reply["cpu"],
                "load_peak_mb": reply["peak"] / 1e6, "disk_mb": disk / 1e6,
            }  # fmt: skip
            say(f"  {name}: {reply['seconds']:.1f} s")

    def order(self, name: str) -> tuple[bool, bool, float]:
        """Who is loaded first, because time may run out: Recollect, then who searched fewer records fastest."""
        before = self.smaller.get(name, {})
        return name != OWN, not before.get("hybrid", True), before.get("p50_ms", 0.0)

    def expect(self, name: str) -> None:
        """What was far too slow or too large at a tenth of this size is not tried, nor what has no time left."""
        left = self.deadline - time.monotonic()
        before = self.smaller.get(name, {})
        if "failed" in before:
            raise NotTried(f"not tried: at {before['size']:,} records {before['failed']}")
        if left < LEAST_SECONDS:
            raise NotTried("not tried: the time for loading was used up")
        if before:
            at, factor = f"from {before['size']:,} records", self.size / before["size"]
            minutes, most = before["load_s"] * factor / 60, self.seconds(load_limit(self.size)) / 60
            if minutes > most:
                raise NotTried(f"not tried: {at}, loading would take {minutes:.0f} minutes; the limit is {most:.0f}")
            if minutes > left / 60:
                raise NotTried(f"not tried: {at}, loading would take {minutes:.0f} minutes; {left / 60:.0f} were left")
            memory, most = before["anonymous_mb"] * factor / 1e3, MEMORY_LIMIT / 1e9
            if memory > most:
                raise NotTried(f"not tried: {at}, it would need {memory:.0f} GB of memory; the limit is {most:.0f}")

    def start(self) -> None:
        """From starting a process to its first answer; the last one stays."""
        for name in self.left():
            times: list[float] = []
            try:
                while len(times) < COLD_STARTS and sum(times) < PHASE_SECONDS / 4:
                    if previous := self.serving.pop(name, None):
                        previous.end()
                    self.serving[name] = Process.of(name, self.place(name), self.size)
                    self.serving[name].ask("search", self.seconds(2 * ANSWER_SECONDS), question=0)
                    times.append(time.perf_counter() - self.serving[name].started)
                for question in range(WARM):
                    self.serving[name].ask("search", self.seconds(ANSWER_SECONDS), question=question)
            except Failed as error:
                self.fail(name, error)
                continue
            self.results[name]["cold_ms"] = median(times) * 1e3

    def turns(self, rounds: int, spent: dict[str, float]) -> Iterator[tuple[int, int, str]]:
        """Round, question and contender; who is first changes from question to question."""
        for number, question in itertools.product(range(rounds), range(self.questions)):
            names = self.left(spent)
            first = question % max(1, len(names))
            for name in names[first:] + names[:first]:
                yield number, question, name

    def search(self, rounds: int, users: bool) -> dict[str, list[dict[str, Any]]]:
        """The replies of every contender, asked in turn."""
        replies: dict[str, list[dict[str, Any]]] = {}
        spent: dict[str, float] = {}
        for _, question, name in self.turns(rounds, spent):
            user = {"user": data.user_of(question * 7 + 3)} if users else {}
            try:
                reply = self.serving[name].ask("search", self.seconds(ANSWER_SECONDS), question=question, **user)
            except Failed as error:
                self.fail(name, error)
                continue
            spent[name] = spent.get(name, 0.0) + reply["wall"] / 1e3
            replies.setdefault(name, []).append({**reply, "question": question})
        return {name: replies[name] for name in self.left() if name in replies}

    def ask(self) -> None:
        for name, replies in self.search(self.rounds, users=False).items():
            walls = [reply["wall"] for reply in replies]
            self.results[name] |= {
                "p50_ms": percentile(walls, 50), "p95_ms": percentile(walls, 95), "p99_ms": percentile(walls, 99),
                "cpu_ms": median(reply["cpu"] for reply in replies), "searches": len(walls),
                "top": {reply["question"]: reply["ids"] for reply in replies},
            }  # fmt: skip

    def ask_one_user(self) -> None:
        """One user of a thousand."""
        for name, replies in self.search(1, users=True).items():
            walls = [reply["wall"] for reply in replies]
            self.results[name] |= {
                "user_p50_ms": percentile(walls, 50), "user_p95_ms": percentile(walls, 95),
                "user_found": mean(len(reply["ids"]) for reply in replies),
            }  # fmt: skip

    def throughput(self) -> None:
        """Questions a second with one thread and with two, in slices that take turns."""
        rates: dict[tuple[str, int], list[float]] = {}
        for _, threads in itertools.product(range(SLICES), (1, 2)):
            for name in self.left():
                try:
                    reply = self.serving[name].ask(
                        "throughput", self.seconds(2 * ANSWER_SECONDS), threads=threads, seconds=SLICE_SECONDS
                    )
                except Failed as error:
                    self.fail(name, error)
                    continue
                rates.setdefault((name, threads), []).append(reply["count"] / reply["seconds"])
        for (name, threads), values in rates.items():
            self.results[name][f"qps_{threads}"] = median(values)

    def memory(self) -> None:
        for name in self.left():
            try:
                reply = self.serving[name].ask("memory", self.seconds(ANSWER_SECONDS))
            except Failed as error:
                self.fail(name, error)
                continue
            self.results[name] |= {"rss_mb": reply["rss"] / 1e6, "anonymous_mb": reply["anonymous"] / 1e6}

    def add(self) -> None:
        """Single adds, until another process finds them; in between the same bytes go into a bare table."""
        table = BareTable(self.folder / "bare.db")
        extra = next(data.batches(self.size, first=self.size))
        for name in self.left():
            if contender(name).add is Contender.add:
                continue
            try:
                self.results[name] |= self.add_to(name, table, extra)
            except Failed as error:
                self.results[name]["add_failed"] = f"did not finish: {error}"

    def add_to(self, name: str, table: BareTable, extra: data.Batch) -> dict[str, float]:
        writer, reader = self.serving[name], Process.of(name, self.place(name), self.size)
        added, visible, bare = [], [], []
        start = len(table.connection.execute("SELECT 1 FROM records").fetchall())
        try:
            reader.ask("search", self.seconds(2 * ANSWER_SECONDS), question=0)
            for process in (reader, writer):
                process.ask("prepare", self.seconds(ANSWER_SECONDS))
            for at, number in enumerate(range(self.size, self.size + ADDS)):
                began = time.perf_counter()
                reply = writer.ask("add", self.seconds(ANSWER_SECONDS), number=number)
                added.append(reply["wall"])
                while not reader.ask("find", self.seconds(ANSWER_SECONDS), number=number)["found"]:
                    if time.perf_counter() - began > VISIBLE_SECONDS:
                        raise Failed(f"not visible in another process after {VISIBLE_SECONDS} s")
                visible.append((time.perf_counter() - began) * 1e3)
                row = (start + at, f"{extra.texts[at]} {word(number)}", extra.vectors[at])
                bare.append(seconds(lambda row=row: table.insert([row])) * 1e3)
        finally:
            reader.end()
        return {"add_ms": median(added), "visible_ms": median(visible), "bare_commit_ms": median(bare)}


def percentile(values: list[float], share: float) -> float:
    """The smallest value that so many of a hundred do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share / 100) - 1)]


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in values.items()}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
