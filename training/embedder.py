"""Train a small embedder to give the vectors of a large one, on one GPU.

`python training/embedder.py TEACHER train.json.xz weights.npz [--seconds 600] [--watch questions.json.xz]`

TEACHER is the folder of the int8 ONNX model `arctic-embed-s`; its weights are turned back into 32 bits. Needs torch,
tokenizers, onnx and numpy. Each step cuts new texts out of the training data, from the beginning of a sentence to the
end of one, all with the same number of tokens, so that nothing is padded; and questions: half are written ones, half a
few words of these texts. The teacher embeds them in the same step. The student learns its vectors, the likeness of
each two of them, the order of the texts for each question, and the states between the layers.
"""

from __future__ import annotations

import argparse
import bz2
import json
import lzma
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from bert import CLS, DEVICE, INNER, SEP, START, Bert, graph_weights, log
from tokenizers import Tokenizer
from torch import Tensor

PREFIX = "Represent this sentence for searching relevant passages: "
LONGEST = 512  # tokens of a text
ENDS = (999, 1012, 1025, 1029)  # ! . ; ?
NEIGHBOURS = 8  # texts cut out of the same place
SHARPNESS = 0.03  # the temperature of the order
COMPARED = 2048  # texts of which each two are compared
FIRST_WORD = 1996  # tokens before it are signs and single letters


class Flat:
    """The tokens of many texts, one after the other, and the length of each."""

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
        rows = list[np.ndarray]()
        for start in range(0, len(texts), 50_000):
            found = tokenizer.encode_batch_fast(texts[start : start + 50_000], add_special_tokens=False)
            rows += (np.array(row.ids, np.int32) for row in found)
        self.lengths = torch.tensor([len(row) for row in rows], device=DEVICE)
        self.starts = torch.cumsum(self.lengths, 0) - self.lengths
        self.tokens = torch.tensor(np.concatenate(rows), device=DEVICE)
        log(f"{len(rows):,} texts, {len(self.tokens):,} tokens")


