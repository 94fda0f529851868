"""Train a small cross-encoder to score as a large one does, on one GPU.

`python training/train.py TEACHER EMBEDDER weights.npz train.json.xz… [--seconds 900] [--watch lists.json.xz]`

TEACHER is the folder of the int8 ONNX model `minilm-l12-reranker`, EMBEDDER that of `small-embedder`; their weights are
turned back into 32 bits. Needs torch, tokenizers, onnx and numpy. Each step sets questions against the passage that
answers them, passages near them by words and by meaning, neighbours of the answer, and others of the same place. The
teacher reads them in the same step. The student learns its scores, the order that they give, its last states, and at
first the states between the layers. In conversations a known answer is raised above what the teacher says of it, unless
it shares the most words with the question. The student has some of the teacher's layers, each with the inner neurons of
the largest weights.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from bert import CLS, DEVICE, INNER, SEP, WIDTH, Bert, embedder_weights, graph_weights, log
from embedder import PREFIX
from tokenizers import Tokenizer
from torch import Tensor, nn

TOKENS, QUESTION = 192, 128  # of a pair, and of the question in it
NEAR = 12  # passages near a question by words, and as many by meaning, of which a step reads some
LIST = 8  # passages of a question that a step reads: the answer, two by words, two by meaning, three of its place
BLOCK = 6000  # passages among which those near a question are searched, about as many as in a store
WORDS = 30522  # in the vocabulary
STEP = 32  # pairs have a multiple of as many tokens


# The model


class CrossEncoder(Bert):
    """A BERT that gives one score for a pair of texts."""

    heads = (("pooler", "pooler.dense"), ("classifier", "classifier"))

    def __init__(self, layers: int, inner: int) -> None:
        super().__init__(layers, inner)
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.classifier = nn.Linear(WIDTH, 1)

    def forward(self, tokens: Tensor, types: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The scores, and the states after every layer."""
        states = self.states(tokens, (tokens != 0)[:, None, None, :], types)
        with torch.autocast(DEVICE, enabled=False):
            return self.classifier(torch.tanh(self.pooler(states[-1][:, 0].float()))).squeeze(-1), states


# Texts and pairs, all of them on the GPU


