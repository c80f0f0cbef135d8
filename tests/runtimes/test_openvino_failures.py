"""OpenVINO's own words, recorded from OpenVINO 2026.4.1, and the kind of failure that they stand for."""

from __future__ import annotations

import pytest

from runtimes.contract import Kind
from runtimes.openvino.failures import describe

HEAD = """Check 'false' failed at src/frontends/common_translators/src/unconverted_ops_report.cpp:151:
FrontEnd API failed with OpConversionFailure:
Model wasn't fully converted."""
NO_RULE = f"{HEAD}\nSummary:\n-- No conversion rule found for operations: com.acme.FancyOp, Det-17\n"
NO_RULE_STANDARD = f"{HEAD}\nSummary:\n-- No conversion rule found for operations: Det-17\n"
NO_VARIANT = f"""{HEAD} Failed operations detailed log:
-- Resize-17 with a message:
[ONNX Frontend] Conversion failed for Resize-17
Check '(false)' failed at src/frontends/onnx/frontend/src/op/resize.cpp:76:
While validating ONNX node '<Node(Resize): /up/Resize_output_0>':
weird - this type of interpolation mode is not supported. Choose one of the following modes: cubic, linear, nearest

Summary:
-- Conversion is failed for: Resize-17
"""
WRONG_GRAPH = f"""{HEAD} Failed operations detailed log:
-- Conv-17 with a message:
[ONNX Frontend] Conversion failed for Conv-17
While validating ONNX node '<Node(Conv): y>': Check 'data_rank.is_dynamic()' failed:
Data batch channel count (3) does not match filter input channel count (5).

Summary:
-- Conversion is failed for: Conv-17
"""
NO_DATA = """Check 'false' failed at src/frontends/common/src/frontend.cpp:47:
Loading input model
Invalid usage of method for externally stored data in file (model.onnx.data, offset: 0, data_length: 262144)
"""
NO_KERNEL = "Exception from src/inference/src/cpp/core.cpp:117:\nUnsupported operation of type: Foo name: /head/Foo_3\n"


@pytest.mark.parametrize(
    ("text", "kind", "op", "node"),
    [
        (NO_RULE, Kind.UNSUPPORTED_OP, "com.acme.FancyOp", ""),
        (NO_RULE_STANDARD, Kind.UNSUPPORTED_OP, "Det", ""),
        (NO_VARIANT, Kind.UNSUPPORTED_OP, "Resize", "/up/Resize_output_0"),
        (WRONG_GRAPH, Kind.INVALID_MODEL, "Conv", "y"),
        (NO_KERNEL, Kind.UNSUPPORTED_OP, "Foo", "/head/Foo_3"),
        (NO_DATA, Kind.INVALID_MODEL, "", ""),
        ("Cannot recognize input model.", Kind.INVALID_MODEL, "", ""),
        ("basic_ios::clear: iostream error", Kind.DISK, "", ""),
        ("Something nobody has seen yet", Kind.TOOLCHAIN, "", ""),
    ],
)
def test_the_vendors_words_give_kind_operator_and_node(text: str, kind: Kind, op: str, node: str) -> None:
    failure = describe(RuntimeError(text))
    assert (failure.kind, failure.op, failure.node) == (kind, op, node)
    assert failure.message == text.strip()


def test_an_exception_without_words_is_named() -> None:
    assert describe(RuntimeError()).message == "RuntimeError"
