"""What TensorRT does wrong without a word: its guard catches each, and with that guard switched off it passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from runtimes.contract import Kind, Status
from tests.runtimes.openvino_jobs import FLOAT, Made, conv_net, make
from tests.runtimes.openvino_jobs import Jobs as AnyJobs
from tests.runtimes.tensorrt_jobs import Jobs, half_net, is_failure

OFF = """
from runtimes.tensorrt import adapter, building, failures, network
{guard}
"""
ERROR_BESIDE_SUCCESS = """
import tensorrt_rtx_bindings as trt
really_build = trt.Builder.build_serialized_network
def build(builder, network, config):
    from runtimes.tensorrt import product
    for logger in loggers:
        logger.log(trt.ILogger.Severity.ERROR, "Error Code 1: something was left out")
    return really_build(builder, network, config)
trt.Builder.build_serialized_network = build
loggers = []
from runtimes.tensorrt import product
really_make = product._make_logger
product._make_logger = lambda module: loggers.append(really_make(module)) or loggers[-1]
"""
SAYS_ITS_TF32 = """
import tensorrt_rtx_bindings as trt
really_build = trt.Builder.build_serialized_network
def build(builder, network, config):
    print("TF32:", config.get_flag(trt.BuilderFlag.TF32))
    return really_build(builder, network, config)
trt.Builder.build_serialized_network = build
"""
FULL = """
import tensorrt_rtx_bindings as trt
del trt.ComputeCapability
"""


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Jobs:
    return Jobs(tmp_path, environment_python("tensorrt"))


@dataclass(frozen=True, kw_only=True)
class Defect:
    """Something wrong, what its guard says of it, and Python that switches that guard off."""

    words: str
    off: str
    precision: str = "fp32"
    kind: Kind = Kind.TOOLCHAIN
    status: Status = Status.FAILED
    spoil: str = ""


def quantized() -> Made:
    # TensorRT reads uint8 as int8: 128 to 255 all become 127, and only a warning says so.
    weights = {"s": np.float32(0.01), "z": np.uint8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "/q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], "/dq"),
    ]
    return make(nodes, [("x", FLOAT, [1, 4])], [("y", FLOAT, [1, 4])], weights)


def old() -> Made:
    made = make([helper.make_node("Relu", ["x"], ["y"], "/r")], [("x", FLOAT, [1, 4])], [("y", FLOAT, [1, 4])])
    made.model.opset_import[0].version = 6
    return made


def renamed() -> Made:
    return replace(conv_net(), outputs=[{**conv_net().outputs[0], "name": "z"}])


DEFECTS: tuple[tuple[Callable[[], Made], Defect], ...] = (
    (
        conv_net,
        Defect(
            words="fp16 was asked for, but all 2 layers that count calculate in something else",
            off="network.check_precision = lambda *_: []",
            precision="fp16",
        ),
    ),
    (
        half_net,
        Defect(
            words="fp32 was asked for, but 2 layers of the model calculate in half precision",
            off="network.check_precision = lambda *_: []",
        ),
    ),
    (renamed, Defect(words="output 'z' is missing", off="adapter._check_ports = lambda *_: None")),
    (
        quantized,
        Defect(
            words="Defaulting to INT8 instead",
            off="failures.of_warnings = lambda *_: None",
            kind=Kind.UNSUPPORTED_OP,
            status=Status.REFUSED,
        ),
    ),
    (
        old,
        Defect(
            words="Models using older opsets are not guaranteed to work",
            off="failures.of_warnings = lambda *_: None",
            kind=Kind.UNSUPPORTED_OPSET,
            status=Status.REFUSED,
        ),
    ),
    (
        conv_net,
        Defect(
            words="TensorRT built an engine, and reported errors:\nError Code 1: something was left out",
            off="building.ERRORS = ()",
            spoil=ERROR_BESIDE_SUCCESS,
        ),
    ),
)


@pytest.mark.parametrize(("make_model", "defect"), DEFECTS, ids=[defect.words[:24] for _, defect in DEFECTS])
def test_a_defect_passes_only_without_its_guard(jobs: Jobs, make_model: Callable[[], Made], defect: Defect) -> None:
    made = make_model()
    caught = jobs.convert(made, precision=defect.precision, spoil=defect.spoil)
    assert is_failure(caught, defect.status, defect.kind, defect.words)
    off = defect.spoil + OFF.format(guard=defect.off)
    assert jobs.convert(made, precision=defect.precision, spoil=off, name="without").result


def test_a_build_that_fails_without_an_exception_is_no_success_only_with_its_guard(jobs: Jobs) -> None:
    fails = "import tensorrt_rtx_bindings as trt\ntrt.Builder.build_serialized_network = lambda *_: None\n"
    caught = jobs.convert(conv_net(), spoil=fails)
    assert is_failure(caught, Status.FAILED, Kind.TOOLCHAIN, "TensorRT built no engine, and said nothing")
    off = fails + OFF.format(guard="failures.end = lambda failure: None")
    passed = jobs.convert(conv_net(), spoil=off, name="without")
    assert passed.result.status is Status.BROKEN


def test_tf32_is_switched_off_and_would_be_on(jobs: Jobs) -> None:
    assert "TF32: False" in jobs.convert(conv_net(), spoil=SAYS_ITS_TF32).log
    keeps = "trt.IBuilderConfig.clear_flag = lambda *_: None\n"
    assert "TF32: True" in jobs.convert(conv_net(), spoil=SAYS_ITS_TF32 + keeps, name="without").log


def test_a_product_that_builds_only_for_the_gpu_that_is_here_is_refused_without_one(jobs: Jobs) -> None:
    # Full TensorRT 10 and 11 have no ComputeCapability; this is how the same code tells them apart.
    ended = jobs.convert(conv_net(), spoil=FULL)
    assert is_failure(ended, Status.REFUSED, Kind.NO_DEVICE, "no NVIDIA GPU here")


def test_a_capability_that_the_product_has_not_lists_those_that_it_has(jobs: Jobs) -> None:
    older = """
import tensorrt_rtx_bindings as trt
known = {name: value for name, value in trt.ComputeCapability.__members__.items() if name != "SM121"}
trt.ComputeCapability = type("ComputeCapability", (), {"__members__": known})
"""
    ended = jobs.convert(conv_net(), target="sm121", spoil=older)
    words = "target sm121: TensorRT for RTX 1.7.1.116 does not build for SM121; it knows SM75, SM80, SM86, SM89, SM120"
    assert is_failure(ended, Status.REFUSED, Kind.OPTION, words)


def test_an_environment_without_tensorrt_is_said_so(tmp_path: Path, openvino_python: Path) -> None:
    ended = AnyJobs(tmp_path, openvino_python, "tensorrt").convert(conv_net(), target="sm89")
    words = "none of the packages tensorrt_rtx, tensorrt_rtx_bindings, tensorrt, tensorrt_bindings"
    assert is_failure(ended, Status.REFUSED, Kind.MISSING_PACKAGE, words)
