"""The text of notes for making questions: headings, sentences, links, rare phrases, and the words of each target."""

import itertools
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePath
from statistics import fmean
from typing import Any
from urllib.parse import unquote

from recollect.analysis import Analyzer, Token
from recollect.ranking import fold
from recollect.types import Progress, Record

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*$")
_LIST = re.compile(r"[ \t]*(?:[-*+•]|\d+[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_LINK = re.compile(  # `[[Target|words]]`, `[words](target)`, `[words][label]`, `[label]`
    r"(?<!!)\[\[(?P<wiki>[^\[\]|]+)(?:\|(?P<alias>[^\[\]]+))?\]\]"
    r"|(?<!!)\[(?P<text>[^\[\]]+)\](?:\((?P<target>[^()\s]+)(?:[ \t]+\"[^\"]*\")?\)|\[(?P<label>[^\[\]]*)\]|(?![\[(:]))"
)
_DEFINITION = re.compile(r" {0,3}\[([^\[\]^][^\[\]]*)\]:[ \t]*<?([^\s<>]+)>?.*")
_EMBEDDED = re.compile(r"!\[\[[^\]]*\]\]|!\[[^\]]*\]\([^)]*\)|<[^<>\s][^<>]*>|\[\^[^\]]*\]|https?://\S+")
_EMPHASIS = re.compile(r"(?<![\w`])([*_]{1,3})(?=\S)(.+?)(?<=\S)\1(?!\w)|(~~|==)(.+?)\3")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"”’)]*\s+(?=[\"“‘(]*[^\W\d_a-zß-öø-ÿ]|\d)|(?<=[。！？])")
_NO_END = re.compile(
    r"(?:\b(?:[A-Za-zÄÖÜäöü]|[Dd]r|[Mm]rs?|[Nn]r|[Nn]o|[Pp]rof|[Ss]t|bzw|ca|cf|etc|vs)|e\.g|i\.e|z\.B)\.$"
)


@dataclass(frozen=True, slots=True)
class Link:
    """A link: its text, its target, the sentence around it, and whether it is the only link there."""

    text: str
    target: str
    before: str
    after: str
    alone: bool


def headings(text: str) -> list[str]:
    """Return the headings of a chunk, in order."""
    return [plain(match[2]) for line in _outside_code(text) if (match := _HEADING.match(line))]


def sentences(text: str) -> list[str]:
    """Return the sentences of a chunk without markup; headings, tables and code are left out."""
    return list(map(plain, _sentences(text)))


def definitions(text: str) -> dict[str, str]:
    """Return the link definitions of a note: `[label]: target`."""
    matches = (match for line in _outside_code(text) if (match := _DEFINITION.fullmatch(line)))
    return {fold(match[1]): match[2] for match in matches}


def links(text: str, labels: Mapping[str, str]) -> Iterator[Link]:
    """Yield the links of a chunk, each with the sentence around it; `labels` are the definitions of its file."""
    for sentence in _sentences(text):
        matches = list(_LINK.finditer(sentence))
        targets = [one["wiki"] or one["target"] or labels.get(fold(one["label"] or one["text"])) for one in matches]
        for match, target in zip(matches, targets, strict=True):
            if target:
                sides = (sentence[: match.start()], sentence[match.end() :])
                before, after = (plain(side).strip(" .,:;()!?…→-") for side in sides)
                words = plain(match["alias"] or match["text"] or "")
                yield Link(words, target, before, after, sum(map(bool, targets)) == 1)


def plain(text: str) -> str:
    """Return a line without markup: links as their text, no images, emphasis or code quotes."""
    shown = _LINK.sub(lambda match: match["alias"] or match["text"] or match["wiki"], _EMBEDDED.sub(" ", text))
    for _ in range(2):  # bold inside italics
        shown = _EMPHASIS.sub(lambda match: match[2] or match[4], shown)
    return " ".join(shown.replace("`", "").split())


