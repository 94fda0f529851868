"""Hostile files, queries, exports, settings and model answers, one after the other in one process (test_hostile.py).

Each is a valid one that was changed at random, with pieces that break careless readers. Anything but a result or a
`RecollectError` with a message is a fault, and so is one input that takes more than `MOST_SECONDS` of a processor. It
prints a report as one line of JSON, with the most memory that the process ever had.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.http import HttpServer, Request, Response
from support.vitals import peak_mb

from recollect import Memory
from recollect.config import Settings, load
from recollect.config.settings import LlmSettings, OpenAISettings
from recollect.errors import RecollectError
from recollect.ingest import facts
from recollect.ingest.documents import read_document
from recollect.models.openai import open_llm, open_openai
from recollect.moving import import_
from recollect.moving.format import HEAD, Sum, dumped, from_object

MOST_SECONDS = 20.0
THREADS = 2  # of the reranker, which is part of `recall`: each needs 25 MB
SIZES = (0, 1, 3, 30, 300, 3_000)
LARGE = 60_000
PIECES = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3\x28", b"\xf0\x9f", b"\r", b"\r\n",
    b"\x1b]52;c;eA==\x07", "\u202e\u2066".encode(),
    "e\u0301".encode() * 50, "\u200d\U0001f468".encode() * 20, "İıſßﬁ".encode(), "﷽".encode(),
    b"[" * 500, b"{" * 500, b"(" * 500, b'"', b"'", b"`" * 300, b"*" * 300, b"_" * 300, b"> " * 300,
    b"- " * 300, b"\\" * 99,
    b"[a](" * 100, b"![" * 200, b"<!--", b"]]>", b"<a " * 100, b"&#x0;", b"&amp;" * 50, b"|-" * 200, b"~~~\n", b"```\n",
    b"---\n", b"---\n&a [*a, *a]\n---\n", b"a: &a [1]\nb: [*a, *a, *a]\n", b"!!python/object/apply:os.system ['x']\n",
    b"? [", b": - ", b"%s%n%d{0}{}", b"' OR 1=1 --", b"*a" * 60 + b"b", b"NEAR(a b)", b'^"', b"../../etc/passwd",
    b"1e999", b"-0", b"NaN", b"Infinity", b"9" * 400, b"0x" + b"f" * 100, b"1_000", b"true", b"null", b"[]", b"{}",
    b"2026-13-45", b"0001-01-01", b"9999-12-31T23:59:60Z", b"\t", b" " * 500, b"a" * 2_000, b"a." * 300, b"=",
    b"[[", b'"""',
)  # fmt: skip
"""What is put in at random places."""

ODD = ("0.5", ": 1", "1e999", "NaN", "-Infinity", "9" * 400, "null", "true", "[[1]]", "{}", '"x"', "[" * 5000)
"""What stands in place of a number in an answer of vectors."""

MARKDOWN = b"""---
title: Herons
tags: [birds, lake]
date: 2026-03-14
category: nature
---
# Herons

The heron stands in the reeds. [A link](https://example.org) and `code`.

## Table

| a | b |
|---|---|
| 1 | 2 |

- one
  - two

> quoted

```python
def heron(): return 1
```
"""
TOML = b"""embedder = "hashing:64"
language = "english"
[search]
limit = 10
fusion = "rrf"
decay = "30d"
[scope]
user = "ada"
[llm]
base_url = "http://127.0.0.1:1/v1"
[ingest]
paths = ["notes/*.md"]
[[sources]]
name = "wiki"
kind = "command"
command = ["wiki", "{query}"]
fields = { id = "id" }
"""
ANSWER = b'{"text": "Herons stand in reeds.", "span": "The heron stands.", "category": "nature", "tags": ["b"]}\n'
NAMES = ("a.md", "a.txt", "a.py", "a.rst", "a.org", "a.csv", "a.json", "a")
QUERIES = ("heron lake", "where is the boat?", "réeds AND (oar)", "note number 7", "")


class TooSlow(BaseException):
    """One input took too long; no `except Exception` may swallow that."""


