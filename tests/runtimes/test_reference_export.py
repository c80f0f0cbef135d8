"""What `export` makes of an exporter's file, and how it compares answers; without PyTorch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from runtimes.reference import export, exporters
from runtimes.reference.inputs import Samples
from tests.runtimes.gate_models import FLOAT, model, node


def agreeing() -> tuple[Samples, Samples]:
    golden: Samples = {"photo": {"y": np.linspace(0, 1, 1000, dtype=np.float32)}}
    return golden, {"photo": {"y": golden["photo"]["y"].copy()}}


def test_agreement_is_that_of_the_worst_sample() -> None:
    golden, answers = agreeing()
    ripple = 1 + 0.002 * (-1.0) ** np.arange(1000)
    golden["other"], answers["other"] = dict(golden["photo"]), {"y": (golden["photo"]["y"] * ripple).astype(np.float32)}
    compared = export.compare(golden, answers, "pytorch")
    found = compared.agreement["y"]
    assert compared.problems == ()
    assert found.max_abs == pytest.approx(0.002, rel=1e-2)
    assert found.cosine == pytest.approx(1 - 0.002**2 / 2, abs=1e-7)
    assert found.snr_db == pytest.approx(54, abs=0.1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: y + np.float32(0.01), "SNR .* dB \\(at least 50\\)"),
        (lambda y: y[::-1].copy(), "cosine 0.49"),
        (lambda y: y.astype(np.float64), "ONNX Runtime gives float64 \\[1000\\], pytorch float32 \\[1000\\]"),
        (lambda y: y[:-1], "ONNX Runtime gives float32 \\[999\\]"),
        (lambda y: np.where(y > 0.99, np.nan, y).astype(np.float32), "gives 10 NaN and 0 infinite values"),
    ],
)
def test_an_answer_too_far_away_is_a_problem(change: Callable[[Any], Any], words: str) -> None:
    golden, answers = agreeing()
    assert export.compare(golden, answers, "pytorch").problems == ()
    answers["photo"]["y"] = change(answers["photo"]["y"])
    (problem,) = export.compare(golden, answers, "pytorch").problems
    assert problem.startswith("output y, sample photo: ")
    assert re.search(words, problem)


def test_what_exporters_tell_of_their_machine_is_taken_out(tmp_path: Path) -> None:
    private = "/home/somebody/model.py"
    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["b"], "b", doc_string=private)],
        "branch",
        [],
        [helper.make_tensor_value_info("b", FLOAT, [2, 3], doc_string=private)],
    )
    condition = node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    made = model([condition], {"c": np.array(True)})
    told: list[Any] = [made, made.graph, made.graph.node[0], made.graph.input[0], made.graph.initializer[0]]
    for message in (*told, made.graph.node[0].attribute[0]):
        message.doc_string = private
    for message in told:
        message.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=private)
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    assert private.encode() in path.read_bytes()
    exporters.strip(path)
    assert private.encode() not in path.read_bytes()
    onnx.checker.check_model(str(path), full_check=True)


def test_weights_in_many_files_are_put_into_one(tmp_path: Path) -> None:
    ramp = np.arange(1000, dtype=np.float32)
    nodes = [node("Add", ["x", "v"], ["a"]), node("Mul", ["a", "w"], ["y"])]
    made = model(nodes, {"v": ramp, "w": ramp + 5}, shape=(2, 1000))
    path = tmp_path / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    assert {each.name for each in tmp_path.iterdir()} == {"model.onnx", "v", "w"}
    exporters.gather(path)
    assert {each.name for each in tmp_path.iterdir()} == {"model.onnx", exporters.DATA}
    weights = {each.name: numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer}
    np.testing.assert_array_equal(weights["v"], ramp)
    np.testing.assert_array_equal(weights["w"], ramp + 5)
