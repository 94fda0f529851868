"""The whole search once more, slow and obvious: what `Memory.search` must return.

Plain Python over a plain list of records. Nothing is imported from the stores, the pipeline, the fusion or the stages;
the formulas are written down again. Only the analysis of words is shared, which has tests of its own.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any

from recollect.analysis import Analyzer, lead, snippet
from recollect.frequencies import shares
from recollect.spelling import expand, words_of
from recollect.types import Record

DEFAULTS: Mapping[str, Any] = {
    "limit": 10, "fetch_k": 100, "sources": ("keyword", "vector"), "budget_ms": None, "fusion": "blend", "rrf_k": 60.0,
    "normalisation": "none", "text_weight": 1.0, "vector_weight": 1.0, "decay": True, "half_life_days": None,
    "importance_weight": 0.1, "by": "file", "prefer_newer": True, "mmr": False, "mmr_lambda": 0.7, "min_score": 0.0,
    "user": None, "agent": None, "session": None, "any_scope": False, "category": (), "tags": (), "kind": None,
    "origin": (), "author": (), "author_session": (),
    "path": None, "since": None, "until": None, "as_of": None, "superseded": False,
    "phrases": (), "without": (), "required": (),
}  # fmt: skip

HALF_LIVES = {"permanent": math.inf, "stable": 90.0, "active": 14.0, "session": 1.0, "checkpoint": 4 / 24}  # days
CATCH_UP = 32  # records without a vector
NOISE = 1e-12  # two numbers that are nearer than this differ by rounding only


@dataclass(frozen=True)
class World:
    """What a search reads: the records, and the vectors of those that have one, by id.

    `willing` says whether the embedder computes vectors of records now.
    """

    records: Sequence[Record]
    vectors: Mapping[str, Sequence[float]]
    embed: Callable[[str], Sequence[float]]
    willing: bool = True
    legibility: Callable[[str], float] = lambda _: 1.0
    analyzer: Analyzer = field(default_factory=Analyzer)


@dataclass
class Ranking:
    """The list of one source: (record, score), best first. `duplicates` is the least and the most it may count."""

    source: str
    hits: list[tuple[Record, float]] = field(default_factory=list)
    duplicates: tuple[int, int] = (0, 0)
    among: int | None = None  # if the list is complete: how many records it was made from
    trust: float = 1.0
    weight: float = 1.0
    near: list[str] = field(default_factory=list)  # terms that were searched for misspelled words


@dataclass
class Row:
    """One result on its way through the stages."""

    record: Record
    shares: dict[str, tuple[int, float, float]]  # source → rank, score, contribution
    excerpt: str
    base: float = 0.0
    factors: dict[str, float] = field(default_factory=dict)
    moves: dict[str, tuple[int, int]] = field(default_factory=dict)
    passages: list[Row] = field(default_factory=list)

    @property
    def fused(self) -> float:
        return sum(contribution for _, _, contribution in self.shares.values())

    @property
    def total(self) -> float:
        return self.base * math.prod(self.factors.values())

    @property
    def score(self) -> float:
        return min(1.0, max(0.0, self.total))


@dataclass
class Outcome:
    """The results, and how they came about. `steps` holds the rows after each step, by its name.

    `lacking` are the records, visible or not, that have no vector after the search.
    """

    lists: list[Ranking]
    steps: dict[str, list[Row]]
    merged: int
    lacking: list[Record]
    delicate: bool  # two totals differ by rounding only, so that either may come first

    @property
    def results(self) -> list[Row]:
        return self.steps["limit"]

    @property
    def duplicates(self) -> tuple[int, int]:
        least, most = (sum(ranking.duplicates[end] for ranking in self.lists) for end in (0, 1))
        return self.merged + least, self.merged + most


def search(world: World, text: str, options: Mapping[str, Any], now: datetime) -> Outcome:
    """Answer a query: the options are those of `Memory.search`."""
    o = {**DEFAULTS, **options}
    visible = [record for record in world.records if obstacle(record, o, now) is None]
    depth = max(o["fetch_k"], o["limit"])
    lists = []
    if "keyword" in o["sources"]:
        lists.append(keyword_list(visible, text, world.analyzer, depth))
    if "vector" in o["sources"]:
        world, share = caught_up(world, visible, text, o)
        lists.append(vector_list(world, visible, text, depth, share))
    rows, merged = fused(lists, text, world, o)
    steps = {"fusion": rows}
    delicate = unclear(rows)
    rows = by_total(of_conversations(rows), "turns") if o["fusion"] == "blend" else rows
    delicate = delicate or unclear(rows)
    if o["by"] == "file":
        rows = by_total(of_files(rows), "files")
        delicate = delicate or unclear(rows)
    moment = o["as_of"] or now
    if o["decay"]:
        rows = by_total([decayed(row, moment, o["half_life_days"]) for row in rows], "decay")
    rows = steps["importance"] = by_total([weighed(row, o["importance_weight"]) for row in rows], "importance")
    delicate = delicate or unclear(rows)
    rows = steps["threshold"] = [row for row in rows if row.score >= o["min_score"]]
    rows = steps["newer"] = newer_first(text, rows, moment) if o["prefer_newer"] else rows
    if o["mmr"] and o["mmr_lambda"] < 1:
        rows = diversified(world, rows, o["mmr_lambda"], o["limit"])
    steps["mmr"] = rows
    steps["limit"] = rows[: o["limit"]]
    lacking = [record for record in world.records if record.id not in world.vectors]
    return Outcome(lists, steps, merged, lacking, delicate)


# -- which records a query may find ------------------------------------------------------------------------


def obstacle(record: Record, o: Mapping[str, Any], now: datetime) -> str | None:
    """The first part of the filter that hides a record; None if it is visible."""
    moment = o["as_of"] or now
    categories = (o["category"],) if isinstance(o["category"], str) else o["category"]
    tags = (o["tags"],) if isinstance(o["tags"], str) else o["tags"]
    parts = ("user", "agent", "session")
    hides = {
        "scope": not o["any_scope"] and any(getattr(record.scope, part) not in (None, o[part]) for part in parts),
        "as_of": o["as_of"] and (record.time > moment or (record.edited_at and record.edited_at > moment)),
        "superseded": not o["superseded"] and record.superseded_at and record.superseded_at <= moment,
        "expired": record.expires_at and record.expires_at <= moment,
        "category": categories and record.category not in categories,
        "kind": o["kind"] and record.kind != o["kind"],
        "origin": o["origin"] and "any" not in o["origin"] and record.origin not in o["origin"],
        "author": o["author"] and record.author not in o["author"],
        "author_session": o["author_session"] and record.author_session not in o["author_session"],
        "tag": not set(tags) <= set(record.tags),
        "path": o["path"] and not below(record.path, o["path"]),
        "since": o["since"] and record.time < o["since"],
        "until": o["until"] and record.time >= o["until"],
        "phrase": not all(has_phrase(record, phrase) for phrase in o["phrases"]),
        "required": not all(any(has_term(record, word) for word in group) for group in o["required"]),
        "without": any(has_term(record, word) for word in o["without"]),
    }
    return next((name for name, hidden in hides.items() if hidden), None)


def has_phrase(record: Record, phrase: str) -> bool:
    """Whether the words of a phrase stand next to each other in the title or the text."""
    wanted = re.findall(r"\w+", phrase.casefold())
    for part in (record.title, record.text):
        words = re.findall(r"\w+", unicodedata.normalize("NFKC", part).casefold())
        if any(words[at : at + len(wanted)] == wanted for at in range(len(words))):
            return True
    return False


def has_term(record: Record, word: str) -> bool:
    """Whether the title or the text has a word with the same index term."""
    analyzer = Analyzer()
    terms = {token.term for part in (record.title, record.text) for token in analyzer.tokens(part)}
    return next(analyzer.tokens(word)).term in terms


def below(path: str | None, pattern: str) -> bool:
    """Whether a path is, or lies below, the file or folder of a pattern, in which `*` stands for anything."""
    name = ".*".join(map(re.escape, pattern.removeprefix("./").rstrip("/").split("*")))
    return path is not None and re.fullmatch(f"(.*/)?{name}(/.*)?", path, re.DOTALL) is not None


# -- the two lists -----------------------------------------------------------------------------------------


def mean_lengths(visible: Sequence[Record], lengths: Mapping[str, int]) -> dict[str, float]:
    """The mean length of the records of each one's kind, or of all if that is longer."""
    means = {}
    for record in visible:
        alike = [lengths[other.id] for other in visible if other.kind == record.kind]
        means[record.id] = max(sum(alike) / len(alike), sum(lengths.values()) / len(visible))
    return means