class Texts:
    """Tokens of many texts, one after the other."""

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str], most: int) -> None:
        rows = [
            np.array(row.ids[:most], np.int32)
            for start in range(0, len(texts), 50_000)
            for row in tokenizer.encode_batch_fast(texts[start : start + 50_000], add_special_tokens=False)
        ]
        self.lengths = torch.tensor([len(row) for row in rows]).to(DEVICE)
        self.starts = torch.cumsum(self.lengths, 0) - self.lengths
        self.tokens = torch.tensor(np.concatenate(rows)).to(DEVICE)
        log(f"{len(rows):,} texts, {len(self.tokens):,} tokens")

    def words(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """The place, from `begin`, and the token of each word of these texts."""
        lengths = self.lengths[begin:end]
        rows = torch.repeat_interleave(torch.arange(len(lengths), device=DEVICE), lengths)
        first = int(self.starts[begin])
        return rows, self.tokens[first : first + len(rows)].long()


def pairs(questions: Texts, passages: Texts, asked: Tensor, read: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Tokens and types of pairs: [CLS] question [SEP] passage [SEP], cut at `size`, filled up with zeros."""
    first = questions.lengths[asked].clamp(max=size - 3)
    second = torch.minimum(passages.lengths[read], size - 3 - first)
    at = torch.arange(size, device=asked.device)[None]
    f, s = first[:, None], second[:, None]
    in_question, in_passage = (at >= 1) & (at <= f), (at >= f + 2) & (at < f + 2 + s)
    tokens = torch.zeros_like(in_question, dtype=torch.long)
    tokens += torch.where(
        in_question,
        questions.tokens[(questions.starts[asked][:, None] + at - 1).clamp(0, len(questions.tokens) - 1)],
        0,
    )
    tokens += torch.where(
        in_passage, passages.tokens[(passages.starts[read][:, None] + at - f - 2).clamp(0, len(passages.tokens) - 1)], 0
    )
    tokens += CLS * (at == 0) + SEP * ((at == f + 1) | (at == f + 2 + s))
    return tokens, ((at > f + 1) & (at <= f + 2 + s)).long()


def sized(longest: int | Tensor) -> int | Tensor:
    """The size that pairs of this many tokens are filled up to: few sizes, since each new one costs time on a GPU."""
    size = (longest + 3 + STEP - 1) // STEP * STEP
    return size.clamp(max=TOKENS) if isinstance(size, Tensor) else min(size, TOKENS)


def scores(model: CrossEncoder, questions: Texts, passages: Texts, asked: Tensor, read: Tensor) -> Tensor:
    """The model's score of each pair; those of like length are computed together."""
    score = torch.zeros(len(asked), device=DEVICE)
    with torch.no_grad(), torch.autocast(DEVICE, torch.float16, enabled=DEVICE == "cuda"):
        for part in torch.argsort(questions.lengths[asked] + passages.lengths[read]).split(2048):
            size = sized(int((questions.lengths[asked[part]] + passages.lengths[read[part]]).max()))
            score[part] = model(*pairs(questions, passages, asked[part], read[part], size))[0]
    return score


# Which passages are set against a question


def vectors(model: Bert, texts: Texts, prefix: Sequence[int] = ()) -> Tensor:
    """The vector of each text, as the embedder gives it."""
    found = torch.zeros(len(texts.lengths), WIDTH, dtype=torch.float16, device=DEVICE)
    lead = torch.tensor([CLS, *prefix], device=DEVICE)
    with torch.no_grad(), torch.autocast(DEVICE, torch.float16, enabled=DEVICE == "cuda"):
        for part in torch.argsort(texts.lengths).split(4096):
            lengths = texts.lengths[part][:, None]
            at = torch.arange(int(lengths.max()) + 1, device=DEVICE)[None]
            own = texts.tokens[(texts.starts[part][:, None] + at).clamp(max=len(texts.tokens) - 1)]
            rows = torch.where(at < lengths, own, torch.where(at == lengths, SEP, 0))
            rows = torch.cat([lead.expand(len(part), -1), rows], 1)
            found[part] = F.normalize(model.states(rows, (rows != 0)[:, None, None, :])[-1][:, 0].float()).half()
    return found


def word_values(passages: Texts, begin: int, end: int) -> Tensor:
    """BM25's value of each word in each of these passages."""
    rows, words = passages.words(begin, end)
    times = torch.zeros(end - begin, WORDS, device=DEVICE)
    times.index_put_((rows, words), torch.ones(len(rows), device=DEVICE), accumulate=True)
    frequency = (times > 0).sum(0)
    idf = torch.log(1 + (end - begin - frequency + 0.5) / (frequency + 0.5))
    length = passages.lengths[begin:end].float()
    return (idf * times / (times + 1.2 * (0.25 + 0.75 * length / length.mean())[:, None])).half()


@dataclass(frozen=True)
class Data:
    """Questions and passages; of each question the answer or -1, its group and block, and the passages near it."""

    questions: Texts
    passages: Texts
    answer: Tensor
    group: Tensor
    block: Tensor
    near: Tensor
    raised: Tensor
    size: Tensor

    def chosen(self, some: Tensor) -> Tensor:
        """LIST passages for each of these questions, the answer first, or what is nearest by meaning."""
        size, near, answer = len(some), self.near[some].long(), self.answer[some]

        def any_of(span: Tensor) -> Tensor:
            begin, end = span[some].T
            return begin + (torch.rand(size, device=DEVICE) * (end - begin)).long()

        first = torch.where(answer < 0, near[:, NEAR], answer)
        picked = [
            part.gather(1, torch.rand(size, NEAR, device=DEVICE).argsort(1)[:, :2])
            for part in (near[:, :NEAR], near[:, NEAR:])
        ]
        step = torch.tensor([-2, -1, -1, 1, 1, 2], device=DEVICE)[torch.randint(0, 6, (size,), device=DEVICE)]
        begin, end = self.group[some].T
        beside = torch.where(answer < 0, any_of(self.group), torch.minimum((answer + step).clamp(min=0), end - 1))
        beside = torch.maximum(beside, begin)
        rest = torch.cat([*picked, torch.stack([beside, any_of(self.group), any_of(self.block)], 1)], 1)
        again = rest == first[:, None]
        return torch.cat([first[:, None], torch.where(again, any_of(self.block)[:, None], rest)], 1)


def prepared(arguments: argparse.Namespace, tokenizer: Tokenizer) -> Data:
    """The questions and passages, and what is near each question in its block."""
    texts, ends, rows = list[str](), list[int](), list[tuple[str, int, int, bool]]()
    for path in arguments.data:
        data = json.loads(lzma.decompress(path.read_bytes()))
        base, groups = len(texts), len(ends)
        talk = data["kinds"].index("conversation")
        for text, group, answer, kind in data["questions"]:
            row = (text, groups + group, -1 if answer < 0 else base + answer, kind == talk)
            rows += [row] * (arguments.talks if kind == talk else 1)
        texts += data["passages"]
        ends += [base + end for end in data["ends"]]
    rows.sort(key=lambda row: row[1])
    rows = rows[:: arguments.every]
    questions = Texts(tokenizer, [row[0] for row in rows], QUESTION)
    passages = Texts(tokenizer, texts, TOKENS)
    begins = np.array([0, *ends[:-1]])
    number = np.array([row[1] for row in rows])
    # groups whose passages begin in the same BLOCK are searched together
    of = np.minimum(begins // BLOCK, max(0, ends[-1] // BLOCK - 1))
    starts = {int(one): int(begins[of == one][0]) for one in np.unique(of)}
    limits = [*list(starts.values())[1:], ends[-1]]
    spans = dict(zip(starts, zip(starts.values(), limits, strict=True), strict=True))
    block = np.array([spans[int(one)] for one in of])[number]
    near = nearest(arguments, tokenizer, questions, passages, block)
    answer = torch.tensor([row[2] for row in rows]).to(DEVICE)
    known = torch.tensor([row[3] and row[2] >= 0 for row in rows]).to(DEVICE)
    raised = (known & (near[:, 0] != answer)).float()  # what shares the most words is not raised
    # most of the passages near a question fit in; longer ones are cut
    most = passages.lengths[near.long()].sort(1).values[:, int(0.8 * 2 * NEAR)]
    size = sized(questions.lengths + torch.maximum(most, passages.lengths[answer.clamp(min=0)]))
    group = torch.tensor(np.stack([begins[number], np.array(ends)[number]], 1)).to(DEVICE)
    log(f"{len(rows):,} questions, {int(raised.sum()):,} with answers that are raised")
    return Data(questions, passages, answer, group, torch.tensor(block).to(DEVICE), near, raised, size)


def nearest(
    arguments: argparse.Namespace, tokenizer: Tokenizer, questions: Texts, passages: Texts, block: np.ndarray
) -> Tensor:
    """For each question NEAR passages of its block by words, and NEAR by meaning."""
    weights = embedder_weights(arguments.embedder / "model.onnx")
    embedder = Bert(5, len(weights["encoder.layer.0.intermediate.dense.bias"])).to(DEVICE)
    embedder.take(weights, range(5))
    own = vectors(embedder, questions, tokenizer.encode(PREFIX, add_special_tokens=False).ids)
    its = vectors(embedder, passages)
    log("vectors")
    found = torch.zeros(len(block), 2 * NEAR, dtype=torch.int32, device=DEVICE)
    firsts = np.flatnonzero(np.r_[True, block[1:, 0] != block[:-1, 0]])
    for first, last in zip(firsts, [*firsts[1:], len(block)], strict=True):
        begin, end = map(int, block[first])
        values = word_values(passages, begin, end)
        for start in range(int(first), int(last), 8192):
            stop = min(start + 8192, int(last))
            rows, words = questions.words(start, stop)
            asked = torch.zeros(stop - start, WORDS, dtype=torch.float16, device=DEVICE)
            asked[rows, words] = 1
            found[start:stop, :NEAR] = (asked @ values.T).topk(NEAR).indices + begin
            found[start:stop, NEAR:] = (own[start:stop] @ its[begin:end].T).topk(NEAR).indices + begin
    log("passages near the questions")
    return found


# Training


def batches(size: Tensor, tokens: int, rng: random.Random) -> Iterator[tuple[int, Tensor]]:
    """Questions whose pairs have the same size, always as many of a size, without end."""
    while True:
        steps = list[tuple[int, Tensor]]()
        for one in range(STEP, TOKENS + 1, STEP):
            own, count = (size == one).nonzero().squeeze(1), tokens // (LIST * one)
            own = own[torch.randperm(len(own), device=DEVICE)]
            steps += [(one, own[at : at + count]) for at in range(0, len(own) - count + 1, count)]
        rng.shuffle(steps)
        yield from steps


def train(
    student: CrossEncoder, teacher: CrossEncoder, data: Data, arguments: argparse.Namespace, watch: Watch | None
) -> None:
    optimizer = student.optimizer(arguments.rate)
    between = [(at, round((at + 1) * 12 / len(student.layers)) - 1) for at in range(len(student.layers) - 1)]
    start, step, seen, reported = time.time(), 0, 0, 0.0
    total = torch.zeros(4, device=DEVICE)
    for size, some in batches(data.size, arguments.batch, random.Random(arguments.seed)):
        done = (time.time() - start) / arguments.seconds
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * min(1, (step + 1) / 200) * max(0.01, 0.5 * (1 + math.cos(math.pi * done)))
        read = data.chosen(some).reshape(-1)
        tokens, types = pairs(data.questions, data.passages, some.repeat_interleave(LIST), read, size)
        with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
            goal, its = teacher(tokens, types)
        with torch.autocast(DEVICE, torch.bfloat16):
            said, own = student(tokens, types)
        last, inner, share = apart(own[-1], its[-1], None), torch.zeros((), device=DEVICE), max(0.0, 1 - done / 0.6)
        if arguments.between * share:
            mask = (tokens != 0)[..., None]
            inner = sum(apart(own[a], its[b], mask) for a, b in between) / len(between)
        goal, said = goal.view(-1, LIST), said.view(-1, LIST)
        goal[:, 0] += arguments.answers * data.raised[some]
        plain = F.mse_loss(said, goal)
        order = F.kl_div(F.log_softmax(said / 2, 1), F.log_softmax(goal / 2, 1), reduction="batchmean", log_target=True)
        loss = 0.1 * plain + order + arguments.states * last + arguments.between * share * inner
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        step, seen = step + 1, seen + len(some)
        total = 0.99 * total + 0.01 * torch.stack([plain, order, last, inner]).detach()
        if time.time() - start > reported + arguments.report:
            reported = time.time() - start
            log(f"step {step}, {seen * LIST:,} pairs, losses {[round(v, 4) for v in total.tolist()]}")
            student.save(arguments.target)
            if watch:
                log("   ", watch.line(student))
    log(f"{step} steps, {seen * LIST:,} pairs, losses {[round(v, 4) for v in total.tolist()]}")


def apart(own: Tensor, its: Tensor, mask: Tensor | None) -> Tensor:
    """The mean square of the distance, relative to how far the teacher's states spread."""
    own, its = own.float(), its.float()
    if mask is None:
        return F.mse_loss(own, its) / its.var()
    return ((own - its) ** 2 * mask).sum() / mask.sum() / WIDTH / its.var()


# Evaluation while training


class Watch:
    """How good the first results of questions are if a model orders them."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self.sets = json.loads(lzma.decompress(path.read_bytes()))
        self.asked = [question for one in self.sets for question in one["qs"]]
        self.questions = Texts(tokenizer, [one["q"] for one in self.asked], QUESTION)
        self.passages = Texts(tokenizer, [text for one in self.asked for text in one["p"]], TOKENS)
        counts = torch.tensor([len(one["p"]) for one in self.asked])
        self.of = torch.repeat_interleave(torch.arange(len(counts)), counts).to(DEVICE)
        self.teacher: np.ndarray | None = None

    def measure(self, model: CrossEncoder) -> dict[str, tuple[float, ...]]:
        """nDCG@10: by the model, by half of each, by the search's own rule; R@5 by the rule; how like the teacher's."""
        read = torch.arange(len(self.of), device=DEVICE)
        said, at = scores(model, self.questions, self.passages, self.of, read).cpu().numpy(), 0
        self.teacher = said if self.teacher is None else self.teacher  # the first that is measured
        means = {}
        for one in self.sets:
            rows = []
            for question in one["qs"]:
                own, its = said[at : at + len(question["p"])], self.teacher[at : at + len(question["p"])]
                at += len(own)
                if len(own) > 1:
                    orders = [blend(question, own, share) for share in (1.0, 0.5, None)]
                    alike = float(np.corrcoef(own, its)[0, 1])
                    rows.append((*(ndcg(question, order) for order in orders), recall(question, orders[2]), alike))
            means[one["set"]] = tuple(np.mean(rows, axis=0))
        return {**means, "mean": tuple(np.mean(list(means.values()), axis=0))}

    def line(self, model: CrossEncoder) -> str:
        return "; ".join(f"{name} {' '.join(f'{v:.4f}' for v in row)}" for name, row in self.measure(model).items())


def blend(question: dict, scores: np.ndarray, share: float | None) -> np.ndarray:
    """The order by a share of the scores, by default that of `share_of` in recollect.stages."""
    if share is None:
        chances = 1 / (1 + np.exp(-scores))
        share = 0.0 if question["certain"] else 0.5 * float(chances.max() - chances.mean())
    return np.argsort(-((1 - share) * unit(np.array(question["f"])) + share * unit(scores)), kind="stable")


def unit(values: np.ndarray) -> np.ndarray:
    return (values - values.min()) / (np.ptp(values) + 1e-9)


def ndcg(question: dict, order: np.ndarray) -> float:
    gains = [question["g"][number] for number in order[:10]]
    best = sum(grade / math.log2(place + 2) for place, grade in enumerate(question["ideal"][:10]))
    return sum(grade / math.log2(place + 2) for place, grade in enumerate(gains)) / best


def recall(question: dict, order: np.ndarray) -> float:
    return sum(question["g"][number] > 0 for number in order[:5]) / len(question["ideal"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("embedder", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 3, 7, 11], help="of the teacher, to begin with")
    parser.add_argument("--inner", type=int, default=1024, help="inner neurons of a layer; the teacher has 1536")
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--rate", type=float, default=4e-4)
    parser.add_argument("--batch", type=int, default=98_304, help="tokens of a batch")
    parser.add_argument("--answers", type=float, default=0.0, help="by how much known answers are raised")
    parser.add_argument("--states", type=float, default=0.5, help="weight of the teacher's last states")
    parser.add_argument("--between", type=float, default=0.5, help="weight of the states between the layers")
    parser.add_argument("--talks", type=int, default=2, help="how often questions about conversations are asked")
    parser.add_argument("--watch", type=Path, help="questions with their first results, measured at each report")
    parser.add_argument("--report", type=float, default=60, help="seconds between reports")
    parser.add_argument("--every", type=int, default=1, help="every Nth question, to try it")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    tokenizer = Tokenizer.from_file(str(arguments.teacher / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    weights = graph_weights(arguments.teacher / "model.onnx")
    teacher = CrossEncoder(12, INNER).to(DEVICE)
    teacher.take(weights, range(12))
    watch = Watch(arguments.watch, tokenizer) if arguments.watch else None
    if watch:
        log("teacher:", watch.line(teacher))
    data = prepared(arguments, tokenizer)
    student = CrossEncoder(len(arguments.layers), arguments.inner).to(DEVICE)
    student.take(weights, arguments.layers)
    train(student, teacher, data, arguments, watch)
    if watch:
        log("student:", watch.line(student))
    student.save(arguments.target)
    log(f"{arguments.target}: {arguments.target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
