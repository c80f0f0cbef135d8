"""`narrow_integers`: int32 where the numbers fit, the model's inputs and outputs as they were."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from runtimes.kit.tensors import Array
from runtimes.reference.rewrites import Unsuitable
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, rewritten, with_which

TOKENS = np.array([[3, 1, 4, 1], [5, 0, 2, 6]], np.int64)
TABLE = np.random.default_rng(8).normal(size=(8, 5)).astype(np.float32)


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    types = {value.name: value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    return {**types, **{tensor.name: tensor.data_type for tensor in model.graph.initializer}}


@pytest.mark.parametrize("place", PLACES)
def test_tokens_are_narrowed_behind_the_input_where_no_branch_is(place: str) -> None:
    nodes = [node("Add", ["t", "one"], ["moved"]), node("Gather", ["table", "moved"], ["y"])]
    constants: dict[str, Array] = {"one": np.array(1, np.int64), "table": TABLE}
    before = build(nodes, {"t": TOKENS}, ["y"], place=place, constants=constants)
    feeds = with_which({"t": TOKENS}, place)
    after, changed = rewritten(before, "narrow_integers", {"one": feeds})
    assert_same(before, after, feeds, relative=0)
    if place in {"branch", "nested"}:
        assert not any("moved" in name for name in changed)
        return
    assert {"node_moved", "node_y"} <= set(changed)
    assert types_of(after)["moved"] == TensorProto.INT32
    assert TensorProto.INT64 not in {tensor.data_type for tensor in after.graph.initializer}


OPERATORS = ("Add", "Sub", "Mul", "Max", "Where", "Neg", "Abs", "Concat", "Slice", "ReduceMax", "Cast", "Identity")


@settings(max_examples=80, deadline=None)
@given(
    operators=st.lists(st.sampled_from(OPERATORS), min_size=1, max_size=5),
    large=st.booleans(),
    opset=st.sampled_from([13, 17, 20]),
    place=st.sampled_from(PLACES),
)
def test_any_arithmetic_of_integers_gives_the_same(operators: list[str], large: bool, opset: int, place: str) -> None:
    feeds: dict[str, Array] = {"t": TOKENS}
    constants: dict[str, Array] = {
        "k": np.array([7, 2, -3, 5], np.int64) * (2**40 if large else 1),
        "c": TOKENS > 2,
        "zero": np.array([0], np.int64),
        "four": np.array([4], np.int64),
        "axis": np.array([1], np.int64),
    }
    nodes, last = [], "t"
    for index, operator in enumerate(operators):
        given = f"v{index}"
        if operator in {"Neg", "Abs", "Identity"}:
            nodes.append(node(operator, [last], [given]))
        elif operator == "Where":
            nodes.append(node("Where", ["c", last, "k"], [given]))
        elif operator == "Concat":
            nodes.append(node("Concat", [last, last], [f"{given}_two"], axis=1))
            nodes.append(node("Slice", [f"{given}_two", "zero", "four", "axis"], [given]))
        elif operator == "Slice":
            nodes.append(node("Slice", [last, "zero", "four", "axis"], [given]))
        elif operator == "ReduceMax":
            nodes.append(node("ReduceMax", [last], [f"{given}_max"]))
            nodes.append(node("Sub", [last, f"{given}_max"], [given]))
        elif operator == "Cast":
            nodes.append(node("Cast", [last], [f"{given}_float"], to=TensorProto.DOUBLE))
            nodes.append(node("Cast", [f"{given}_float"], [given], to=TensorProto.INT64))
        else:
            nodes.append(node(operator, [last, "k"], [given]))
        last = given
    before = build(nodes, feeds, [last], opset=opset, place=place, constants=constants)
    feeds = with_which(feeds, place)
    after, _changed = rewritten(before, "narrow_integers", {"one": feeds})
    assert_same(before, after, feeds)


def test_sizes_stay_wide_and_get_no_cast() -> None:
    nodes = [
        *(node("Shape", ["x"], ["s"]), node("Mul", ["s", "k"], ["m"])),
        *(node("Expand", ["one", "m"], ["y"]),),
    ]
    constants: dict[str, Array] = {"k": np.array([1, 2], np.int64), "one": np.ones((1, 1), np.float32)}
    before = build(nodes, {"x": TABLE}, ["y"], constants=constants)
    after, changed = rewritten(before, "narrow_integers", {"one": {"x": TABLE}})
    assert changed == []
    assert [each.op_type for each in after.graph.node] == ["Shape", "Mul", "Expand"]


def test_without_samples_it_is_not_suitable() -> None:
    before = build([node("Neg", ["t"], ["y"])], {"t": TOKENS}, ["y"])
    with pytest.raises(Unsuitable, match="without samples"):
        rewritten(before, "narrow_integers")
