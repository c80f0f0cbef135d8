"""Building in int8 with rknn-toolkit2, from calibration data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from runtimes.contract import Kind, Status
from runtimes.kit import tensors
from tests.runtimes.openvino_jobs import FLOAT, INT64, Ended, Made, conv_net, make, outputs, picture, reference
from tests.runtimes.quantized_models import BODY, BOTH, INPUT, quantized_net
from tests.runtimes.rknn_jobs import Jobs

PHOTO = {"photo": {"x": picture()}}
CALIBRATION = {f"cut-{seed}": {"x": picture(seed)} for seed in range(8)}


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Jobs:
    return Jobs(tmp_path, environment_python("rknn"))


def snr(ended: Ended, made: Made, feeds: dict[str, Any]) -> float:
    """Return the signal-to-noise ratio of the output y of the sample photo, in decibels."""
    wanted = reference(made, feeds)["y"]
    error = outputs(ended)["photo"]["y"] - wanted
    return float(10 * np.log10((wanted**2).sum() / (error**2).sum()))


def test_int8_is_built_from_the_calibration_data_and_stays_near(jobs: Jobs) -> None:
    made = conv_net()
    ended = jobs.convert(made, PHOTO, calibration=CALIBRATION)
    facts = ended.result.facts
    assert facts["execution"]["layer_dtypes"] == {"INT8": 2}
    assert {row["device"] for row in facts["placement"]} == {"NPU"}
    # Towards the caller it stays as in ONNX.
    assert facts["io"]["inputs"] == [{"name": "x", "shape": [1, 3, 16, 20], "dtype": "float32", "layout": "nchw"}]
    assert sorted(path.name for path in ended.layout.outputs.rglob("*") if path.is_file()) == [
        *("0.npy", "model.rknn", "tensors.json"),
    ]
    assert 25.0 < snr(ended, made, PHOTO["photo"]) < 60.0


def test_calibration_data_keeps_the_layout_that_the_model_has_even_where_its_sizes_are_equal(jobs: Jobs) -> None:
    # Only channel 0 is above zero. Were channels taken for columns, the others would seem to reach 1000.
    weights = np.array([1, 1000, 1000, 1000], np.float32).reshape(4, 1, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "/conv", group=4),
        helper.make_node("Relu", ["c"], ["y"], "/relu"),
    ]
    made = make(nodes, [("x", FLOAT, [1, 4, 4, 4])], [("y", FLOAT, [1, 4, 4, 4])], {"w": weights})

    def signed(seed: int) -> tensors.Array:
        return picture(seed, (1, 4, 4, 4)) * np.array([1, -1, -1, -1], np.float32).reshape(1, 4, 1, 1)

    feeds = {"x": signed(0)}
    ended = jobs.convert(made, {"photo": feeds}, calibration={str(seed): {"x": signed(seed)} for seed in range(4)})
    assert snr(ended, made, feeds) > 30.0
    mixed = {str(seed): {"x": signed(seed).transpose(0, 3, 1, 2).copy()} for seed in range(4)}
    assert snr(jobs.convert(made, {"photo": feeds}, calibration=mixed, name="mixed"), made, feeds) < 5.0


def test_calibration_data_on_another_scale_is_refused_and_without_that_guard_the_numbers_are_wrong(jobs: Jobs) -> None:
    made = conv_net()
    bytes_ = {name: {"x": feeds["x"] * 255} for name, feeds in CALIBRATION.items()}
    caught = jobs.convert(made, PHOTO, calibration=bytes_)
    assert (caught.result.status, caught.failure.kind) == (Status.REFUSED, Kind.OPTION)
    assert "calibration: input 'x' reaches 254." in caught.failure.message
    passed = jobs.convert(made, PHOTO, calibration=bytes_, without="_check_ranges", name="without")
    # The judge asks 20 dB of int8.
    assert snr(passed, made, PHOTO["photo"]) < 10.0


def test_several_inputs_and_tokens_are_calibrated_by_name(jobs: Jobs) -> None:
    table = np.random.default_rng(3).normal(0, 1, (50, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["words"], "/embed"),
        helper.make_node("MatMul", ["a", "words"], ["y"], "/match"),
    ]
    # The graph's order is not the alphabet's.
    inputs = [("tokens", INT64, [6]), ("a", FLOAT, [5, 6])]
    made = make(nodes, inputs, [("y", FLOAT, [5, 4])], {"table": table})

    def sample(seed: int) -> dict[str, Any]:
        return {"tokens": np.random.default_rng(seed).integers(0, 50, 6), "a": picture(seed, (5, 6))}

    calibration = {str(seed): sample(seed) for seed in range(16)}
    ended = jobs.convert(made, {"photo": sample(1)}, calibration=calibration)
    assert snr(ended, made, sample(1)) > 25.0


def test_a_chip_that_cannot_take_it_in_int8_crashes_the_toolkit_and_its_words_are_kept(jobs: Jobs) -> None:
    ended = jobs.convert(conv_net(), PHOTO, calibration=CALIBRATION, target="rk2118")
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.CRASH)
    assert "Meet unsupported conv" in ended.failure.message


def test_calibration_data_that_does_not_fit_the_model_is_misuse(jobs: Jobs) -> None:
    turned = {"a": {"x": picture().transpose(0, 2, 3, 1)}}
    ended = jobs.convert(conv_net(), PHOTO, calibration=turned)
    assert ended.result.status is Status.MISUSED
    assert "in/calibration: 'a' does not fit the model" in ended.failure.message


def test_floats_that_the_model_itself_has_quantised_are_no_floats(jobs: Jobs) -> None:
    ended = jobs.convert(quantized_net(BOTH), PHOTO)
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert "fp16 was asked for, but all 2 convolutions and matrix products calculate in int8" in ended.failure.message
    in_part = jobs.convert(quantized_net([BODY]), PHOTO, name="part")
    assert in_part.result.facts["notes"] == ["2 of 3 layers calculate in int8, though fp16 was asked for"]


def test_a_model_that_is_quantised_already_is_built_in_int8(jobs: Jobs) -> None:
    made = quantized_net(BOTH)
    ended = jobs.convert(made, PHOTO, calibration=CALIBRATION)
    assert ended.result.facts["execution"]["layer_dtypes"] == {"INT8": 2}
    assert snr(ended, made, PHOTO["photo"]) > 20.0
    assert ended.result.facts["notes"] == ["the scales are the model's own; the calibration data was not used"]
    # With pairs around its input alone it is no int8, and the toolkit does not make it one.
    refused = jobs.convert(quantized_net([INPUT]), PHOTO, calibration=CALIBRATION, name="input")
    assert "If a quantized model has been import" in refused.failure.message