class Trial:
    """The inputs, what reads them, and the counts of what came of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.memory = Memory.open(folder / "memory.db", embedder="hashing:64", settings=Settings())
        self.memory.add_many(
            {"text": f"note number {n} of a heron by the lake", "tags": [f"t{n % 7}"]} for n in range(60)
        )
        self.export = self._exported()
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.messages: set[str] = set()
        self.body = b""
        self.server = HttpServer(self._respond)
        options: dict[str, Any] = {"base_url": f"{self.server.url}/v1", "retries": 0}
        self.llm = open_llm(LlmSettings(model="m", **options))
        self.embedder = lambda: open_openai("openai:m", settings=Settings(openai=OpenAISettings(**options)))

    def _exported(self) -> list[bytes]:
        self.memory.export(self.folder / "export.jsonl")
        lines = (self.folder / "export.jsonl").read_bytes().splitlines(keepends=True)[1:-1]
        return [line for number, line in enumerate(lines) if number % 9 == 0]

    def _respond(self, _request: Request) -> Response:
        self.server.asked.clear()  # what is kept of requests is not the memory of what is tested
        status = self.chance.choice([200] * 9 + [500])
        return Response(status, self.body, {"Content-Type": self.chance.choice(["application/json", "text/html"])})

    # -- inputs ---------------------------------------------------------------------------------------------

    def mutated(self, valid: bytes) -> bytes:
        """A valid input with pieces put in, parts taken out, doubled or turned around, or bytes changed."""
        data = bytearray(valid)
        for _ in range(self.chance.choice([1, 1, 2, 4, 12])):
            start = self.chance.randrange(len(data) + 1)
            end = min(len(data), start + self.chance.choice(SIZES))
            match self.chance.randrange(6):
                case 0 | 1:
                    data[start:start] = self.chance.choice(PIECES)
                case 2:
                    del data[start:end]
                case 3:
                    data[start:start] = data[start:end] * self.chance.choice([1, 2, 40])
                case 4:
                    data[start:end] = data[start:end][::-1]
                case _:
                    data[start:end] = self.chance.randbytes(end - start)
            del data[LARGE:]
        if self.chance.random() < 0.02:
            piece = self.chance.choice(PIECES)
            start = self.chance.choice([0, len(data) // 2, len(data)])
            data[start:start] = piece * (LARGE // len(piece))
        return bytes(data)

    def text(self, valid: str) -> str:
        return self.mutated(valid.encode()).decode(
            "utf-8", self.chance.choice(["replace", "surrogateescape", "ignore"])
        )

    # -- readers --------------------------------------------------------------------------------------------

    def a_file(self) -> Callable[[], Any]:
        content, name = self.mutated(MARKDOWN), self.chance.choice(NAMES)
        return lambda: read_document(content, name)

    def a_folder(self) -> Callable[[], Any]:
        folder = self.folder / "notes"
        folder.mkdir(exist_ok=True)
        for number in range(10):
            (folder / f"{number}{self.chance.choice(NAMES)}").write_bytes(self.mutated(MARKDOWN))
        (folder / ".gitignore").write_bytes(self.mutated(b"*.log\nbuild/\n!keep.md\n**/a*b\n"))
        return lambda: self.memory.index(folder, confirm=True)

    def a_query(self) -> Callable[[], Any]:
        query, word = self.text(self.chance.choice(QUERIES)), self.text("heron")
        options: dict[str, Any] = self.chance.choice([
            {}, {"tags": [word]}, {"category": word}, {"path": word}, {"since": word}, {"as_of": word}, {"user": word},
            {"fusion": word}, {"decay": word}, {"limit": self.chance.choice([0, -1, 10**20, "x", None, 1.5])},
            {"mmr": True, "mmr_lambda": self.chance.choice([2, float("nan"), "x"])}, {"sources": [word]}, {word: 1},
        ])  # fmt: skip
        match self.chance.randrange(8):
            case 0:
                return lambda: self.memory.recall(query, tokens=self.chance.choice([0, 50, 2000, 10**12]), **options)
            case 1:
                return lambda: self.memory.why_not(query, self.chance.choice([word, "x", "/a.md"]))
            case 2:
                return lambda: self.memory.list(**{name: of for name, of in options.items() if name != "limit"})
            case 3:
                return lambda: self.memory.get(word) or self.memory.history(word)
        return lambda: self.memory.search(query, **options)

    def an_export(self) -> Callable[[], Any]:
        """Half of them have right sums, so that what a line says is looked at, not only that it was changed."""
        lines, total = list(self.export), Sum()
        at = self.chance.randrange(len(lines))
        lines[at] = self._odd_line(lines[at]) if self.chance.random() < 0.6 else self.mutated(lines[at])
        with contextlib.suppress(Exception):
            for line in lines:
                total.add(from_object(json.loads(line)), line)
        whole = b"".join([dumped(HEAD), *lines, total.line()])
        file = self.folder / self.chance.choice(["a.jsonl", "a.jsonl", "a.jsonl.gz"])
        file.write_bytes(self.mutated(whole) if self.chance.random() < 0.2 else whole)
        return lambda: import_(self.memory.store, file, merge=True, with_folders=self.chance.random() < 0.5)

    def _odd_line(self, line: bytes) -> bytes:
        """A line in which one value is another one."""
        fields = json.loads(line)
        values = [None, "", "x", -1, 2**63, 1e300, True, [], {}, ["x"], "\ud800", "a" * 5000, {"a": 1}, "2026-13-01"]
        fields[self.chance.choice(list(fields))] = self.chance.choice(values)
        return json.dumps(fields).encode() + b"\n"

    def settings(self) -> Callable[[], Any]:
        file = self.folder / "settings.toml"
        file.write_bytes(self.mutated(TOML))
        return lambda: load(config=file, environment={})

    def an_answer(self) -> Callable[[], Any]:
        """The text of a language model, and the bodies of chats and of vectors."""
        text = self.text((ANSWER * 3).decode())
        match self.chance.randrange(3):
            case 0:
                return lambda: facts.parse(text)
            case 1:
                self.body = self.mutated(json.dumps({"choices": [{"message": {"content": text}}]}).encode())
                return lambda: self.llm.chat([{"role": "user", "content": "x"}])
        rows = [{"index": n, "embedding": [0.1, 0.2, 0.3]} for n in range(2)]
        odd = json.dumps({"data": rows}).replace(self.chance.choice(["0.1", ": 1", "0.3"]), self.chance.choice(ODD), 1)
        self.body = odd.encode() if self.chance.random() < 0.5 else self.mutated(odd.encode())
        return lambda: self.embedder().passages(["a", "b"])

    # -- one after the other --------------------------------------------------------------------------------

    def run(self, count: int, seconds: float) -> None:
        """Read inputs until there were so many, or the time is up."""
        kinds: dict[str, tuple[Callable[[], Callable[[], Any]], int]] = {
            "files": (self.a_file, 40), "folders": (self.a_folder, 1), "queries": (self.a_query, 25),
            "exports": (self.an_export, 8), "settings": (self.settings, 14), "answers": (self.an_answer, 12),
        }  # fmt: skip
        end = time.monotonic() + seconds
        while self.counts["inputs"] < count and time.monotonic() < end and len(self.faults) < 5:
            name = self.chance.choices(list(kinds), [weight for _, weight in kinds.values()])[0]
            self.attempt(name, kinds[name][0]())
            self.counts["inputs"] += 10 if name == "folders" else 1

    def attempt(self, name: str, read: Callable[[], Any]) -> None:
        """Give one input to its reader."""
        self.counts[name] += 1
        try:
            with limited():
                read()
            self.counts["read"] += 1
        except RecollectError as error:
            self.counts["refused"] += 1
            if not error.message.strip():
                self.faults.append(f"{name}: {type(error).__name__} without a message")
        except (Exception, TooSlow) as error:  # noqa: BLE001  (what must not happen)
            where = "".join(traceback.format_exception(error)[-4:])
            self.faults.append(f"{name}: {type(error).__name__}: {str(error)[:300]}\n{where[-1500:]}")


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """At most so much time of a processor: a busy machine does not change that."""
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def too_slow(_number: int, _frame: FrameType | None) -> None:
    """End the input that is being read."""
    raise TooSlow


def main() -> None:
    """Run, and print the report."""
    signal.signal(signal.SIGPROF, too_slow)
    os.environ["RECOLLECT_THREADS"] = str(THREADS)
    trial = Trial(Path(sys.argv[1]), int(sys.argv[4]))
    trial.run(int(sys.argv[2]), float(sys.argv[3]))
    trial.memory.close()
    trial.server.close()
    print(json.dumps({**trial.counts, "faults": trial.faults, "peak_mb": peak_mb()}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
