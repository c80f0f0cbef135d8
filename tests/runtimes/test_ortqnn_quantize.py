"""Quantised context binaries for the HTP: built from calibration samples, run on the emulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from runtimes.contract import Kind, Status
from tests.runtimes.openvino_jobs import FLOAT, conv_net, make, outputs, picture, reference
from tests.runtimes.ortqnn_jobs import QnnJobs, einsums, gelu, snr, typed, upscaler
from tests.runtimes.quantized_models import BODY, INPUT, quantized_net

SEEN = {f"seen-{index}": {"x": picture(index)} for index in range(4)}
NEW = {"new": {"x": picture(9)}}


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> QnnJobs:
    return QnnJobs(tmp_path, environment_python("ortqnn"))


@pytest.mark.parametrize("target", ["sm8650", "qcm6490"])
def test_whole_numbers_are_near_and_more_bits_are_nearer(jobs: QnnJobs, target: str) -> None:
    made = conv_net()
    wanted = reference(made, NEW["new"])["y"]
    ratios = []
    for precision in ("int8", "a16w8"):
        built = jobs.quantize(made, SEEN, precision=precision, target=target, name=precision)
        assert {row["device"] for row in built.result.facts["placement"]} == {"HTP"}
        assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= {row["op"] for row in built.result.facts["placement"]}
        assert [port["dtype"] for port in built.result.facts["io"]["inputs"]] == ["float32"]
        ran = jobs.run(built.artifact, NEW, precision=precision, target=target, name=f"run-{precision}")
        ratios.append(snr(outputs(ran)["new"]["y"], wanted))
    assert 20 < ratios[0] < ratios[1]


@pytest.mark.parametrize(
    ("operator", "weight", "made_shape", "attributes"),
    [
        ("Conv", (6, 1, 3, 3), [1, 6, 8, 10], {"group": 6, "pads": [1, 1, 1, 1]}),
        ("ConvTranspose", (6, 4, 2, 2), [1, 4, 16, 20], {"strides": [2, 2]}),
        ("ConvTranspose", (6, 2, 2, 2), [1, 4, 16, 20], {"strides": [2, 2], "group": 2}),
        ("MatMul", (10, 7), [1, 6, 8, 7], {}),
        ("Gemm", (480, 5), [1, 5], {}),
        ("Gemm", (5, 480), [1, 5], {"transB": 1}),
    ],
)
def test_whatever_has_weights_is_taken_with_them_quantised(
    jobs: QnnJobs, operator: str, weight: tuple[int, ...], made_shape: list[int], attributes: dict[str, Any]
) -> None:
    flat = operator == "Gemm"
    nodes = [
        *([helper.make_node("Flatten", ["x"], ["f"], "/flat")] if flat else []),
        helper.make_node(operator, ["f" if flat else "x", "w"], ["y"], "/weighted", **attributes),
    ]
    weights = {"w": np.random.default_rng(5).normal(0, 0.2, weight).astype(np.float32)}
    made = make(nodes, [("x", FLOAT, [1, 6, 8, 10])], [("y", FLOAT, made_shape)], weights)
    samples = {str(seed): {"x": picture(seed, (1, 6, 8, 10))} for seed in range(4)}
    built = jobs.quantize(made, samples)
    assert built.result, built.log[-2000:]
    found = outputs(jobs.run(built.artifact, samples, precision="int8"))["0"]["y"]
    assert snr(found, reference(made, samples["0"])["y"]) > 25


def test_equal_models_and_samples_give_equal_bytes(jobs: QnnJobs) -> None:
    first, second = (jobs.quantize(conv_net(), SEEN, name=name) for name in ("first", "a longer second"))
    assert first.hashes() == second.hashes()


def test_constants_that_are_nodes_are_not_quantised_only_because_they_are_folded_first(jobs: QnnJobs) -> None:
    made = upscaler()
    built = jobs.quantize(made, SEEN)
    found = outputs(jobs.run(built.artifact, NEW, precision="int8"))["new"]["y"]
    assert snr(found, reference(made, NEW["new"])["y"]) > 20
    unfolded = "from runtimes.kit import quantization\nquantization._fold = lambda source, target: source"
    ended = jobs.quantize(made, SEEN, spoil=unfolded, name="unfolded")
    assert ended.result.status is Status.REFUSED
    assert ended.failure.op == "Resize"


def test_a_gelu_of_several_nodes_is_quantised_only_because_they_are_joined_first(jobs: QnnJobs) -> None:
    made = gelu()
    # With metadata as exporters write it, which the vendor's own search for such nodes does not bear.
    made.model.metadata_props.add(key="exporter", value="of a kind")
    built = jobs.quantize(made, SEEN)
    assert "Gelu" in [row["op"] for row in built.result.facts["placement"]]
    found = outputs(jobs.run(built.artifact, NEW, precision="int8"))["new"]["y"]
    assert snr(found, reference(made, NEW["new"])["y"]) > 20
    apart = "from runtimes.kit import quantization\nquantization._join = lambda source, target, *, large: source"
    assert jobs.quantize(made, SEEN, spoil=apart, name="apart").failure.op == "Erf"


def test_whole_numbers_among_the_inputs_stay_what_they_are(jobs: QnnJobs) -> None:
    made = typed()
    generator = np.random.default_rng(4)
    samples = {
        str(index): {"tokens": generator.integers(0, 7, (1, 5)), "keep": generator.random((1, 5, 1)) < 0.5}
        for index in range(3)
    }
    built = jobs.quantize(made, samples)
    assert [port["dtype"] for port in built.result.facts["io"]["inputs"]] == ["int64", "bool"]
    found = outputs(jobs.run(built.artifact, samples, precision="int8"))
    assert all(snr(found[name]["y"], reference(made, samples[name])["y"]) > 20 for name in samples)


def test_an_operator_that_is_not_taken_is_named_as_in_the_model(jobs: QnnJobs) -> None:
    samples = {"a": {"x": picture(1, (1, 2, 3, 4))}}
    ended = jobs.quantize(einsums(), samples)
    assert (ended.failure.kind, ended.failure.op) == (Kind.UNSUPPORTED_OP, "Einsum")
    assert "Einsum '/one'" in ended.failure.message
    assert "Einsum '/two'" in ended.failure.message


def test_samples_that_do_not_fit_the_model_are_misuse(jobs: QnnJobs) -> None:
    ended = jobs.quantize(conv_net(), {"a": {"z": picture()}})
    assert ended.result.status is Status.MISUSED
    assert "in/calibration: 'a' does not fit the model: input 'x' is missing" in ended.failure.message


def test_a_dynamic_model_is_refused(jobs: QnnJobs) -> None:
    made = replace(conv_net("n"), inputs=conv_net().inputs, outputs=conv_net().outputs)
    ended = jobs.quantize(made, SEEN)
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, Kind.DYNAMIC_SHAPE)


def test_a_float_precision_is_not_quantised_to(jobs: QnnJobs) -> None:
    ended = jobs.quantize(conv_net(), SEEN, precision="fp16")
    assert ended.result.status is Status.MISUSED
    assert "precision fp16 needs no calibration" in ended.failure.message


def test_what_the_quantiser_raises_is_a_failure_in_its_words(jobs: QnnJobs) -> None:
    gives_up = """