def keyword_list(
    visible: Sequence[Record], text: str, analyzer: Analyzer, depth: int, *, typos: bool = True
) -> Ranking:
    """Lucene's BM25 over the visible records. A word in the title counts twice; stop words add no length.

    A word of the query counts as often as it occurs there. It is at least as frequent as if 300 records of general text
    had been seen, too. A word that no record has counts as the nearest ones, by a part of their weight.
    """
    terms = analyzer.query(text)
    if not terms:
        return Ranking("keyword")
    counts: dict[str, dict[str, float]] = {}
    lengths: dict[str, int] = {}
    for record in visible:
        counts[record.id], length = {}, 0
        for part, weight in ((record.title, 2.0), (record.text, 1.0)):
            for token in analyzer.tokens(part):
                counts[record.id][token.term] = counts[record.id].get(token.term, 0.0) + weight
                length += 0 if token.stop else int(weight)
        lengths[record.id] = max(1, length)
    means = mean_lengths(visible, lengths)
    scores: dict[str, float] = {}
    most = 0.0
    weighed = [(term, 1.0) for term in terms]
    near = nearest_terms(text, terms, counts, analyzer) if typos else {}
    extra = {term: weight for found in near.values() for term, weight in found.items()}
    weighed += [(term, weight) for term, weight in extra.items() if term not in terms]
    for term, weight in weighed:
        if term in near:
            continue
        having = [record.id for record in visible if term in counts[record.id]]
        idf = inverse_frequency(len(visible), len(having), shares(analyzer.language).get(term, 0.0))
        idf *= weight
        most += idf if term in terms else 0.0
        for key in having:
            often = counts[key][term]
            share = often / (often + 1.2 * (1 - 0.75 + 0.75 * lengths[key] / means[key]))
            scores[key] = scores.get(key, 0.0) + idf * share
    most += sum(most_of_near(found, counts, analyzer) for found in near.values())
    ranking = best("keyword", [(r, round(scores[r.id], 9)) for r in visible if r.id in scores], depth)
    complete = len(ranking.hits) < depth
    if complete:
        ranking.among = min(depth, len(visible))
    if ranking.hits:  # how much of what twelve words could give the best record has, against a fifth, among few .7
        covered = ranking.hits[0][1] / (most * min(1.0, 12 / len(terms)))
        few = (len(visible) + 300) / (len(visible) + 600)  # among few records words count for less
        ranking.trust = min(1.0, covered / (0.2 + 0.5 * 50 / (50 + len(visible)))) * few
    ranking.near = [term for found in near.values() for term in found]
    return ranking


