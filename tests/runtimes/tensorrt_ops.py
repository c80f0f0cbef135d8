"""What TensorRT for RTX 1.7.1.116 does not take of the operators that `rknn_ops` and this file measure, and a program
that measures it: docs/runtimes/tensorrt.md has the same list for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.runtimes import rknn_ops
from tests.runtimes.rknn_ops import IMAGE, ROWS, Case, case, weights, whole

REFUSED: Mapping[str, str] = {
    **{f"MaxPool {form}": "unsupported_op" for form in ("with indices", "dilated")},
    **{f"Resize {form}": "unsupported_op" for form in ("linear, antialias", "tf_crop_and_resize")},
    **{f"{op} add": "unsupported_op" for op in ("ScatterElements", "ScatterND")},
    **dict.fromkeys(
        ("AffineGrid", "Attention", "Bernoulli", "BitShift", "BitwiseAnd", "CenterCropPad"), "unsupported_op"
    ),
    **dict.fromkeys(("Col2Im", "Compress", "ConvInteger", "DFT", "DeformConv", "DequantizeLinear"), "unsupported_op"),
    **dict.fromkeys(("Det", "DynamicQuantizeLinear", "MatMulInteger", "MaxRoiPool", "MaxUnpool"), "unsupported_op"),
    **dict.fromkeys(("Multinomial", "NegativeLogLikelihoodLoss", "NonMaxSuppression", "NonZero"), "unsupported_op"),
    **dict.fromkeys(("QLinearConv", "QuantizeLinear", "RoiAlign", "SequenceConstruct"), "unsupported_op"),
    **dict.fromkeys(("SplitToSequence", "Unique"), "unsupported_op"),
    "QuantizeLinear uint8, zero 0": "unsupported_op",
    "Relu opset 6": "unsupported_opset",
    "ConstantOfShape": "dynamic_shape",
}
"""Case to the kind of failure. All but the last two kinds name the operator and the node."""

PROGRAM = """
import json, sys
from pathlib import Path
from runtimes.kit.work import Failed, Refused
from runtimes.tensorrt import building, network, product
found = product.load()
for path in sorted(Path(sys.argv[1]).iterdir(), key=lambda path: int(path.stem)):
    # TensorRT keeps the first logger of a process.
    found.logger.messages.clear()
    found.logger.nodes.clear()
    try:
        parsed = network.parse(found, path)
        size = len(building.build(found, parsed, building.Target.SM89, parsed.inputs))
        line = ["built", "", "", size]
    except (Failed, Refused) as error:
        line = [error.failure.kind.value, error.failure.op, error.failure.node, 0]
    print(json.dumps([path.stem, *line]))
"""


def cases() -> Iterator[Case]:
    yield from rknn_ops.cases()
    yield case("AffineGrid", (1, 2, 3), given={"size": whole(1, 3, 5, 7)}, opset=20)
    yield case("Attention", *[(1, 2, 6, 8)] * 3, opset=23)
    yield case("BitwiseAnd", (1, 7), (1, 7), kind=TensorProto.INT32, opset=18)
    yield case("CenterCropPad", IMAGE, given={"shape": whole(4, 4)}, axes=[2, 3], opset=18)
    yield case("Col2Im", (1, 12, 4), given={"image": whole(4, 4), "block": whole(2, 2)}, strides=[2, 2], opset=18)
    offset = np.zeros((1, 18, 3, 3), np.float32)
    yield case("DeformConv", (1, 2, 5, 5), given={"w": weights(3, 2, 3, 3), "offset": offset}, opset=19)
    yield case("MaxUnpool", (1, 1, 2, 2), given={"i": whole(5, 7, 13, 15).reshape(1, 1, 2, 2)}, kernel_shape=[2, 2])
    yield case("MaxRoiPool", IMAGE, given={"rois": np.array([[0, 0, 0, 3, 3]], np.float32)}, pooled_shape=[2, 2])
    yield case("MaxPool", IMAGE, form="dilated", kernel_shape=[2, 2], dilations=[2, 2])
    yield case("Multinomial", (1, 5), sample_size=3)
    yield case("NegativeLogLikelihoodLoss", (2, 5), given={"target": whole(1, 2)})
    yield case("SequenceConstruct", IMAGE)
    yield case("SplitToSequence", IMAGE, axis=1)
    crop = {"roi": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32), "scales": np.array([1, 1, 2, 2], np.float32)}
    mode: Mapping[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    yield case("Resize", IMAGE, form="tf_crop_and_resize", given=crop, **mode)
    rows = {"i": np.ones((1, 2, 10), np.int64), "u": weights(1, 2, 10)}
    yield case("ScatterElements", ROWS, form="add", given=rows, axis=1, reduction="add", opset=18)
    places = {"i": np.array([[0, 1], [0, 3]], np.int64), "u": weights(2, 10)}
    yield case("ScatterND", ROWS, form="add", given=places, reduction="add")
    yield case("QuantizeLinear", IMAGE, form="uint8, zero 0", given={"s": np.float32(0.01), "z": np.uint8(0)})
    yield case("QuantizeLinear", IMAGE, form="int8, zero 0", given={"s": np.float32(0.01), "z": np.int8(0)})
    scale = {"x": np.float32(0.1), "xz": np.uint8(3), "w": np.ones((3, 4, 3, 3), np.int8), "s": np.float32(0.1)}
    rest = {"wz": np.int8(0), "y": np.float32(0.2), "yz": np.uint8(0)}
    yield case("QLinearConv", IMAGE, kind=TensorProto.UINT8, given={**scale, **rest})
    yield case("Gelu", IMAGE, opset=20)
    yield case("RMSNormalization", ROWS, given={"scale": weights(10)}, opset=23)
    yield case("Swish", IMAGE, opset=24)
    yield case("Einsum", (2, 3), (3, 4), (4, 5), form="three operands", equation="ij,jk,kl->il")
    yield case("Relu", IMAGE, form="opset 6", opset=6)


def typed(each: Case) -> bytes:
    """Return the model of a case with the types of its outputs, which TensorRT asks for, as a file."""
    model = each.model()
    if each.op == "GroupNormalization":  # onnx does not infer it
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", TensorProto.FLOAT, IMAGE))
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())
