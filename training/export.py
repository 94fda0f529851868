"""Turn trained weights into an int8 ONNX graph: `python training/export.py WEIGHTS.npz model.onnx [--spread FILE]`.

Needs numpy, onnx and onnxruntime. The graph is written by hand, so that the last layer computes only what is read of
it: the state of the first token. That spares most of a layer and changes no score. `--spread` takes the file of
spread.py.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
HEADS = 12
EPSILON = 1e-12


class Graph:
    """A list of operators and of constants, each result named by the number of operators before it."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.setdefault(name, numpy_helper.from_array(value, name))
        return name

    def numbers(self, *values: int) -> str:
        return self.constant("numbers_" + "_".join(map(str, values)), np.array(values, np.int64))


class Bert(Graph):
    """The graph of a BERT: a cross-encoder, which gives one score for a pair of texts, or an embedder."""

    def __init__(self, weights: Mapping[str, np.ndarray], spread: Mapping[str, np.ndarray] | None = None) -> None:
        super().__init__()
        self.weights = weights
        self.spread = spread or {}
        self.width = weights["embeddings.word_embeddings.weight"].shape[1]
        self.layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))

    def linear(self, x: str, name: str, undone: str = "", done: str = "", times: float = 1.0) -> str:
        """A linear layer that undoes one spread in what it reads, and applies another to what it gives, or a factor."""
        weight, bias = (
            self.weights[f"{name}.{end}"].astype(np.float32) * np.float32(times) for end in ("weight", "bias")
        )
        if undone in self.spread:
            centre, scale = self.spread[undone]
            weight, bias = weight * scale, bias + weight @ centre
        if done in self.spread:
            centre, scale = self.spread[done]
            weight, bias = weight / scale[:, None], (bias - centre) / scale
        product = self.add("MatMul", x, self.constant(f"{name}.weight", np.ascontiguousarray(weight.T)))
        return self.add("Add", product, self.constant(f"{name}.bias", bias))

    def spread_out(self, x: str, name: str) -> str:
        if name not in self.spread:
            return x
        centre, scale = self.spread[name]
        moved = self.add("Sub", x, self.constant(f"{name}.centre", centre))
        return self.add("Mul", moved, self.constant(f"{name}.scale", 1 / scale))

    def vector(self, name: str) -> str:
        return self.constant(name, self.weights[name].astype(np.float32))

    def normalised(self, x: str, name: str) -> str:
        scale, shift = self.vector(f"{name}.weight"), self.vector(f"{name}.bias")
        return self.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=EPSILON)

    def gelu(self, x: str, name: str) -> str:
        root, one, half = (self.constant(f"scalar_{v:.4f}", np.array(v, np.float32)) for v in (2**0.5, 1.0, 0.5))
        if name in self.spread:
            half = self.constant(f"{name}.half", 0.5 / self.spread[name][1])
        erf = self.add("Add", self.add("Erf", self.add("Div", x, root)), one)
        return self.add("Mul", self.add("Mul", x, erf), half)

    def heads(self, x: str, order: tuple[int, ...]) -> str:
        split = self.add("Reshape", x, self.numbers(0, 0, HEADS, self.width // HEADS))
        return self.add("Transpose", split, perm=order)

    def layer(self, x: str, mask: str, number: int) -> str:
        name = f"encoder.layer.{number}"
        qkv, out, up, down = (f"{number}.{part}" for part in ("qkv", "out", "up", "down"))
        read = self.spread_out(x, qkv)
        asks, asking = (x, read) if number < self.layers - 1 else (self.first(x), self.first(read))
        scale = (self.width / HEADS) ** -0.5  # of attention, as part of the query
        query = self.heads(self.linear(asking, f"{name}.attention.self.query", qkv, times=scale), (0, 2, 1, 3))
        key = self.heads(self.linear(read, f"{name}.attention.self.key", qkv), (0, 2, 3, 1))
        value = self.heads(self.linear(read, f"{name}.attention.self.value", qkv, out), (0, 2, 1, 3))
        attention = self.add("Add", self.add("MatMul", query, key), mask)
        read = self.add("MatMul", self.add("Softmax", attention, axis=-1), value)
        joined = self.add("Reshape", self.add("Transpose", read, perm=(0, 2, 1, 3)), self.numbers(0, 0, self.width))
        output = self.add("Add", self.linear(joined, f"{name}.attention.output.dense", out), asks)
        x = self.normalised(output, f"{name}.attention.output.LayerNorm")
        inner = self.gelu(self.linear(self.spread_out(x, up), f"{name}.intermediate.dense", up), down)
        whole = self.add("Add", self.linear(inner, f"{name}.output.dense", down), x)
        return self.normalised(whole, f"{name}.output.LayerNorm")

    def first(self, x: str) -> str:
        return self.add("Slice", x, self.numbers(0), self.numbers(1), self.numbers(1))

    def embedded(self) -> str:
        def table(name: str) -> str:
            return self.constant(name, self.weights[name].astype(np.float32))

        length = self.add("Shape", "input_ids", start=1, end=2)
        places = self.add("Slice", table("embeddings.position_embeddings.weight"), self.numbers(0), length)
        words = self.add("Gather", table("embeddings.word_embeddings.weight"), "input_ids")
        types = self.add("Gather", table("embeddings.token_type_embeddings.weight"), "token_type_ids")
        return self.normalised(self.add("Add", self.add("Add", words, types), places), "embeddings.LayerNorm")

    def model(self) -> onnx.ModelProto:
        x = self.embedded()
        seen = self.add("Cast", "attention_mask", to=TensorProto.FLOAT)
        one, low = (
            self.constant("scalar_1.0000", np.array(1, np.float32)),
            self.constant("low", np.array(-1e4, np.float32)),
        )
        unseen = self.add("Unsqueeze", self.add("Sub", one, seen), self.numbers(1, 2))
        mask = self.add("Mul", unseen, low)
        for number in range(self.layers):
            x = self.layer(x, mask, number)
        if "classifier.weight" in self.weights:
            pooled = self.add("Tanh", self.linear(self.add("Squeeze", x, self.numbers(1)), "pooler.dense"))
            x, name, shape = self.linear(pooled, "classifier"), "logits", ["batch", 1]
        else:
            name, shape = "last_hidden_state", ["batch", 1, self.width]
        self.nodes.append(helper.make_node("Identity", [x], [name]))
        inputs = [
            helper.make_tensor_value_info(given, TensorProto.INT64, ["batch", "length"])
            for given in ("input_ids", "attention_mask", "token_type_ids")
        ]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "bert", inputs, outputs, list(self.constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def export(weights: Mapping[str, np.ndarray], target: Path, spread: Mapping[str, np.ndarray] | None = None) -> None:
    """Write the graph, quantised to eight bits: weights now, by column; what flows through it when it runs."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.onnx"
        onnx.save(Bert(weights, spread).model(), whole)
        # Without `reduce_range`, sums of two products overflow 16 bits on processors without VNNI.
        quantize_dynamic(
            whole, target, op_types_to_quantize=["MatMul", "Gather"], per_channel=True, reduce_range=True,
            weight_type=QuantType.QInt8, extra_options={"MatMulConstBOnly": True},
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--spread", type=Path)
    arguments = parser.parse_args()
    with np.load(arguments.weights) as weights:
        export(dict(weights), arguments.target, dict(np.load(arguments.spread)) if arguments.spread else None)
    print(f"{arguments.target}: {arguments.target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
