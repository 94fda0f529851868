"""Train a small embedder to rank passages for questions, on one GPU.

`python training/rank.py MODELS CACHE train.json.xz… --score`, then
`python training/rank.py MODELS CACHE weights.npz --seconds 900 [--watch questions.json.xz]`

MODELS holds the folders of the int8 ONNX models `small-embedder`, which is trained further, `arctic-embed-s`,
`bge-small-en` and `minilm-l12-reranker`; their weights are turned back into 32 bits. Needs torch, tokenizers, onnx
and numpy. `--score` finds passages for each question: the answer, passages near it by words and by meaning, and the
neighbours of the answer. It writes their vectors by both embedders and the scores of the cross-encoder to CACHE.

Training reads lists of these passages, many questions of one kind in a step. The student learns the order of each list
(cross-encoder and embedders, each with a weight that depends on the kind of text, and the known answer raised), the
order of all passages of the step (embedders alone), the known answers against all of them, and the vectors of
`arctic-embed-s`. What a language model asked of its own texts has the answer first. In some steps it learns from texts
of any length, as in embedder.py. The weights of the steps are averaged.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from bert import CLS, DEVICE, INNER, SEP, Bert, embedder_weights, graph_weights, log
from embedder import LONGEST, PREFIX, SHARPNESS, Cuts, Losses, Watch, read, unit
from rounding import round_off, spreads_of
from tokenizers import Tokenizer
from torch import Tensor
from train import BLOCK, QUESTION, CrossEncoder, Texts, scores, vectors

WORDS = 30522  # in the vocabulary
BY_WORDS, BY_MEANING = (0, 1, 3, 7), (0, 1, 2, 5, 11)  # the places of the passages that a list has of each order
LIST = 1 + len(BY_WORDS) + len(BY_MEANING) + 2  # the answer first, its two neighbours last
EXTENDED = 0.25  # the share of passages that go on into what follows them
MOST = LONGEST - 2
STEEP = 2.7  # how much a standard deviation of the cosines counts in the order of a list
SCORE = 0.6  # how much a unit of the cross-encoder's score counts
NEAR_TOGETHER = 24  # questions of a step that come from the same place

# Kind of text: share of the steps; weight of the second embedder and of the cross-encoder; raise of the known answer.
KINDS = {
    "conversation": (0.30, 0.3, 0.4, 1.5),
    "science": (0.26, 1.0, 0.1, 1.0),
    "documentation": (0.18, 0.9, 0.35, 0.5),
    "code": (0.14, 0.5, 0.1, 1.0),
    "encyclopedia": (0.12, 0.9, 0.35, 0.0),
    "written: facts": (0.14, 0.5, 0.3, 0.0),
    "written: conversation": (0.14, 0.3, 0.4, 0.0),
    "written: code": (0.06, 0.5, 0.1, 0.0),
    "written: documentation": (0.07, 0.9, 0.35, 1.5),
    "written: science": (0.05, 1.0, 0.1, 1.5),
    "written: encyclopedia": (0.04, 0.9, 0.35, 1.5),
}
SURE = ("written: facts", "written: conversation", "written: code")  # kinds whose known answer is the only one
AHEAD = 1.5  # of the next passage of its list, at least, that such an answer is


# Finding and scoring


def tokenizer_of(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    tokenizer.encode_special_tokens = True
    return tokenizer


def large(folder: Path, model: Bert | None = None) -> Bert:
    model = model or Bert(12, INNER)
    model.take(graph_weights(folder / "model.onnx"), range(12))
    model.requires_grad_(requires_grad=False)
    return model.to(DEVICE)


def halved(model: Bert) -> Bert:
    return model.half() if DEVICE == "cuda" else model


def score(arguments: argparse.Namespace) -> None:
    """Write to CACHE: tokens, lists of passages, vectors of two embedders, scores of the cross-encoder."""
    data = read(arguments.data, arguments.groups)
    kinds = data["kinds"]
    tokenizer = tokenizer_of(arguments.models / "arctic-embed-s")
    passages = Texts(tokenizer, data["passages"], MOST)
    ends, whole = np.array(data["ends"]), passages.lengths.cpu()
    extend(passages, ends, arguments.seed)
    rows = chosen(data["questions"], len(ends), arguments)
    asked = Texts(tokenizer, [row[0] for row in rows], QUESTION)
    first, second = (halved(large(arguments.models / name)) for name in ("arctic-embed-s", "bge-small-en"))
    prefix = tokenizer.encode(PREFIX, add_special_tokens=False).ids
    own = [vectors(model, asked, prefix) for model in (first, second)]
    its = [vectors(model, passages) for model in (first, second)]
    log("vectors")
    kind = kinds.index("encyclopedia")
    place(
        rows, own[0], its[0], ends, {row[1] for row in data["questions"] if row[3] == kind and 0 <= row[1] < len(ends)}
    )
    order = sorted(range(len(rows)), key=lambda number: (rows[number][1], number))
    rows = [rows[number] for number in order]
    moved = torch.tensor(order, device=DEVICE)
    asked.lengths, asked.starts = asked.lengths[moved], asked.starts[moved]
    own = [vector[moved] for vector in own]
    lists, background = near(rows, ends, data["alone"], (asked, own), (passages, its))
    log("passages near the questions")
    reader = large(arguments.models / "minilm-l12-reranker", CrossEncoder(12, INNER))
    count = lists.shape[0]
    found = torch.zeros(count, LIST, dtype=torch.float16)
    for start in range(0, count, 32_768):
        part = lists[start : start + 32_768].to(DEVICE)
        numbers = torch.arange(start, start + len(part), device=DEVICE).repeat_interleave(LIST)
        score_of = scores(reader, asked, passages, numbers, part.reshape(-1).long())
        found[start : start + len(part)] = score_of.view(-1, LIST).half().cpu()
    log(f"{found.numel():,} pairs scored")
    arguments.cache.mkdir(parents=True, exist_ok=True)
    torch.save(
        {
            "kinds": kinds, "kind": torch.tensor([row[3] for row in rows]),
            "known": torch.tensor([row[2] >= 0 for row in rows]),
            "lists": lists, "scores": found, "background": background,
            "own": [one.cpu() for one in own], "its": [one.cpu() for one in its],
            "passages": [one.cpu() for one in (passages.tokens, passages.starts, passages.lengths)],
            "asked": [one.cpu() for one in (asked.tokens, asked.starts, asked.lengths)], "whole": whole, "ends": ends,
        },
        arguments.cache / "scored.pt",
    )  # fmt: skip
    log("written")


def extend(passages: Texts, ends: np.ndarray, seed: int) -> None:
    """Let some passages go on into those that follow them in their group, up to a length drawn at random."""
    rng = np.random.default_rng(seed)
    lengths, starts = passages.lengths.cpu().numpy(), passages.starts.cpu().numpy()
    last = ends[np.searchsorted(ends, np.arange(len(lengths)), side="right")] - 1
    room = starts[last] + lengths[last] - starts
    drawn = np.exp(rng.uniform(math.log(40), math.log(MOST), len(lengths))).astype(int)
    longer = np.minimum(np.minimum(np.maximum(lengths, drawn), room), MOST)
    passages.lengths = torch.tensor(np.where(rng.random(len(lengths)) < EXTENDED, longer, lengths), device=DEVICE)
    log(f"passages have {float(passages.lengths.float().mean()):.0f} tokens")


def chosen(questions: Sequence[Sequence], groups: int, arguments: argparse.Namespace) -> list[list]:
    """The questions of three words or more, at most so many of a kind."""
    rng, kept = random.Random(arguments.seed), list[list]()
    for kind in sorted({row[3] for row in questions}):
        own = [list(row) for row in questions if row[3] == kind and row[1] < groups and row[0].count(" ") > 1]
        rng.shuffle(own)
        kept += own[: arguments.questions]
    return kept


def place(rows: list[list], own: Tensor, its: Tensor, ends: np.ndarray, groups: set[int]) -> None:
    """Give questions without a group that of the passage that is nearest to them, among these groups."""
    free = [number for number, row in enumerate(rows) if row[1] < 0]
    if not free:
        return
    of = np.searchsorted(ends, np.arange(ends[-1]), side="right")
    among = torch.tensor(np.flatnonzero(np.isin(of, list(groups))), device=DEVICE)
    near_to = its[among]
    for start in range(0, len(free), 4096):
        some = free[start : start + 4096]
        best = among[(own[some] @ near_to.T).argmax(1)].cpu().numpy()
        for number, group in zip(some, np.searchsorted(ends, best, side="right"), strict=True):
            rows[number][1] = int(group)
    log(f"{len(free):,} questions without a group")


def near(
    rows: list[list],
    ends: np.ndarray,
    alone: int,
    asking: tuple[Texts, list[Tensor]],
    answering: tuple[Texts, list[Tensor]],
) -> tuple[Tensor, Tensor]:
    """LIST passages for each question, and mean and deviation of its cosines by both embedders in its block.

    `asking` and `answering` are the questions and the passages, each with their vectors by both embedders. From the
    group `alone` on, a group is a block.
    """
    (asked, own), (passages, its) = asking, answering
    begins = np.concatenate([[0], ends[:-1]])
    group = np.array([row[1] for row in rows])
    answer = torch.tensor([row[2] for row in rows], device=DEVICE)
    # groups whose passages begin in the same BLOCK are searched together
    of = np.minimum(begins // BLOCK, max(0, int(ends[-1]) // BLOCK - 1))
    of[alone:] = of.max() + 1 + np.arange(len(of) - alone)
    starts = {int(one): int(begins[of == one][0]) for one in np.unique(of)}
    limits = dict(zip(starts, [*list(starts.values())[1:], int(ends[-1])], strict=True))
    block = of[group]
    lists = torch.zeros(len(rows), LIST, dtype=torch.int32)
    background = torch.zeros(len(rows), 4)
    low, high = (torch.tensor(side[group], device=DEVICE) for side in (begins, ends))
    firsts = np.flatnonzero(np.r_[True, block[1:] != block[:-1]])
    for first, last in zip(firsts, [*firsts[1:], len(block)], strict=True):
        begin, end = starts[int(block[first])], limits[int(block[first])]
        values = word_values(passages, begin, end).to(own[0].dtype)
        for start in range(int(first), int(last), 8192):
            stop = min(start + 8192, int(last))
            some = slice(start, stop)
            by_words = (words_of(asked, start, stop) > 0).to(values.dtype) @ values.T
            cosines = [(mine[some] @ other[begin:end].T).float() for mine, other in zip(own, its, strict=True)]
            seen = [(each.mean(1), each.std(1) + 1e-6) for each in cosines]
            together = sum((each - m[:, None]) / s[:, None] for each, (m, s) in zip(cosines, seen, strict=True))
            known = answer[some] >= 0
            top = torch.where(known, answer[some], together.argmax(1) + begin)
            beside = [torch.minimum(torch.maximum(top + step, low[some]), high[some] - 1) for step in (-1, 1)]
            taken = torch.stack([top, *beside], 1)
            found = []
            for scored, places in ((by_words, BY_WORDS), (together, BY_MEANING)):  # no passage twice
                scored.scatter_(1, torch.cat([taken, *found], 1) - begin, -1e4)
                found.append(scored.topk(max(places) + 1).indices[:, list(places)] + begin)
            lists[some] = torch.cat([taken[:, :1], *found, taken[:, 1:]], 1).int().cpu()
            background[some] = torch.stack([*seen[0], *seen[1]], 1).cpu()
    return lists, background


def words_of(texts: Texts, begin: int, end: int) -> Tensor:
    """How often each of these texts has each word. Texts may overlap, and need not lie one after the other."""
    lengths = texts.lengths[begin:end, None]
    at = torch.arange(int(lengths.max()), device=DEVICE)[None]
    tokens = texts.tokens[(texts.starts[begin:end, None] + at).clamp(max=len(texts.tokens) - 1)].long()
    times = torch.zeros(end - begin, WORDS, device=DEVICE)
    times.scatter_add_(1, tokens, (at < lengths).float())
    return times


def word_values(passages: Texts, begin: int, end: int) -> Tensor:
    """BM25's value of each word in each of these passages."""
    times = words_of(passages, begin, end)
    frequency = (times > 0).sum(0)
    idf = torch.log(1 + (end - begin - frequency + 0.5) / (frequency + 0.5))
    length = passages.lengths[begin:end].float()
    return idf * times / (times + 1.2 * (0.25 + 0.75 * length / length.mean())[:, None])


