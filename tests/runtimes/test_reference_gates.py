"""The gates on an ONNX file: each defect is caught by its gate, and by nothing before it when the gate is left out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from runtimes.contract import Kind
from runtimes.reference import export, external, gates, ranges
from runtimes.reference.options import ExportOptions, Origin
from tests.runtimes.gate_defects import DEFECTS, Defect
from tests.runtimes.gate_models import FLOAT, HALF, INT64, branch_with, model, node, outside, sound


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
def test_a_defect_is_caught_by_its_gate_alone_which_says_where(defect: Defect, tmp_path: Path) -> None:
    results = gates.check(write(tmp_path, defect.make(), defect.folder))
    assert failed(results) == {defect.gate, *defect.beside}
    detail = next(result.detail for result in results if result.name == defect.gate)
    assert [word for word in defect.words if word not in detail] == []


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS.keys())
def test_without_that_gate_the_defect_passes_or_is_told_in_worse_words(defect: Defect, tmp_path: Path) -> None:
    path = write(tmp_path, defect.make(), defect.folder)
    results = gates.check(path, gates.without(defect.gate, of=gates.ALL))
    assert failed(results) == {*defect.behind, *defect.beside}
    assert [word for word in defect.words if word not in gates.describe(results)]


def test_every_gate_but_three_catches_a_defect_that_nothing_else_does() -> None:
    alone = {defect.gate for defect in DEFECTS.values() if not defect.behind and not defect.beside}
    assert alone == {gate.name for gate in gates.ALL} - {"ir_version", "ssa", "order"}


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
    assert failed(gates.check(path, gates.without("external_data", of=gates.ALL))) == {"checker", "session"}


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
        gates.without("odrer", of=gates.ALL)


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
    problem = ranges.find_overflow(path, samples)[0]
    assert problem.startswith("node b (Mul): its float16 output b reaches 1.6e+05, float16 holds up to 65504")
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
    assert ranges.find_overflow(path, {"photo": {"x": np.full((2, 3), 1.0, np.float32)}}) == []


def test_a_half_that_is_no_number_is_named_whatever_follows(tmp_path: Path) -> None:
    # The number that is none comes first: a maximum taken in the wrong order would forget it.
    path = write(tmp_path, model([node("Log", ["x"], ["a"]), node("Identity", ["a"], ["y"])], kind=HALF))
    bad, good = np.full((2, 3), -1.0, np.float16), np.full((2, 3), 2.0, np.float16)
    bad[0] = 2.0
    for samples in ({"1": {"x": bad}, "2": {"x": good}}, {"1": {"x": good}, "2": {"x": bad}}):
        problems = ranges.find_overflow(path, samples)
        assert problems[0].startswith("node a (Log): its float16 output a reaches nan")


def test_an_infinite_half_is_told_as_such(tmp_path: Path) -> None:
    path = write(tmp_path, model([node("Reciprocal", ["x"], ["y"])], kind=HALF))
    problems = ranges.find_overflow(path, {"1": {"x": np.zeros((2, 3), np.float16)}})
    assert problems[0].startswith("node y (Reciprocal): its float16 output y reaches inf")


def test_halves_that_cannot_be_measured_do_not_pass(tmp_path: Path) -> None:
    path = write(tmp_path, squares(HALF))
    problems = ranges.find_overflow(path, {"photo": {"x": np.zeros((5, 7), np.float16)}})
    assert problems[0].startswith("its float16 tensors cannot be measured: ")
    assert "Got invalid dimensions for input: x" in problems[0]


def test_a_half_that_holds_nothing_is_in_range(tmp_path: Path) -> None:
    none = np.zeros((0, 3), np.float16)
    nodes = [node("Identity", ["none"], ["a"]), node("Concat", ["x", "a"], ["y"], axis=0)]
    path = write(tmp_path, model(nodes, {"none": none}, kind=HALF))
    assert ranges.find_overflow(path, {"photo": {"x": np.ones((2, 3), np.float16)}}) == []


def test_a_constant_that_only_goes_round_and_round_does_not_hold_up_the_gates(tmp_path: Path) -> None:
    nodes = [
        node("Identity", ["d"], ["a"]),
        node("Concat", ["big", "a"], ["d"], axis=0),
        node("Relu", ["x"], ["y"]),
    ]
    path = write(tmp_path, model(nodes, {"big": np.array([2**40], np.int64)}))
    assert failed(gates.check(path)) == {"order"}


def test_a_constant_of_a_function_that_gives_it_away_is_wide(tmp_path: Path) -> None:
    made = model([node("Own", ["x"], ["k"], domain="own"), node("Mul", ["x", "k"], ["y"])], kind=INT64)
    made.opset_import.append(helper.make_opsetid("own", 1))
    body = [node("Constant", [], ["big"], value_int=2**40), node("Identity", ["big"], ["k"])]
    made.functions.append(helper.make_function("own", "Own", ["x"], ["k"], body, [helper.make_opsetid("", 17)]))
    assert failed(gates.check(write(tmp_path, made))) == {"wide_integers"}


def made(path: Path, **changes: Any) -> export.Exported:
    """A sound file from `x` to `y`, exported as it was asked for."""
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    golden = {"photo": {"y": np.maximum(x, 0) + 1}}
    options = ExportOptions(source=Origin.FUNCTION, opset=17)
    whole = export.Exported(
        model=gates.parse(path), path=path, options=options, kind="pytorch", samples={"photo": {"x": x}}, golden=golden
    )
    return dataclasses.replace(whole, **changes)


def overflowing(path: Path) -> export.Exported:
    """A file of halves that leaves their range and comes back: an engine that computes wider never shows it."""
    steps = [("Mul", "x", "k", "a"), ("Mul", "a", "a", "b"), ("Div", "b", "k", "c"), ("Div", "c", "k", "y")]
    nodes = [node(operator, [first, second], [gives]) for operator, first, second, gives in steps]
    path.write_bytes(model(nodes, {"k": np.array(400, np.float16)}, kind=HALF).SerializeToString())
    ones = np.ones((2, 3), np.float16)
    return made(path, samples={"photo": {"x": ones}}, golden={"photo": {"y": ones}})


BEHIND: dict[str, tuple[str, Callable[[Path], export.Exported]]] = {
    "asked_opset": (
        "asked for opset 13, the torchscript exporter wrote 17 without a word; ask for opset 17",
        lambda path: made(path, options=ExportOptions(source=Origin.FUNCTION, opset=13)),
    ),
    "asked_values": (
        "wrote inputs and outputs x [2, 3], y [2, 3], not x [2, 3], other [1], y [2, 3]",
        lambda path: made(path, samples={"photo": {**made(path).samples["photo"], "other": np.zeros(1)}}),
    ),
    "fp16_range": ("node b (Mul): its float16 output b reaches 1.6e+05", overflowing),
    "agreement": (
        "output y, sample photo: ONNX Runtime does not agree with pytorch: cosine -0.",
        lambda path: made(path, golden={"photo": {"y": -made(path).samples["photo"]["x"]}}),
    ),
}
"""Gate behind the others: what it says, and of what; when it is left out, nothing else says anything."""


def test_what_was_exported_as_asked_passes_every_gate(tmp_path: Path) -> None:
    results = gates.ask(export.GATES, made(write(tmp_path, sound())))
    assert [result.name for result in results] == [gate.name for gate in export.GATES] == list(BEHIND)
    assert failed(results) == set()


@pytest.mark.parametrize("name", BEHIND)
def test_what_was_made_otherwise_is_caught_by_its_gate_and_by_that_alone(name: str, tmp_path: Path) -> None:
    words, make = BEHIND[name]
    about = make(write(tmp_path, sound()))
    results = gates.ask(export.GATES, about)
    assert failed(results) == {name}
    assert words in gates.describe(results)
    assert failed(gates.ask(gates.without(name, of=export.GATES), about)) == set()
