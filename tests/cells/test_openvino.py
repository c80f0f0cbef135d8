"""OpenVINO cells that need a repair, from a command to a verdict: nobody gives a hint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.command import Aipc

MATRIX = np.random.default_rng(4).normal(size=(16, 3)).astype(np.float32)
SIZES = np.array([1, 3, 8, 8], np.int64)
CELL = {
    name: np.random.default_rng(5).normal(0, shape[-1] ** -0.5, shape).astype(np.float32)
    for name, shape in {"wx": (96, 768), "wh": (96, 32), "b": (96,)}.items()
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model with the input x [1,3,16,16] and the output y.

    Attributes:
        nodes: behind a Conv that gives c [1,3,16,16].
        shape: of y.
        rewrite: the one that mends it.
        kind: of the failure it mends; None where the numbers are wrong.
        constants: by name.
        opset: of the model.
    """

    nodes: Sequence[NodeProto]
    shape: tuple[int, ...]
    rewrite: str
    kind: str | None
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    opset: int = 17

    def save(self, path: Path) -> Path:
        draw = np.random.default_rng(3)
        held = {"w": draw.normal(0, 0.2, (3, 3, 3, 3)).astype(np.float32), **self.constants}
        graph = helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], ["c"], "/conv", pads=[1, 1, 1, 1]), *self.nodes],
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(self.shape))],
            [numpy_helper.from_array(array, name) for name, array in held.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        onnx.save_model(model, path)
        return path


CASES = {
    "an operator that it does not know": Case(
        nodes=[
            helper.make_node("MatMul", ["c", "m"], ["d"], "/right"),
            helper.make_node("MatMul", ["n", "d"], ["e"], "/left"),
            helper.make_node("Det", ["e"], ["y"], "/det"),
        ],
        constants={"m": MATRIX, "n": MATRIX.T.copy()},
        shape=(1, 3),
        rewrite="det_to_arithmetic",
        kind="unsupported_op",
    ),
    "a reduction that is an output": Case(
        nodes=[helper.make_node("ReduceL1", ["c"], ["y"], "/l1", axes=[3], keepdims=0)],
        shape=(1, 3, 16),
        rewrite="decompose_reduction",
        kind="toolchain",
    ),
    "a reduction whose shape matters": Case(
        nodes=[
            helper.make_node("ReduceLogSumExp", ["c"], ["l"], "/lse", axes=[3], keepdims=0),
            helper.make_node("Concat", ["l", "l"], ["y"], "/concat", axis=2),
        ],
        shape=(1, 3, 32),
        rewrite="decompose_reduction",
        kind="invalid_model",
    ),
    "a reduction that others are divided by": Case(
        nodes=[
            helper.make_node("ReduceL1", ["c"], ["n"], "/norm", axes=[1]),
            helper.make_node("Div", ["c", "n"], ["y"], "/div"),
        ],
        shape=(1, 3, 16, 16),
        rewrite="decompose_reduction",
        kind=None,
    ),
    "an edge that goes on from the other side": Case(
        nodes=[helper.make_node("Pad", ["c", "pads"], ["y"], "/pad", mode="wrap")],
        constants={"pads": np.array([0, 0, 2, 1, 0, 0, 1, 2])},
        shape=(1, 3, 19, 19),
        rewrite="pad_to_gather",
        kind="unsupported_op",
        opset=19,
    ),
    "a spectrum's size": Case(
        nodes=[
            helper.make_node("Unsqueeze", ["c", "last"], ["u"], "/complex"),
            helper.make_node("DFT", ["u", "", "axis"], ["f"], "/dft", onesided=1),
            helper.make_node("ReduceL2", ["f", "last"], ["y"], "/size", keepdims=0),
        ],
        constants={"last": np.array([-1]), "axis": np.array(-2)},
        shape=(1, 3, 16, 9),
        rewrite="dft_to_matmul",
        kind="toolchain",
        opset=20,
    ),
    "a smaller picture": Case(
        nodes=[helper.make_node("Resize", ["c", "", "", "s"], ["y"], "/resize", mode="linear", antialias=1)],
        constants={"s": SIZES},
        shape=(1, 3, 8, 8),
        rewrite="antialias_to_matmul",
        kind=None,
        opset=18,
    ),
    "a first state of zeros": Case(
        nodes=[
            helper.make_node("Shape", ["c"], ["s"], "/shape", end=1),
            helper.make_node("Concat", ["s", "n"], ["sizes"], "/sizes", axis=0),
            helper.make_node("ConstantOfShape", ["sizes"], ["h"], "/zeros"),
            helper.make_node("Flatten", ["c"], ["f"], "/flatten"),
            helper.make_node("Gemm", ["f", "wx", "b"], ["a"], "/new", transB=1),
            helper.make_node("Gemm", ["h", "wh", "b"], ["o"], "/old", transB=1),
            helper.make_node("Add", ["o", "a"], ["g"], "/gates"),
            helper.make_node("Split", ["g"], ["i", "k", "t"], "/split", axis=1),
            *(helper.make_node("Sigmoid", [each], [f"{each}s"], f"/{each}") for each in "ik"),
            helper.make_node("Tanh", ["t"], ["ts"], "/tanh"),
            helper.make_node("Mul", ["ks", "h"], ["kept"], "/keep"),
            helper.make_node("Mul", ["is", "ts"], ["added"], "/add"),
            helper.make_node("Add", ["kept", "added"], ["y"], "/state"),
        ],
        constants={"n": np.array([32], np.int64), **CELL},
        shape=(1, 32),
        rewrite="fold_constants",
        kind=None,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_openvino_does_not_take_or_calculates_badly_is_mended(aipc: Aipc, case: Case) -> None:
    path = case.save(aipc.folder / "net.onnx")
    done = aipc.deploy(str(path), "--runtime", "openvino", "--engine", "venv")
    assert done.code == 0, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "agrees"
    helped = [each for each in report["repairs"] if each["helped"]]
    assert [(each["rewrite"], each["symptom"]["kind"]) for each in helped] == [(case.rewrite, case.kind)]
    assert [each["rewrite"] for each in report["repairs"] if each["changed"]] == [case.rewrite]
