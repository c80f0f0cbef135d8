"""Quantising with NNCF: int8 that comes near, floats given back where it does not, and nothing that only looks so."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from runtimes.contract import Kind, Status, Step
from runtimes.kit import tensors
from tests.runtimes.openvino_jobs import FLOAT, INT64, Ended, Jobs, Made, conv_net, make, outputs, picture, reference

pytestmark = pytest.mark.toolchain

SEEN = {f"seen-{index}": {"x": picture(index)} for index in range(8)}
NEW = {"new": {"x": picture(9)}}


class Quantizes(Jobs):
    """Jobs of the adapter that quantise too."""

    def quantize(
        self,
        made: Made,
        samples: Mapping[str, Mapping[str, Any]] = SEEN,
        *,
        precision: str = "int8",
        name: str = "quantize",
        target: str = "cpu",
        spoil: str = "",
        without: str = "",
    ) -> Ended:
        model, calibration = (self.root / f"{name}-{part}".replace("/", "-") for part in ("model", "calibration"))
        model.mkdir()
        onnx.save_model(made.model, model / "model.onnx")
        tensors.save_samples(calibration, samples)
        options = {"precision": precision, "target": target, "inputs": made.inputs, "outputs": made.outputs}
        inputs = {"model": model, "calibration": calibration}
        return self.job(Step.QUANTIZE, inputs, options, name, spoil=spoil, without=without)


@pytest.fixture
def jobs(tmp_path: Path, openvino_python: Path) -> Quantizes:
    return Quantizes(tmp_path, openvino_python)


def snr(found: Any, wanted: Any) -> float:
    return 10 * math.log10(np.square(wanted).mean() / np.square(found - wanted, dtype=np.float64).mean())


def uneven() -> Made:
    """A network whose first convolution makes one channel 2000 times as large as the others, which the second ignores.

    One scale for all of them leaves the others nothing: the second convolution is better off with floats.
    """
    generator = np.random.default_rng(7)
    first = generator.normal(0, 0.2, (8, 3, 3, 3)).astype(np.float32)
    second = generator.normal(0, 0.2, (4, 8, 3, 3)).astype(np.float32)
    first[0] *= 2000
    second[:, 0] = 0
    weights = {"w1": first, "w2": second, "w3": generator.normal(0, 0.2, (4, 4, 1, 1)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "/first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w2"], ["b"], "/second", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["b", "w3"], ["y"], "/third"),
    ]
    return make(nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [1, 4, 16, 20])], weights)


def test_whole_numbers_come_near_and_take_less_room(jobs: Quantizes) -> None:
    made = conv_net()
    built = jobs.quantize(made)
    facts = built.result.facts
    assert facts["notes"] == []
    assert {row["device"] for row in facts["placement"]} == {"CPU"}
    assert [row["op"] for row in facts["placement"]].count("FakeQuantize") == 2
    # How a weight is stored is no operator.
    assert "Convert" not in {row["op"] for row in facts["placement"]}
    assert [(port["name"], port["dtype"]) for port in facts["io"]["inputs"]] == [("x", "float32")]
    assert built.result.versions["nncf"] == "3.4.0"
    wide = jobs.convert(made, name="fp16")
    sizes = [(ended.artifact / "model.bin").stat().st_size for ended in (built, wide)]
    assert sizes[0] < sizes[1]
    ran = jobs.run(built.artifact, NEW)
    assert 25 < snr(outputs(ran)["new"]["y"], reference(made, NEW["new"])["y"]) < 60
    assert any(kernel.lower().endswith("i8") for kernel in ran.result.facts["execution"]["kernels"])


def test_equal_models_and_samples_give_equal_bytes(jobs: Quantizes) -> None:
    first, second = (jobs.quantize(conv_net(), name=name) for name in ("first", "a longer/second"))
    assert first.hashes() == second.hashes()


def test_an_operator_that_whole_numbers_spoil_gets_its_floats_back(jobs: Quantizes) -> None:
    made = uneven()
    wanted = reference(made, NEW["new"])["y"]
    built = jobs.quantize(made)
    assert built.result.facts["notes"] == ["2 of 3 convolutions and matrix products stay in floating point"]
    assert snr(outputs(jobs.run(built.artifact, NEW))["new"]["y"], wanted) > 20
    anything = "from runtimes.openvino import quantization\nquantization.MOST_LOST = 1e9"
    plain = jobs.quantize(made, name="plain", spoil=anything)
    assert plain.result.facts["notes"] == []
    assert snr(outputs(jobs.run(plain.artifact, NEW, name="run-plain"))["new"]["y"], wanted) < 10


def test_a_model_too_large_to_try_each_operator_is_quantised_plainly_and_that_is_noted(jobs: Quantizes) -> None:
    small = "from runtimes.openvino import quantization\nquantization.MOST_PRODUCTS = 10**5"
    built = jobs.quantize(uneven(), spoil=small)
    assert built.result.facts["notes"] == [
        "the model is too large for NNCF's accuracy control: no operator got its floats back"
    ]
    assert [row["op"] for row in built.result.facts["placement"]].count("FakeQuantize") == 3


def test_a_size_that_is_known_only_when_it_runs_is_no_obstacle(jobs: Quantizes) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], "/product"),
        helper.make_node("NonZero", ["y"], ["places"], "/places"),
        helper.make_node("Transpose", ["places"], ["rows"], "/rows", perm=[1, 0]),
        helper.make_node("Cast", ["rows"], ["floats"], "/floats", to=FLOAT),
        helper.make_node("MatMul", ["floats", "v"], ["z"], "/second"),
    ]
    weights = {"w": np.eye(6, dtype=np.float32) + 0.1, "v": np.ones((2, 4), np.float32)}
    made = make(nodes, [("x", FLOAT, [5, 6])], [("y", FLOAT, [5, 6]), ("z", FLOAT, ["n", 4])], weights)
    samples = {str(index): {"x": picture(index, (5, 6))} for index in range(4)}
    asked = replace(made, outputs=[made.outputs[0], {**made.outputs[1], "shape": [30, 4]}])
    built = jobs.quantize(asked, samples)
    assert built.result, built.log
    assert "MatMul" in {row["op"] for row in built.result.facts["placement"]}


def test_one_sample_is_both_calibrated_on_and_tried_on(jobs: Quantizes) -> None:
    built = jobs.quantize(conv_net(), {"only": {"x": picture()}})
    assert snr(outputs(jobs.run(built.artifact, NEW))["new"]["y"], reference(conv_net(), NEW["new"])["y"]) > 20


def test_whole_numbers_among_inputs_and_outputs_stay_what_they_are(jobs: Quantizes) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["rows"], "/rows"),
        helper.make_node("MatMul", ["rows", "w"], ["y"], "/product"),
        helper.make_node("ArgMax", ["y"], ["best"], "/best", axis=1, keepdims=0),
    ]
    generator = np.random.default_rng(3)
    weights = {name: generator.normal(size=(16, 16)).astype(np.float32) for name in ("table", "w")}
    made = make(nodes, [("tokens", INT64, [6])], [("y", FLOAT, [6, 16]), ("best", INT64, [6])], weights)
    samples = {str(index): {"tokens": generator.integers(0, 16, 6)} for index in range(8)}
    built = jobs.quantize(made, samples)
    assert [port["dtype"] for port in built.result.facts["io"]["outputs"]] == ["float32", "int64"]
    found = outputs(jobs.run(built.artifact, samples))["0"]
    wanted = reference(made, samples["0"])
    assert snr(found["y"], wanted["y"]) > 25
    assert found["best"].dtype == np.int64


def test_a_model_for_a_device_that_is_not_here_is_quantised_for_it(jobs: Quantizes) -> None:
    built = jobs.quantize(conv_net(), target="npu")
    assert built.result.facts["placement"] == []
    assert "OpenVINO sees no NPU here" in built.result.facts["notes"][0]


@pytest.mark.parametrize(
    ("made", "spoil", "count"),
    [
        pytest.param(
            conv_net, "import nncf\nnncf.quantize_with_accuracy_control = lambda model, **_: model", 2, id="unchanged"
        ),
        pytest.param(
            lambda: make([helper.make_node("Abs", ["x"], ["y"], "/a")], [("x", FLOAT, [2])], [("y", FLOAT, [2])]),
            "",
            0,
            id="nothing to quantise",
        ),
    ],
)
def test_an_artefact_that_is_not_quantised_is_none(
    jobs: Quantizes, made: Callable[[], Made], spoil: str, count: int
) -> None:
    samples = SEEN if count else {str(index): {"x": picture(index, (2,))} for index in range(4)}
    ended = jobs.quantize(made(), samples, spoil=spoil)
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert f"NNCF quantised none of the {count} convolutions" in ended.failure.message
    assert jobs.quantize(made(), samples, spoil=spoil, without="_check_quantized", name="without").result


@pytest.mark.parametrize("kind", ["RuntimeError", "ZeroDivisionError", "nncf.errors.ValidationError"])
def test_what_nncf_raises_is_a_failure_in_its_words(jobs: Quantizes, kind: str) -> None:
    gives_up = f"""
