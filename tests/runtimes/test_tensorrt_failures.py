"""TensorRT's own words, recorded from TensorRT for RTX 1.7.1.116, and the kind of failure that they stand for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from runtimes.contract import Kind
from runtimes.tensorrt.failures import Told, of_building, of_parsing, of_warnings

DET = Told(code="UNSUPPORTED_NODE", text="false", op="Det", node="/a/Det", place="checkDet, onnxOpCheckers.cpp:1130")
PLUGIN = Told(
    code="INVALID_NODE",
    text='creator && "Plugin not found, are the plugin name, version, and namespace correct?"',
    op="Fancy",
    node="/odd",
)
ZERO_POINT = Told(
    code="INVALID_NODE",
    text="Assertion failed: shiftIsAllZeros(zeroPoint): Non-zero zero point is not supported.",
    op="QuantizeLinear",
    node="/q",
)
CHANNELS = Told(
    code="INVALID_NODE",
    text="Assertion failed: (nchan == -1 || kernelWeights.shape.d[1] * ngroup == nchan): Kernel weight dimension "
    "failed to broadcast to input.",
    op="Conv",
    node="/body/Conv",
)
NO_MODEL = Told(code="MODEL_DESERIALIZE_FAILED", text="Failed to parse the ONNX model.")
NO_MEMORY = Told(code="MEM_ALLOC_FAILED", text="")
NEW_CODE = Told(code="SOMETHING_NEW", text="who knows", op="Relu", node="/r")
PRE_OPSET = Told(code="UNSUPPORTED_NODE", text="Pre-opset 7 broadcasting is unsupported in this version", op="Add")

NODES: Mapping[str, str] = {"/a/Conv": "Conv", "/the/NonMaxSuppression": "NonMaxSuppression", "/att": "Attention"}
NO_RUNNERS = (
    "[tacticSupply.cpp::getSupportedFormats::48] Error Code 2: Internal Error (Assertion !layerImpls.empty() failed. "
    "/the/NonMaxSuppression_0 has no runners that implement it In getSupportedFormats)"
)
NO_KERNEL = (
    "IBuilder::buildSerializedNetwork: Error Code 1: Myelin ([myelin_graph.h:1295] MyelinCheckException: "
    "CHECK(composite_op->is_decomposable()) failed. Attention operation was not supported by a dedicated kernel.)"
)
NO_TACTIC = (
    "IBuilder::buildSerializedNetwork: Error Code 10: Internal Error (Could not find any implementation for node "
    "/a/Conv. In computeCosts at optimizer.cpp:4158)"
)
NO_PROFILE = "Network has dynamic or shape inputs, but no optimization profile has been defined."


@pytest.mark.parametrize(
    ("told", "kind", "op", "node"),
    [
        ([DET], Kind.UNSUPPORTED_OP, "Det", "/a/Det"),
        ([PLUGIN], Kind.UNSUPPORTED_OP, "Fancy", "/odd"),
        ([ZERO_POINT], Kind.UNSUPPORTED_OP, "QuantizeLinear", "/q"),
        ([CHANNELS], Kind.INVALID_MODEL, "Conv", "/body/Conv"),
        ([NO_MODEL], Kind.INVALID_MODEL, "", ""),
        ([NO_MODEL, DET], Kind.UNSUPPORTED_OP, "Det", "/a/Det"),
        ([NO_MEMORY], Kind.MEMORY, "", ""),
        ([NEW_CODE], Kind.TOOLCHAIN, "Relu", "/r"),
        ([PRE_OPSET], Kind.UNSUPPORTED_OPSET, "Add", ""),
    ],
)
def test_the_parsers_errors_give_kind_operator_and_node(told: list[Told], kind: Kind, op: str, node: str) -> None:
    failure = of_parsing(told, [])
    assert (failure.kind, failure.op, failure.node) == (kind, op, node)
    assert failure.message == "\n".join(map(str, told))


def test_all_of_the_parsers_errors_are_kept_each_with_its_node_and_place() -> None:
    failure = of_parsing(
        [DET, PLUGIN], ["ModelImporter.cpp:151: the same again", "Failed to open file: model.onnx.data"]
    )
    first, second, third = failure.message.splitlines()
    assert first == "Det '/a/Det': UNSUPPORTED_NODE: false (checkDet, onnxOpCheckers.cpp:1130)"
    assert second.startswith("Fancy '/odd': INVALID_NODE: creator")
    assert third == "Failed to open file: model.onnx.data"


@pytest.mark.parametrize(
    ("text", "kind", "op", "node"),
    [
        (NO_RUNNERS, Kind.UNSUPPORTED_OP, "NonMaxSuppression", "/the/NonMaxSuppression"),
        (NO_KERNEL, Kind.UNSUPPORTED_OP, "Attention", "/att"),
        (NO_TACTIC, Kind.UNSUPPORTED_OP, "Conv", "/a/Conv"),
        (NO_PROFILE, Kind.DYNAMIC_SHAPE, "", ""),
        ("std::bad_alloc", Kind.MEMORY, "", ""),
        ("Something nobody has seen yet", Kind.TOOLCHAIN, "", ""),
    ],
)
def test_the_builders_words_give_kind_operator_and_node(text: str, kind: Kind, op: str, node: str) -> None:
    failure = of_building([text, "and more"], NODES)
    assert (failure.kind, failure.op, failure.node) == (kind, op, node)
    assert failure.message == f"{text}\nand more"


def test_an_operator_that_several_nodes_have_names_none_of_them() -> None:
    failure = of_building([NO_KERNEL], {**NODES, "/att2": "Attention"})
    assert (failure.op, failure.node) == ("Attention", "")


def test_a_tool_that_fails_without_a_word_is_said_so() -> None:
    assert of_parsing([], []).message == "the ONNX parser failed, and said nothing"
    assert of_parsing([], ["a", "b"]).message == "a\nb"
    assert of_building([], {}).message == "TensorRT built no engine, and said nothing"


def test_most_warnings_are_harmless() -> None:
    assert of_warnings(["Unused Input: x", "Make sure input x has Int64 binding."], NODES) is None