def most_of_near(near: Mapping[str, float], counts: Mapping[str, Mapping[str, float]], analyzer: Analyzer) -> float:
    """The most that a record can get for one of the terms near a misspelled word."""
    common, most = shares(analyzer.language), 0.0
    for term in near:
        having = sum(term in each for each in counts.values())
        most = max(most, inverse_frequency(len(counts), having, common.get(term, 0.0)))
    return most


def nearest_terms(
    text: str, terms: Sequence[str], counts: Mapping[str, Mapping[str, float]], analyzer: Analyzer
) -> dict[str, dict[str, float]]:
    """The term of each unknown word of four letters or more → the terms near it that visible records have, weighted.

    Which words are near each other is shared with the code, and has tests of its own.
    """
    vocabulary = {term for each in counts.values() for term in each}
    unknown = [term for term in terms if term not in vocabulary]

    def known(wanted: Sequence[str]) -> dict[str, int]:
        having = {term: sum(term in each for each in counts.values()) for term in wanted}
        return {term: count for term, count in having.items() if count}

    words = words_of(text, unknown, analyzer) if vocabulary else {}
    found = expand(words, analyzer, known, lambda prefix: {term for term in vocabulary if term.startswith(prefix)})
    return {term: {other: each.weight for other, each in near.items()} for term, near in found.items()}


