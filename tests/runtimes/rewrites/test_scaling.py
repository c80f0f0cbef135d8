"""What float16 cannot hold is divided by powers of two, or lifted where it is a mask, and the answers stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto

from runtimes.reference.measures import measure
from runtimes.reference.rewrites import Unsuitable
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, rewritten, run, with_which

RNG = np.random.default_rng(8)
PICTURE = {"x": RNG.uniform(-1, 1, size=(1, 4, 6, 8)).astype(np.float32)}
LARGEST = float(np.finfo(np.float16).max)
CONSTANTS: dict[str, Any] = {
    "w": (RNG.normal(size=(4, 4, 3, 3)) / 6).astype(np.float32),
    "v": (RNG.normal(size=(4, 4, 1, 1)) / 2).astype(np.float32),
    "b": RNG.normal(size=4).astype(np.float32),
    "one": np.ones(4, np.float32),
    "m": (RNG.normal(size=(8, 8)) / 3).astype(np.float32),
    "row": RNG.normal(size=8).astype(np.float32),
    "slope": np.full((4, 1, 1), 0.3, np.float32),
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "begin": np.array([1, 1]),
    "end": np.array([7, 9]),
    "axes": np.array([2, 3]),
    "rows": np.array([1, 4, 48]),
    "whole": np.array([1, 4, 6, 8]),
    "two": np.array(2, np.float32),
    "small": np.array(1e-6, np.float32),
    "doubled": np.array([1, 1, 2, 2], np.float32),
}

STEPS: dict[str, list[NodeProto]] = {
    "Abs": [node("Abs", ["a"], ["z"])],
    "Add": [node("Add", ["a", "x"], ["z"])],
    "AveragePool": [node("AveragePool", ["a"], ["z"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])],
    "BatchNormalization": [node("BatchNormalization", ["a", "one", "b", "b", "one"], ["z"])],
    "Concat": [
        node("Concat", ["x", "a"], ["c"], axis=1),
        node("Split", ["c"], ["left", "right"], axis=1),
        node("Sub", ["right", "left"], ["z"]),
    ],
    "Conv": [node("Conv", ["a", "w", "b"], ["z"], pads=[1, 1, 1, 1])],
    "ConvTranspose": [node("ConvTranspose", ["a", "v"], ["z"])],
    "LeakyRelu": [node("LeakyRelu", ["a"], ["z"], alpha=0.2)],
    "MatMul": [node("MatMul", ["a", "m"], ["z"])],
    "MaxPool": [node("MaxPool", ["a"], ["z"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])],
    "PRelu": [node("PRelu", ["a", "slope"], ["z"])],
    "Pad": [
        node("Pad", ["a", "pads"], ["p"]),
        node("Slice", ["p", "begin", "end", "axes"], ["z"]),
    ],
    "ReduceMax": [node("ReduceMax", ["a"], ["most"], axes=[3], keepdims=1), node("Max", ["a", "most"], ["z"])],
    "Reshape": [node("Reshape", ["a", "rows"], ["r"]), node("Reshape", ["r", "whole"], ["z"])],
    "Resize": [
        node("Resize", ["a", "", "doubled"], ["r"], mode="nearest"),
        node("AveragePool", ["r"], ["z"], kernel_shape=[2, 2], strides=[2, 2]),
    ],
    "Sigmoid": [node("Sigmoid", ["x"], ["s"]), node("Mul", ["a", "s"], ["z"])],
    "Transpose": [
        node("Transpose", ["a"], ["t"], perm=[0, 1, 3, 2]),
        node("Transpose", ["t"], ["z"], perm=[0, 1, 3, 2]),
    ],
    "Where": [node("Less", ["x", "small"], ["l"]), node("Where", ["l", "x", "a"], ["z"])],
}
"""What may stand in the middle, from `a` to `z`."""

ENDS: dict[str, list[NodeProto]] = {
    "a factor": [node("Mul", ["a", "back"], ["y"])],
    "a quotient": [node("Abs", ["a"], ["p"]), node("Add", ["p", "two"], ["q"]), node("Div", ["a", "q"], ["y"])],
    "a normalisation": [node("LayerNormalization", ["a", "row"], ["y"], axis=-1, epsilon=1e10)],
    "an instance's normalisation": [node("InstanceNormalization", ["a", "one", "b"], ["y"], epsilon=1e10)],
    "a root of squares": [
        node("Pow", ["a", "two"], ["p"]),
        node("ReduceMean", ["p"], ["mean"], axes=[3], keepdims=1),
        node("Add", ["mean", "small"], ["q"]),
        node("Sqrt", ["q"], ["root"]),
        node("Div", ["a", "root"], ["y"]),
    ],
    "a root": [node("Abs", ["a"], ["p"]), node("Sqrt", ["p"], ["y"])],
    "scores": [node("Softmax", ["a"], ["y"], axis=-1)],
    "a node that needs all of it": [node("Mul", ["a", "back"], ["p"]), node("Tanh", ["p"], ["y"])],
}


def chain(steps: Sequence[str], end: str, gain: float) -> onnx.ModelProto:
    """A graph whose tensors reach about `gain`."""
    nodes = [node("Mul", ["x", "gain"], ["start"])]
    parts = [*(STEPS[step] for step in steps), ENDS[end]]
    last = "start"
    for number, part in enumerate(parts):
        inner = {name: f"{name}_{number}" for each in part for name in each.output if name != "y"}
        names = {"a": last, **inner}
        for each in part:
            made = NodeProto()
            made.CopyFrom(each)
            made.name = f"{each.name}_{number}"
            made.input[:] = [names.get(name, name) for name in each.input]
            made.output[:] = [names.get(name, name) for name in each.output]
            nodes.append(made)
        last = names.get("z", last)
    constants = {**CONSTANTS, "gain": np.array(gain, np.float32), "back": np.array(1 / gain, np.float32)}
    used = {name for each in nodes for name in each.input}
    return build(nodes, PICTURE, ["y"], constants={name: held for name, held in constants.items() if name in used})


def inside(model: onnx.ModelProto) -> dict[str, float]:
    """The largest number of each floating tensor."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    del wide.graph.output[:]
    names = [name for each in model.graph.node for name in each.output if name]
    wide.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    found = run(wide, PICTURE).items()
    return {name: float(np.abs(array).max()) for name, array in found if array.dtype.kind == "f"}


