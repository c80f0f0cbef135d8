"""`lower_opset`: the same answers in older operators, or the node that stands in the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto

from runtimes.reference import structure
from runtimes.reference.rewrites import Unsuitable
from tests.runtimes.rewrites.graphs import PLACES, Feeds, assert_same, build, node, rewritten, with_which

RNG = np.random.default_rng(3)
PICTURE = RNG.normal(size=(2, 4, 6, 8)).astype(np.float32)
ROWS = RNG.normal(size=(2, 3, 8)).astype(np.float32)
CHANNELS = RNG.normal(size=4).astype(np.float32)
LAST = RNG.normal(size=8).astype(np.float32)
GRID = RNG.uniform(-1, 1, size=(2, 5, 7, 2)).astype(np.float32)


STEPS: Feeds = {"s": np.array(0.1, np.float32), "z": np.array(3, np.uint8)}


def ints(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


Case = tuple[int, int, Feeds, Feeds, NodeProto]
"""From which opset to which, inputs, constants, the node."""

CASES: Mapping[str, Case] = {
    "types only": (23, 13, {"x": ROWS}, {}, node("Transpose", ["x"], ["y"], perm=[1, 0, 2])),
    "an attribute that says nothing": (25, 17, {"x": ROWS}, {}, node("Cast", ["x"], ["y"], to=7, round_mode="up")),
    "Gelu": (20, 19, {"x": ROWS}, {}, node("Gelu", ["x"], ["y"])),
    "Gelu, tanh": (20, 17, {"x": ROWS}, {}, node("Gelu", ["x"], ["y"], approximate="tanh")),
    "HardSwish": (22, 13, {"x": ROWS}, {}, node("HardSwish", ["x"], ["y"])),
    "Mish": (18, 17, {"x": ROWS}, {}, node("Mish", ["x"], ["y"])),
    "Swish": (24, 17, {"x": ROWS}, {}, node("Swish", ["x"], ["y"], alpha=1.5)),
    "LayerNormalization": (
        *(17, 13, {"x": ROWS}, {"s": LAST, "b": LAST}),
        node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1),
    ),
    "RMSNormalization": (23, 17, {"x": ROWS}, {"s": LAST}, node("RMSNormalization", ["x", "s"], ["y"], axis=-1)),
    "GroupNormalization": (
        *(21, 19, {"x": PICTURE}, {"s": CHANNELS, "b": CHANNELS}),
        node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2),
    ),
    "Attention": (
        *(23, 17, {"q": ROWS, "k": ROWS, "v": ROWS}, {}),
        node("Attention", ["q", "k", "v"], ["y"], q_num_heads=2, kv_num_heads=2),
    ),
    "GridSample": (20, 17, {"x": PICTURE, "g": GRID}, {}, node("GridSample", ["x", "g"], ["y"], mode="linear")),
    "GridSample, cubic": (20, 19, {"x": PICTURE, "g": GRID}, {}, node("GridSample", ["x", "g"], ["y"], mode="cubic")),
    "AffineGrid": (
        *(20, 19, {"t": RNG.normal(size=(2, 2, 3)).astype(np.float32)}, {"s": ints(2, 3, 4, 5)}),
        node("AffineGrid", ["t", "s"], ["y"]),
    ),
    "Split": (18, 17, {"x": LAST}, {}, node("Split", ["x"], ["y", "z", "w"], num_outputs=3, axis=0)),
    "Pad": (
        *(19, 17, {"x": PICTURE}, {"p": ints(1, 2, 0, 3), "a": ints(-1, 1)}),
        node("Pad", ["x", "p", "", "a"], ["y"]),
    ),
    "Resize by scales": (
        *(18, 17, {"x": PICTURE}, {"s": np.array([2.0, 0.5], np.float32)}),
        node("Resize", ["x", "", "s"], ["y"], axes=[3, 2], mode="linear"),
    ),
    "Resize to sizes": (
        *(19, 13, {"x": PICTURE}, {"s": ints(9, 5)}),
        node("Resize", ["x", "", "", "s"], ["y"], axes=[-2, -1], mode="nearest", nearest_mode="floor"),
    ),
    "AveragePool": (
        *(22, 17, {"x": PICTURE}, {}),
        node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[1, 1]),
    ),
    "DFT": (
        *(20, 17, {"x": ROWS[..., None]}, {"a": np.array(1, np.int64)}),
        node("DFT", ["x", "", "a"], ["y"]),
    ),
    "QuantizeLinear": (
        *(21, 19, {"x": ROWS}, STEPS),
        node("QuantizeLinear", ["x", "s", "z"], ["y"], output_dtype=int(TensorProto.UINT8)),
    ),
    "Reshape": (23, 13, {"x": ROWS}, {"s": ints(6, -1)}, node("Reshape", ["x", "s"], ["y"], allowzero=1)),
    "ReduceMax without axes": (20, 17, {"x": ROWS}, {}, node("ReduceMax", ["x"], ["y"], keepdims=0)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_older_operators_give_the_same(case: Case) -> None:
    check(case, "output")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["Gelu", "GroupNormalization", "Pad", "Split"])
def test_the_node_may_stand_anywhere(name: str, place: str) -> None:
    check(CASES[name], place)


@settings(max_examples=60, deadline=None)
@given(
    word=st.sampled_from(["L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare"]),
    axes=st.lists(st.sampled_from([0, 1, -1]), max_size=3, unique=True),
    keep=st.sampled_from([0, 1]),
    place=st.sampled_from(PLACES),
)
def test_any_reduction_gives_the_same(word: str, axes: list[int], keep: int, place: str) -> None:
    made = node(f"Reduce{word}", ["x", "a"], ["y"], keepdims=keep)
    check((18, 17, {"x": ROWS}, {"a": ints(*axes)}, made), place)


REFUSALS: Mapping[str, tuple[Case, str]] = {
    "an operator that nothing makes up": (
        (16, 13, {"x": PICTURE, "g": GRID}, {}, node("GridSample", ["x", "g"], ["y"])),
        "node node_y \\(GridSample\\): opset 13 has no GridSample",
    ),
    "an attribute that older ones lack": (
        (
            18,
            17,
            {"x": PICTURE},
            {"s": np.array([1, 1, 0.5, 0.5], np.float32)},
            node("Resize", ["x", "", "s"], ["y"], mode="linear", antialias=1),
        ),
        "node node_y \\(Resize\\): opset 17 has no attribute antialias \\(here 1\\)",
    ),
    "a type that older ones lack": (
        (
            21,
            19,
            {"x": ROWS},
            {"s": np.array(0.1, np.float32), "z": np.array(3, np.uint16)},
            node("QuantizeLinear", ["x", "s", "z"], ["y"]),
        ),
        "node node_y \\(QuantizeLinear\\): at opset 19 z cannot be uint16",
    ),
    "axes that are no constant": (
        (18, 17, {"x": ROWS, "a": ints(1)}, {}, node("ReduceMax", ["x", "a"], ["y"])),
        "node node_y \\(ReduceMax\\): its input a is no constant",
    ),
    "a mode that older ones lack": (
        (19, 18, {"x": PICTURE}, {"p": ints(0, 0, 1, 1, 0, 0, 1, 1)}, node("Pad", ["x", "p"], ["y"], mode="wrap")),
        "node node_y \\(Pad\\): before opset 19 it has no mode wrap",
    ),
    "a reduction that older ones lack": (
        (
            18,
            17,
            {"x": LAST},
            {"i": ints(1, 1), "u": LAST[:2]},
            node("ScatterElements", ["x", "i", "u"], ["y"], reduction="max"),
        ),
        "before opset 18 it has no reduction max",
    ),
}


@pytest.mark.parametrize(("case", "words"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_cannot_be_said_in_the_older_opset_is_named(case: Case, words: str) -> None:
    opset, target, feeds, constants, made = case
    with pytest.raises(Unsuitable, match=words):
        rewritten(build([made], feeds, ["y"], opset=opset, constants=constants), "lower_opset", opset=target)


@pytest.mark.parametrize("opset", [None, 12, "17"])
def test_an_opset_that_is_none_is_not_suitable(opset: Any) -> None:
    before = build([node("Relu", ["x"], ["y"])], {"x": ROWS}, ["y"])
    with pytest.raises(Unsuitable, match="option opset: "):
        rewritten(before, "lower_opset", opset=opset)


def test_a_lower_opset_already_is_left_alone() -> None:
    before = build([node("Relu", ["x"], ["y"])], {"x": ROWS}, ["y"], opset=15)
    assert rewritten(before, "lower_opset", opset=17)[1] == []


def check(case: Case, place: str) -> None:
    opset, target, feeds, constants, made = case
    before = build([made], feeds, [each for each in made.output if each], opset=opset, place=place, constants=constants)
    after, changed = rewritten(before, "lower_opset", opset=target)
    assert changed
    assert structure.opset_of(after) == target
    assert after.ir_version <= before.ir_version
    assert {each.domain for each in after.opset_import} == {""}
    assert_same(before, after, with_which(feeds, place), relative=1e-4)