def inverse_frequency(records: int, having: int, common: float) -> float:
    """Lucene's, of the frequency among the records or, if that is higher, among these and 300 of general text."""
    frequency = max(having, (having + 300 * common) / (records + 300) * records)
    return math.log(1 + (records - frequency + 0.5) / (frequency + 0.5))


def caught_up(world: World, visible: Sequence[Record], text: str, o: Mapping[str, Any]) -> tuple[World, float]:
    """The world after a search has embedded what it can, and a factor on the trust of the vector source.

    It embeds up to 32 visible records that have no vector; of more, those among the twenty best by keywords, unless it
    has a deadline or is the only source. Where it cannot, the factor is the share of visible records with a vector;
    where that is below a half and the method does not read it, 0.
    """
    lacking = [record for record in visible if record.id not in world.vectors]
    covered = 1 - len(lacking) / len(visible) if visible else 1.0
    if o["fusion"] != "blend" and covered < 0.5:
        covered = 0.0
    share = 1.0
    if not text.strip() or (len(lacking) > CATCH_UP and len(set(o["sources"])) == 1):
        return world, 1.0
    if len(lacking) > CATCH_UP and o["budget_ms"]:
        return world, covered
    if len(lacking) > CATCH_UP:
        head = [record for record, _ in keyword_list(visible, text, world.analyzer, 20, typos=False).hits]
        lacking = [record for record in head if record.id not in world.vectors]
        share = covered if lacking and not world.willing else 1.0
    passages = {record.passage for record in lacking if world.willing}
    new = {record.id: world.embed(record.passage) for record in world.records if record.passage in passages}
    return replace(world, vectors={**world.vectors, **new}), share


def vector_list(world: World, visible: Sequence[Record], text: str, depth: int, share: float) -> Ranking:
    """Exact cosines of the visible records that have a vector."""
    if not text.strip():
        return Ranking("vector")
    query = world.embed(text)
    scored = [(r, round(dot(query, world.vectors[r.id]), 6)) for r in visible if r.id in world.vectors]
    ranking = best("vector", scored, depth)
    texts = [record.text[:500] for record, _ in ranking.hits[:5]]
    ranking.trust = share * min(world.legibility(text), world.legibility(texts[0] if texts else text) / 0.2)
    code = [one for one in texts if sum(one.count(mark) for mark in "()[]{}<>=_;") / max(1, len(one)) > 0.03]
    if code and len(code) / len(texts) >= 0.8:
        ranking.trust *= 2
    return ranking


def best(source: str, scored: Sequence[tuple[Record, float]], depth: int) -> Ranking:
    """The first `depth` different texts by score, then newer, then id.

    A duplicate counts if it stands above the last of them; whether one below is counted depends on how far it was read.
    """
    dawn = datetime.min.replace(tzinfo=UTC)
    ordered = sorted(scored, key=lambda pair: (-pair[1], dawn - pair[0].time, pair[0].id))
    hits: dict[str, tuple[Record, float]] = {}
    least = most = 0
    for record, score in ordered:
        if fold(record.text) in hits:
            most += 1
            least += len(hits) < depth
        elif len(hits) < depth:
            hits[fold(record.text)] = (record, score)
    return Ranking(source, list(hits.values()), (least, most))


