"""Layers that compute as a graph in eight bits does, so that an embedder learns with the error of the rounding.

What flows into a linear layer is rounded to 256 steps, of one size in a text, and its weights to 128, of one size in a
row (`reduce_range` in export.py). Gradients pass as if nothing were rounded. The spreads are those of the file that the
embedder began with (spread.py says what they are), and stay as they are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from bert import DEVICE, Bert, Layer, heads
from onnx import numpy_helper
from torch import Tensor

Spread = dict[str, tuple[Tensor, Tensor]]  # for each linear layer a centre and a scale


class RoundedLayer(Layer):
    """A layer of BERT in eight bits."""

    spread: Spread

    def forward(self, x: Tensor, mask: Tensor | None, asks: Tensor) -> Tensor:
        seen = None if mask is None else mask[:, 0, 0, :, None]
        width = x.shape[-1]
        weight, bias = self.qkv.weight, self.qkv.bias
        whole = len(asks[0]) == len(x[0])
        inputs = self.rounded_input("qkv", x, seen)
        asking = inputs if whole else self.rounded_input("qkv", asks, None)
        (q,) = heads(self.linear("qkv", asking, weight[:width], bias[:width]), 1)
        k, v = heads(self.linear("qkv", inputs, weight[width:], bias[width:]), 2)
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(asks.shape)
        seen = seen if whole else None
        out = self.linear("out", self.rounded_input("out", read, seen), self.out.weight, self.out.bias)
        x = self.norm(asks + out)
        inner = F.gelu(self.linear("up", self.rounded_input("up", x, seen), self.up.weight, self.up.bias))
        down = self.linear("down", self.rounded_input("down", inner, seen), self.down.weight, self.down.bias)
        return self.last(x + down)

    def rounded_input(self, name: str, x: Tensor, seen: Tensor | None) -> Tensor:
        if name in self.spread:
            centre, scale = self.spread[name]
            x = (x - centre) / scale
        with torch.no_grad():
            own = (x if seen is None else torch.where(seen, x, 0)).float()
            low, high = own.amin((1, 2), keepdim=True).clamp(max=0), own.amax((1, 2), keepdim=True).clamp(min=0)
            step = ((high - low) / 255).clamp(min=1e-8)
            zero = torch.round(-low / step)
            error = ((torch.round(x / step) + zero).clamp(0, 255) - zero) * step - x
        return x + error

    def linear(self, name: str, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if name in self.spread:
            centre, scale = self.spread[name]
            bias, weight = bias + (weight * centre).sum(1), weight * scale
        with torch.no_grad():
            step = weight.abs().amax(1, keepdim=True) / 64
            error = torch.round(weight / step) * step - weight
        return F.linear(x, weight + error, bias)


class RoundedWords(torch.nn.Embedding):
    """A table of vectors in eight bits, of one step for all."""

    def forward(self, tokens: Tensor) -> Tensor:
        found = super().forward(tokens)
        with torch.no_grad():
            low, high = self.weight.amin().clamp(max=0), self.weight.amax().clamp(min=0)
            step = (high - low) / 255
            error = torch.round(found / step) * step - found
        return found + error


def round_off(model: Bert, spreads: dict[str, np.ndarray]) -> None:
    """Let a model compute in eight bits from now on."""
    model.words.__class__ = RoundedWords
    for number, layer in enumerate(model.layers):
        layer.__class__ = RoundedLayer
        layer.spread = {
            name.split(".")[1]: tuple(torch.tensor(one, device=DEVICE) for one in both)
            for name, both in spreads.items() if name.split(".")[0] == str(number)
        }  # fmt: skip


def spreads_of(path: Path) -> dict[str, np.ndarray]:
    """The spreads of the file of `small-embedder`, as spread.py writes them."""
    kept = {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    found = {}
    for name, value in kept.items():
        number, _, part = name.partition(".")
        if name.endswith(".centre"):
            found[name.removesuffix(".centre")] = np.stack([value, 1 / kept[f"{name.removesuffix('centre')}scale"]])
        elif part == "down.half":
            found[f"{number}.down"] = np.stack([np.zeros_like(value), 0.5 / value])
    return found