@settings(max_examples=120)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=5),
    end=st.sampled_from(sorted(ENDS)),
    power=st.integers(17, 23),
)
def test_the_answers_stay_and_float16_holds_all_that_is_calculated(steps: list[str], end: str, power: int) -> None:
    model = chain(steps, end, 2.0**power)
    assert max(inside(model).values()) > LARGEST
    made, changed = rewritten(model, "scale_overflow", samples={"one": PICTURE})
    assert changed
    assert_same(model, made, PICTURE, relative=1e-4 if end == "scores" else 2e-5)
    assert max(inside(made).values()) <= LARGEST


def test_a_graph_that_float16_holds_stays_as_it_is() -> None:
    model = chain(["Conv", "Abs"], "scores", 100.0)
    made, changed = rewritten(model, "scale_overflow", samples={"one": PICTURE})
    assert changed == []
    assert [each.op_type for each in made.graph.node] == [each.op_type for each in model.graph.node]


def test_what_a_pad_puts_around_is_not_multiplied() -> None:
    nodes = [
        node("Mul", ["x", "gain"], ["a"]),
        node("Pad", ["a", "pads", "around"], ["p"]),
        node("Mul", ["p", "back"], ["y"]),
    ]
    held: dict[str, Any] = {
        "gain": np.float32(2e5),
        "around": np.float32(3e4),
        "back": np.float32(1e-4),
        "pads": CONSTANTS["pads"],
    }
    model = build(nodes, PICTURE, ["y"], constants=held)
    made, changed = rewritten(model, "scale_overflow", samples={"one": PICTURE})
    assert changed
    assert_same(model, made, PICTURE)


def test_an_output_that_float16_just_holds_is_given_whole() -> None:
    held: dict[str, Any] = {"gain": np.float32(2**19), "back": np.float32(0.1)}
    nodes = [node("Mul", ["x", "gain"], ["a"]), node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "back"], ["b"])]
    model = build([*nodes, node("Mul", ["a", "b"], ["y"])], PICTURE, ["y"], constants=held)
    assert LARGEST / 4 < np.abs(run(model, PICTURE)["y"]).max() < LARGEST
    made, changed = rewritten(model, "scale_overflow", samples={"one": PICTURE})
    assert changed
    assert_same(model, made, PICTURE)