class Cuts:
    """Texts and questions cut out of the training data, all of one length; `groups` are the ends of groups of texts."""

    def __init__(self, tokenizer: Tokenizer, flat: Flat, groups: Sequence[int], asked: Flat) -> None:
        self.tokens, size = flat.tokens, len(flat.tokens)
        self.boundary = torch.zeros(size + LONGEST + 1, dtype=torch.bool, device=DEVICE)
        self.boundary[flat.starts] = True
        self.boundary[size] = True
        self.boundary[1 : size + 1] |= torch.isin(self.tokens, torch.tensor(ENDS, device=DEVICE))
        last = torch.tensor(np.array(groups) - 1, device=DEVICE)  # the last passage of each group
        ends = (flat.starts + flat.lengths)[last]
        self.begins = self.boundary[:size].nonzero().squeeze(1)
        self.limits = ends[torch.searchsorted(ends, self.begins, right=True)]
        vocabulary = tokenizer.get_vocab()
        begins_word = torch.ones(len(vocabulary), dtype=torch.bool, device=DEVICE)
        begins_word[[number for word, number in vocabulary.items() if word.startswith("##")]] = False
        self.begins_word = begins_word
        self.vocabulary = len(vocabulary)
        self.asked, order = asked, torch.argsort(asked.lengths)
        self.by_length = asked.starts[order]
        self.count = torch.bincount(asked.lengths, minlength=LONGEST + 1)
        self.before = torch.cumsum(self.count, 0) - self.count
        self.count_list, self.before_list = self.count.tolist(), self.before.tolist()
        self.prefix = torch.tensor(tokenizer.encode(PREFIX, add_special_tokens=False).ids, device=DEVICE)

    def texts(self, length: int, count: int) -> Tensor:
        """The beginnings of this many texts with `length` tokens that begin and end where sentences do."""
        ends = self.begins + length
        fits = ends <= self.limits
        if length < LONGEST - 2:
            fits &= self.boundary[ends.clamp(max=len(self.boundary) - 1)]
        found = self.begins[fits]
        near = torch.randint(0, len(found), (count // NEIGHBOURS + 1, 1), device=DEVICE)
        picked = (near + torch.arange(NEIGHBOURS, device=DEVICE)).reshape(-1)[:count]
        return found[picked % len(found)]

    def rows(self, begins: Tensor, length: int, *, of: Tensor | None = None, ask: bool = False) -> Tensor:
        """The tokens of texts that begin there, as the model reads them."""
        whole = self.tokens if of is None else of
        inner = whole[begins[:, None] + torch.arange(length, device=DEVICE)].long()
        size = len(begins)
        first = torch.full((size, 1), CLS, device=DEVICE)
        lead = self.prefix.expand(size, -1) if ask else first[:, :0]
        return torch.cat([first, lead, inner, torch.full((size, 1), SEP, device=DEVICE)], 1)

    def questions(self, texts: Tensor, size: int, length: int, count: int) -> Tensor:
        """Written questions of this length, and as many parts of these texts, which have `size` tokens."""
        written = int(count * 0.5) if self.count_list[length] > 50 else 0
        picked = torch.randint(0, max(1, self.count_list[length]), (written,), device=DEVICE) + self.before_list[length]
        some = texts[torch.randint(0, len(texts), (count - written,), device=DEVICE)]
        begins = some + (torch.rand(len(some), device=DEVICE) * max(1, size - length)).long()
        for _ in range(2):  # at the beginning of a word
            inside = ~self.begins_word[self.tokens[begins].long()] & (begins > 0)
            begins = begins - inside.long()
        begins = begins.clamp(max=len(self.tokens) - length)
        parts = self.rows(begins, length, ask=True)
        if not written:
            return parts
        return torch.cat([self.rows(self.by_length[picked], length, of=self.asked.tokens, ask=True), parts])

    def batch(self, rng: random.Random, arguments: argparse.Namespace) -> list[Tensor]:
        """Texts of one length and questions of another."""
        size, length = chosen_length(rng, 6, LONGEST - 2), chosen_length(rng, 3, 40)
        length = min(length, size)
        begins = self.texts(size, min(4096, arguments.batch * 3 // 4 // (size + 2)))
        count = min(4096, arguments.batch // 4 // (length + 2 + len(self.prefix)))
        rows = [self.rows(begins, size), self.questions(begins, size, length, count)]
        if rng.random() < arguments.replaced:
            rows[0] = self.replaced(rows[0], 0.12)
        return rows

    def replaced(self, rows: Tensor, share: float) -> Tensor:
        """The rows with a share of their words replaced by any words, so that more words are seen."""
        other = torch.randint(FIRST_WORD, self.vocabulary, rows.shape, device=DEVICE)
        return torch.where((torch.rand(rows.shape, device=DEVICE) < share) & (rows >= FIRST_WORD), other, rows)


def unit(state: Tensor) -> Tensor:
    return F.normalize(state[:, 0].float(), dim=-1)


class Losses:
    """How far the student is from the teacher, in four ways."""

    def __init__(self, arguments: argparse.Namespace, layers: int) -> None:
        self.weights = torch.tensor([1.0, arguments.likeness, arguments.order, arguments.states], device=DEVICE)
        # the student's layers stand for equal parts of the teacher's
        self.layers = [(number, round((number + 1) * 12 / layers) - 1) for number in range(layers - 1)]

    def __call__(self, own: list[list[Tensor]], goal: list[list[Tensor]], share: float) -> tuple[Tensor, Tensor]:
        """The weighted sum and the four parts, of the states of texts and of questions; `share` weights the states."""
        e, y = ([unit(states[-1]) for states in both] for both in (own, goal))
        apart = sum(1 - (a * b).sum(1).mean() for a, b in zip(e, y, strict=True)) / 2
        some, same = (torch.cat([vectors[0][:COMPARED], vectors[1][:COMPARED]]) for vectors in (e, y))
        likeness = F.mse_loss(some @ some.T, same @ same.T)
        said, true = (vectors[1] @ vectors[0].T / SHARPNESS for vectors in (e, y))
        order = F.kl_div(F.log_softmax(said, 1), F.log_softmax(true, 1), reduction="batchmean", log_target=True)
        between = torch.zeros((), device=DEVICE)
        if share > 0:
            for a, b in zip(own, goal, strict=True):
                for mine, its in self.layers:
                    between = between + F.mse_loss(a[mine].float(), b[its].float()) / b[its].float().var()
        parts = torch.stack([apart, likeness, order, between / (2 * len(self.layers))])
        return (parts * self.weights * torch.tensor([1, 1, 1, share], device=DEVICE)).sum(), parts.detach()


def chosen_length(rng: random.Random, least: int, most: int) -> int:
    return round(math.exp(rng.uniform(math.log(least), math.log(most))))


def train(student: Bert, teacher: Bert, cuts: Cuts, arguments: argparse.Namespace, watch: Watch | None) -> None:
    optimizer = student.optimizer(arguments.rate)
    begin, step, seen, tokens = resumed(student, optimizer, arguments)
    torch.manual_seed(arguments.seed + step)
    rng = random.Random(arguments.seed + step)
    compiled = (lambda run: torch.compile(run, dynamic=True)) if arguments.compile else (lambda run: run)
    learn, know = compiled(student.states), compiled(teacher.states)
    losses, total = Losses(arguments, len(student.layers)), torch.zeros(4, device=DEVICE)
    start, first, reported = time.time(), step, time.time()
    while (share := (time.time() - start) / max(1, START + arguments.seconds - start)) < 1:
        done = begin + (arguments.until - begin) * share
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * min(1, (step + 1) / 300) * max(0.01, 0.5 * (1 + math.cos(math.pi * done)))
        rows = cuts.batch(rng, arguments)
        with torch.no_grad():
            goal = [know(row) for row in rows]
        with torch.autocast(DEVICE, torch.bfloat16):
            own = [learn(row) for row in rows]
        loss, parts = losses(own, goal, max(0.0, 1 - done / 0.6))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        step, seen, tokens = step + 1, seen + sum(map(len, rows)), tokens + sum(row.numel() for row in rows)
        total = 0.98 * total + 0.02 * parts
        if time.time() > reported + arguments.every:
            reported = time.time()
            shown = [round(v, 4) for v in (total / (1 - 0.98 ** (step - first))).tolist()]
            log(f"{done:.0%} of the schedule, step {step}, {seen:,} texts, {tokens / 1e6:.1f} M tokens, losses {shown}")
            if not all(map(math.isfinite, shown)):
                raise SystemExit("the losses are no numbers; the last file of weights is left as it is")
            student.save(arguments.target)
            keep(student, optimizer, arguments, (done, step, seen, tokens))
            if watch:
                log("   ", watch.line(student))
    keep(student, optimizer, arguments, (arguments.until, step, seen, tokens))
    log(f"{step} steps, {seen:,} texts, {tokens:,} tokens, losses {[round(v, 4) for v in total.tolist()]}")


def resumed(student: Bert, optimizer: torch.optim.Optimizer, arguments: argparse.Namespace) -> tuple:
    """The share of the schedule that is done, steps, texts and tokens; of a run that was stopped, or of none."""
    if not arguments.state or not arguments.state.exists():
        return arguments.begin, 0, 0, 0
    state = torch.load(arguments.state, map_location=DEVICE)
    student.load_state_dict(state["student"])
    optimizer.load_state_dict(state["optimizer"])
    log(f"goes on at {state['done'][0]:.0%} of the schedule, step {state['done'][1]}")
    return state["done"]


def keep(student: Bert, optimizer: torch.optim.Optimizer, arguments: argparse.Namespace, done: tuple) -> None:
    """Write what a later run needs to go on."""
    if arguments.state:
        part = arguments.state.with_suffix(".part")
        torch.save({"student": student.state_dict(), "optimizer": optimizer.state_dict(), "done": done}, part)
        part.replace(arguments.state)


# Evaluation while training


class Watch:
    """nDCG@10 of judged questions: by vectors alone, and by half vectors, half words; and the cosine to the teacher."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self.sets = json.loads(lzma.decompress(path.read_bytes()))
        for one in self.sets:
            one["documents"] = [row.ids for row in tokenizer.encode_batch_fast(one["documents"])]
            one["asked"] = [
                row.ids for row in tokenizer.encode_batch_fast([PREFIX + q["text"] for q in one["questions"]])
            ]
        self.teacher = dict[int, tuple[Tensor, Tensor]]()

    def measure(self, model: Bert) -> dict[str, np.ndarray]:
        found = dict[str, list[np.ndarray]]()
        for number, one in enumerate(self.sets):
            vectors = embed(model, one["documents"]), embed(model, one["asked"])
            its = self.teacher.setdefault(number, vectors)
            cosines = [float((a * b).sum(1).mean()) for a, b in zip(vectors, its, strict=True)]
            best, which = (vectors[1] @ vectors[0].T).topk(min(100, len(one["documents"])), dim=1)
            best, which = best.cpu().numpy(), which.cpu().numpy()
            rows = [
                (*scored(question, best[place], which[place]), *cosines)
                for place, question in enumerate(one["questions"])
            ]
            found.setdefault(one["set"], []).extend(np.array(row) for row in rows)
        means = {name: np.mean(rows, axis=0) for name, rows in found.items()}
        return {**means, "mean": np.mean(list(means.values()), axis=0)}

    def line(self, model: Bert) -> str:
        return "; ".join(f"{name} {' '.join(f'{v:.3f}' for v in row)}" for name, row in self.measure(model).items())


def embed(model: Bert, rows: Sequence[Sequence[int]], tokens: int = 262_144) -> Tensor:
    found = torch.zeros(len(rows), 384, device=DEVICE)
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    with torch.no_grad(), torch.autocast(DEVICE, torch.float16, enabled=DEVICE == "cuda"):
        at = 0
        while at < len(order):
            size = max(1, tokens // len(rows[order[min(at + 2048, len(order) - 1)]]))
            some = order[at : at + min(2048, size)]
            longest = max(len(rows[number]) for number in some)
            padded = np.zeros((len(some), longest), np.int64)
            for place, number in enumerate(some):
                padded[place, : len(rows[number])] = rows[number]
            given = torch.tensor(padded, device=DEVICE)
            found[torch.tensor(some, device=DEVICE)] = unit(model.states(given, (given != 0)[:, None, None, :])[-1])
            at += len(some)
    return found


def scored(question: dict, scores: np.ndarray, which: np.ndarray) -> tuple[float, float]:
    alone = dict(zip(which.tolist(), scores.tolist(), strict=True))
    words = {int(number): score for number, score in question["words"]}
    both: dict[int, float] = {}
    for given in (alone, words):
        if given:
            low, high = min(given.values()), max(given.values())
            for number, score in given.items():
                both[number] = both.get(number, 0.0) + (score - low) / (high - low + 1e-9)
    return ndcg(question, alone), ndcg(question, both)


def ndcg(question: dict, found: dict[int, float]) -> float:
    grades = {int(number): grade for number, grade in question["grades"].items()}
    order = sorted(found, key=lambda number: -found[number])[:10]
    gains = sum(grades.get(number, 0) / math.log2(place + 2) for place, number in enumerate(order))
    ideal = sorted(grades.values(), reverse=True)[:10]
    return gains / sum(grade / math.log2(place + 2) for place, grade in enumerate(ideal))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("target", type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 4, 8, 11], help="of the teacher, to begin with")
    parser.add_argument("--inner", type=int, default=INNER, help="inner neurons of a layer; the teacher has 1536")
    parser.add_argument(
        "--seconds", type=float, default=600, help="after the start of the program, the end of training"
    )
    parser.add_argument("--begin", type=float, default=0.0, help="share of the schedule that --start has behind it")
    parser.add_argument("--until", type=float, default=1.0, help="share of the schedule at which this run stops")
    parser.add_argument("--start", type=Path, help="weights.npz to begin with, in place of layers of the teacher")
    parser.add_argument("--state", type=Path, help="file to go on from, if it exists, and to keep the state in")
    parser.add_argument("--every", type=float, default=60, help="seconds between reports")
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--batch", type=int, default=131_072, help="tokens of a batch")
    parser.add_argument("--likeness", type=float, default=5.0, help="weight of the likeness of each two texts")
    parser.add_argument("--order", type=float, default=0.05, help="weight of the order of texts for a question")
    parser.add_argument("--states", type=float, default=0.2, help="weight of the states between the layers")
    parser.add_argument("--replaced", type=float, default=0.25, help="share of steps in which words are replaced")
    parser.add_argument("--watch", type=Path, help="judged questions, measured at each report")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--most", type=int, default=0, help="groups, to try it")
    parser.add_argument("--seed", type=int, default=0)
    run(parser.parse_args())


def read(paths: Sequence[Path], most: int) -> dict:
    """The training data, of one or more files."""
    whole: dict = {"passages": [], "ends": [], "questions": []}
    for path in paths:
        data = json.loads((bz2 if path.suffix == ".bz2" else lzma).decompress(path.read_bytes()))
        whole["ends"] += [end + len(whole["passages"]) for end in data["ends"][: most or None]]
        whole["passages"] += data["passages"][: data["ends"][most - 1] if most else None]
        whole["questions"] += data["questions"][: 20 * most or None]
        whole["kinds"] = data["kinds"]
        whole["alone"] = data.get("alone", len(whole["ends"]))
    return whole


def run(arguments: argparse.Namespace) -> None:
    torch.manual_seed(arguments.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)  # it plans anew for every length
    tokenizer = Tokenizer.from_file(str(arguments.teacher / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    tokenizer.encode_special_tokens = True
    weights = graph_weights(arguments.teacher / "model.onnx")
    teacher = Bert(12, INNER).to(DEVICE)
    teacher.take(weights, range(12))
    teacher.requires_grad_(requires_grad=False)
    watch = Watch(arguments.watch, tokenizer) if arguments.watch else None
    if watch:
        log("teacher:", watch.line(teacher))
    data = read(arguments.data, arguments.most)
    passages, asked = Flat(tokenizer, data["passages"]), Flat(tokenizer, [row[0] for row in data["questions"]])
    cuts = Cuts(tokenizer, passages, data["ends"], asked)
    student = Bert(len(arguments.layers), arguments.inner).to(DEVICE)
    if arguments.start:
        student.take(dict(np.load(arguments.start)), range(len(arguments.layers)))
    else:
        student.take(weights, arguments.layers)
    train(student, teacher.half() if DEVICE == "cuda" else teacher, cuts, arguments, watch)
    if watch:
        log("student:", watch.line(student))
    student.save(arguments.target)
    log(f"{arguments.target}: {arguments.target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
