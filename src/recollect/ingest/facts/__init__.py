"""Facts from files by a language model: files into pieces, pieces into prompts, answers into verdicts."""

from recollect.ingest.facts.answers import Candidate, parse
from recollect.ingest.facts.pieces import Piece, split
from recollect.ingest.facts.prompt import messages, tokens
from recollect.ingest.facts.verdicts import ACTIONS, Judge, Verdict
from recollect.ingest.facts.workspace import expand, read

__all__ = [
    "ACTIONS",
    "Candidate",
    "Judge",
    "Piece",
    "Verdict",
    "expand",
    "messages",
    "parse",
    "read",
    "split",
    "tokens",
]