# Training


class Lists:
    """What `--score` wrote, on the GPU."""

    def __init__(self, cache: Path, prefix: Sequence[int]) -> None:
        kept = torch.load(cache / "scored.pt", weights_only=False)
        self.whole, self.ends = kept["whole"], kept["ends"]
        self.kinds, self.kind = kept["kinds"], kept["kind"].numpy()
        self.lists, self.known = kept["lists"].numpy(), kept["known"].to(DEVICE)
        self.scores, self.background = kept["scores"].to(DEVICE), kept["background"].to(DEVICE)
        self.own, self.its = ([one.to(DEVICE) for one in kept[side]] for side in ("own", "its"))
        self.passages, self.asked = (
            ([one.to(DEVICE) for one in kept[side]], kept[side][2].numpy()) for side in ("passages", "asked")
        )
        self.lead = torch.tensor([CLS, *prefix], device=DEVICE)
        self.numbers = [np.flatnonzero(self.kind == number) for number in range(len(self.kinds))]
        counts = (f"{name} {len(own):,}" for name, own in zip(self.kinds, self.numbers, strict=True))
        log(f"{len(self.lists):,} lists; {', '.join(counts)}")

    def cuts(self, tokenizer: Tokenizer) -> Cuts:
        """Texts of any length, cut out of the passages."""
        (tokens, starts, _), _ = self.passages
        passages = SimpleNamespace(tokens=tokens, starts=starts, lengths=self.whole.to(DEVICE))
        asked = SimpleNamespace(**dict(zip(("tokens", "starts", "lengths"), self.asked[0], strict=True)))
        return Cuts(tokenizer, passages, self.ends, asked)

    def weigh(self) -> None:
        """Take the weights of each kind from KINDS."""
        table = torch.tensor([KINDS[name][1:] for name in self.kinds], device=DEVICE)
        kinds = torch.from_numpy(self.kind).to(DEVICE)
        self.second, self.reader, self.raised = table[kinds].T
        self.sure = torch.tensor([name in SURE for name in self.kinds], device=DEVICE)[kinds] & self.known

    def some(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Questions of one kind, a few from the same place each time."""
        shares = np.array([KINDS[name][0] * (len(own) > 0) for name, own in zip(self.kinds, self.numbers, strict=True)])
        own = self.numbers[rng.choice(len(shares), p=shares / shares.sum())]
        starts = rng.integers(0, len(own), (-(-count // NEAR_TOGETHER), 1))
        spread = np.sort(rng.integers(0, 4 * NEAR_TOGETHER, (len(starts), NEAR_TOGETHER)), 1)
        return np.unique(own[(starts + spread) % len(own)].reshape(-1))[:count]

    def embed(self, model: Bert, side: str, numbers: np.ndarray) -> Tensor:
        """The vectors of passages, or of questions with their prefix; texts of like length are read together."""
        (tokens, starts, lengths), sizes = self.passages if side == "passages" else self.asked
        lead = self.lead[:1] if side == "passages" else self.lead
        sizes = sizes[numbers]
        order = np.argsort(sizes, kind="stable")
        cuts = cut(sizes[order])
        found = []
        for begin, end in zip(cuts, [*cuts[1:], len(order)], strict=True):
            part = torch.from_numpy(numbers[order[begin:end]]).to(DEVICE, non_blocking=True).long()
            longest = min(-(-int(sizes[order[end - 1]] + 1 + len(lead)) // 8) * 8, LONGEST) - len(lead)
            at = torch.arange(longest, device=DEVICE)[None]
            size = lengths[part][:, None].clamp(max=longest - 1)
            inner = tokens[(starts[part][:, None] + at).clamp(max=len(tokens) - 1)].long()
            rows = torch.where(at < size, inner, torch.where(at == size, SEP, 0))
            rows = torch.cat([lead.expand(len(part), -1), rows], 1)
            found.append(unit(model.states(rows, (rows != 0)[:, None, None, :])[-1]))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return torch.cat(found)[torch.from_numpy(back).to(DEVICE, non_blocking=True)]


def cut(sizes: np.ndarray) -> list[int]:
    """Where to cut a sorted list of lengths, so that little is padded and the parts are few."""
    edges = (24, 40, 64, 96, 144, 216, 330)
    return sorted({0, *(int(at) for at in np.searchsorted(sizes, edges, side="right") if at < len(sizes))})


class RankLosses:
    """How far the student's order of passages is from the teachers', and its vectors from the first teacher's."""

    def __init__(self, lists: Lists, arguments: argparse.Namespace) -> None:
        self.lists = lists
        weights = (arguments.list, arguments.all, arguments.answers, arguments.vectors)
        self.weights = torch.tensor(weights, device=DEVICE)

    def __call__(self, student: Bert, some: np.ndarray) -> tuple[Tensor, Tensor]:
        lists, count = self.lists, len(some)
        read = lists.lists[some].reshape(-1)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            q, p = lists.embed(student, "asked", some), lists.embed(student, "passages", read)
        rows, passages = (torch.from_numpy(one).to(DEVICE).long() for one in (some, read))
        said = q @ p.T / SHARPNESS
        with torch.no_grad():
            y = [(own[rows], its[passages]) for own, its in zip(lists.own, lists.its, strict=True)]
            mean, deviation = lists.background[rows][:, 0::2], lists.background[rows][:, 1::2]
            z = [((a @ b.T).float() - mean[:, [n]]) / deviation[:, [n]] for n, (a, b) in enumerate(y)]
            second = lists.second[rows][:, None]
            true = STEEP * (z[0] + second * z[1]) / (1 + second)
            at = torch.arange(count, device=DEVICE)
            places = at[:, None] * LIST + torch.arange(LIST, device=DEVICE)
            listed = passages.view(count, LIST)
            again = (listed[:, :, None] == listed[:, None, :]).tril(-1).any(2)  # a passage that is in the list before
            reader, known, sure = lists.reader[rows][:, None], lists.known[rows], lists.sure[rows]
            listed_true = ahead(true.gather(1, places), again, sure)
            true.scatter_(1, places[:, :1], listed_true[:, :1])
            goal = (1 - reader) * listed_true + reader * SCORE * lists.scores[rows].float()
            goal[:, 0] += known * lists.raised[rows]
            goal = ahead(goal, again, sure)
            # in all passages of the step: no passage twice, and none that the teachers prefer to the answer
            hidden = (true >= listed_true[:, :1]) | (passages[None] == listed[:, :1])
            hidden.scatter_(1, places[:, :1], False)
        in_list = order_loss(said.gather(1, places).masked_fill(again, -1e4), goal.masked_fill(again, -1e4))
        in_all = order_loss(said, true)
        chosen = F.cross_entropy(said.masked_fill(hidden, -1e4), places[:, 0], reduction="none")
        answers = (chosen * known).sum() / known.sum().clamp(min=1)
        apart = sum(1 - (a * b.float()).sum(1).mean() for a, b in ((q, y[0][0]), (p, y[0][1]))) / 2
        parts = torch.stack([in_list, in_all, answers, apart])
        return (parts * self.weights).sum(), parts.detach()


def ahead(values: Tensor, again: Tensor, sure: Tensor) -> Tensor:
    """The values of lists, whose answers come first: where they are sure, they are ahead of the others."""
    least = values[:, 1:].masked_fill(again[:, 1:], -1e4).amax(1) + AHEAD
    first = torch.where(sure, torch.maximum(values[:, 0], least), values[:, 0])
    return torch.cat([first[:, None], values[:, 1:]], 1)


def order_loss(said: Tensor, true: Tensor) -> Tensor:
    return F.kl_div(F.log_softmax(said, 1), F.log_softmax(true, 1), reduction="batchmean", log_target=True)


class Training:
    """The student, an average of its weights over the steps, and what trains it."""

    def __init__(self, student: Bert, teacher: Bert, lists: Lists, cuts: Cuts, arguments: argparse.Namespace) -> None:
        self.student, self.teacher, self.lists, self.cuts, self.arguments = student, teacher, lists, cuts, arguments
        self.average = copy.deepcopy(student).requires_grad_(requires_grad=False)
        self.optimizer = student.optimizer(arguments.rate)
        self.done, self.steps, self.rounded = arguments.begin, 0, False
        if arguments.state and arguments.state.exists():
            state = torch.load(arguments.state, map_location=DEVICE)
            for name in ("student", "average", "optimizer"):
                getattr(self, name).load_state_dict(state[name])
            self.done, self.steps = state["done"]
            log(f"goes on at {self.done:.0%} of the schedule, step {self.steps}")
        self.first = self.steps
        self.rng, self.dice = np.random.default_rng(self.steps), random.Random(self.steps)
        self.ranked = RankLosses(lists, arguments)
        self.distilled = Losses(argparse.Namespace(likeness=5.0, order=0.05, states=0.0), len(student.layers))
        self.total = torch.zeros(2, 4, device=DEVICE)

    def run(self, watch: Watch | None) -> None:
        begin, start = self.done, time.time()
        reported = start
        while (share := (time.time() - start) / self.arguments.seconds) < 1:
            self.done = begin + (self.arguments.until - begin) * share
            if self.done >= self.arguments.eight and not self.rounded:
                self.round_off()
            self.step()
            if time.time() > reported + self.arguments.every:
                reported = time.time()
                self.report()
                if watch and self.arguments.look:
                    log("    averaged:", watch.line(self.average))
        self.done = self.arguments.until
        self.report()
        self.keep()

    def step(self) -> None:
        rate = self.arguments.rate * min(1, (self.steps + 1) / 200)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * max(0.01, 0.5 * (1 + math.cos(math.pi * self.done)))
        cut_out = self.dice.random() < self.arguments.cuts
        if cut_out:
            rows = self.cuts.batch(self.dice, self.arguments)
            with torch.no_grad():
                goal = [self.teacher.states(row) for row in rows]
            with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
                own = [self.student.states(row) for row in rows]
            loss, parts = self.distilled(own, goal, 0.0)
        else:
            loss, parts = self.ranked(self.student, self.lists.some(self.rng, self.arguments.questions))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self.optimizer.step()
        self.steps += 1
        self.total[int(cut_out)] = 0.98 * self.total[int(cut_out)] + 0.02 * parts
        since = self.steps - self.first
        with torch.no_grad():
            new = 1 - min(self.arguments.average, since / (since + 10))
            torch._foreach_lerp_(list(self.average.parameters()), list(self.student.parameters()), new)

    def round_off(self) -> None:
        spreads = spreads_of(self.arguments.models / "small-embedder" / "model.onnx")
        for model in (self.student, self.average):
            round_off(model, spreads)
        self.rounded = True
        log("computes in eight bits")

    def report(self) -> None:
        losses = [[round(value, 4) for value in row] for row in self.total.tolist()]
        log(f"{self.done:.0%} of the schedule, step {self.steps}, losses {losses}")
        if not math.isfinite(float(self.total.sum())):
            raise SystemExit("the losses are no numbers")

    def keep(self) -> None:
        """Write what a later run needs to go on."""
        if self.arguments.state:
            state = {name: getattr(self, name).state_dict() for name in ("student", "average", "optimizer")}
            torch.save({**state, "done": (self.done, self.steps)}, self.arguments.state)


def train(arguments: argparse.Namespace) -> None:
    """Train once, or once for each plan."""
    torch.manual_seed(arguments.seed)
    tokenizer = tokenizer_of(arguments.models / "arctic-embed-s")
    watch = Watch(arguments.watch, tokenizer) if arguments.watch else None
    teacher = large(arguments.models / "arctic-embed-s")
    if watch:
        log("teacher:", watch.line(teacher))
    lists = Lists(arguments.cache, tokenizer.encode(PREFIX, add_special_tokens=False).ids)
    cuts = lists.cuts(tokenizer)
    for plan in arguments.plan or [""]:
        own = argparse.Namespace(**{**vars(arguments), **json.loads(plan or "{}")})
        own.target, own.state = (Path(one) if one else None for one in (own.target, own.state))
        if plan:
            log("plan", plan)
        KINDS.update(json.loads(own.kinds or "{}"))
        lists.weigh()
        student = started(own)
        if watch and not plan:
            log("student:", watch.line(student))
        training = Training(student, halved(teacher), lists, cuts, own)
        training.run(watch)
        average = training.average
        if watch:
            log("last:", watch.line(student))
            log("averaged:", watch.line(average))
        torch._foreach_lerp_(list(average.parameters()), list(started(own).parameters()), own.former)
        if watch and own.former:
            log("with weights that it began with:", watch.line(average))
        average.save(own.target)
        log(f"{own.target}: {own.target.stat().st_size:,} bytes")


def started(arguments: argparse.Namespace) -> Bert:
    """The student as it begins: weights of a file, or those of `small-embedder`."""
    if arguments.start:
        weights = {name: value.astype(np.float32) for name, value in np.load(arguments.start).items()}
    else:
        weights = embedder_weights(arguments.models / "small-embedder" / "model.onnx")
    layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder."))
    student = Bert(layers, len(weights["encoder.layer.0.intermediate.dense.bias"])).to(DEVICE)
    student.take(weights, range(layers))
    return student


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("data", type=Path, nargs="+", help="with --score training data, else the weights to write")
    parser.add_argument("--score", action="store_true", help="find passages and score them")
    parser.add_argument("--questions", type=int, default=192, help="of a step; with --score at most of a kind")
    parser.add_argument("--groups", type=int, default=0, help="read so many groups, to try it")
    parser.add_argument("--cuts", type=float, default=0.25, help="share of the steps with texts of any length")
    parser.add_argument("--batch", type=int, default=131_072, help="tokens of such a step")
    parser.add_argument("--replaced", type=float, default=0.1, help="share of such steps in which words are replaced")
    parser.add_argument("--seconds", type=float, default=600, help="of training")
    parser.add_argument("--begin", type=float, default=0.0, help="share of the schedule that is behind")
    parser.add_argument("--until", type=float, default=1.0, help="share of the schedule at which this run stops")
    parser.add_argument("--start", type=Path, help="weights.npz to begin with, in place of small-embedder")
    parser.add_argument("--state", type=Path, help="file to go on from, if it exists, and to keep the state in")
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--list", type=float, default=1.0, help="weight of the order of lists")
    parser.add_argument("--all", type=float, default=0.5, help="weight of the order of all passages of a step")
    parser.add_argument("--answers", type=float, default=0.25, help="weight of the known answers")
    parser.add_argument("--vectors", type=float, default=1.5, help="weight of the vectors of the first teacher")
    parser.add_argument("--average", type=float, default=0.999, help="share that averaged weights keep in a step")
    parser.add_argument("--former", type=float, default=0.0, help="share of the weights it began with in the result")
    parser.add_argument(
        "--eight", type=float, default=2.0, help="share of the schedule before it computes in eight bits"
    )
    parser.add_argument("--kinds", help="JSON of other values of KINDS")
    parser.add_argument("--watch", type=Path, help="judged questions, measured at the end")
    parser.add_argument("--look", action="store_true", help="and at each report")
    parser.add_argument("--every", type=float, default=60, help="seconds between reports")
    parser.add_argument("--plan", nargs="*", help="JSON of other options for each of several runs")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.target = arguments.data[0]
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)  # it plans anew for every length
    (score if arguments.score else train)(arguments)


if __name__ == "__main__":
    main()
