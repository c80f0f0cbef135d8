"""`qdq`: QuantizeLinear and DequantizeLinear around convolutions and matrix products, as TensorRT asks for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from runtimes.kit.tensors import Array
from runtimes.reference import export, structure
from runtimes.reference.measures import measure
from runtimes.reference.rewrite import TOLERANCES
from runtimes.reference.rewrites import Unsuitable, find
from tests.runtimes.rewrites.graphs import Feeds, build, node, obstacle, rewritten, run

RNG = np.random.default_rng(6)
PICTURE = RNG.uniform(-1, 1, size=(1, 4, 6, 8)).astype(np.float32)
ROWS = RNG.normal(size=(5, 8)).astype(np.float32)


def weights(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


CASES: Mapping[str, tuple[onnx.NodeProto, Feeds, Mapping[str, Any]]] = {
    "Conv": (node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), {"x": PICTURE}, {"w": weights(6, 4, 3, 3)}),
    "Conv with a bias": (
        node("Conv", ["x", "w", "b"], ["y"]),
        {"x": PICTURE},
        {"w": weights(6, 4, 3, 3), "b": weights(6)},
    ),
    "a Conv of groups": (node("Conv", ["x", "w"], ["y"], group=2), {"x": PICTURE}, {"w": weights(6, 2, 3, 3)}),
    "ConvTranspose": (node("ConvTranspose", ["x", "w"], ["y"]), {"x": PICTURE}, {"w": weights(4, 6, 3, 3)}),
    "a ConvTranspose of groups": (
        node("ConvTranspose", ["x", "w"], ["y"], group=2),
        {"x": PICTURE},
        {"w": weights(4, 3, 3, 3)},
    ),
    "MatMul": (node("MatMul", ["x", "w"], ["y"]), {"x": ROWS}, {"w": weights(8, 3)}),
    "a MatMul of stacks": (node("MatMul", ["x", "w"], ["y"]), {"x": ROWS}, {"w": weights(2, 8, 3)}),
    "a MatMul of weights first": (node("MatMul", ["w", "x"], ["y"]), {"x": ROWS}, {"w": weights(3, 5)}),
    "a MatMul of two tensors": (node("MatMul", ["x", "z"], ["y"]), {"x": ROWS, "z": weights(8, 3)}, {}),
    "Gemm": (node("Gemm", ["x", "w", "b"], ["y"]), {"x": ROWS}, {"w": weights(8, 3), "b": weights(3)}),
    "a Gemm of turned weights": (node("Gemm", ["x", "w"], ["y"], transB=1), {"x": ROWS}, {"w": weights(3, 8)}),
}


def scales(model: onnx.ModelProto) -> list[tuple[int, ...]]:
    """The shape of the scale of each DequantizeLinear, sorted."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = [each for each in structure.nodes_of(model) if each.op_type == "DequantizeLinear"]
    return sorted(tuple(held[each.input[1]].dims) for each in nodes)


@pytest.mark.parametrize("name", CASES)
def test_what_takes_the_time_is_quantised_and_comes_near(name: str) -> None:
    node_, feeds, held = CASES[name]
    model = build([node_], feeds, ["y"], constants=held)
    after, changed = rewritten(model, "qdq", samples={"one": feeds})
    assert changed == [node_.name]
    assert (measure(run(model, feeds)["y"], run(after, feeds)["y"]).snr_db or 0) > 32
    # Each output channel has a scale of its own, where that can be.
    channels = {
        "a ConvTranspose of groups",
        "a MatMul of stacks",
        "a MatMul of weights first",
        "a MatMul of two tensors",
    }
    assert scales(after) == ([(), ()] if name in channels else [(), (run(model, feeds)["y"].shape[1],)])
    zeros = [each for each in after.graph.initializer if each.name.endswith("_zero")]
    assert len(zeros) >= 2
    assert all(not numpy_helper.to_array(each).any() for each in zeros)
    assert {each.data_type for each in zeros} == {onnx.TensorProto.INT8}


def test_a_tensor_that_two_take_is_quantised_once_and_stays_an_output() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Conv", ["a", "v"], ["b"]),
        node("Conv", ["a", "v"], ["c"]),
        node("Add", ["b", "c"], ["y"]),
    ]
    feeds = {"x": PICTURE}
    model = build(nodes, feeds, ["y", "a"], constants={"w": weights(4, 4, 3, 3), "v": weights(2, 4, 1, 1)})
    after, changed = rewritten(model, "qdq", samples={"one": feeds})
    assert len(changed) == 3
    operators = [each.op_type for each in structure.nodes_of(after)]
    assert (operators.count("QuantizeLinear"), operators.count("DequantizeLinear")) == (2, 4)
    found, wanted = run(after, feeds), run(model, feeds)
    assert all((measure(wanted[name], found[name]).snr_db or 0) > 30 for name in ("y", "a"))


