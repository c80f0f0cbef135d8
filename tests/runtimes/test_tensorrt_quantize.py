"""int8 engines: TensorRT takes what the graph says, so it must say it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from runtimes.contract import Kind, Status, Step
from runtimes.kit import tensors
from tests.runtimes.openvino_jobs import FLOAT, Ended, Made, conv_net, make, picture
from tests.runtimes.rewrites.graphs import rewritten
from tests.runtimes.tensorrt_jobs import Jobs, is_failure

SEEN = {f"seen-{index}": {"x": picture(index)} for index in range(4)}


class Quantizes(Jobs):
    """Jobs of the adapter that quantise too."""

    def quantize(
        self, made: Made, *, precision: str = "int8", target: str = "sm89", name: str = "quantize", spoil: str = ""
    ) -> Ended:
        model, calibration = (self.root / f"{name}-{part}" for part in ("model", "calibration"))
        model.mkdir()
        onnx.save_model(made.model, model / "model.onnx")
        tensors.save_samples(calibration, SEEN)
        options = {"precision": precision, "target": target, "inputs": made.inputs, "outputs": made.outputs}
        inputs = {"model": model, "calibration": calibration}
        return self.job(Step.QUANTIZE, inputs, options, name, spoil=spoil)


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Quantizes:
    return Quantizes(tmp_path, environment_python("tensorrt"))


def quantized(made: Made) -> Made:
    return replace(made, model=rewritten(made.model, "qdq", samples=SEEN)[0])


def deep() -> Made:
    """A network of each operator that the rewrite quantises."""
    generator = np.random.default_rng(7)
    weights = {
        name: generator.normal(0, 0.2, shape).astype(np.float32)
        for name, shape in {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 4, 3, 3), "w3": (22, 5), "w4": (5, 6)}.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], "/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"], "/relu"),
        helper.make_node("ConvTranspose", ["r", "w2"], ["b"], "/up"),
        helper.make_node("MatMul", ["b", "w3"], ["c"], "/product"),
        helper.make_node("Reshape", ["c", "shape"], ["d"], "/rows"),
        helper.make_node("Gemm", ["d", "w4"], ["y"], "/gemm"),
    ]
    return make(nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [72, 6])], {**weights, "shape": np.array([72, 5])})


@pytest.mark.parametrize("made", [conv_net, deep])
def test_a_quantised_model_becomes_an_engine(jobs: Quantizes, made: Callable[[], Made]) -> None:
    built = jobs.quantize(quantized(made()))
    facts = built.result.facts
    assert (built.artifact / "model.engine").stat().st_size > 1000
    assert [port["dtype"] for port in facts["io"]["inputs"]] == ["float32"]
    operators = {row["op"] for row in facts["placement"]}
    assert {"Conv", "QuantizeLinear", "DequantizeLinear"} <= operators
    assert not [note for note in facts["notes"] if "do not calculate in int8" in note]


def test_equal_models_give_equal_bytes(jobs: Quantizes) -> None:
    first, second = (jobs.quantize(quantized(conv_net()), name=name) for name in ("first", "second"))
    assert first.hashes() == second.hashes()


def test_a_model_that_is_not_quantised_is_no_int8(jobs: Quantizes) -> None:
    words = "int8 was asked for, but none of 2 convolutions and products takes int8"
    assert is_failure(jobs.quantize(conv_net()), Status.FAILED, Kind.TOOLCHAIN, words)
    off = "from runtimes.tensorrt import network\nnetwork._check_whole = lambda network: []"
    assert jobs.quantize(conv_net(), name="without", spoil=off).result


def test_what_stays_in_floats_is_noted(jobs: Quantizes) -> None:
    made = quantized(conv_net())
    (head,) = (node for node in made.model.graph.node if node.name == "/head/Conv")
    head.input[0] = head.input[0].removesuffix("_dequantized")
    built = jobs.quantize(made)
    assert "1 of 2 convolutions and products do not calculate in int8" in built.result.facts["notes"]


def test_each_precision_has_its_step(jobs: Quantizes) -> None:
    words = "precision fp16 needs no calibration; ask for convert"
    assert is_failure(jobs.quantize(conv_net(), precision="fp16"), Status.MISUSED, Kind.OPTION, words)
    words = "precision int8 needs the step quantize"
    assert is_failure(jobs.convert(conv_net(), precision="int8"), Status.MISUSED, Kind.OPTION, words)