def _paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs; each list item is one."""
    lines: list[str] = []
    for line in [*_outside_code(text), ""]:
        item = _LIST.match(line)
        apart = _HEADING.match(line) or _DEFINITION.fullmatch(line) or line.lstrip().startswith("|")
        ends = not line.strip() or item or apart
        if ends and lines:
            yield " ".join(lines)
            lines = []
        if item or not ends:
            lines.append(line[item.end() :] if item else line.strip().lstrip("> "))


def _outside_code(text: str) -> Iterator[str]:
    fence = ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if match and (not fence or match[1].startswith(fence)):
            fence = "" if fence else match[1]
        elif not fence:
            yield line


def _sentences(text: str) -> Iterator[str]:
    """Yield sentences; a full stop after an abbreviation does not end one."""
    for paragraph in _paragraphs(text):
        start = 0
        for end in (*(match.end() for match in _SENTENCE_END.finditer(paragraph)), len(paragraph)):
            sentence = paragraph[start:end].strip()
            if sentence and (end == len(paragraph) or not _NO_END.search(sentence)):
                yield sentence
                start = end


COMMONPLACES = frozenset(map(fold, files(__package__).joinpath("commonplaces.txt").read_text("utf-8").splitlines()[1:]))
"""Headings and link texts too common to ask for one of them, folded."""

LEADING = frozenset(("see", "sieh", "also", "cf", "read", "compar", "vgl"))  # terms that only introduce a link


def follow(notes: Sequence[Record]) -> Iterator[tuple[Link, str, str]]:
    """Yield every link from one stored file to another, in order, with the paths of both files."""
    labels: dict[str, dict[str, str]] = {}
    for record in notes:
        labels.setdefault(record.path or "", {}).update(definitions(record.text))
    ends: dict[str, set[str]] = {}  # every trailing part of a path, with and without suffix
    for path in labels:
        parts = PurePath(path).parts
        for start in range(len(parts)):
            end = "/".join(parts[start:]).casefold()
            for name in (end, end.removesuffix(PurePath(path).suffix.casefold())):
                ends.setdefault(name, set()).add(path)
    for record in notes:
        origin = record.path or ""
        for link in links(record.text, labels[origin]):
            target = unquote(link.target).partition("#")[0].strip()
            if not target or "://" in target or target.startswith("mailto:"):
                continue
            beside = os.path.normpath(os.path.join(os.path.dirname(origin), target))  # noqa: PTH118, PTH120 (`..` in it)
            named = ends.get(target.replace("\\", "/").strip("/").casefold(), set())
            paths = {beside} if beside in labels else named
            if len(paths) == 1 and origin not in paths:  # an ambiguous name leads nowhere
                yield link, origin, next(iter(paths))


MOST = 0.5  # a question leaks when it shares more than this part of its words with one passage of its target


class Vocabulary:
    """Which targets contain which terms of title and text, as in keyword search, and the terms of each passage."""

    def __init__(self, records: Sequence[Record], analyzer: Analyzer, progress: Progress | None = None) -> None:
        self.analyzer = analyzer
        self.passages: dict[str, list[frozenset[str]]] = {}
        self.targets: dict[str, set[str]] = {}
        for number, record in enumerate(records, 1):
            if progress:
                progress(number, len(records))
            terms = frozenset(token.term for token in analyzer.tokens(record.passage))
            self.passages.setdefault(target_of(record), []).append(terms)
            for term in terms:
                self.targets.setdefault(term, set()).add(target_of(record))

    def words(self, text: str) -> list[Token]:
        """Return one token for each word; of several terms for one word the first, which is the whole word."""
        words: list[Token] = []
        for token in self.analyzer.tokens(text):
            if not words or token.start >= words[-1].end:
                words.append(token)
        return words

    def content(self, text: str) -> list[str]:
        """Return the terms of a text that are neither stop words nor numbers."""
        return _content(self.words(text))

    def share(self, text: str, target: str) -> float:
        """Return the largest share of the question's terms that one passage of the target contains."""
        terms = set(self.analyzer.query(text))
        best = max((len(terms & passage) for passage in self.passages.get(target, ())), default=0)
        return best / len(terms) if terms else 0.0

    def gives_away(self, text: str, target: str) -> bool:
        """Whether a term of the question occurs in the target and nowhere else."""
        return any(self.targets.get(term) == {target} for term in self.analyzer.query(text))