def test_a_few_large_numbers_are_cut_off_where_steps_for_them_would_lose_more() -> None:
    drawn = RNG.uniform(-1, 1, size=(25000, 8)).astype(np.float32)
    drawn[0, 0] = 2
    feeds = {"x": drawn}
    model = build([node("MatMul", ["x", "w"], ["y"])], feeds, ["y"], constants={"w": np.eye(8, dtype=np.float32)})
    after, _ = rewritten(model, "qdq", samples={"one": feeds})
    found = run(after, feeds)["y"]
    assert found[0, 0] == pytest.approx(1.0, abs=0.01)
    step = np.abs(drawn).max() / 127
    whole = np.rint(drawn / step) * step
    error, plain = (float(np.square(each - drawn).mean()) for each in (found, whole))
    assert error < plain


@settings(max_examples=15)
@given(seen=st.floats(0.1, 10), asked=st.floats(0.1, 10))
def test_the_range_is_that_of_the_calibration_samples(seen: float, asked: float) -> None:
    model = build([node("MatMul", ["x", "w"], ["y"])], {"x": ROWS}, ["y"], constants={"w": np.eye(8, dtype=np.float32)})
    after, _ = rewritten(
        model, "qdq", samples={"a": {"x": ROWS * np.float32(seen / 2)}, "b": {"x": ROWS * np.float32(seen)}}
    )
    found = run(after, {"x": ROWS * np.float32(asked)})["y"]
    assert np.abs(found).max() == pytest.approx(min(seen, asked) * np.abs(ROWS).max(), rel=0.05 * max(1, seen / asked))


def test_a_tensor_of_zeros_has_a_scale_all_the_same() -> None:
    feeds = {"x": np.zeros_like(ROWS)}
    model = build([node("MatMul", ["x", "w"], ["y"])], feeds, ["y"], constants={"w": np.zeros((8, 3), np.float32)})
    after, _ = rewritten(model, "qdq", samples={"one": feeds})
    assert not run(after, feeds)["y"].any()


def test_the_error_of_a_weak_sample_is_measured_beside_the_strongest() -> None:
    draw = np.random.default_rng(2)
    golden = {name: {"y": size * draw.uniform(-1, 1, 400).astype(np.float32)} for name, size in (("a", 1), ("b", 0.1))}
    answers = {name: {"y": each["y"] + np.float32(0.015) * np.sign(each["y"])} for name, each in golden.items()}
    tolerance = TOLERANCES["int8"]
    assert export.compare(golden, answers, "golden", tolerance).problems == ()
    alone = dataclasses.replace(tolerance, beside_strongest=False)
    assert "sample b" in export.compare(golden, answers, "golden", alone).problems[0]
    answers["b"]["y"] = answers["b"]["y"] + np.float32(0.1)
    assert "sample b" in export.compare(golden, answers, "golden", tolerance).problems[0]


def test_a_model_with_nothing_to_quantise_is_refused() -> None:
    feeds = {"x": ROWS.astype(np.float64)}
    model = build([node("MatMul", ["x", "w"], ["y"])], feeds, ["y"], constants={"w": np.ones((8, 3))})
    with pytest.raises(Unsuitable, match="nothing is there to quantise"):
        rewritten(model, "qdq", samples={"one": feeds})


def test_without_samples_no_range_is_known() -> None:
    model = build([node("MatMul", ["x", "w"], ["y"])], {"x": ROWS}, ["y"], constants={"w": weights(8, 3)})
    with pytest.raises(Unsuitable, match="without calibration samples"):
        rewritten(model, "qdq")


def test_an_old_opset_is_told() -> None:
    model = build([node("MatMul", ["x", "w"], ["y"])], {"x": ROWS}, ["y"], constants={"w": weights(8, 3)}, opset=12)
    assert obstacle(model, "qdq") == "opset 12 has no scale for each channel; 13 has"


def test_a_pair_that_was_there_before_does_not_keep_the_promise() -> None:
    value = ir.Value(name="x", shape=ir.Shape([2, 3]), type=ir.TensorType(ir.DataType.FLOAT))
    weight = ir.Value(name="w", shape=ir.Shape([3, 3]), type=ir.TensorType(ir.DataType.FLOAT))
    down = ir.node("QuantizeLinear", [value, weight], name="down")
    product = ir.node("MatMul", [value, weight], name="product")
    made = [down.outputs[0], product.outputs[0]]
    for each in made:
        each.type = ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph([value, weight], made, nodes=[down, product], opset_imports={"": 17}, name="g")
    assert "node product (MatMul) takes x as it was" in find("qdq").ensures(ir.Model(graph, ir_version=8))
