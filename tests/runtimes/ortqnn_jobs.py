"""Jobs of the ONNX Runtime QNN adapter, started as the engine starts them, and small models for the HTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from runtimes.contract import Step
from runtimes.kit import tensors
from tests.runtimes.openvino_jobs import FLOAT, Ended, Jobs, Made, make

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


class QnnJobs(Jobs):
    """Does jobs of this adapter in workspaces below a folder."""

    def __init__(self, root: Path, python: Path) -> None:
        super().__init__(root, python, "ortqnn")

    def convert(
        self,
        made: Made,
        *,
        precision: str = "fp16",
        target: str = "sm8650",
        name: str = "convert",
        write: Callable[[Made, Path], object] | None = None,
        spoil: str = "",
        without: str = "",
    ) -> Ended:
        return super().convert(
            made, precision=precision, target=target, name=name, write=write, spoil=spoil, without=without
        )

    def quantize(
        self,
        made: Made,
        samples: Mapping[str, Mapping[str, Any]],
        *,
        precision: str = "int8",
        target: str = "sm8650",
        name: str = "quantize",
        spoil: str = "",
        without: str = "",
    ) -> Ended:
        model, calibration = (self.root / f"{name}-{part}" for part in ("model", "calibration"))
        model.mkdir()
        onnx.save_model(made.model, model / "model.onnx")
        tensors.save_samples(calibration, samples)
        options = {"precision": precision, "target": target, "inputs": made.inputs, "outputs": made.outputs}
        inputs = {"model": model, "calibration": calibration}
        return self.job(Step.QUANTIZE, inputs, options, name, spoil=spoil, without=without)

    def run(
        self,
        artifact: Path,
        samples: Mapping[str, Mapping[str, Any]],
        *,
        target: str = "sm8650",
        name: str = "run",
        spoil: str = "",
        without: str = "",
        precision: str = "fp16",
    ) -> Ended:
        return super().run(
            artifact, samples, target=target, name=name, spoil=spoil, without=without, precision=precision
        )


def einsums() -> Made:
    """A Relu, then two Einsum that the HTP does not take; the later one is the first in the vendor's list."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "/relu"),
        helper.make_node("Einsum", ["a", "w"], ["y"], "/one", equation="bchw,bdhw->bcd"),
        helper.make_node("Einsum", ["a", "w"], ["z"], "/two", equation="bchw,bdhw->bcd"),
    ]
    weights = {"w": np.ones((1, 5, 3, 4), np.float32)}
    return make(nodes, [("x", FLOAT, [1, 2, 3, 4])], [("y", FLOAT, [1, 2, 5]), ("z", FLOAT, [1, 2, 5])], weights)


def erf() -> Made:
    """One node that the HTP does not take: of a model of which it takes nothing, the vendor names no node."""
    return make([helper.make_node("Erf", ["x"], ["y"], "/erf")], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])])


def deep() -> Made:
    """A tensor of six dimensions between two that are flat."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "/relu"),
        helper.make_node("Reshape", ["a", "six"], ["b"], "/up"),
        helper.make_node("Sigmoid", ["b"], ["c"], "/sigmoid"),
        helper.make_node("Reshape", ["c", "two"], ["y"], "/down"),
    ]
    weights = {"six": np.array([1, 3, 4, 1, 2, 3]), "two": np.array([1, 72])}
    return make(nodes, [("x", FLOAT, [1, 12, 6])], [("y", FLOAT, [1, 72])], weights)


def function() -> Made:
    """An operator that ONNX defines by others: ONNX Runtime puts those in its place, under names of their own."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "/relu"),
        helper.make_node("GroupNormalization", ["a", "scale", "bias"], ["y"], "/norm", num_groups=2),
    ]
    weights = {"scale": np.ones(2, np.float32), "bias": np.zeros(2, np.float32)}
    made = make(nodes, [("x", FLOAT, [1, 4, 6, 10])], [("y", FLOAT, [1, 4, 6, 10])], weights)
    made.model.opset_import[0].version = 18
    return made


def typed() -> Made:
    """Inputs and outputs of whole numbers and truth values."""
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["rows"], "/embedding"),
        helper.make_node("Where", ["keep", "rows", "zero"], ["y"], "/where"),
        helper.make_node("ArgMax", ["y"], ["best"], "/best", axis=-1, keepdims=0),
    ]
    weights = {"table": np.random.default_rng(2).random((7, 10), dtype=np.float32), "zero": np.float32(0)}
    inputs = [("tokens", INT64, [1, 5]), ("keep", BOOL, [1, 5, 1])]
    return make(nodes, inputs, [("y", FLOAT, [1, 5, 10]), ("best", INT64, [1, 5])], weights)


def upscaler(*, folded: bool = False) -> Made:
    """A convolution and a Resize whose scales are a Constant node, as exporters write them."""
    weights: dict[str, Any] = {"w": np.random.default_rng(7).normal(0, 0.2, (4, 3, 3, 3)).astype(np.float32)}
    scales = np.array([1, 1, 2, 2], np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "/conv", pads=[1, 1, 1, 1])]
    if folded:
        weights["scales"] = scales
    else:
        value = helper.make_tensor("value", FLOAT, [4], scales)
        nodes.append(helper.make_node("Constant", [], ["scales"], "/scales", value=value))
    nodes.append(helper.make_node("Resize", ["c", "", "scales"], ["y"], "/resize", mode="nearest"))
    return make(nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [1, 4, 32, 40])], weights)


def gelu() -> Made:
    """A GELU as it was exported before ONNX had one: five nodes, one of them an Erf."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "/matmul"),
        helper.make_node("Div", ["h", "root"], ["d"], "/div"),
        helper.make_node("Erf", ["d"], ["e"], "/erf"),
        helper.make_node("Add", ["e", "one"], ["a"], "/add"),
        helper.make_node("Mul", ["h", "a"], ["m"], "/mul"),
        helper.make_node("Mul", ["m", "half"], ["y"], "/half"),
    ]
    weights: dict[str, Any] = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    weights["w"] = np.random.default_rng(7).normal(0, 0.3, (20, 12)).astype(np.float32)
    return make(nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [1, 3, 16, 12])], weights)


def snr(found: Any, wanted: Any) -> float:
    """The ratio of signal to error in decibels."""
    return float(10 * np.log10(np.mean(np.square(wanted)) / np.mean(np.square(found - wanted))))
