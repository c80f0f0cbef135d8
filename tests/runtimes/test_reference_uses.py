"""What goes into whole-number inputs of a file: rows of a table, masks, switches; and what is chosen is told."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from runtimes.kit import tensors
from runtimes.kit.tensors import Array
from runtimes.kit.work import Refused
from runtimes.reference import inputs, uses
from runtimes.reference.options import Content, Input
from tests.runtimes.gate_models import FLOAT, INT64, model, node
from tests.runtimes.test_reference_onnx import Desk, desk

__all__ = ["desk"]
"""A fixture is found by its name."""

TABLE = np.linspace(-1, 1, 7 * 4, dtype=np.float32).reshape(7, 4)


def of_indices(*nodes: onnx.NodeProto, name: str = "x", **weights: Array | np.float32) -> onnx.ModelProto:
    made = model(nodes, {"table": TABLE, **weights}, shape=["n", 3], kind=INT64, out=["n", 3, 4])
    made.graph.input[0].name = name
    made.graph.output[0].type.tensor_type.elem_type = FLOAT
    return made


def test_indices_are_drawn_from_the_rows_of_their_table(desk: Desk) -> None:
    desk.put(of_indices(node("Gather", ["table", "x"], ["y"])))
    facts, _folder = desk.prepare()
    assert (facts["inputs"][0]["low"], facts["inputs"][0]["high"]) == (0.0, 6.0)
    assert any("indices from 0 to 6, as the table has 7 rows" in note for note in facts["notes"])


def test_the_smallest_of_several_tables_counts() -> None:
    small = np.ones((5, 4), np.float32)
    nodes = [
        node("Cast", ["x"], ["i"], to=TensorProto.INT32),
        node("Gather", ["table", "i"], ["a"]),
        node("Gather", ["small", "x"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    assert uses.of(of_indices(*nodes, small=small), "x").rows == 5


def test_a_table_is_found_behind_a_transpose_and_counted_along_the_axis() -> None:
    nodes = [
        node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        node("Gather", ["turned", "x"], ["y"], axis=-1),
    ]
    assert uses.of(of_indices(*nodes), "x").rows == 7


@pytest.mark.parametrize("name", ["attention_mask", "x"])
def test_a_mask_is_ones_and_then_zeros(name: str, desk: Desk) -> None:
    nodes = [
        node("Cast", [name], ["f"], to=FLOAT),
        node("Sub", ["one", "f"], ["hidden"]),
        node("Unsqueeze", ["hidden", "axes"], ["wide"]),
        node("Mul", ["wide", "row"], ["y"]),
    ]
    made = of_indices(*nodes, name=name, one=np.float32(1), axes=np.array([2]), row=TABLE[0])
    assert uses.of(made, name).masks
    desk.put(made)
    facts, folder = desk.prepare()
    assert facts["inputs"][0]["content"] == "mask"
    drawn = tensors.load_samples(folder / "samples")
    assert drawn["photo"][name].all()
    assert drawn["random-1"][name][0, 0] == 1
    assert drawn["random-1"][name][0, -1] == 0


@given(
    st.integers(0, 2**32 - 1), st.lists(st.integers(1, 9), max_size=3), st.sampled_from(["int64", "bool", "float32"])
)
def test_a_mask_never_hides_more_than_half(seed: int, shape: list[int], dtype: str) -> None:
    each = Input(name="mask", shape=tuple(shape), dtype=dtype, content=Content.MASK)
    drawn = inputs.draw(each, "random-1", seed)
    assert (drawn.shape, drawn.dtype) == (tuple(shape), np.dtype(dtype))
    values = drawn.astype(np.int64)
    assert 2 * values.sum() >= values.size
    assert not shape or (np.diff(values, axis=-1) <= 0).all()
    assert inputs.draw(each, "photo", seed).all()


def switched() -> onnx.ModelProto:
    """A model that doubles for 16000 and else changes the sign."""
    yes = helper.make_graph([node("Add", ["x", "x"], ["twice"])], "yes", [], [value("twice", [2, 3])])
    no = helper.make_graph([node("Neg", ["x"], ["less"])], "no", [], [value("less", [2, 3])])
    nodes = [
        node("Equal", ["rate", "known"], ["is"]),
        node("If", ["is"], ["y"], then_branch=yes, else_branch=no),
    ]
    made = model(nodes, {"known": np.int64(16000)}, shape=[2, 3])
    made.graph.input.append(helper.make_tensor_value_info("rate", INT64, []))
    return made


def value(name: str, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, shape)


def test_a_switch_is_fixed_and_told_and_its_branches_are_gone(desk: Desk) -> None:
    made = switched()
    desk.put(made)
    assert uses.of(made, "rate").compared == (16000,)
    facts, prepared = desk.prepare()
    assert [each["name"] for each in facts["inputs"]] == ["x"]
    assert any("comparison with 16000: it is fixed to that" in note for note in facts["notes"])
    samples, golden = (tensors.load_samples(prepared / name)["photo"] for name in ("samples", "golden"))
    assert np.array_equal(golden["y"], 2 * samples["x"])
    exported, folder = desk.export(prepared)
    written = onnx.load(folder / "model" / "model.onnx")
    assert [each.name for each in written.graph.input] == ["x"]
    assert "If" not in exported["nodes"]


def test_other_whole_numbers_stay_within_what_suits_every_index(desk: Desk) -> None:
    nodes = [node("Cast", ["x"], ["f"], to=FLOAT), node("Unsqueeze", ["f", "a"], ["u"]), node("Mul", ["u", "r"], ["y"])]
    made = of_indices(*nodes, a=np.array([2]), r=TABLE[0])
    assert uses.of(made, "x") == uses.Use()
    desk.put(made)
    facts, _folder = desk.prepare()
    assert (facts["inputs"][0]["content"], facts["inputs"][0]["high"]) == ("integers", 1.0)


def test_an_output_whose_size_depends_on_the_data_is_refused(desk: Desk) -> None:
    nodes = [node("Greater", ["x", "half"], ["m"]), node("NonZero", ["m"], ["y"])]
    made = model(nodes, {"half": np.float32(0.5)}, shape=[4, 5], out=[2, "found"])
    made.graph.output[0].type.tensor_type.elem_type = INT64
    desk.put(made)
    with pytest.raises(Refused, match="its size depends on the data, and an artefact has fixed sizes"):
        desk.prepare()


def test_an_output_counts_only_the_inputs_that_lead_to_it(desk: Desk) -> None:
    nodes = [
        node("Relu", ["x"], ["y"]),
        node("Shape", ["x"], ["size"]),
        node("Expand", ["u", "size"], ["v"]),
        node("Add", ["y", "v"], ["both"]),
    ]
    made = model(nodes, shape=[2, 3])
    made.graph.input.append(value("u", [2, 3]))
    made.graph.output.extend([value("v", [2, 3]), value("both", [2, 3])])
    desk.put(made)
    facts, _folder = desk.prepare()
    assert facts["reaching"] == {"y": ["x"], "v": ["u"]}
