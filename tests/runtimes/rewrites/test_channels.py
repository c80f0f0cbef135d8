"""Transposes around what works with its axes in any order go, and the answers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import NodeProto

from runtimes.kit.tensors import Array
from runtimes.reference import structure
from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, rewritten

FIRST, LAST = [0, 3, 1, 2], [0, 2, 3, 1]
"""To channels first, and to channels last."""
SEED = st.integers(0, 2**16)


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def transposes(model: onnx.ModelProto) -> int:
    return sum(each.op_type == "Transpose" for each in structure.nodes_of(model))


class Program:
    """A graph that grows by one drawn node after the other; all its values are computed as it grows."""

    def __init__(self, data: Any, rank: int, opset: int) -> None:
        self.data, self.opset = data, opset
        shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank)))
        self.shapes = {"x": shape}
        self.feeds = {"x": numbers(data.draw(SEED), *shape)}
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.recent = ["x"]

    def draw(self, options: Any) -> Any:
        return self.data.draw(st.sampled_from(options))

    def pick(self, shape: tuple[int, ...] | None = None) -> str:
        fits = [name for name in self.recent[-3:] if shape is None or self.shapes[name] == shape]
        return str(self.draw(fits))

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def add(self, operator: str, takes: list[str], *shapes: tuple[int, ...], **attributes: Any) -> None:
        names = [f"v{len(self.shapes) + index}" for index in range(len(shapes))]
        self.nodes.append(node(operator, takes, names, **attributes))
        self.shapes.update(zip(names, shapes, strict=True))
        self.recent += names

    def grow(self) -> None:
        value = self.pick()
        shape = self.shapes[value]
        kinds = ["transpose", "transpose", "one", "two", "vector", "concat", "pad", "reduce", "best", "resize"]
        getattr(self, self.draw([*kinds, "softmax", "split", "slice"]))(value, shape)

    def transpose(self, value: str, shape: tuple[int, ...]) -> None:
        known = [FIRST, LAST] if len(shape) == 4 else [[0, 2, 1]] if len(shape) == 3 else [[1, 0]]
        order = self.draw([*known, *known, list(range(len(shape)))[::-1]])
        self.add("Transpose", [value], tuple(shape[axis] for axis in order), perm=order)

    def one(self, value: str, shape: tuple[int, ...]) -> None:
        if self.draw([True, False]):
            self.add("Clip", [value, self.constant(-1, np.float32), ""], shape)
        else:
            self.add(self.draw(["Relu", "Sigmoid", "Identity", "Neg"]), [value], shape)

    def two(self, value: str, shape: tuple[int, ...]) -> None:
        pair = [value, self.pick(shape)]
        if self.draw([True, False]):
            condition = self.constant(numbers(1, *shape[-1:]) > 0, np.bool_)
            self.add("Where", [condition, *pair], shape)
        else:
            self.add(self.draw(["Add", "Mul", "Max"]), pair, shape)

    def vector(self, value: str, shape: tuple[int, ...]) -> None:
        kept = self.draw(range(len(shape) + 1))
        other = self.constant(numbers(2, *shape[kept:]), np.float32)
        self.add(self.draw(["Add", "PRelu"]), [value, other], shape)

    def concat(self, value: str, shape: tuple[int, ...]) -> None:
        axis = self.draw(range(len(shape)))
        other = self.pick(shape) if self.draw([True, False]) else self.constant(numbers(3, *shape), np.float32)
        made = tuple(size * (2 if at == axis else 1) for at, size in enumerate(shape))
        if np.prod(made) < 3000:
            self.add("Concat", [value, other], made, axis=axis - len(shape))

    def pad(self, value: str, shape: tuple[int, ...]) -> None:
        if self.opset >= 18 and self.draw([True, False]):
            pads, axes = [1, 0], [self.draw(range(len(shape)))]
            made = tuple(size + (at in axes) for at, size in enumerate(shape))
            self.add("Pad", [value, self.constant(pads), "", self.constant(axes)], made)
            return
        pads = [self.draw([0, 1]) for _ in range(2 * len(shape))]
        made = tuple(size + pads[at] + pads[at + len(shape)] for at, size in enumerate(shape))
        if np.prod(made) < 3000:
            self.add("Pad", [value, self.constant(pads), self.constant(0.5, np.float32)], made)

    def reduce(self, value: str, shape: tuple[int, ...]) -> None:
        axes = sorted({self.draw(range(len(shape))), self.draw(range(len(shape)))})
        keep = self.draw([1, 1, 0])
        operator = self.draw(["ReduceMean", "ReduceSum"])
        left = tuple(size if at not in axes else 1 for at, size in enumerate(shape) if keep or at not in axes)
        if len(left) < 2:
            return
        if self.opset >= (13 if operator == "ReduceSum" else 18):
            self.add(operator, [value, self.constant(axes)], left, keepdims=keep)
        else:
            self.add(operator, [value], left, keepdims=keep, axes=axes)

    def best(self, value: str, shape: tuple[int, ...]) -> None:
        axis = self.draw(range(len(shape)))
        made = tuple(1 if at == axis else size for at, size in enumerate(shape))
        self.add("ArgMax", [value], made, axis=axis)
        self.add("Cast", [self.recent[-1]], made, to=onnx.TensorProto.FLOAT)
        self.recent.remove(self.recent[-2])

    def resize(self, value: str, shape: tuple[int, ...]) -> None:
        times = [self.draw([1, 1, 2]) for _ in shape]
        made = tuple(size * each for size, each in zip(shape, times, strict=True))
        if self.opset >= 13 and np.prod(made) < 3000:
            given = (
                ["", self.constant(times, np.float32)] if self.draw([True, False]) else ["", "", self.constant(made)]
            )
            self.add("Resize", [value, *given], made, mode="nearest")

    def softmax(self, value: str, shape: tuple[int, ...]) -> None:
        self.add("Softmax", [value], shape, axis=self.draw(range(-len(shape), len(shape))))

    def split(self, value: str, shape: tuple[int, ...]) -> None:
        axis = self.draw(range(len(shape)))
        if self.opset >= 13 and shape[axis] > 1:
            sizes = [1, shape[axis] - 1]
            made = [tuple(each if at == axis else size for at, size in enumerate(shape)) for each in sizes]
            self.add("Split", [value, self.constant(sizes)], *made, axis=axis)

    def slice(self, value: str, shape: tuple[int, ...]) -> None:
        axis = self.draw(range(len(shape)))
        if self.draw([True, False]):
            made = tuple(-(-size // 2) if at == axis else size for at, size in enumerate(shape))
            bounds = [self.constant([0]), self.constant([9]), self.constant([axis - len(shape)]), self.constant([2])]
            self.add("Slice", [value, *bounds], made)
        else:
            self.add(
                "Slice",
                [value, self.constant([0, 0], np.int32), self.constant([9, 1], np.int32)],
                (shape[0], 1, *shape[2:]),
            )


@given(
    data=st.data(), rank=st.integers(2, 4), opset=st.sampled_from([12, 13, 17, 18, 21]), place=st.sampled_from(PLACES)
)
def test_a_graph_with_fewer_transposes_gives_the_same(data: Any, rank: int, opset: int, place: str) -> None:
    program = Program(data, rank, opset)
    for _ in range(data.draw(st.integers(2, 12))):
        program.grow()
    if not program.nodes:
        return
    ends = [name for each in program.nodes[-2:] for name in each.output]
    model = build(program.nodes, program.feeds, ends, opset=opset, place=place, constants=program.constants)
    made, _changed = rewritten(model, "channels_first")
    assert transposes(made) <= transposes(model)
    assert_same(model, made, graphs.with_which(program.feeds, place))
    assert rewritten(made, "channels_first")[1] == []


def tensorflow() -> tuple[list[NodeProto], graphs.Feeds, dict[str, Array]]:
    """A residual net as tf2onnx writes one: channels last, and every convolution between two Transposes."""
    nodes: list[NodeProto] = []
    constants: dict[str, Array] = {
        "pads": np.array([0, 1, 1, 0, 0, 1, 1, 0]),
        "scales": np.array([1, 2, 2, 1], np.float32),
    }

    def conv(value: str, name: str, takes: int, **attributes: Any) -> str:
        constants[f"{name}_w"] = numbers(len(constants), 8, takes, 3, 3) / 4
        constants[f"{name}_b"] = numbers(len(constants), 8)
        nodes.append(node("Transpose", [value], [f"{name}_first"], perm=FIRST))
        nodes.append(node("Conv", [f"{name}_first", f"{name}_w"], [f"{name}_conv"], **attributes))
        nodes.append(node("Transpose", [f"{name}_conv"], [f"{name}_last"], perm=LAST))
        nodes.append(node("Add", [f"{name}_last", f"{name}_b"], [name]))
        return name

    def more(operator: str, *takes: str, gives: str, **attributes: Any) -> str:
        nodes.append(node(operator, list(takes), [gives], **attributes))
        return gives

    stem = more("Relu", conv("x", "a", 3, pads=[1, 1, 1, 1]), gives="stem")
    padded = more("Pad", stem, "pads", gives="padded")
    body = more("Relu", conv(padded, "b", 8), gives="body")
    mean = more("ReduceMean", body, gives="mean", axes=[1, 2], keepdims=1)
    gate = more("Sigmoid", conv(mean, "c", 8, pads=[1, 1, 1, 1]), gives="gate")
    added = more("Add", more("Mul", body, gate, gives="gated"), stem, gives="added")
    both = more("Concat", added, stem, gives="both", axis=-1)
    large = more("Resize", both, "", "scales", gives="large", mode="nearest")
    end = conv(large, "d", 16, pads=[1, 1, 1, 1])
    more("Softmax", end, gives="y", axis=-1)
    return nodes, {"x": numbers(5, 1, 10, 12, 3)}, constants


def test_a_net_from_tensorflow_keeps_the_transposes_of_its_input_and_output_alone() -> None:
    nodes, feeds, constants = tensorflow()
    model = build(nodes, feeds, ["y"], constants=constants)
    assert transposes(model) == 8
    made, changed = rewritten(model, "channels_first")
    assert [each.op_type for each in made.graph.node if each.op_type != "Constant"] == [
        *(
            "Transpose",
            "Conv",
            "Add",
            "Relu",
            "Pad",
            "Conv",
            "Add",
            "Relu",
            "ReduceMean",
            "Conv",
            "Add",
            "Sigmoid",
            "Mul",
        ),
        *("Add", "Concat", "Resize", "Conv", "Transpose", "Add", "Softmax"),
    ]
    assert {"node_stem", "node_padded", "node_mean", "node_both", "node_large"} <= set(changed)
    assert {each.name for each in made.graph.node} >= {"node_stem", "node_padded", "node_mean"}
    assert_same(model, made, feeds)


BOTH = [
    *(node("Neg", ["x"], ["n"]), node("Transpose", ["x"], ["a"], perm=LAST)),
    *(node("Transpose", ["n"], ["b"], perm=LAST), node("Concat", ["a", "b"], ["c"], axis=3)),
]
"""Two Transposes that may be one behind their Concat."""

CASES: dict[str, tuple[list[NodeProto], dict[str, Array], int, int]] = {
    "a pair": ([node("Transpose", ["x"], ["a"], perm=LAST), node("Transpose", ["a"], ["y"], perm=FIRST)], {}, 2, 0),
    "two that are one": (
        [node("Transpose", ["x"], ["a"], perm=LAST), node("Transpose", ["a"], ["y"], perm=LAST)],
        {},
        2,
        1,
    ),
    "one that moves nothing": ([node("Transpose", ["x"], ["y"], perm=[0, 1, 2, 3])], {}, 1, 0),
    "nothing to gain": ([node("Transpose", ["x"], ["a"], perm=LAST), node("Relu", ["a"], ["y"])], {}, 1, 1),
    "another order behind": (
        [
            *(node("Transpose", ["x"], ["a"], perm=LAST), node("Relu", ["a"], ["b"])),
            node("Transpose", ["b"], ["y"], perm=[0, 1, 3, 2]),
        ],
        {},
        2,
        1,
    ),
    "a mean without its axes": (
        [node("Transpose", ["x"], ["a"], perm=LAST), node("ReduceMean", ["a"], ["y"], axes=[1, 2], keepdims=0)],
        {},
        1,
        0,
    ),
    "a mean that leaves axes in another order": (
        [node("Transpose", ["x"], ["a"], perm=LAST), node("ReduceMean", ["a"], ["y"], axes=[1], keepdims=0)],
        {},
        1,
        1,
    ),
    "a matrix product between": (
        [
            *(node("Transpose", ["x"], ["a"], perm=LAST), node("MatMul", ["a", "w"], ["b"])),
            node("Transpose", ["b"], ["y"], perm=FIRST),
        ],
        {"w": numbers(9, 3, 3)},
        2,
        2,
    ),
    "two for one that moves as much": (
        [*BOTH, node("Expand", ["c", "large"], ["y"])],
        {"large": np.array([1, 4, 5, 6])},
        2,
        1,
    ),
    "two for one that others take too": (
        [*BOTH, node("Expand", ["c", "large"], ["y"]), *(node("MatMul", [each, "w"], [f"{each}w"]) for each in "ab")],
        {"large": np.array([1, 4, 5, 6]), "w": numbers(9, 3, 3)},
        2,
        2,
    ),
    "bounds of 32 bits": (
        [
            *(node("Transpose", ["x"], ["a"], perm=LAST), node("Slice", ["a", "from", "to"], ["b"])),
            node("Transpose", ["b"], ["y"], perm=FIRST),
        ],
        {"from": np.array([0, 1], np.int32), "to": np.array([9, 3], np.int32)},
        2,
        0,
    ),
    "two for one that would move more": (
        [*BOTH, node("Resize", ["c", "", "twice"], ["d"], mode="nearest"), node("Expand", ["d", "large"], ["y"])],
        {"twice": np.array([1, 2, 2, 1], np.float32), "large": np.array([1, 8, 10, 6])},
        2,
        2,
    ),
}


@pytest.mark.parametrize(("nodes", "constants", "before", "after"), CASES.values(), ids=CASES)
def test_transposes_are_taken_away_where_that_is_a_gain(
    nodes: list[NodeProto], constants: dict[str, Array], before: int, after: int
) -> None:
    feeds = {"x": numbers(1, 1, 3, 4, 5)}
    taken = {name for each in nodes for name in each.input}
    ends = [name for each in nodes for name in each.output if name not in taken]
    model = build(nodes, feeds, ends, constants=constants)
    made, changed = rewritten(model, "channels_first")
    assert (transposes(model), transposes(made)) == (before, after)
    assert bool(changed) == (after < before)
    assert_same(model, made, feeds)


@pytest.mark.parametrize(
    ("between", "opset"),
    [
        (node("Softmax", ["a"], ["b"], axis=1), 12),
        (node("Resize", ["a", "", "twice"], ["b"], mode="nearest", axes=[1, 2]), 18),
        (node("Add", ["a", "v"], ["b"]), 17),
        (node("MatMul", ["a", "w"], ["b"]), 17),
    ],
    ids=["a softmax over all axes from its own on", "sizes of some axes", "a vector that comes in", "a product"],
)
def test_what_cannot_see_its_axes_in_another_order_stays_between_its_transposes(between: NodeProto, opset: int) -> None:
    feeds = {"x": numbers(1, 1, 3, 4, 5), "v": numbers(2, 3)}
    constants = {"twice": np.array([2, 2], np.float32), "w": numbers(3, 3, 3)}
    around = [node("Transpose", ["x"], ["a"], perm=LAST), node("Transpose", ["b"], ["y"], perm=FIRST)]
    nodes = [around[0], between, around[1], node("Neg", ["v"], ["z"])]
    model = build(nodes, feeds, ["y", "z"], opset=opset, constants=constants)
    assert rewritten(model, "channels_first")[1] == []
