"""Measure int8 graphs on the tuning questions: `python training/judge.py questions.json.xz TOKENIZER.json GRAPH…`.

Prints nDCG@10 by vectors alone and by half vectors, half words, for each set. Texts go through the graph one by one, as
the package runs it. Needs onnxruntime, tokenizers, torch and numpy; the file of questions is that of watch.py.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path

import numpy as np
from embedder import PREFIX, scored
from onnxruntime import InferenceSession, SessionOptions
from tokenizers import Tokenizer

NAMES = ("input_ids", "attention_mask", "token_type_ids")


class Graph:
    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizer

    def vectors(self, texts: list[str]) -> np.ndarray:
        rows = []
        for text in texts:
            row = self.tokenizer.encode(text)
            feeds = dict(zip(NAMES, (row.ids, row.attention_mask, row.type_ids), strict=True))
            rows.append(
                self.session.run(None, {name: np.array([one], np.int64) for name, one in feeds.items()})[0][0, 0]
            )
        found = np.stack(rows)
        return found / np.linalg.norm(found, axis=1, keepdims=True)


def measure(sets: list[dict], graph: Graph) -> dict[str, tuple[float, float]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for one in sets:
        documents = graph.vectors(one["documents"])
        for question, vector in zip(
            one["questions"], graph.vectors([PREFIX + q["text"] for q in one["questions"]]), strict=True
        ):
            cosines = documents @ vector
            which = np.argsort(-cosines, kind="stable")[:100]
            found.setdefault(one["set"], []).append(scored(question, cosines[which], which))
    means = {name: tuple(np.mean(rows, axis=0)) for name, rows in found.items()}
    return {**means, "mean": tuple(np.mean(list(means.values()), axis=0))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("graphs", type=Path, nargs="+")
    parser.add_argument("--sets", nargs="*", help="only these")
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    tokenizer.encode_special_tokens = True
    sets = json.loads(lzma.decompress(arguments.questions.read_bytes()))
    sets = [one for one in sets if not arguments.sets or one["set"] in arguments.sets]
    for path in arguments.graphs:
        rows = measure(sets, Graph(path, tokenizer)).items()
        print(path, "; ".join(f"{name} {alone:.4f} {fused:.4f}" for name, (alone, fused) in rows), flush=True)


if __name__ == "__main__":
    main()