def fold(text: str) -> str:
    """Equal for duplicates: NFKC, case folded, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


# -- fusion ------------------------------------------------------------------------------------------------


def fused(lists: Sequence[Ranking], text: str, world: World, o: Mapping[str, Any]) -> tuple[list[Row], int]:
    """The fused ranking, and how many hits of a later list were merged into a record of an earlier one."""
    shown: dict[str, Row] = {}  # folded text → the row of the first list that has it
    merged = 0
    for ranking in lists:
        for record, _ in ranking.hits:
            row = shown.get(fold(record.text))
            if row is None:
                by_words = ranking.source == "keyword"
                terms = [*world.analyzer.query(text), *ranking.near]
                excerpt = snippet(record.text, terms, world.analyzer) if by_words else lead(record.text)
                shown[fold(record.text)] = Row(record, {}, excerpt)
            else:
                merged += row.record.id != record.id
    weights = {"keyword": o["text_weight"], "vector": o["vector_weight"]}
    for ranking in lists:
        ranking.weight = weights[ranking.source] * trusted(ranking, lists, weights, o["fusion"])
    counted = [ranking for ranking in lists if ranking.weight > 0]
    if not counted:
        return [], merged
    amounts, most = contributions(counted, o)
    for ranking, values in zip(counted, amounts, strict=True):
        for rank, ((record, score), value) in enumerate(zip(ranking.hits, values, strict=True), 1):
            shown[fold(record.text)].shares[ranking.source] = (rank, score, value)
    order = [ranking.source for ranking in counted]
    rows = [row for row in shown.values() if row.shares]
    for row in rows:
        row.base = min(1.0, max(0.0, row.fused / most))

    def place(row: Row) -> tuple[float, int, int]:
        rank, source = min((rank, order.index(source)) for source, (rank, _, _) in row.shares.items())
        return -row.fused, rank, source

    return sorted(rows, key=place), merged


def trusted(ranking: Ranking, lists: Sequence[Ranking], weights: Mapping[str, float], method: str) -> float:
    """The factor on a source's weight: its trust under `blend`; under other methods 0 where that is 0, else 1.

    A source keeps its whole weight if no other has found anything.
    """
    others = [other for other in lists if other is not ranking and weights[other.source] > 0]
    if not any(other.hits and other.trust > 0 for other in others):
        return 1.0
    return ranking.trust if method == "blend" or ranking.trust == 0 else 1.0


def contributions(lists: Sequence[Ranking], o: Mapping[str, Any]) -> tuple[list[list[float]], float]:
    """For each list the contribution of each hit, and the most that one record could collect."""
    total = sum(ranking.weight for ranking in lists)
    texts = [[fold(record.text) for record, _ in ranking.hits] for ranking in lists]
    match o["fusion"]:
        case "blend":
            amounts = [[r.weight / total * value for value in above_tail(r)] for r in lists]
            return amounts, sum(max(values, default=0.0) for values in amounts) or 1.0
        case "rrf":
            k = o["rrf_k"]
            amounts = [[r.weight / (k + rank) for rank, _ in enumerate(r.hits, 1)] for r in lists]
            return amounts, sum(r.weight / (k + 1) for r in lists)
        case "borda":
            count = len({text for each in texts for text in each})
            amounts = [[r.weight * (count - rank + 1) / count for rank, _ in enumerate(r.hits, 1)] for r in lists]
            return amounts, total
        case "weighted" | "combmnz":
            amounts = [[r.weight / total * value for value in normalised(r, o["normalisation"])] for r in lists]
            if o["fusion"] == "weighted":
                return amounts, 1.0
            agreeing = [[sum(text in other for other in texts) for text in each] for each in texts]
            products = [[n * v for n, v in zip(*pair, strict=True)] for pair in zip(agreeing, amounts, strict=True)]
            return products, float(len(lists))
    raise ValueError(o["fusion"])


def above_tail(ranking: Ranking) -> list[float]:
    """How far each score stands above the tail, in root mean squares of all distances; six of them are the most.

    The tail of a complete list are the records without a word of the query, which score 0. Otherwise the record after
    the last would score one mean step less.
    """
    scores = [score for _, score in ranking.hits]
    if not scores:
        return []
    tail, count = min(scores) - (max(scores) - min(scores)) / len(scores), len(scores)
    if ranking.among is not None and ranking.among > len(scores):
        tail, count = 0.0, ranking.among
    spread = math.sqrt(sum((score - tail) ** 2 for score in scores) / count)
    # Where all are equal, none stands out, and each is one unit above a record that is not in the list.
    return [min(1.0, ((score - tail) / spread if spread > NOISE else 1.0) / 6) for score in scores]


def normalised(ranking: Ranking, how: str) -> list[float]:
    scores = [score for _, score in ranking.hits]
    if not scores:
        return []
    mean = sum(scores) / len(scores)
    deviation = math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores))
    scaled = [(score - mean) / deviation if deviation > NOISE else 0.0 for score in scores]
    match how:
        case "none":
            return scores if ranking.source == "vector" else [score / (1 + score) for score in scores]
        case "minmax":
            return from_zero_to_one(scores)
        case "zscore":
            return [0.5 * (1 + math.erf(z / math.sqrt(2))) for z in scaled]
        case "dbsf":
            return [min(1.0, max(0.0, z / 6 + 0.5)) for z in scaled]
    raise ValueError(how)


def from_zero_to_one(values: Sequence[float]) -> list[float]:
    """The best as 1, the worst as 0; if all are equal, all are the best."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 1.0 for value in values]


