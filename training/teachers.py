"""Measure what teachers of rank.py say together: `python training/teachers.py MODELS questions.json.xz`.

Prints nDCG@10 of the tuning questions by vectors alone and by half vectors, half words: of the second embedder, of both
with several weights of the second, and with several weights of the cross-encoder's scores of the first documents; then
the best weights for each kind of text.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from bert import DEVICE, INNER, log
from embedder import Watch, embed, scored
from rank import KINDS, SCORE, STEEP, large, tokenizer_of
from torch import Tensor
from train import QUESTION, TOKENS, CrossEncoder, Texts, scores

FIRST = 30  # documents of a question that the cross-encoder reads
SECOND = (0.0, 0.3, 0.7, 1.2)
READER = (0.0, 0.3, 0.6, 0.85)
SETS = {
    "conversation": ("locomo", "longmemeval", "madial_en"), "science": ("scifact", "nfcorpus", "cranfield"),
    "documentation": ("openclaw_docs", "vespa_rag_blueprint"), "code": ("cosqa_dev",),
    "encyclopedia": ("openclaw_docs", "vespa_rag_blueprint"),
}  # fmt: skip


def standard(cosines: Tensor) -> Tensor:
    return (cosines - cosines.mean(1, keepdim=True)) / cosines.std(1, keepdim=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("watch", type=Path)
    parser.add_argument("target", type=Path, nargs="?", help="file for the best weights, for rank.py --kinds")
    arguments = parser.parse_args()
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)
    tokenizer = tokenizer_of(arguments.models / "arctic-embed-s")
    watch = Watch(arguments.watch, tokenizer)
    first, second = (large(arguments.models / name) for name in ("arctic-embed-s", "bge-small-en"))
    reader = large(arguments.models / "minilm-l12-reranker", CrossEncoder(12, INNER))
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for one in watch.sets:
        z = [standard(embed(model, one["asked"]) @ embed(model, one["documents"]).T) for model in (first, second)]
        documents = texts(one["documents"])
        asked = texts([row[10:] for row in one["asked"]])  # without the prefix
        asked.lengths = asked.lengths.clamp(max=QUESTION)
        documents.lengths = documents.lengths.clamp(max=TOKENS)
        keep(found, one, "second alone", z[1])
        count = min(FIRST, len(one["documents"]))
        best = (z[0] + 0.5 * z[1]).topk(count).indices
        numbers = torch.arange(len(best), device=DEVICE).repeat_interleave(count)
        said = scores(reader, asked, documents, numbers, best.reshape(-1)).view(-1, count)
        for weight in SECOND:
            mixed = STEEP * (z[0] + weight * z[1]) / (1 + weight)
            lowest = mixed.gather(1, best).amin(1, keepdim=True)
            for share in READER:
                read = (1 - share) * mixed.gather(1, best) + share * SCORE * said
                rest = mixed - lowest + read.amin(1, keepdim=True) if share else mixed  # what was not read follows
                keep(found, one, f"{weight} {share}", rest.scatter(1, best, read))
    chosen = dict(KINDS)
    for name, sets in found.items():
        means = {key: np.mean(rows, axis=0) for key, rows in sets.items()}
        means["mean"] = np.mean(list(means.values()), axis=0)
        log(name, "; ".join(f"{key} {a:.3f} {b:.3f}" for key, (a, b) in means.items()))
    for kind, sets in SETS.items():
        tried = {name: rows for name, rows in found.items() if name != "second alone"}
        value = {name: sum(np.mean(rows[one]) for one in sets if one in rows) for name, rows in tried.items()}
        second_share, reader_share = map(float, max(value, key=value.__getitem__).split())
        chosen[kind] = (KINDS[kind][0], second_share, reader_share, KINDS[kind][3])
    print(json.dumps(chosen))
    if arguments.target:
        arguments.target.write_text(json.dumps(chosen), encoding="utf-8")


def texts(rows: list[list[int]]) -> Texts:
    """Rows of tokens, without the first and the last, which are signs."""
    made = Texts.__new__(Texts)
    made.lengths = torch.tensor([len(row) - 2 for row in rows], device=DEVICE)
    made.starts = torch.cumsum(made.lengths, 0) - made.lengths
    made.tokens = torch.tensor([token for row in rows for token in row[1:-1]], dtype=torch.int32, device=DEVICE)
    return made


def keep(found: dict, one: dict, name: str, values: Tensor) -> None:
    best, which = values.topk(min(100, values.shape[1]))
    best, which = best.cpu().numpy(), which.cpu().numpy()
    rows = [scored(question, best[at], which[at]) for at, question in enumerate(one["questions"])]
    found.setdefault(name, {}).setdefault(one["set"], []).extend(rows)


if __name__ == "__main__":
    main()