@dataclass(frozen=True, slots=True)
class Leak:
    """What one question gives away: shared words, a word that only the target has, the target's rank by keywords."""

    share: float
    giveaway: bool
    rank: int | None


LEAKS = ("shared", "leaking", "giveaway", "first", "copied")  # the columns of `leak_table`: means over questions


def target_of(record: Record) -> str:
    """Return what a question about this record is judged by: the path of its file, since chunks change, or its id."""
    return record.path if record.kind == "chunk" and record.path else record.id


def leak_table(leaks: Mapping[str, Sequence[Leak]]) -> list[dict[str, Any]]:
    """Return one row for each kind, and one for all."""
    everything = [leak for group in leaks.values() for leak in group]
    rows = []
    for kind, group in [*leaks.items(), ("all", everything)]:
        parts = [
            (one.share, one.share > MOST, one.giveaway, one.rank == 1, one.rank == 1 and one.share == 1.0)
            for one in group
        ]
        if parts:
            means = map(fmean, zip(*parts, strict=True))
            rows.append({"kind": kind, "questions": len(group), **dict(zip(LEAKS, means, strict=True))})
    return rows


LEAST_CONTENT, MOST_CONTENT = 3, 6  # words of a phrase that are not stop words
LONGEST = 9  # words of a phrase in all
SENTENCE = (6, 40)  # words of a sentence: a shorter one says too little, a longer one is most often a list or a table
OWN_WORD = 0.01  # the value of each word in a phrase whose words occur only in the target
EDGE = 0.3  # the value of an edge at a pause of the sentence, relative to the words
_BREAK = re.compile(r"[;:()\[\]{}|—–=→\\\"“”…<>$]|[.!?]\s|\s[/&-]|--")  # ends a clause or is code; in no phrase
_PAUSES = frozenset(",;:.!?()—–…")


def best_phrase(sentence: str, target: str, vocabulary: Vocabulary) -> tuple[float, str] | None:
    """Return the phrase with the rarest words that together only the target has, if there is one, and its value.

    A word that only the target has adds nothing, since it gives the answer away.
    """
    words = vocabulary.words(sentence)
    if not SENTENCE[0] <= len(words) <= SENTENCE[1]:
        return None
    phrases = []
    for first, size in itertools.product(range(len(words)), range(LEAST_CONTENT, LONGEST + 1)):
        part = words[first : first + size]
        terms, start, end = {*_content(part)}, part[0].start, part[-1].end
        if part[0].stop or part[-1].stop or not LEAST_CONTENT <= len(terms) <= MOST_CONTENT:
            continue
        if (worth := _worth(terms, target, vocabulary)) and not _BREAK.search(sentence, start, end):
            # A phrase is better that begins or ends at a pause of the sentence, and has none inside.
            before, after = sentence[:start].rstrip(), sentence[end:].lstrip()
            clean = (not before or before[-1] in _PAUSES) + (not after or after[0] in _PAUSES)
            phrases.append((worth * (1 + EDGE * (clean - ("," in sentence[start:end]))), sentence[start:end]))
    return max(phrases, key=lambda phrase: (phrase[0], -len(phrase[1])), default=None)


def _worth(terms: Collection[str], target: str, vocabulary: Vocabulary) -> float:
    """Sum the rarity of the words; 0 if another target has all of them."""
    holders = sorted((vocabulary.targets.get(term, set()) for term in terms), key=len)
    if holders[0] != {target} and set.intersection(*holders) != {target}:
        return 0.0
    shared = sum(math.log(1 + len(vocabulary.passages) / len(targets)) for targets in holders if len(targets) > 1)
    return shared or OWN_WORD * len(terms)


def _content(part: Sequence[Token]) -> list[str]:
    return [word.term for word in part if not word.stop and any(map(str.isalpha, word.term))]