# -- after fusion ------------------------------------------------------------------------------------------


def by_total(rows: Sequence[Row], stage: str) -> list[Row]:
    ordered = sorted(rows, key=lambda row: -row.total)
    moved(rows, ordered, stage)
    return ordered


def unclear(rows: Sequence[Row]) -> bool:
    """Whether two totals differ by rounding only, or are equal though they are made of different numbers."""

    def made_of(row: Row) -> tuple[dict[str, float], dict[str, float]]:
        return {source: amount for source, (_, _, amount) in row.shares.items()}, row.factors

    pairs = pairwise(sorted(rows, key=lambda row: row.total))
    return any(
        0 < (gap := high.total - low.total) < NOISE or (not gap and made_of(low) != made_of(high))
        for low, high in pairs
    )


def decayed(row: Row, moment: datetime, half_life_days: float | None) -> Row:
    """A record counts half after its half-life; one without a decay class has that of the options, or none."""
    half_life = HALF_LIVES[row.record.decay] if row.record.decay else half_life_days or math.inf
    if math.isfinite(half_life):
        days = max(0.0, (moment - row.record.time).total_seconds()) / 86_400
        row.factors["decay"] = 2 ** (-days / half_life)
    return row


def weighed(row: Row, weight: float) -> Row:
    """The importance of a record as a factor: 1 in the middle, `1 ± weight` at the ends."""
    factor = 1 + weight * (2 * row.record.importance - 1)
    if factor != 1:
        row.factors["importance"] = factor
    return row


def of_conversations(rows: Sequence[Row]) -> list[Row]:
    """What a turn lacks of 1 is multiplied by 1 less 0.35 times the score of each turn around it, as it was before.

    These are the two turns before and the two after it, newest first, as far as at most four microseconds lie between.
    """
    gains = []
    for row in rows:
        me = row.record
        turns = [other for other in rows if other.record.kind == "turn" == me.kind and other.total > 1e-6]
        own = [other for other in turns if _talk(other.record) == _talk(me) is not None]
        own.sort(key=lambda other: -other.record.created_at.timestamp())
        at = next((place for place, other in enumerate(own) if other is row), None)
        around = [] if at is None else [*own[max(0, at - 2) : at], *own[at + 1 : at + 3]]
        near = [other for other in around if abs(other.record.created_at - me.created_at) <= timedelta(microseconds=4)]
        gains.append([other.score for other in near])
    for row, near in zip(rows, gains, strict=True):
        if near:
            row.factors["turns"] = (1 - math.prod([1 - row.score, *(1 - 0.35 * score for score in near)])) / row.total
    return list(rows)


def _talk(record: Record) -> tuple[str, str] | None:
    return (record.source, record.author_session) if record.source and record.author_session else None