import onnxruntime.quantization
def quantize(*_, **__):
    raise TypeError("unhashable type: 'list'")
onnxruntime.quantization.quantize_static = quantize
"""
    ended = jobs.quantize(conv_net(), SEEN, spoil=gives_up)
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert ended.failure.message == "onnxruntime.quantization: TypeError: unhashable type: 'list'"


def test_weights_beside_the_model_are_found(jobs: QnnJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = jobs.quantize(conv_net(), SEEN, name="inside")

    def beside(model: onnx.ModelProto, path: Path) -> None:
        onnx.save(model, path, save_as_external_data=True, location="model.onnx.data", size_threshold=0)

    monkeypatch.setattr(onnx, "save_model", beside)
    assert jobs.quantize(conv_net(), SEEN, name="beside").hashes() == inside.hashes()


def test_a_model_that_is_quantised_already_keeps_its_own_scales(jobs: QnnJobs) -> None:
    nodes = []
    for at, (value, end) in enumerate([("x", "a"), ("r", "y")]):
        nodes.append(helper.make_node("QuantizeLinear", [value, "scale", "zero"], [f"q{at}"], f"/q{at}"))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{at}", "scale", "zero"], [end], f"/dq{at}"))
    nodes.insert(2, helper.make_node("Relu", ["a"], ["r"], "/relu"))
    weights = {"scale": np.float32(0.25), "zero": np.uint8(128)}
    made = make(nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [1, 3, 16, 20])], weights)
    built = jobs.quantize(made, SEEN)
    assert built.result, built.log[-2000:]
    events = built.layout.events
    assert not events.is_file() or "quantizing" not in events.read_text(encoding="utf-8")
    found = outputs(jobs.run(built.artifact, NEW, precision="int8"))["new"]["y"]
    # As coarse as its scale says, not as what was seen; what lies between two steps may go either way.
    assert set(np.unique(found)) <= {0.0, 0.25, 0.5, 0.75, 1.0}
    np.testing.assert_allclose(found, reference(made, NEW["new"])["y"], atol=0.25)


def test_a_model_whose_input_alone_is_quantised_is_no_int8_and_is_refused(jobs: QnnJobs) -> None:
    ended = jobs.quantize(quantized_net([INPUT]), SEEN)
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, Kind.OPTION)
    assert "holds 1 QuantizeLinear, but none of its 2 convolutions" in ended.failure.message
    # The vendor's quantiser puts pairs around the pair, and then the chip does not take it.
    blind = "from runtimes.kit import quantization\nquantization._check_floats = lambda source, *, wide: None"
    assert jobs.quantize(quantized_net([INPUT]), SEEN, spoil=blind, name="blind").failure.op == "DequantizeLinear"


def test_a_model_that_is_quantised_in_part_says_what_is_not(jobs: QnnJobs) -> None:
    built = jobs.quantize(quantized_net([BODY]), SEEN)
    assert built.result, built.log[-2000:]
    assert "1 of 2 convolutions and matrix products calculate in float" in built.result.facts["notes"]
