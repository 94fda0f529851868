"""Train a small cross-encoder to score as a large one does, on one GPU.

`python training/train.py TEACHER train.json.xz weights.npz [--seconds 900] [--watch questions.json.xz]`

TEACHER is the folder of the int8 ONNX model `minilm-l12-reranker`; its weights are turned back into 32 bits. Needs
torch, tokenizers, onnx and numpy. Each question is set against the passage that answers it, passages that share its
words, neighbours from the same group, and random ones. The teacher scores all of them, once. The student learns the
teacher's scores, and that a known answer stands above the others. Then it is made smaller in three ways: it has some of
the teacher's layers, each with the part of its inner neurons that moves the most, and reads at most 192 tokens.
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
from bert import CLS, INNER, SEP, WIDTH, Bert, graph_weights, log
from tokenizers import Tokenizer
from torch import Tensor, nn

TOKENS, QUESTION = 192, 128  # of a pair, and of the question in it
POOL, LIST = 10, 8  # passages that the teacher scores for a question, and those of them that a step reads
SHARE_WORDS, SAME_GROUP = 5, 2  # of the pool, beside the answer; the rest are random


# The model


class CrossEncoder(Bert):
    """A BERT that gives one score for a pair of texts."""

    heads = (("pooler", "pooler.dense"), ("classifier", "classifier"))

    def __init__(self, layers: int, inner: int) -> None:
        super().__init__(layers, inner)
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.classifier = nn.Linear(WIDTH, 1)

    def forward(self, tokens: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        """The scores, and the last states that they are computed from."""
        last = self.states(tokens, (tokens != 0)[:, None, None, :], types)[-1]
        with torch.autocast("cuda", enabled=False):
            state = last[:, 0].float()
            return self.classifier(torch.tanh(self.pooler(state))).squeeze(-1), state


# Texts and pairs, all of them on the GPU


class Texts:
    """Tokens of many texts, one after the other."""

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str], most: int) -> None:
        rows = [
            row.ids[:most]
            for start in range(0, len(texts), 50_000)
            for row in tokenizer.encode_batch(texts[start : start + 50_000], add_special_tokens=False)
        ]
        self.lengths = torch.tensor([len(row) for row in rows]).cuda()
        self.starts = torch.cumsum(self.lengths, 0) - self.lengths
        self.tokens = torch.tensor(np.concatenate([np.array(row, np.int32) for row in rows])).cuda()
        log(f"{len(rows):,} texts, {len(self.tokens):,} tokens")


def pairs(questions: Texts, passages: Texts, asked: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens and types of pairs: [CLS] question [SEP] passage [SEP], cut at TOKENS, filled up with zeros."""
    first = questions.lengths[asked]
    second = torch.minimum(passages.lengths[read], TOKENS - 3 - first)
    longest = int((first + second).max()) + 3
    at = torch.arange(min(TOKENS, (longest + 7) // 8 * 8), device=asked.device)[None]
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


def scores(
    model: CrossEncoder, questions: Texts, passages: Texts, asked: Tensor, read: Tensor
) -> tuple[Tensor, Tensor]:
    """The model's score and last state of each pair; those of like length are computed together."""
    score = torch.zeros(len(asked), device="cuda")
    state = torch.zeros(len(asked), WIDTH, dtype=torch.float16, device="cuda")
    order = torch.argsort(questions.lengths[asked] + passages.lengths[read])
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", torch.float16):
        for part in order.split(2048):
            found = model(*pairs(questions, passages, asked[part], read[part]))
            score[part], state[part] = found[0], found[1].half()
    return score, state


@dataclass(frozen=True)
class Data:
    """Questions, passages, POOL of them a question, the teacher's scores and states, and whether the first answers."""

    questions: Texts
    passages: Texts
    chosen: Tensor
    target: Tensor
    states: Tensor
    known: Tensor
    length: Tensor


def share_words(questions: Texts, passages: Texts, most: int) -> Tensor:
    """For each question the passages with the highest BM25, by the model's tokens."""
    count, vocabulary = len(passages.lengths), 30522
    of = torch.repeat_interleave(torch.arange(count, device="cuda"), passages.lengths)
    pair, times = torch.unique(of * vocabulary + passages.tokens.long(), return_counts=True)
    row, word = pair // vocabulary, pair % vocabulary
    frequency = torch.bincount(word, minlength=vocabulary).float()
    idf = torch.log(1 + (count - frequency + 0.5) / (frequency + 0.5))
    length = passages.lengths.float() / passages.lengths.float().mean()
    value = idf[word] * times / (times + 1.2 * (0.25 + 0.75 * length[row]))
    matrix = torch.sparse_coo_tensor(torch.stack([row, word]), value, (count, vocabulary)).to_sparse_csr()
    found = []
    for start in range(0, len(questions.lengths), 1024):
        some = torch.arange(start, min(start + 1024, len(questions.lengths)), device="cuda")
        lengths = questions.lengths[some]
        column = torch.repeat_interleave(torch.arange(len(some), device="cuda"), lengths)
        begin = int(questions.starts[some[0]])
        asked = torch.zeros(vocabulary, len(some), device="cuda")
        asked[questions.tokens[begin : begin + len(column)].long(), column] = 1.0
        found.append((matrix @ asked).topk(most, dim=0).indices.T.cpu())
    return torch.cat(found).cuda()


def candidates(rows: Sequence[Sequence[int]], ends: Sequence[int], near: Tensor, rng: np.random.Generator) -> Tensor:
    """POOL passages for each question, the known answer first; where none is known, the first that shares its words."""
    number, answer = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
    shared = near.cpu().numpy()
    end = np.array(ends)[number]
    begin = np.concatenate([[0], np.array(ends)[:-1]])[number]
    chosen = np.zeros((len(rows), POOL), np.int64)
    chosen[:, 0] = np.where(answer < 0, shared[:, 0], answer)
    picks = np.argsort(rng.random((len(rows), shared.shape[1])) + np.arange(shared.shape[1]) / shared.shape[1], axis=1)
    chosen[:, 1 : 1 + SHARE_WORDS] = np.take_along_axis(shared, picks[:, :SHARE_WORDS], axis=1)
    inside = begin + (rng.random((SAME_GROUP, len(rows))) * (end - begin)).astype(np.int64)
    chosen[:, 1 + SHARE_WORDS : 1 + SHARE_WORDS + SAME_GROUP] = inside.T
    others = rng.integers(0, ends[-1], (len(rows), POOL))
    chosen[:, 1 + SHARE_WORDS + SAME_GROUP :] = others[:, 1 + SHARE_WORDS + SAME_GROUP :]
    again = chosen == chosen[:, :1]  # the answer is among the others
    again[:, 0] = False
    return torch.tensor(np.where(again, others, chosen)).cuda()


# Training


def batches(length: Tensor, tokens: int, rng: random.Random) -> Iterator[Tensor]:
    """Questions whose longest pairs are about as long, without end, in another order each time."""
    while True:
        order = torch.argsort(length + torch.randint(0, 12, length.shape, device="cuda"))
        sizes, at, host = [], 0, length[order].cpu().numpy()
        while at < len(order):
            size = max(1, int(tokens / (LIST * host[min(at + tokens // (LIST * max(8, host[at])), len(order) - 1)])))
            sizes.append((at, min(at + size, len(order))))
            at += size
        rng.shuffle(sizes)
        for begin, end in sizes:
            yield order[begin:end]


def prepared(arguments: argparse.Namespace, data: dict, tokenizer: Tokenizer, teacher: CrossEncoder) -> Data:
    """The questions, their passages and what the teacher says of them."""
    rows = data["questions"]
    random.Random(arguments.seed).shuffle(rows)
    rows = rows[: arguments.most or len(rows)]
    questions = Texts(tokenizer, [row[0] for row in rows], QUESTION)
    passages = Texts(tokenizer, data["passages"], TOKENS)
    near = share_words(questions, passages, 24)
    log("passages that share words")
    chosen = candidates(rows, data["ends"], near, np.random.default_rng(arguments.seed))
    asked = torch.arange(len(rows), device="cuda").repeat_interleave(POOL)
    target, states = scores(teacher, questions, passages, asked, chosen.reshape(-1))
    target, states = target.view(-1, POOL), states.view(-1, POOL, WIDTH)
    log(f"teacher scored {target.numel():,} pairs, spread {target.std().item():.2f}")
    kind = torch.tensor([row[3] for row in rows]).cuda()
    known = torch.tensor([row[2] >= 0 for row in rows]).cuda()
    first = target.argmax(1) == 0
    for number, name in enumerate(data["kinds"]):
        own = kind == number
        log(f"  {name}: {int(own.sum()):,} questions, answer first {first[own & known].float().mean().item():.3f}")
    length = (questions.lengths[:, None] + passages.lengths[chosen]).amax(1).clamp(max=TOKENS)
    return Data(questions, passages, chosen, target, states, known.float(), length)


def train(model: CrossEncoder, data: Data, arguments: argparse.Namespace, watch: Watch | None) -> None:
    """Learn the teacher's scores, as they are and as an order, its last states, and perhaps the known answers."""
    optimizer = model.optimizer(arguments.rate)
    model.train()
    start, step, seen, reported = time.time(), 0, 0, 0.0
    total = torch.zeros(4, device="cuda")
    spread = data.states[:2000].float().var(dim=(0, 1)).mean()
    for some in batches(data.length, arguments.batch, random.Random(arguments.seed)):
        done = (time.time() - start) / arguments.seconds
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * min(1, (step + 1) / 200) * max(0.02, 0.5 * (1 + math.cos(math.pi * done)))
        picked = torch.rand(len(some), POOL, device="cuda")
        picked[:, 0] = -1  # the answer is always read
        picked = picked.argsort(1)[:, :LIST]
        read = data.chosen[some].gather(1, picked)
        tokens, types = pairs(data.questions, data.passages, some.repeat_interleave(LIST), read.reshape(-1))
        with torch.autocast("cuda", torch.bfloat16):
            said, state = model(tokens, types)
        said = said.view(-1, LIST)
        goal = data.target[some].gather(1, picked)
        plain_loss = F.mse_loss(said, goal)
        order = F.kl_div(F.log_softmax(said / 2, 1), F.softmax(goal / 2, 1), reduction="batchmean")
        answer = F.cross_entropy(said, torch.zeros(len(some), dtype=torch.long, device="cuda"), reduction="none")
        labelled = (answer * data.known[some]).sum() / len(some)
        goal_state = data.states[some].gather(1, picked[..., None].expand(-1, -1, WIDTH)).view(-1, WIDTH).float()
        apart = F.mse_loss(state, goal_state) / spread
        loss = 0.1 * plain_loss + order + arguments.answers * labelled + arguments.states * apart
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step, seen = step + 1, seen + len(some)
        total = 0.99 * total + 0.01 * torch.stack([plain_loss, order, labelled, apart]).detach()
        if time.time() - start > reported + 60:
            reported = time.time() - start
            log(f"step {step}, {seen * LIST:,} pairs, losses {[round(v, 4) for v in total.tolist()]}")
            model.save(arguments.target)
            if watch:
                log("   ", watch.line(model, "tune"))
                model.train()
    log(f"{step} steps, {seen * LIST:,} pairs, losses {[round(v, 4) for v in total.tolist()]}")


# Evaluation while training


class Watch:
    """nDCG@10 of the first results: as they are, by a model, by half of each; how like the teacher's scores."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self.sets = json.loads(lzma.decompress(path.read_bytes()))
        self.asked = [question for one in self.sets for question in one["qs"]]
        self.questions = Texts(tokenizer, [one["q"] for one in self.asked], QUESTION)
        self.passages = Texts(tokenizer, [text for one in self.asked for text in one["p"]], TOKENS)
        counts = torch.tensor([len(one["p"]) for one in self.asked])
        self.of = torch.repeat_interleave(torch.arange(len(counts)), counts).cuda()
        self.teacher: np.ndarray | None = None

    def measure(self, model: CrossEncoder, part: str) -> dict[str, tuple[float, ...]]:
        read = torch.arange(len(self.of), device="cuda")
        said, at = scores(model, self.questions, self.passages, self.of, read)[0].cpu().numpy(), 0
        self.teacher = said if self.teacher is None else self.teacher  # the first that is measured
        found = dict[str, list[tuple[float, ...]]]()
        for one in self.sets:
            for question in one["qs"]:
                own, its = said[at : at + len(question["p"])], self.teacher[at : at + len(question["p"])]
                at += len(own)
                if question["part"] == part:
                    fused, scaled = unit(np.array(question["f"])), unit(own)
                    orders = (fused, scaled, fused + scaled)
                    alike = np.corrcoef(own, its)[0, 1] if len(own) > 1 else 1.0
                    found.setdefault(one["set"], []).append((*(ndcg(question, order) for order in orders), alike))
        means = {name: tuple(np.mean(rows, axis=0)) for name, rows in found.items()}
        return {**means, "mean": tuple(np.mean(list(means.values()), axis=0))}

    def line(self, model: CrossEncoder, part: str) -> str:
        return "; ".join(
            f"{name} {' '.join(f'{v:.3f}' for v in row)}" for name, row in self.measure(model, part).items()
        )


def unit(values: np.ndarray) -> np.ndarray:
    return (values - values.min()) / (np.ptp(values) + 1e-9)


def ndcg(question: dict, order: np.ndarray) -> float:
    gains = [question["g"][number] for number in np.argsort(-order, kind="stable")[:10]]
    best = sum(grade / math.log2(place + 2) for place, grade in enumerate(question["ideal"]))
    return sum(grade / math.log2(place + 2) for place, grade in enumerate(gains)) / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 3, 7, 11], help="of the teacher, to begin with")
    parser.add_argument("--inner", type=int, default=1024, help="inner neurons of a layer; the teacher has 1536")
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--rate", type=float, default=4e-4)
    parser.add_argument("--batch", type=int, default=98_304, help="tokens of a batch")
    parser.add_argument("--answers", type=float, default=0.0, help="weight of the known answers")
    parser.add_argument("--states", type=float, default=0.5, help="weight of the teacher's last states")
    parser.add_argument("--watch", type=Path, help="questions with their first results, measured each minute")
    parser.add_argument("--most", type=int, default=0, help="questions, to try it")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    tokenizer = Tokenizer.from_file(str(arguments.teacher / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    weights = graph_weights(arguments.teacher / "model.onnx")
    teacher = CrossEncoder(12, INNER).cuda()
    teacher.take(weights, range(12))
    watch = Watch(arguments.watch, tokenizer) if arguments.watch else None
    if watch:
        log("teacher:", watch.line(teacher, "tune"))
    read = json.loads(lzma.decompress(arguments.data.read_bytes()))
    data = prepared(arguments, read, tokenizer, teacher)
    del teacher
    student = CrossEncoder(len(arguments.layers), arguments.inner).cuda()
    student.take(weights, arguments.layers)
    train(student, data, arguments, watch)
    if watch:
        log("student:", watch.line(student, "tune"))
    student.save(arguments.target)
    log(f"{arguments.target}: {arguments.target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