def of_files(rows: Sequence[Row]) -> list[Row]:
    """The first row of each file, and the rows that are no chunks of files.

    The other rows of the file that have half of its score are its passages. The first adds a fifth of its own score,
    the second a twenty-fifth, and so on. Three thirteenths of the score are those of the file's best row that begins in
    its first 15 lines, which may be 0.
    """
    kept: list[Row] = []
    openings: dict[str, float] = {}
    for row in rows:
        path = row.record.path if row.record.kind == "chunk" else None
        first = next((one for one in kept if path and one.record.kind == "chunk" and one.record.path == path), None)
        if path and (row.record.lines or (0, 0))[0] <= 15:
            openings[path] = max(openings.get(path, 0.0), row.total)
        if first is None:
            kept.append(row)
        elif row.total >= 0.5 * first.total - 1e-9:
            first.passages.append(row)
    for row in kept:
        if row.record.kind == "chunk" and row.record.path and row.total > 0:
            added = sum(one.total / 5**place for place, one in enumerate(row.passages, 1))
            lost = 3 / 13 * (row.total - openings.get(row.record.path, 0.0))
            if added != lost:
                row.factors["files"] = 1 + (added - lost) / row.total
    return kept


def newer_first(text: str, rows: list[Row], moment: datetime) -> list[Row]:
    """Among the first fifty, a fact comes before the first older one that it updates and can reach.

    It moves past nothing that scores far more, unless there are only two.
    """
    asked = set(words(text))
    placed: list[Row] = []
    for row in rows[:50]:
        before = len(placed)
        for i, older in reversed(list(enumerate(placed))):
            if len(rows) > 2 and older.total > row.total / 0.7:
                break
            if updates(row.record, older.record, asked, moment):
                before = i
        placed.insert(before, row)
    moved(rows, placed, "newer")
    return placed + rows[50:]


def updates(newer: Record, older: Record, asked: set[str], moment: datetime) -> bool:
    """Whether two facts say nearly the same about the query, and the first is newer: what is yet to come is not."""
    ours, theirs = (words(r.text) if r.kind == "fact" else [] for r in (newer, older))
    if not asked & set(ours) or asked & set(ours) != asked & set(theirs):
        return False
    if newer.time > moment or newer.time <= older.time <= moment:
        return False
    short, long = sorted((len(ours), len(theirs)))
    alike = len(set(ours) & set(theirs)) >= 0.4 * len(set(ours) | set(theirs))
    return alike and long <= 60 and short >= 0.7 * long


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold()) if len(text) <= 720 else []


def diversified(world: World, rows: list[Row], balance: float, limit: int) -> list[Row]:
    """Maximal Marginal Relevance: the most relevant first, then always what gains most."""
    if len(rows) < 2:
        return rows
    alike = similarity(world, rows)
    relevance = from_zero_to_one(list(accumulate((row.total for row in rows), min)))
    chosen = [0]
    while len(chosen) < min(limit, len(rows)):
        rest = [i for i in range(len(rows)) if i not in chosen]
        gains = {i: balance * relevance[i] - (1 - balance) * max(alike(i, j) for j in chosen) for i in rest}
        chosen.append(max(rest, key=gains.__getitem__))
    picked = [rows[i] for i in chosen]
    moved(rows, picked, "mmr")
    return picked


def similarity(world: World, rows: Sequence[Row]) -> Callable[[int, int], float]:
    """The cosine of two results; the overlap of their words, unless every result has a vector."""
    vectors = [world.vectors.get(row.record.id, ()) for row in rows]
    if all(vectors):
        return lambda i, j: dot(vectors[i], vectors[j])
    sets = [set(fold(row.record.text).split()) for row in rows]
    return lambda i, j: len(sets[i] & sets[j]) / len(sets[i] | sets[j])


def moved(before: Sequence[Row], after: Sequence[Row], stage: str) -> None:
    ranks = {row.record.id: rank for rank, row in enumerate(before, 1)}
    for rank, row in enumerate(after, 1):
        if ranks[row.record.id] != rank:
            row.moves[stage] = (ranks[row.record.id], rank)
