"""The steps after fusion. A stage is a callable `(query, candidates) -> candidates`; `order` lists them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate, takewhile
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

from recollect.dataclass import dataclass
from recollect.fusion import METHODS, minmax
from recollect.ranking import (
    DAY,
    HALF_LIVES,
    LONGEST_WORDS,
    fold,
    importance_factor,
    join_chances,
    mmr,
    statement,
)
from recollect.ranking import decay as decay_factor
from recollect.types import Candidate, FileState, Query, Record, Stage, Vector, Warned
from recollect.types.records import micros
from recollect.types.search import FileKey, turns_around

VectorsOf: TypeAlias = "Callable[[Sequence[str]], Mapping[str, Vector]]"  # record ids → the vectors that are known

StatesOf: TypeAlias = Callable[[Sequence[str]], Mapping[str, FileState]]
"""Paths → the state of those files when they were indexed."""


def order(vectors: VectorsOf, states: StatesOf, rerank: Rerank | None = None) -> tuple[tuple[str, Stage], ...]:
    """The stages with their names, in the order in which they run.

    What was said around a turn counts while all candidates are there. What is too unlikely is dropped next.
    Then passages add up to files, so that every later stage sees results as they are shown. The threshold precedes MMR,
    so that results too weak to be shown do not displace others. Reranking comes between the two: it reads only what can
    be shown, and it changes scores, while the later stages change ranks only. Last, what is to be shown is checked
    again.
    """
    stages: tuple[tuple[str, Stage | None], ...] = (
        ("turns", in_conversation),
        ("confidence", rate),
        ("files", by_file),
        ("decay", decay),
        ("time", in_time),
        ("importance", importance),
        ("threshold", threshold),
        ("rerank", rerank),
        ("newer", newer),
        ("mmr", partial(diversify, vectors)),
        ("limit", limit),
        ("scope", in_scope),
        ("superseded", in_effect),
        ("freshness", partial(mark_freshness, states)),
    )
    return tuple((name, stage) for name, stage in stages if stage is not None)


REORDERING = ("turns", "decay", "time", "importance", "newer")
"""Stages that change the order of the results: a list of the newest records goes without them."""


def decay(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Lower the score of older records that have a decay class or, with `half_life_days`, of those that have none."""
    if not query.ranking.decay:
        return candidates
    days, now = query.ranking.half_life_days, micros(query.filter.moment) or 0
    default = math.inf if days is None else days * DAY
    scaled = candidates if default != math.inf else [one for one in candidates if one.decay is not None]
    for candidate in scaled:
        half_life = default if candidate.decay is None else HALF_LIVES[candidate.decay]
        if half_life != math.inf:
            candidate.scale("decay", decay_factor((now - candidate.time) / 10**6, half_life))
    return _moved("decay", candidates, _by_total(candidates)) if scaled else candidates


MIDDLE = 0.5  # the importance that changes no score


TIME_WEIGHT = 0.5
"""How much more a record counts that is of the time which the query names; chosen on tuning questions, decision 063."""


