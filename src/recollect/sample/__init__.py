"""Notes to try things on, and judged questions about them."""

import json
from dataclasses import dataclass
from pathlib import Path

NOTES = Path(__file__).parent / "notes"


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """A question, the notes that answer it, and whether words, meaning or both lead there."""

    text: str
    relevant: tuple[str, ...]
    why: str


def questions() -> list[SampleQuestion]:
    """All judged questions."""
    lines = (Path(__file__).parent / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [SampleQuestion(row["question"], tuple(row["relevant"]), row["why"]) for row in map(json.loads, lines)]
