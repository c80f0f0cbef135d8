"""The rewrite `onnxsim`, in the reference environment, which has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from runtimes.contract import Kind, Status, Step
from runtimes.kit import tensors
from tests.runtimes.reference_bench import Bench, Ended
from tests.runtimes.rewrites.graphs import build, node, run

X = np.random.default_rng(3).normal(size=(2, 3, 4)).astype(np.float32)


@pytest.fixture
def bench(reference_python: Path, tmp_path: Path) -> Bench:
    return Bench(tmp_path, reference_python)


def simplified(bench: Bench, model: onnx.ModelProto) -> Ended:
    folders = {name: bench.root / f"in-{name}" for name in ("model", "samples", "golden")}
    folders["model"].mkdir()
    onnx.save(model, folders["model"] / "model.onnx")
    tensors.save_samples(folders["samples"], {"one": {"x": X}})
    tensors.save_samples(folders["golden"], {"one": run(model, {"x": X})})
    return bench.job("onnxsim", Step.REWRITE, folders, {"rewrites": [{"name": "onnxsim"}]})


def test_a_size_that_is_known_is_no_chain_of_nodes_any_more(bench: Bench) -> None:
    nodes = [
        node("Shape", ["x"], ["shape"], "shape"),
        node("Gather", ["shape", "first"], ["rows"], "gather"),
        node("Concat", ["rows", "rest"], ["sizes"], "concat", axis=0),
        node("Reshape", ["x", "sizes"], ["flat"], "reshape"),
        node("Relu", ["flat"], ["y"], "relu"),
    ]
    constants = {"first": np.array([0]), "rest": np.array([-1])}
    ended = simplified(bench, build(nodes, {"x": X}, ["y"], constants=constants))
    assert ended.facts["nodes"] == {"Relu": 1, "Reshape": 1}
    assert {"shape", "gather", "concat"} <= {*ended.facts["changed"]["onnxsim"]}


def test_two_equal_nodes_are_one(bench: Bench) -> None:
    nodes = [
        *(node("Relu", ["x"], ["a"], "one"), node("Relu", ["x"], ["b"], "two")),
        node("Mul", ["a", "b"], ["y"], "mul"),
    ]
    ended = simplified(bench, build(nodes, {"x": X}, ["y"]))
    assert ended.facts["nodes"] == {"Mul": 1, "Relu": 1}
    assert ended.facts["changed"]["onnxsim"]


def test_a_graph_with_nothing_to_fold_is_left_as_it_is(bench: Bench) -> None:
    model = build([node("Relu", ["x"], ["y"], "relu")], {"x": X}, ["y"])
    ended = simplified(bench, model)
    assert ended.facts["changed"] == {"onnxsim": []}
    assert (ended.output("model") / "model.onnx").read_bytes() == model.SerializeToString()


def test_a_graph_that_onnxsim_does_not_take_is_refused_in_its_words(bench: Bench) -> None:
    model = build([node("Relu", ["x"], ["a"], "relu"), node("Abs", ["a"], ["y"], "abs")], {"x": X}, ["y"])
    model.graph.node.reverse()
    folder = bench.root / "unsorted"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    ended = bench.job("refused", Step.REWRITE, {"model": folder}, {"rewrites": [{"name": "onnxsim"}]})
    assert ended.result.status is Status.REFUSED
    assert ended.failure.kind is Kind.REWRITE
    assert ended.failure.message.startswith("rewrite onnxsim: onnxsim: ")
