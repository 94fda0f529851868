"""Spread the outliers of what flows through an embedder, so that eight bits lose less of it.

`python training/spread.py WEIGHTS.npz TOKENIZER.json spread.npz train.json.xz`; then `export.py --spread spread.npz`.

What flows into a linear layer is quantised with one step for all its neurons, and a few neurons have values thirty
times as large as the others. Each neuron's values are moved by a centre and divided by a scale, and the layer's
weights and bias undo that: the same result in 32 bits. Of several scales the ones with the smallest error
in eight bits are taken, on texts of the training data. Needs torch, tokenizers and numpy.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from bert import Bert, heads
from embedder import PREFIX, read
from tokenizers import Tokenizer

TEXTS, QUESTIONS = 50, 15
PARTS = {
    "qkv": tuple(f"attention.self.{part}" for part in ("query", "key", "value")),
    "out": ("attention.output.dense",), "up": ("intermediate.dense",), "down": ("output.dense",),
}  # fmt: skip
TIMES = (1, 1.5, 2, 3, 4, 6, 8, 12)  # the median range; neurons with more are scaled down to it
POWERS = (0.7, 0.85)  # how far a scale goes with a neuron's range, the rest with its weights


def inputs(model: Bert, rows: Sequence[Sequence[int]]) -> dict[str, list[np.ndarray]]:
    """What flows into each linear layer, for each text."""
    found: dict[str, list[np.ndarray]] = {}

    def see(name: str, x: torch.Tensor) -> torch.Tensor:
        found.setdefault(name, []).append(x[0].numpy())
        return x

    for row in rows:
        tokens = torch.tensor([row])
        x = model.norm(model.words(tokens) + model.types.weight[0] + model.places(torch.arange(len(row)))[None])
        for number, layer in enumerate(model.layers):
            asks = see(f"{number}.qkv", x)[:, : 1 if number == len(model.layers) - 1 else None]
            q, k, v = heads(layer.qkv(x), 3)
            states = F.scaled_dot_product_attention(q[:, :, : asks.shape[1]], k, v).transpose(1, 2).reshape(asks.shape)
            y = see(f"{number}.up", layer.norm(asks + layer.out(see(f"{number}.out", states))))
            x = layer.last(y + layer.down(see(f"{number}.down", F.gelu(layer.up(y)))))
    return found


def error(texts: Sequence[np.ndarray], weight: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> float:
    """The squared error of the layer's results in eight bits; weights have seven (see `reduce_range` in export.py)."""
    step = np.abs(weight * scale).max(1, keepdims=True) / 64
    rounded = np.round(weight * scale / step) * step
    total = 0.0
    for x in texts:
        moved = (x - centre) / scale
        low, high = min(moved.min(), 0), max(moved.max(), 0)
        seen = np.round(moved / (high - low) * 255) * (high - low) / 255
        total += float(((seen @ rounded.T - (x - centre) @ weight.T) ** 2).sum())
    return total


def candidates(texts: Sequence[np.ndarray], weight: np.ndarray, *, moves: bool) -> Iterator[tuple[np.ndarray, ...]]:
    """Centres and scales to try; `moves` says whether values may be moved."""
    high = np.quantile([x.max(0) for x in texts], 0.8, axis=0)
    low = np.quantile([x.min(0) for x in texts], 0.2, axis=0)
    largest = np.abs(weight).max(0)
    yield np.zeros_like(high), np.ones_like(high)
    for centre in ((high + low) / 2, np.zeros_like(high)) if moves else (np.zeros_like(high),):
        reach = np.maximum(np.maximum(high - centre, centre - low), 1e-5)
        for times in TIMES:
            yield centre, np.maximum(1, reach / (times * np.median(reach)))
        for power in POWERS:
            scale = reach**power / np.maximum(largest, np.median(largest) / 10) ** (1 - power)
            yield centre, scale / np.exp(np.log(scale).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("weights", "tokenizer", "target"):
        parser.add_argument(name, type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    arguments = parser.parse_args()
    with np.load(arguments.weights) as file:
        named = {name: value.astype(np.float32) for name, value in file.items()}
    layers = 1 + max(int(name.split(".")[2]) for name in named if name.startswith("encoder."))
    model = Bert(layers, len(named["encoder.layer.0.intermediate.dense.bias"]))
    model.take(named, range(layers))
    model.requires_grad_(requires_grad=False)
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    data, rng = read(arguments.data, 0), random.Random(0)
    texts = rng.sample(data["passages"], TEXTS) + [PREFIX + row[0] for row in rng.sample(data["questions"], QUESTIONS)]
    chosen: dict[str, np.ndarray] = {}
    for name, seen in inputs(model, [row.ids for row in tokenizer.encode_batch(texts)]).items():
        number, part = name.split(".")
        weight = np.concatenate([named[f"encoder.layer.{number}.{each}.weight"] for each in PARTS[part]])
        tried = [
            (error(seen, weight, *one), place, one)
            for place, one in enumerate(candidates(seen, weight, moves=part != "down"))
        ]
        least, _, best = min(tried)
        print(f"{name}: {least / tried[0][0]:.2f} of the error")
        chosen[name] = np.stack(best).astype(np.float32)
    np.savez(arguments.target, **chosen)


if __name__ == "__main__":
    main()
