"""The gates on an ONNX file: each defect is caught by its gate, and by nothing before it when the gate is left out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from runtimes.contract import Kind
from runtimes.reference import external, gates, ranges
from tests.runtimes.gate_defects import DEFECTS, FLOAT, HALF, INT64, Defect, branch_with, model, node, outside, sound


def write(folder: Path, made: onnx.ModelProto | bytes, files: dict[str, bytes] | None = None) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    for name, content in (files or {}).items():
        (folder / name).write_bytes(content)
    return path


def failed(results: Sequence[gates.GateResult]) -> set[str]:
    return {result.name for result in results if not result}


def test_a_sound_file_passes_every_gate(tmp_path: Path) -> None:
    results = gates.check(write(tmp_path, sound()))
    assert [result.name for result in results] == [gate.name for gate in gates.ALL]
    assert failed(results) == set()


def test_data_outside_the_file_passes_where_it_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path, outside("w.bin", offset=4, length=12), {"w.bin": b"\0" * 16})
    assert failed(gates.check(path)) == set()


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS.keys())
def test_a_defect_is_caught_by_its_gate_and_says_where(defect: Defect, tmp_path: Path) -> None:
    results = gates.check(write(tmp_path, defect.make(), defect.folder))
    assert failed(results) >= {defect.gate}
    for word in defect.words:
        assert word in gates.describe(results)


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS.keys())
def test_it_is_that_gate_which_catches_the_defect(defect: Defect, tmp_path: Path) -> None:
    path = write(tmp_path, defect.make(), defect.folder)
    assert failed(gates.check(path, gates.without(defect.gate))) == set(defect.behind)


def test_every_gate_has_a_defect() -> None:
    assert {defect.gate for defect in DEFECTS.values()} == {gate.name for gate in gates.ALL}


def test_a_link_to_the_data_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "w.bin").write_bytes(b"\0" * 12)
    home = tmp_path / "home"
    home.mkdir()
    path = write(home, outside("inner/w.bin"))
    (home / "inner").symlink_to(elsewhere)
    assert "a symbolic link" in gates.describe(gates.check(path))
    assert failed(gates.check(path, gates.without("external_data"))) == {"checker", "session"}


def test_nothing_loads_data_before_its_place_is_checked(tmp_path: Path) -> None:
    # A pipe that nobody writes to: whoever opened it would wait for ever.
    path = write(tmp_path, outside("w.bin"))
    os.mkfifo(tmp_path / "w.bin")
    assert failed(gates.check(path)) == {"external_data"}


def test_a_stage_behind_one_that_failed_does_not_run(tmp_path: Path) -> None:
    results = gates.check(write(tmp_path, DEFECTS["two nodes of one name"].make()))
    assert [result.name for result in results][-1] == "wide_integers"


def test_how_far_a_slice_goes_may_be_any_number(tmp_path: Path) -> None:
    weights = {
        "start": np.array(0, np.int64),
        "end": np.array(2**63 - 1, np.int64),
        "axis": np.array([0], np.int64),
    }
    nodes = [
        node("Unsqueeze", ["start", "axis"], ["starts"]),
        node("Unsqueeze", ["end", "axis"], ["ends"]),
        node("Slice", ["x", "starts", "ends", "axis"], ["y"]),
    ]
    assert failed(gates.check(write(tmp_path, model(nodes, weights)))) == set()


def test_a_wide_number_that_also_goes_elsewhere_is_caught(tmp_path: Path) -> None:
    weights = {"zero": np.array([0], np.int64), "end": np.array([2**40], np.int64)}
    nodes = [node("Slice", ["x", "zero", "end"], ["a"]), node("Mul", ["a", "end"], ["y"])]
    assert failed(gates.check(write(tmp_path, model(nodes, weights, kind=INT64)))) == {"wide_integers"}


def test_an_operator_that_the_model_itself_defines_is_known(tmp_path: Path) -> None:
    made = model([node("Twice", ["x"], ["y"], domain="own")])
    made.opset_import.append(helper.make_opsetid("own", 1))
    body = [helper.make_node("Add", ["x", "x"], ["y"], "add")]
    made.functions.append(helper.make_function("own", "Twice", ["x"], ["y"], body, [helper.make_opsetid("", 17)]))
    assert failed(gates.check(write(tmp_path, made))) == set()


def test_an_output_whose_size_follows_from_the_inputs_is_no_defect(tmp_path: Path) -> None:
    made = model([node("Relu", ["x"], ["y"])], out=["n", "m"])
    assert failed(gates.check(write(tmp_path, made))) == set()


def test_only_the_first_problems_of_a_gate_are_told(tmp_path: Path) -> None:
    names = [f"n{index}" for index in range(9)]
    nodes = [node("Relu", [before], [after], "") for before, after in zip(["x", *names], [*names, "y"], strict=True)]
    assert gates.describe(gates.check(write(tmp_path, model(nodes)))).endswith("; and 5 more")


def test_leaving_out_a_gate_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="no gate \\['odrer'\\]"):
        gates.without("odrer")


def test_a_gate_tells_what_sort_of_failure_it_is(tmp_path: Path) -> None:
    results = gates.check(write(tmp_path, DEFECTS["an open size"].make()))
    assert [result.kind for result in results if not result] == [Kind.DYNAMIC_SHAPE]


def test_tensors_in_branches_and_attributes_are_found(tmp_path: Path) -> None:
    constant = node("Constant", [], ["k"], value=numpy_helper.from_array(np.ones((2, 3), np.float32), "held"))
    made = branch_with(constant, node("Add", ["x", "k"], ["b"]))
    assert {tensor.name for tensor in external.tensors_of(made)} == {"c", "held"}
    assert failed(gates.check(write(tmp_path, made))) == set()


def squares(kind: int) -> onnx.ModelProto:
    """x·400, squared, then the mean."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    return model(
        [node("Mul", ["x", "k"], ["a"]), node("Mul", ["a", "a"], ["b"]), node("ReduceMean", ["b"], ["y"], keepdims=0)],
        {"k": np.array(400, dtype)},
        kind=kind,
        out=[],
    )