def attention(gain: float, mask: float) -> tuple[onnx.ModelProto, dict[str, Any]]:
    feeds = {
        "q": RNG.normal(size=(1, 2, 6, 8)).astype(np.float32) * gain,
        "k": RNG.normal(size=(1, 2, 8, 6)).astype(np.float32) * gain,
        "seen": np.arange(6).reshape(1, 1, 1, 6) < 4,
    }
    nodes = [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Where", ["seen", "zero", "mask"], ["added"]),
        node("Add", ["scores", "added"], ["masked"]),
        node("Softmax", ["masked"], ["y"], axis=-1),
    ]
    constants = {"zero": np.array(0, np.float32), "mask": np.array(mask, np.float32)}
    return build(nodes, feeds, ["y"], constants=constants), feeds


@pytest.mark.parametrize("mask", [-np.inf, float(np.finfo(np.float32).min)])
def test_a_mask_hides_as_much_of_scores_that_are_divided(mask: float) -> None:
    model, feeds = attention(300.0, mask)
    made, _changed = rewritten(model, "scale_overflow", samples={"one": feeds})
    if np.isfinite(mask):
        # A compiler may put -10000 for it, which must not be divided.
        assert "added" in next(each.input for each in made.graph.node if each.op_type == "Add")
    (found,), (wanted,) = run(made, feeds).values(), run(model, feeds).values()
    assert not found[..., 4:].any()
    assert (measure(wanted, found).snr_db or 0) > 60


def test_an_output_that_float16_does_not_hold_is_told_and_nothing_is_changed() -> None:
    model = build([node("Mul", ["x", "gain"], ["y"])], PICTURE, ["y"], constants={"gain": np.array(1e6, np.float32)})
    with pytest.raises(Unsuitable, match=r"output y: it reaches .*e\+05 on the samples, float16 holds up to 65504"):
        rewritten(model, "scale_overflow", samples={"one": PICTURE})


def test_without_samples_nobody_knows_and_a_graph_inside_a_node_is_in_the_way() -> None:
    with pytest.raises(Unsuitable, match="without samples"):
        rewritten(chain([], "scores", 1e6), "scale_overflow")
    nested = build([node("Abs", ["x"], ["y"])], PICTURE, ["y"], place="branch")
    assert "what the graph inside it takes cannot be divided" in obstacle(nested, "scale_overflow")


@given(
    low=st.sampled_from([float("-inf"), -1e9, float(np.finfo(np.float32).min), -65504.0, -10000.0]),
    masked=st.lists(st.booleans(), min_size=12, max_size=12),
    place=st.sampled_from(PLACES),
)
def test_a_mask_that_float16_holds_gives_the_same(low: float, masked: list[bool], place: str) -> None:
    mask = np.array(masked).reshape(3, 4)
    mask[:, 0] = False
    feeds = {"x": RNG.uniform(-3, 3, size=(3, 4)).astype(np.float32), "m": mask}
    nodes = [node("Where", ["m", "low", "x"], ["w"]), node("Softmax", ["w"], ["y"], axis=-1)]
    model = build(nodes, feeds, ["y"], opset=17, place=place, constants={"low": np.array(low, np.float32)})
    made, changed = rewritten(model, "lift_masks")
    assert bool(changed) == (low < -LARGEST)
    assert_same(model, made, with_which(feeds, place))


def test_a_row_that_is_all_masked_is_no_nan_once_the_mask_is_lifted() -> None:
    feeds = {"x": RNG.uniform(-3, 3, size=(2, 4)).astype(np.float32), "m": np.array([[True], [False]])}
    nodes = [node("Where", ["m", "low", "x"], ["w"]), node("Softmax", ["w"], ["y"], axis=-1)]
    model = build(nodes, feeds, ["y"], opset=17, constants={"low": np.array(float("-inf"), np.float32)})
    assert np.isnan(run(model, feeds)["y"][0]).all()
    assert np.allclose(run(rewritten(model, "lift_masks")[0], feeds)["y"][0], 0.25)
