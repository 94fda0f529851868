"""BERT in torch: its layers, the weights of an int8 ONNX graph in 32 bits, and a smaller one made of some of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import Tensor, nn

WIDTH, HEADS, INNER = 384, 12, 1536
CLS, SEP = 101, 102
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
START = time.time()
TABLES = (("words", "word"), ("places", "position"), ("types", "token_type"))
PARTS = {
    "out": "attention.output.dense", "norm": "attention.output.LayerNorm", "up": "intermediate.dense",
    "down": "output.dense", "last": "output.LayerNorm",
}  # fmt: skip


def log(*what: object) -> None:
    print(f"[{time.time() - START:6.1f}]", *what, flush=True)


class Layer(nn.Module):
    def __init__(self, inner: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.up = nn.Linear(WIDTH, inner)
        self.down = nn.Linear(inner, WIDTH)
        self.last = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor | None, asks: Tensor) -> Tensor:
        """The states `asks`, which may be some of x, after they have read x."""
        weight, bias = self.qkv.weight, self.qkv.bias
        (q,) = heads(F.linear(asks, weight[:WIDTH], bias[:WIDTH]), 1)
        k, v = heads(F.linear(x, weight[WIDTH:], bias[WIDTH:]), 2)
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm(asks + self.out(read.transpose(1, 2).reshape(asks.shape)))
        return self.last(x + self.down(F.gelu(self.up(x))))


def heads(x: Tensor, parts: int) -> Tensor:
    rows, length, _ = x.shape
    return x.view(rows, length, parts, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)


class Bert(nn.Module):
    """The states of a text after every layer; after the last one that of the first token alone, the only one used."""

    heads: tuple[tuple[str, str], ...] = ()  # linear layers after the last, and their names in the graph

    def __init__(self, layers: int, inner: int) -> None:
        super().__init__()
        self.words = nn.Embedding(30522, WIDTH, padding_idx=0)
        self.places = nn.Embedding(512, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(Layer(inner) for _ in range(layers))

    def states(self, tokens: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> list[Tensor]:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        first, second = self.types.weight  # not looked up: the gradient of a table of two rows takes long
        kinds = first if types is None else first + types[..., None] * (second - first)
        x = self.norm(self.words(tokens) + kinds + self.places(places)[None])
        found = []
        for number, layer in enumerate(self.layers):
            x = layer(x, mask, x if number < len(self.layers) - 1 else x[:, :1])
            found.append(x)
        return found

    def named(self) -> dict[str, np.ndarray]:
        """The weights by the names that BERT gives them."""
        own = {name: value.detach().float().cpu().numpy() for name, value in self.state_dict().items()}
        named = {f"embeddings.{new}_embeddings.weight": own[f"{old}.weight"] for old, new in TABLES}
        for end in ("weight", "bias"):
            named[f"embeddings.LayerNorm.{end}"] = own[f"norm.{end}"]
            named |= {f"{new}.{end}": own[f"{old}.{end}"] for old, new in self.heads}
            for number in range(len(self.layers)):
                bert = f"encoder.layer.{number}"
                three = np.split(own[f"layers.{number}.qkv.{end}"], 3)
                for part, value in zip(("query", "key", "value"), three, strict=True):
                    named[f"{bert}.attention.self.{part}.{end}"] = value
                for old, new in PARTS.items():
                    named[f"{bert}.{new}.{end}"] = own[f"layers.{number}.{old}.{end}"]
        return named

    def take(self, named: Mapping[str, np.ndarray], layers: Sequence[int]) -> None:
        """Take weights by BERT's names, of these layers, and of their inner neurons those with the largest weights."""
        own = {f"{new}.weight": named[f"embeddings.{old}_embeddings.weight"] for new, old in TABLES}
        for end in ("weight", "bias"):
            own[f"norm.{end}"] = named[f"embeddings.LayerNorm.{end}"]
            own |= {f"{old}.{end}": named[f"{new}.{end}"] for old, new in self.heads}
        inner = self.layers[0].up.out_features
        for number, layer in enumerate(layers):
            bert = f"encoder.layer.{layer}"
            up, down = named[f"{bert}.intermediate.dense.weight"], named[f"{bert}.output.dense.weight"]
            kept = np.sort(np.argsort(-np.linalg.norm(up, axis=1) * np.linalg.norm(down, axis=0))[:inner])
            for end in ("weight", "bias"):
                three = [named[f"{bert}.attention.self.{part}.{end}"] for part in ("query", "key", "value")]
                own[f"layers.{number}.qkv.{end}"] = np.concatenate(three)
                own |= {f"layers.{number}.{old}.{end}": named[f"{bert}.{new}.{end}"] for old, new in PARTS.items()}
                own[f"layers.{number}.up.{end}"] = named[f"{bert}.intermediate.dense.{end}"][kept]
            own[f"layers.{number}.down.weight"] = down[:, kept]
        self.load_state_dict({name: torch.tensor(value) for name, value in own.items()})

    def save(self, target: Path) -> None:
        part = target.with_suffix(".part.npz")  # a file that is there is always a whole one
        np.savez(part, **{name: value.astype(np.float16) for name, value in self.named().items()})
        part.replace(target)

    def optimizer(self, rate: float) -> torch.optim.Optimizer:
        decay = [one for one in self.parameters() if one.dim() > 1]
        plain = [one for one in self.parameters() if one.dim() < 2]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=rate, fused=DEVICE == "cuda")