def test_a_half_that_overflows_is_named_though_the_engine_computes_wider(tmp_path: Path) -> None:
    path = write(tmp_path, squares(HALF))
    samples = {"photo": {"x": np.full((2, 3), 1.0, np.float16)}}
    assert failed(gates.check(path)) == set()
    result = ranges.check(path, samples)
    assert not result
    assert "node b (Mul): its float16 output b reaches" in result.detail
    assert ranges.find_overflow(path, {"small": {"x": np.full((2, 3), 0.1, np.float16)}}) == []


def test_a_half_inside_a_graph_of_floats_is_seen(tmp_path: Path) -> None:
    path = write(tmp_path, model([node("Cast", ["x"], ["a"], to=HALF), node("Cast", ["a"], ["y"], to=FLOAT)]))
    problems = ranges.find_overflow(path, {"large": {"x": np.full((2, 3), 1e5, np.float32)}})
    assert problems[0].startswith("node a (Cast): its float16 output a reaches ")


def test_halves_are_found_wherever_they_come_from() -> None:
    half = np.ones(3, np.float16)
    constant = node("Constant", [], ["k"], value=numpy_helper.from_array(half))
    assert ranges.has_halves(model([node("Relu", ["x"], ["y"])], kind=HALF))
    assert ranges.has_halves(model([node("Shape", ["w"], ["y"])], {"w": half}))
    assert ranges.has_halves(model([constant, node("Shape", ["k"], ["y"])]))
    assert ranges.has_halves(model([node("RandomNormalLike", ["x"], ["y"], dtype=HALF)]))
    assert not ranges.has_halves(sound())


def test_a_graph_of_floats_has_no_half_to_overflow(tmp_path: Path) -> None:
    path = write(tmp_path, squares(FLOAT))
    assert ranges.check(path, {"photo": {"x": np.full((2, 3), 1.0, np.float32)}})
