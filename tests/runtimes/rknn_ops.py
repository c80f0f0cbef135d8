"""One-operator ONNX models, and what rknn-toolkit2 makes of each: the table in docs/runtimes/rknn.md.

python -m tests.runtimes.rknn_ops        prints the table; about a quarter of an hour
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aipc import home
from aipc.engines import install
from aipc.environment import Environment
from runtimes.contract import Kind
from tests.runtimes.openvino_jobs import Ended, Made, outputs, reference
from tests.runtimes.rknn_jobs import Jobs

FLOAT, INT64, UINT8, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.BOOL
IMAGE = (1, 4, 6, 10)
ROWS = (1, 6, 10)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operator in one form.

    Attributes:
        op: the operator's type.
        form: what is particular about it, or "".
        inputs: name to (element type, shape) of what changes from sample to sample.
        constants: name to value, after the inputs in the node's list.
        attributes: of the node.
        outputs: how many.
        opset: of the model.
    """

    op: str
    form: str = ""
    inputs: Mapping[str, tuple[int, Sequence[int]]]
    constants: Mapping[str, Any]
    attributes: Mapping[str, Any]
    outputs: int = 1
    opset: int = 17

    @property
    def name(self) -> str:
        return f"{self.op} {self.form}".strip()

    def model(self) -> onnx.ModelProto:
        names = [*self.inputs, *self.constants]
        made = [f"y{index}" for index in range(self.outputs)]
        node = helper.make_node(self.op, names, made, f"/the/{self.op}", **self.attributes)
        graph = helper.make_graph(
            [node],
            "graph",
            [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in self.inputs.items()],
            [helper.make_empty_tensor_value_info(name) for name in made],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def feeds(self, seed: int = 3) -> dict[str, Any]:
        """Return inputs: floats in 0.05 to 0.95 (where every function is defined), whole numbers 0 to 3."""
        generator = np.random.default_rng(seed)
        found: dict[str, Any] = {}
        for name, (kind, shape) in self.inputs.items():
            if kind == FLOAT:
                found[name] = generator.uniform(0.05, 0.95, shape).astype(np.float32)
            elif kind == BOOL:
                found[name] = generator.random(shape) < 0.5
            else:
                found[name] = generator.integers(0, 4, shape).astype(helper.tensor_dtype_to_np_dtype(kind))
        return found


def case(
    op: str,
    *shapes: Sequence[int],
    form: str = "",
    kind: int = FLOAT,
    given: Mapping[str, Any] | None = None,
    outputs: int = 1,
    opset: int = 17,
    **attributes: Any,
) -> Case:
    """Return a case whose inputs are all of one kind; `given` are constants, after the inputs."""
    return Case(
        op=op,
        form=form,
        inputs={f"x{index}": (kind, shape) for index, shape in enumerate(shapes)},
        constants=given or {},
        attributes=attributes,
        outputs=outputs,
        opset=opset,
    )


def weights(*shape: int) -> Any:
    return np.random.default_rng(5).normal(0, 0.2, shape).astype(np.float32)


def whole(*values: int) -> Any:
    return np.array(values, np.int64)


ELEMENTWISE = (
    *("Abs", "Acos", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp"),
    *("Floor", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Neg", "Reciprocal", "Relu", "Round"),
    *("Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh"),
    "ThresholdedRelu",
)
PAIRS = ("Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum")
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def cases() -> Iterator[Case]:
    for op in ELEMENTWISE:
        yield case(op, IMAGE)
    yield case("Mish", IMAGE, opset=18)
    yield case("Clip", IMAGE, given={"low": np.float32(0.2), "high": np.float32(0.8)})
    for op in PAIRS:
        yield case(op, IMAGE, IMAGE)
    yield case("Add", (1, 7), (1, 7), kind=INT64, form="int64")
    yield case("Mul", (1, 7), (1, 7), kind=INT64, form="int64")
    yield case("Div", (1, 7), kind=INT64, form="int64", given={"b": whole(2)})
    yield case("Mod", IMAGE, form="fmod", given={"b": np.float32(0.3)}, fmod=1)
    yield case("Mod", (1, 7), form="int64", kind=INT64, given={"b": whole(2)})
    yield case("PRelu", IMAGE, given={"slope": weights(4, 1, 1)})
    for op in COMPARISONS:
        yield case(op, IMAGE, IMAGE)
    for op in ("And", "Or", "Xor"):
        yield case(op, IMAGE, IMAGE, kind=BOOL)
    yield case("Not", IMAGE, kind=BOOL)
    yield case("IsNaN", IMAGE)
    yield case("IsInf", IMAGE)
    for op in REDUCTIONS:
        # At opset 17 only ReduceSum has its axes as an input.
        where: dict[str, Any] = {"given": {"axes": whole(2, 3)}} if op == "Sum" else {"axes": [2, 3]}
        yield case(f"Reduce{op}", IMAGE, form="H, W", **where)
    yield case("ReduceMax", IMAGE, form="C", axes=[1])
    yield case("ReduceMean", IMAGE, form="C", axes=[1])
    yield case("ReduceMean", (1, 2, 3, 4, 5, 6), form="rank 6", axes=[4, 5])
    yield from layers()
    yield from shapes()
    yield from choices()
    yield from sequences()


def layers() -> Iterator[Case]:
    yield case("Conv", IMAGE, given={"w": weights(3, 4, 3, 3)}, pads=[1, 1, 1, 1])
    yield case("Conv", IMAGE, form="depthwise", given={"w": weights(4, 1, 3, 3)}, pads=[1, 1, 1, 1], group=4)
    yield case("Conv", ROWS, form="1-D", given={"w": weights(3, 6, 3)}, pads=[1, 1])
    yield case("Conv", (1, 2, 3, 6, 10), form="3-D", given={"w": weights(3, 2, 3, 3, 3)}, pads=[1] * 6)
    yield case("ConvTranspose", IMAGE, given={"w": weights(4, 3, 2, 2)}, strides=[2, 2])
    yield case("AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2])
    yield case("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2])
    yield case("MaxPool", IMAGE, form="with indices", kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    yield case("MaxPool", (1, 2, 4, 6, 10), form="3-D", kernel_shape=[2] * 3, strides=[2] * 3)
    yield case("LpPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2])
    yield case("GlobalAveragePool", IMAGE)
    yield case("GlobalMaxPool", IMAGE)
    four = {name: abs(weights(4)) + 0.5 for name in ("scale", "bias", "mean", "var")}
    yield case("BatchNormalization", IMAGE, given=four)
    yield case("InstanceNormalization", IMAGE, given={name: four[name] for name in ("scale", "bias")})
    yield case("LayerNormalization", ROWS, given={"scale": weights(10), "bias": weights(10)})
    yield case(
        "LayerNormalization",
        ROWS,
        form="all written",
        given={"scale": weights(10), "bias": weights(10)},
        axis=-1,
        epsilon=1e-5,
    )
    yield case("LayerNormalization", IMAGE, form="C, H, W", given={"scale": weights(4, 6, 10)}, axis=1)
    yield case("GroupNormalization", IMAGE, given={"s": weights(2), "b": weights(2)}, num_groups=2, opset=18)
    yield case("LRN", IMAGE, size=3)
    yield case("LpNormalization", ROWS, axis=-1)
    yield case("MeanVarianceNormalization", IMAGE)
    yield case("Gemm", (5, 6), given={"b": weights(6, 7), "c": weights(7)})
    yield case("MatMul", ROWS, form="by a constant", given={"b": weights(10, 7)})
    yield case("MatMul", (1, 2, 6, 10), (1, 2, 10, 7), form="two inputs")
    yield case("MatMul", (1, 2, 2, 3, 6, 10), (1, 2, 2, 3, 10, 7), form="rank 6")
    yield case("Einsum", (1, 2, 6, 10), (1, 2, 7, 10), equation="bhid,bhjd->bhij")
    yield case("Einsum", (1, 3, 4, 6, 10), (1, 5, 3, 4), form="bmchw,bnmc->bmhwn", equation="bmchw,bnmc->bmhwn")
    yield case("Softmax", ROWS, axis=-1)
    yield case("Softmax", IMAGE, form="C", axis=1)
    yield case("LogSoftmax", ROWS, axis=-1)
    yield case("Hardmax", ROWS, axis=-1)
    yield case("Det", (2, 3, 3))
    yield case("Dropout", IMAGE)


def shapes() -> Iterator[Case]:
    yield case("Concat", IMAGE, IMAGE, axis=1)
    yield case("DepthToSpace", IMAGE, blocksize=2)
    yield case("DepthToSpace", IMAGE, form="CRD", blocksize=2, mode="CRD")
    yield case("SpaceToDepth", IMAGE, blocksize=2)
    yield case("Expand", (1, 4, 1, 10), given={"shape": whole(1, 4, 6, 10)})
    yield case("Flatten", IMAGE)
    yield case("Reshape", IMAGE, given={"shape": whole(1, 8, 3, 10)})
    yield case("Slice", IMAGE, given={"s": whole(1), "e": whole(5), "a": whole(2)})
    yield case("Slice", IMAGE, form="step -1", given={"s": whole(-1), "e": whole(-99), "a": whole(3), "t": whole(-1)})
    yield case("Split", IMAGE, given={"parts": whole(1, 3)}, axis=1, outputs=2)
    yield case("Squeeze", (1, 1, 6, 10), given={"axes": whole(1)})
    yield case("Unsqueeze", ROWS, given={"axes": whole(1)})
    yield case("Tile", IMAGE, given={"times": whole(1, 2, 1, 3)})
    yield case("Transpose", IMAGE, form="NHWC", perm=[0, 2, 3, 1])
    yield case("Transpose", (1, 2, 3, 4, 5), form="rank 5", perm=[0, 3, 1, 4, 2])
    yield case("Transpose", (1, 2, 3, 4, 5, 6), form="rank 6", perm=[0, 3, 1, 4, 2, 5])
    for mode in ("constant", "reflect", "edge"):
        yield case("Pad", IMAGE, form=mode, given={"pads": whole(0, 0, 1, 2, 0, 0, 2, 1)}, mode=mode)
    sizes = {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 2], np.float32)}
    for mode in ("nearest", "linear"):
        yield case("Resize", IMAGE, form=mode, given=sizes, mode=mode)
    yield case(
        "Resize", IMAGE, form="linear, align corners", given=sizes, mode="linear",
        coordinate_transformation_mode="align_corners",
    )  # fmt: skip
    yield case("Resize", IMAGE, form="cubic", given=sizes, mode="cubic")
    twice = {**sizes, "scales": np.array([1, 1, 2, 2, 2], np.float32)}
    yield case("Resize", (1, 2, 3, 6, 10), form="3-D", given=twice, mode="linear")
    down = {**sizes, "scales": np.array([1, 1, 0.5, 0.5], np.float32)}
    yield case("Resize", IMAGE, form="linear, antialias", given=down, mode="linear", antialias=1, opset=18)
    yield case("GridSample", IMAGE, (1, 5, 7, 2))
    yield case("GridSample", IMAGE, (1, 5, 7, 2), form="nearest", mode="nearest")
    yield case("Cast", IMAGE, form="float to int64", to=INT64)
    yield case("Cast", (1, 7), form="int64 to float", kind=INT64, to=FLOAT)
    yield case("Shape", IMAGE)
    yield case("Size", IMAGE)
    yield case("ReverseSequence", (5, 3, 4), given={"lengths": whole(2, 5, 1)}, batch_axis=1, time_axis=0)
    yield case("RoiAlign", IMAGE, given={
        "rois": np.array([[0, 0, 4, 4]], np.float32), "batch": whole(0)}, output_height=2, output_width=3)  # fmt: skip
    yield case("EyeLike", (5, 5))
    yield case("ConstantOfShape", (3,), kind=INT64)


def choices() -> Iterator[Case]:
    yield case("ArgMax", ROWS, axis=-1)
    yield case("ArgMin", ROWS, axis=-1)
    yield case("TopK", ROWS, given={"k": whole(3)}, outputs=2)
    yield case("CumSum", ROWS, given={"axis": np.array(2, np.int64)})
    yield case("Compress", (6,), given={"which": np.array([1, 0, 1, 1, 0, 1], bool)})
    yield case("Gather", (6, 10), form="constant indices", given={"i": whole(2, 0)})
    yield Case(
        op="Gather", form="embedding", inputs={"t": (FLOAT, (4, 10)), "i": (INT64, (1, 7))}, constants={}, attributes={}
    )
    yield case("GatherElements", ROWS, given={"i": np.ones((1, 6, 4), np.int64)}, axis=2)
    yield case("GatherND", ROWS, given={"i": np.array([[0, 1], [0, 3]], np.int64)})
    yield case("ScatterElements", ROWS, given={"i": np.ones((1, 2, 10), np.int64), "u": weights(1, 2, 10)}, axis=1)
    yield case("ScatterND", ROWS, given={"i": np.array([[0, 1], [0, 3]], np.int64), "u": weights(2, 10)})
    yield case("OneHot", (1, 7), kind=INT64, given={"depth": np.array(4, np.int64), "v": np.array([0, 1], np.float32)})
    yield case("Trilu", (1, 6, 6), upper=0)
    yield case("NonZero", ROWS)
    yield Case(
        op="Where", inputs={"c": (BOOL, IMAGE), "a": (FLOAT, IMAGE), "b": (FLOAT, IMAGE)}, constants={}, attributes={}
    )
    yield case("NonMaxSuppression", (1, 6, 4), (1, 2, 6), given={"most": np.array([3], np.int64)})
    yield case("Unique", (6,))
    yield case("Bernoulli", IMAGE)
    yield case("RandomNormalLike", IMAGE)
    scale = {"s": np.float32(0.01), "z": np.uint8(3)}
    yield case("QuantizeLinear", IMAGE, given=scale)
    yield case("DynamicQuantizeLinear", IMAGE, outputs=3)
    yield case("DequantizeLinear", IMAGE, given=scale, kind=UINT8)
    yield case("MatMulInteger", (6, 10), given={"b": np.ones((10, 7), np.uint8)}, kind=UINT8)
    yield case("ConvInteger", IMAGE, given={"w": np.ones((3, 4, 3, 3), np.uint8)}, kind=UINT8)
    yield case("BitShift", IMAGE, IMAGE, direction="LEFT", kind=UINT8)


def sequences() -> Iterator[Case]:
    steps = (5, 1, 6)
    yield case("LSTM", steps, given={"w": weights(1, 28, 6), "r": weights(1, 28, 7)}, hidden_size=7, outputs=3)
    yield case("GRU", steps, given={"w": weights(1, 21, 6), "r": weights(1, 21, 7)}, hidden_size=7, outputs=2)
    yield case("RNN", steps, given={"w": weights(1, 7, 6), "r": weights(1, 7, 7)}, hidden_size=7, outputs=2)
    both = {"w": weights(2, 28, 6), "r": weights(2, 28, 7)}
    yield case("LSTM", steps, form="both ways", given=both, hidden_size=7, direction="bidirectional", outputs=3)
    yield case("DFT", (1, 8, 1))
    yield case("STFT", (1, 32), given={"step": np.array(8, np.int64), "window": np.ones(16, np.float32)})


NOT_CALCULATIONS = ("Reshape", "Transpose")
NEAR = 0.02
"""How far half precision may take an output of this size from the right one."""


def measure(jobs: Jobs, each: Case, number: int) -> tuple[str, str]:
    """Return what became of a case, in a word, and its layers or the toolkit's words."""
    model, feeds = each.model(), each.feeds()
    answers = reference(Made(model=model, inputs=[], outputs=[]), feeds)
    del model.graph.output[:]
    for name, array in answers.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.output.append(helper.make_tensor_value_info(name, kind, array.shape))
    inputs, made = (
        [{"name": name, "shape": list(array.shape), "dtype": array.dtype.name} for name, array in ports.items()]
        for ports in (feeds, answers)
    )
    ended = jobs.convert(Made(model=model, inputs=inputs, outputs=made), {"one": feeds}, name=str(number))
    if not ended.result:
        return _failed(ended)
    placement = ended.result.facts["placement"]
    told = ", ".join(f"{row['op']} {row['device']}" for row in placement)
    if rules := ended.result.facts["execution"]["disable_rules"]:
        told += f"; without {', '.join(rules)}"
    found = outputs(ended)["one"]
    if any(np.abs(found[name].astype(float) - answers[name].astype(float)).max() > NEAR for name in answers):
        return "wrong", told
    calculated = [row["device"] for row in placement if row["op"] not in NOT_CALCULATIONS]
    return ("CPU" if "CPU" in calculated else "NPU"), told


def _failed(ended: Ended) -> tuple[str, str]:
    failure = ended.failure
    words = failure.message.splitlines()
    if "No lowering found" in failure.message:
        return "no kernel", ""
    if failure.kind is Kind.CRASH:
        return "dies", words[0].partition(";")[0]
    return "refused", words[0]


def main() -> None:
    python = install.ensure(home.cache_folder(), Environment.load("rknn"), lambda _: None) / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(Path(folder), python)
        rows = [(each.name, *measure(jobs, each, number)) for number, each in enumerate(cases())]
    for row in sorted(rows):
        sys.stdout.write(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n")


if __name__ == "__main__":
    main()