def graph_weights(path: Path) -> dict[str, np.ndarray]:
    """The weights of an int8 graph in 32 bits, by BERT's names."""
    graph = onnx.load(path).graph
    kept = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    prefix = "bert." if "bert.embeddings.LayerNorm.weight" in kept else ""

    def whole(name: str) -> np.ndarray:
        part, zero, scale = (kept[f"{name}_{end}"] for end in ("quantized", "zero_point", "scale"))
        return (part.astype(np.float32) - zero.astype(np.float32)) * scale

    named = {
        name.removeprefix(prefix): value for name, value in kept.items()
        if value.dtype == np.float32 and (name.endswith(".bias") or "LayerNorm" in name)
    }  # fmt: skip
    for _, part in TABLES:
        named[f"embeddings.{part}_embeddings.weight"] = whole(f"{prefix}embeddings.{part}_embeddings.weight")
    for node in graph.node:
        if node.op_type == "MatMulInteger" and "encoder/" in node.name:
            name = node.name.strip("/").removesuffix("/MatMul_quant").replace("/", ".").removeprefix(prefix)
            named[f"{name}.weight"] = whole(node.input[1].removesuffix("_quantized")).T.copy()
    if f"{prefix}pooler.dense.weight_quantized" in kept and "classifier.weight_quantized" in kept:
        named["pooler.dense.weight"] = whole(f"{prefix}pooler.dense.weight").T.copy()
        named["classifier.weight"] = whole("classifier.weight").reshape(1, WIDTH)
    return named


def embedder_weights(path: Path) -> dict[str, np.ndarray]:
    """The weights of the file of `small-embedder` in 32 bits, by BERT's names, with its spreads undone."""
    kept = {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}

    def whole(name: str) -> np.ndarray:
        part, zero, scale = (kept[f"{name}.weight_{end}"] for end in ("quantized", "zero_point", "scale"))
        return (part.astype(np.float32) - zero.astype(np.float32)) * scale

    named = {name: value for name, value in kept.items() if "LayerNorm" in name or name.startswith("embeddings.pos")}
    for table in ("word", "token_type"):
        named[f"embeddings.{table}_embeddings.weight"] = whole(f"embeddings.{table}_embeddings")
    linear = ("attention.self.query", "attention.self.key", "attention.self.value", *PARTS.values())
    for number in range(1 + max(int(name.split(".")[2]) for name in kept if name.startswith("encoder."))):
        for part in (one for one in linear if "LayerNorm" not in one):
            name = f"encoder.layer.{number}.{part}"
            weight, bias = whole(name), kept[f"{name}.bias"]
            spread = "qkv" if "self" in part else "up" if "intermediate" in part else ""
            if f"{number}.{spread}.centre" in kept:
                weight = weight * kept[f"{number}.{spread}.scale"][:, None]
                bias = bias - kept[f"{number}.{spread}.centre"] @ weight
            if part == "output.dense" and f"{number}.down.half" in kept:
                weight = weight * 2 * kept[f"{number}.down.half"][:, None]
            times = np.float32((WIDTH / HEADS) ** 0.5 if part.endswith("query") else 1)  # the scale of attention
            named[f"{name}.weight"], named[f"{name}.bias"] = weight.T * times, bias * times
    return named
