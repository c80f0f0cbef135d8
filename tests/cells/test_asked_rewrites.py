"""Rewrites that a person asks for: of the reference, of onnxsim, and of Olive in an environment of its own."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from tests.cells.test_repairs import graph, save
from tests.command import Aipc


def tried(aipc: Aipc) -> list[tuple[str, str, int, bool]]:
    return [(each["rewrite"], each["status"], len(each["changed"]), each["asked"]) for each in aipc.report()["repairs"]]


def deploy(aipc: Aipc, model: onnx.ModelProto, *more: str) -> Any:
    file = save(aipc.folder / "net.onnx", model)
    return aipc.deploy(str(file), "--runtime", "openvino", "--engine", "venv", *more)


def twice() -> onnx.ModelProto:
    """The same Relu twice, and a sum of both."""
    nodes = [helper.make_node("Relu", ["x"], [name], f"/{name}") for name in ("a", "b")]
    nodes += [helper.make_node("Add", ["a", "b"], ["c"], "/add"), helper.make_node("Tanh", ["c"], ["y"], "/tanh")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3, 5]) for name in ("x", "y")]
    made = helper.make_graph(nodes, "net", ends[:1], ends[1:])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_rewrite_that_is_asked_for_comes_before_the_first_conversion(aipc: Aipc) -> None:
    done = deploy(aipc, graph(), "--rewrite", "einsum_to_matmul")
    assert done.code == 0, done.out + done.error
    assert tried(aipc) == [("einsum_to_matmul", "done", 1, True)]
    assert "Einsum" not in aipc.report()["export"]["nodes"]
    assert "--rewrite einsum_to_matmul" in done.out


def test_one_that_changes_nothing_is_told_and_leaves_the_verdict_alone(aipc: Aipc) -> None:
    done = deploy(aipc, graph(), "--rewrite", "mod_to_arithmetic")
    assert done.code == 0, done.out + done.error
    assert tried(aipc) == [("mod_to_arithmetic", "done", 0, True)]


def test_onnxsim_makes_one_of_two_equal_nodes(aipc: Aipc) -> None:
    done = deploy(aipc, twice(), "--rewrite", "onnxsim")
    assert done.code == 0, done.out + done.error
    (told,) = aipc.report()["repairs"]
    assert (told["rewrite"], told["status"]) == ("onnxsim", "done")
    assert told["changed"]
    assert aipc.report()["export"]["nodes"] == {"Add": 1, "Relu": 1, "Tanh": 1}


@pytest.mark.timeout(600)
def test_olive_quantizes_in_an_environment_of_its_own_and_the_judge_measures_it(aipc: Aipc) -> None:
    done = aipc.tiny("--precision", "int8", "--rewrite", "olive_qnn_quantize", runtime="ortqnn")
    assert done.code == 0, done.out + done.error
    assert "✓ agrees" in done.out
    assert "olive_qnn_quantize before the first conversion, as asked for" in done.out