def in_time(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Raise the score of records of the time that the query names, and less that of records near it; drop none."""
    period = query.period
    if period is None:
        return candidates
    start, end = micros(period.start) or 0, micros(period.end) or 0
    width = max(end - start, DAY * 10**6)
    for candidate in candidates:
        gap = max(0, start - candidate.time, candidate.time - end + 1)
        candidate.scale("time", 1 + TIME_WEIGHT * 2 ** -min(gap / width, MOST_HALVED))
    return _moved("time", candidates, _by_total(candidates))


def importance(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Raise or lower the score of records whose importance is not the middle one."""
    scaled = [one for one in candidates if one.importance != MIDDLE]
    for candidate in scaled:
        factor = importance_factor(candidate.importance, query.ranking.importance_weight)
        if factor != 1:
            candidate.scale("importance", factor)
    return _moved("importance", candidates, _by_total(candidates)) if scaled else candidates


def threshold(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Drop results that score below `min_score`."""
    least = query.ranking.min_score
    return [candidate for candidate in candidates if candidate.score >= least] if least > 0 else candidates


MOST_HALVED = 60  # halvings after which nothing is left

STEP = 0.2
"""What the next best passage of a file counts, relative to the one before it."""

MATCHING = 0.5  # the share of the score of a file's best passage that a further one needs, to be shown
OPENING_LINES = 15  # a passage that begins within these lines opens its file: front matter may stand above it

OPENING = 0.3
"""How much the opening of a file counts, relative to its best passage. It says what the whole file is about."""

ROUNDING = 1e-9  # two totals that are nearer than this are taken for equal


def by_file(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Keep the best passage of each file, with the further ones attached; its score becomes that of the file."""
    if query.ranking.by != "file":
        return candidates
    files: dict[FileKey, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.file is not None and candidate.line >= 0:
            files.setdefault(candidate.file, []).append(candidate)
    further: set[int] = set()
    for best, *others in files.values():
        further.update(map(id, others))
        if query.text:
            _add_up(best, others)
        else:  # a list: its order stays
            best.passages = others
    shown = [one for one in candidates if id(one) not in further] if further else candidates
    ranked = _by_total(shown)
    return _moved("files", shown, ranked) if ranked != shown else shown


def _add_up(best: Candidate, others: Sequence[Candidate]) -> None:
    """Attach the further passages of a file to its best one, and scale that: they add to it.

    A file loses score if its opening matches worse than its best passage. If its best passage is its opening, it loses
    nothing, so that a short note counts like a fact.
    """
    least = MATCHING * best.total - ROUNDING
    best.passages = [one for one in others if one.total >= least]
    if best.total > 0:
        gain = sum(STEP**place * one.total for place, one in enumerate(best.passages, 1))
        opening = max((one.total for one in (best, *others) if one.line <= OPENING_LINES), default=0.0)
        loss = OPENING / (1 + OPENING) * (best.total - opening)
        if gain != loss:
            best.scale("files", 1 + (gain - loss) / best.total)


AROUND = 2  # how many turns before and after a turn are what was said around it
AROUND_SHARE = 0.35  # how much of its score each of them counts for it; chosen on tuning questions, decision 067


def in_conversation(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Let the turns around a turn of a conversation count for it: an answer seldom repeats the words of a question.

    Scores are joined like chances of independent events, so that none exceeds 1. Those of the other methods, whose
    formulas people know, do not stand apart enough for that, and stay as they are.
    """
    if not METHODS[query.ranking.fusion].by_trust:
        return candidates
    if not any(candidate.line < 0 for candidate in candidates):
        return candidates
    turns = [candidate for candidate in candidates if candidate.total > NOTHING]
    joined = joined_around(turns, [turn.score for turn in turns])
    for at, score in joined.items():
        turns[at].scale("turns", score / turns[at].total)
    return _moved("turns", candidates, _by_total(candidates)) if joined else candidates


def joined_around(candidates: Sequence[Candidate], scores: Sequence[float]) -> dict[int, float]:
    """The scores of turns with other turns around them, joined with theirs, by the place among the candidates."""
    places = ((at, candidate.file, candidate.line) for at, candidate in enumerate(candidates))
    return {
        at: join_chances(scores[at], (scores[other] for other in near), AROUND_SHARE)
        for at, near in turns_around(places, before=AROUND, after=AROUND).items()
    }


def limit(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Cut the list to the requested number of results."""
    return candidates[: query.limit]


def in_scope(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Drop records outside the query's scope. Every source has filtered already: this checks what is to be shown."""
    where = query.filter
    if candidates:  # the records of all that is shown are read at once
        candidates[0].pool.read([one for candidate in candidates for one in (candidate, *candidate.passages)])
    return _checked(candidates, lambda record: where.any_scope or where.scope.admits(record.scope))


def in_effect(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Drop records that were superseded or have expired at the query's time: the same check, for time."""
    where = query.filter

    def ended(record: Record) -> bool:
        times = (record.expires_at, None if where.superseded else record.superseded_at)
        return any(time is not None and time <= where.moment for time in times)

    return _checked(candidates, lambda record: not ended(record))


def _checked(candidates: Sequence[Candidate], admits: Callable[[Record], bool]) -> list[Candidate]:
    """The candidates, each with the passages, whose records are admitted and still there."""
    checked = []
    for candidate in candidates:
        record = candidate.pool.records.get(candidate.key)
        if record is not None and admits(record):
            candidate.passages = _checked(candidate.passages, admits) if candidate.passages else ()
            checked.append(candidate)
    return checked


def _by_total(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Sorted by total; equal ones keep their order."""
    return sorted(candidates, key=attrgetter("total"), reverse=True)


def _moved(stage: str, before: Sequence[Candidate], after: Sequence[Candidate]) -> Sequence[Candidate]:
    """The candidates in their new order, each with a note of the change of its rank."""
    pairs = zip(before, after, strict=True)
    changed = [rank for rank, (old, new) in enumerate(pairs, 1) if old is not new]
    ranks = {before[rank - 1].key: rank for rank in changed}
    for rank in changed:
        after[rank - 1].move(stage, ranks[after[rank - 1].key], rank)
    return after


def rate(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Drop what has a lower confidence than `min_confidence`, also what no source can judge."""
    least = query.ranking.min_confidence or 0.0
    return [one for one in candidates if (one.confidence or 0.0) >= least] if least > 0 else candidates


WEIGHT = 0.8  # the most that a reranker's score counts in the blended one; docs/reranking.md gives the reasons

CERTAIN, AHEAD = 0.9, 0.4  # the confidence of a first result that needs no second look, and its lead over the next
APART = 6.0  # logits from the worst to the best result; those in a script that a model cannot read are closer
MOST_LOGIT = 30.0  # beyond it a probability is 0 or 1
NOTHING = 1e-6  # a total so small that no factor can raise it: such results stay at the end


def is_certain(head: Sequence[Candidate]) -> bool:
    """Whether the first result is so likely, and so much likelier than any other, that reranking cannot help."""
    first, *others = [candidate.confidence or 0.0 for candidate in head]
    return first >= CERTAIN and first - max(others, default=0.0) >= AHEAD


def share_of(scores: Sequence[float]) -> float:
    """How much a reranker counts: by how far its best result stands above the mean of them.

    Where it finds all results alike, relevant or not, it has nothing to say about their order.
    """
    likely = [1 / (1 + math.exp(-score)) for score in logits(scores)]
    return WEIGHT * max(0.0, max(likely) - math.fsum(likely) / len(likely))


def logits(scores: Sequence[float]) -> list[float]:
    """A reranker's scores as logits, which they are unless all lie between 0 and 1."""
    if all(0 <= score <= 1 for score in scores):
        scores = [math.log((score or 1e-99) / ((1 - score) or 1e-99)) for score in scores]
    return [max(-MOST_LOGIT, min(MOST_LOGIT, score)) for score in scores]


@dataclass(frozen=True, slots=True)
class RerankScores:
    """A reranker's scores of the first records, as far as it came, and a warning if that was not all of them."""

    scores: tuple[float, ...] = ()
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Rerank:
    """Reorders the first `head` results by a blend of their score and the reranker's; the others stay below them.

    The blend is scaled to lie between the lowest and the highest total of the head, so that what passed the threshold
    still does, and nothing in the head falls below the rest. It is applied as the factor `rerank`.
    `scores` never raises, and it keeps to the query's deadline.
    """

    scores: Callable[[Query, Sequence[Record]], RerankScores]
    head: int = 20
    weight: float | None = None  # the reranker's share of the blend; by default it follows from its scores

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The reordered candidates; in the same order if the reranker failed or had no time."""
        head = list(takewhile(lambda candidate: candidate.total > NOTHING, candidates[: self.head]))
        if len(head) < 2 or is_certain(head):  # noqa: PLR2004  (one result has no rival)
            return candidates
        head = head[0].pool.read(head)
        reranked = self.scores(query, [candidate.record for candidate in head])
        head = head[: len(reranked.scores)]
        rest = [candidate for candidate in candidates if candidate not in head]
        if len(head) > 1:
            totals = [candidate.total for candidate in head]
            low, span = min(totals), max(totals) - min(totals)
            share = self._share(head, reranked.scores) if self.weight is None else self.weight
            scores = minmax(reranked.scores, False)
            around = joined_around(head, scores)  # the turns around a turn count here, too
            scores = minmax([around.get(at, score) for at, score in enumerate(scores)], False)
            pairs = zip(minmax(totals, False), scores, strict=True)
            blend = [(1 - share) * fused + share * score for fused, score in pairs]
            for candidate, total, blended in zip(head, totals, blend, strict=True):
                candidate.scale("rerank", (low + span * blended) / total)
            best_first = sorted(range(len(head)), key=lambda i: -blend[i])
            # Sorted again, because rounding may set two that are all but equal apart.
            head = list(_by_total([head[i] for i in best_first]))
        return Warned(_moved("rerank", candidates, [*head, *rest]), reranked.warning)

    def _share(self, head: Sequence[Candidate], scores: Sequence[float]) -> float:
        """The reranker's share; for conversations with clearly different scores, the maximum."""
        turns, levels = sum(candidate.line < 0 for candidate in head), logits(scores)
        return WEIGHT if 2 * turns > len(head) and max(levels) - min(levels) > APART else share_of(scores)


COMPARED_RESULTS = 50  # how many results are compared: two versions of a statement stand near each other
ALIKE = 0.4  # the share of their words that two versions of a statement have in common: what differs is the answer
SIZE = 0.7  # how long the shorter must be, relative to the longer: a longer text may hold the very answer
COMPARABLE = 0.7  # the score that a newer one needs, relative to all that it moves past; two alone say too little


def newer(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Put a newer fact before an older one that says nearly the same ("the key is under the pot", "… with Anneke").

    Both must contain the same words of the query: the other words that they share may be about something else. Their
    scores must be comparable: of several events of one pattern, the query may describe an older one. A query that names
    a time asks for what was said then, so the order stays. What is yet to come counts as older.
    """
    if not query.ranking.prefer_newer or query.period is not None or len(candidates) < 2:  # noqa: PLR2004  (one result has no rival)
        return candidates
    head = list(candidates[:COMPARED_RESULTS])
    statements = head[0].pool.statements(head, statement("fact", query.text).words())
    now = micros(query.filter.moment) or 0
    times = [candidate.time if candidate.time <= now else 0 for candidate in head]
    words = cache(lambda position: set(statements[position].words()))
    placed: list[int] = []  # positions in `head`
    rivals: dict[Hashable, list[int]] = {}  # words of the query → positions of the statements with these
    for position, own in enumerate(statements):
        before = position
        if own.asked:
            alike = rivals.setdefault(own.asked, [])
            shortest, longest = SIZE * own.length, min(LONGEST_WORDS, own.length / SIZE)
            older = {
                at
                for at in alike
                if times[at] < times[position]
                and shortest <= statements[at].length <= longest
                and own.length <= LONGEST_WORDS
                and _alike(words(position), words(at))
            }
            if older:
                most = head[position].total / COMPARABLE if len(head) > 2 else math.inf  # noqa: PLR2004
                for place in reversed(range(position)):
                    if head[placed[place]].total > most:
                        break
                    before = place if placed[place] in older else before
            alike.append(position)
        placed.insert(before, position)
    if placed == sorted(placed):
        return candidates
    return _moved("newer", candidates, [*(head[position] for position in placed), *candidates[COMPARED_RESULTS:]])


def _alike(one: set[int], other: set[int]) -> bool:
    """Whether two statements have many words in common."""
    common = len(one & other)
    return common >= ALIKE * (len(one) + len(other) - common)


COMPARED_CHARACTERS = 4_000  # of a record without a vector: comparing the words of a book takes a second


def diversify(vectors: VectorsOf, query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Reorder the results so that the first ones differ, and cut them to `limit`: Maximal Marginal Relevance.

    Similarity is the cosine of the records' vectors, or the overlap of their words if one of them has no vector.
    """
    balance = query.ranking.mmr_lambda
    if not query.ranking.mmr or balance == 1 or len(candidates) < 2:  # noqa: PLR2004  (one result has no rival)
        return candidates
    candidates = candidates[0].pool.read(candidates)
    # An earlier stage may have put a result with a lower score first; the first counts as the more relevant.
    relevance = minmax(list(accumulate((candidate.total for candidate in candidates), min)), True)
    ids = [candidate.record.id for candidate in candidates]
    known = vectors(ids)
    if all(key in known for key in ids):
        import numpy as np

        matrix, words = np.stack([known[key] for key in ids]), []
    else:
        words = [set(fold(candidate.record.text[:COMPARED_CHARACTERS]).split()) for candidate in candidates]

    def similarity(i: int) -> Sequence[float]:
        query.check()
        if words:
            return [len(words[i] & other) / len(words[i] | other) if words[i] or other else 1.0 for other in words]
        cosines: Sequence[float] = matrix @ matrix[i]
        return cosines

    picks = mmr(relevance, similarity, balance=balance, picks=query.limit)
    for rank, i in enumerate(picks, 1):
        candidates[i].move("mmr", i + 1, rank)
    return [candidates[i] for i in picks]


def mark_freshness(states: StatesOf, _query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Mark results from files: `fresh`, `changed`, `missing`, `unreadable` (for now) or `unknown` (never indexed)."""
    paths = {one.record.path for one in candidates if one.record.path and one.record.kind != "outside"}
    known = states(sorted(paths)) if paths else {}
    marks = {path: freshness(path, known.get(path)) for path in paths}
    for candidate in candidates:
        for one in (candidate, *candidate.passages):
            one.freshness = marks.get(one.record.path or "")
    return candidates


def freshness(path: str, state: FileState | None) -> str:
    """Whether a file is still as it was indexed: by its time and size, and by its hash if the time differs."""
    try:
        stat = Path(path).stat()
        if state is None:
            return "unknown"
        if (stat.st_mtime_ns, stat.st_size) == (state.mtime_ns, state.size):
            return "fresh"
        same = stat.st_size == state.size and FileState.digest_of(Path(path).read_bytes()) == state.content_digest
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return "missing"
    except OSError:
        return "unreadable"
    return "fresh" if same else "changed"