import nncf
def gives_up(*_, **__):
    raise {kind}("no rule for this graph")
nncf.quantize_with_accuracy_control = gives_up
"""
    ended = jobs.quantize(conv_net(), spoil=gives_up)
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert ended.failure.message == f"nncf 3.4.0: {kind.rpartition('.')[2]}: no rule for this graph"


def test_samples_that_do_not_fit_the_model_are_misuse(jobs: Quantizes) -> None:
    ended = jobs.quantize(conv_net(), {"a": {"z": picture()}})
    assert ended.result.status is Status.MISUSED
    assert "in/calibration: 'a' does not fit the model: input 'x' is missing" in ended.failure.message


def test_a_dynamic_model_is_refused(jobs: Quantizes) -> None:
    ended = jobs.quantize(replace(conv_net("n"), inputs=conv_net().inputs, outputs=conv_net().outputs))
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, Kind.DYNAMIC_SHAPE)


def test_each_precision_has_its_step(jobs: Quantizes) -> None:
    quantized = jobs.quantize(conv_net(), precision="fp16")
    converted = jobs.convert(conv_net(), precision="int8")
    assert quantized.result.status is converted.result.status is Status.MISUSED
    assert "precision fp16 needs no calibration; ask for convert" in quantized.failure.message
    assert "precision int8 needs the step quantize" in converted.failure.message


def test_nncf_has_nobody_to_tell(jobs: Quantizes) -> None:
    lines = jobs.program("from nncf.telemetry import telemetry\nprint(type(telemetry).__name__)")
    assert lines[-1] == "MagicMock"
