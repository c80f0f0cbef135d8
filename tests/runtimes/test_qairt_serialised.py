"""Without an SDK: a real container, and what the serialiser refuses."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from runtimes.contract import Kind, Status, Step
from tests.runtimes.openvino_jobs import FLOAT, Made, conv_net, make, one, picture
from tests.runtimes.qairt_jobs import Jobs, tokens, without
from tests.runtimes.quantized_models import BODY, BOTH, quantized_net

pytestmark = pytest.mark.toolchain
OPEN_SIZES = """
from runtimes.kit import qualcomm
assert callable(qualcomm.check_static)
qualcomm.check_static = lambda _: None
"""
"""Switches off the guard."""
CALIBRATION = {f"c{seed}": {"x": picture(seed)} for seed in range(3)}


@pytest.fixture
def jobs(tmp_path: Path, qairt_python: Path) -> Jobs:
    return Jobs(tmp_path, qairt_python)


def weights_bytes(container: Path) -> int:
    with zipfile.ZipFile(container) as archive:
        return archive.getinfo("model.params.bin").file_size


@pytest.mark.parametrize("target", ["sm8650", "sc8380xp", "htp"])
def test_a_container_is_made_and_says_that_there_was_no_sdk(jobs: Jobs, target: str) -> None:
    ended = jobs.convert(conv_net(), target=target)
    assert {path.name for path in ended.artifact.iterdir()} == {"model.dlc", "interface.json"}
    facts = ended.result.facts
    assert "QAIRT_SDK_ROOT names no SDK" in facts["notes"][0]
    assert "f32" in facts["notes"][-1]
    assert {row["device"] for row in facts["placement"]} == {"HTP"}
    # Of a chip the provider's validator has asked for every node.
    assert any("where it runs is seen only" in note for note in facts["notes"]) is (target == "htp")
    assert {"/body/Conv", "/body/Relu", "/head/Conv"} <= {row["node"] for row in facts["placement"]}
    assert [port["shape"] for port in facts["io"]["inputs"]] == [[1, 3, 16, 20]]
    assert weights_bytes(ended.artifact / "model.dlc") > 4 * (8 * 3 * 9 + 4 * 8 * 9)


@pytest.mark.parametrize("precision", ["int8", "a16w8"])
def test_calibration_makes_a_container_whose_weights_have_eight_bits(jobs: Jobs, precision: str) -> None:
    floats = jobs.convert(conv_net(), name="floats")
    ended = jobs.convert(conv_net(), precision=precision, calibration=CALIBRATION)
    small, large = (weights_bytes(each.artifact / "model.dlc") for each in (ended, floats))
    assert small < large / 3
    assert [port["dtype"] for port in ended.result.facts["io"]["inputs"]] == ["float32"]


@pytest.mark.parametrize(("around", "said"), [(BOTH, []), ((BODY,), ["1 of 2"])])
def test_a_model_that_is_quantised_already_is_not_quantised_again(
    jobs: Jobs, around: tuple[str, ...], said: list[str]
) -> None:
    ended = jobs.convert(quantized_net(around), precision="int8", calibration=CALIBRATION)
    assert ended.result, ended.log[-2000:]
    events = ended.layout.events.read_text(encoding="utf-8")
    assert "writing the container" in events
    assert "quantising" not in events
    notes = ended.result.facts["notes"]
    assert [note[:6] for note in notes if "calculate in float" in note] == said


def test_running_it_here_is_untried_and_names_the_variable(jobs: Jobs) -> None:
    artifact = jobs.convert(conv_net()).artifact
    ended = jobs.run(artifact, {"a": {"x": picture()}})
    assert ended.result.status is Status.REFUSED
    assert ended.failure.kind is Kind.NO_DEVICE
    assert "QAIRT_SDK_ROOT" in ended.failure.message


def test_whole_numbers_travel(jobs: Jobs) -> None:
    io = jobs.convert(tokens()).result.facts["io"]
    assert [(port["name"], port["dtype"]) for port in io["outputs"]] == [("y", "float32"), ("/next", "int64")]


@pytest.mark.parametrize("op", ["Det", "Trilu", "Erf"])
def test_an_operator_that_is_not_taken_is_named_with_its_node(jobs: Jobs, op: str) -> None:
    made = one("Det") if op == "Det" else one(op)
    if op == "Det":
        made.model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [2]))
        made.outputs[0]["shape"] = [2]
    failure = jobs.convert(made).failure
    assert (failure.kind, failure.op, failure.node) == (Kind.UNSUPPORTED_OP, op, "/odd")
    assert "explicitly disabled" in failure.message


def test_a_chip_takes_less_than_the_serialiser_alone(jobs: Jobs) -> None:
    made = deep()
    assert jobs.convert(made, target="htp", name="serialiser").result
    failure = jobs.convert(made, target="sm8650", name="chip").failure
    assert (failure.kind, failure.op) == (Kind.UNSUPPORTED_OP, "MatMul")


def deep() -> Made:
    shape = (1, 1, 1, 2, 4, 4)
    node = helper.make_node("MatMul", ["x", "x"], ["y"], "/product")
    return make([node], [("x", FLOAT, shape)], [("y", FLOAT, shape)])


def test_a_chip_without_floats_refuses_every_node_and_takes_whole_numbers(jobs: Jobs) -> None:
    failure = jobs.convert(conv_net(), target="qcm6490", name="floats").failure
    assert failure.kind is Kind.UNSUPPORTED_OP
    assert jobs.convert(conv_net(), target="qcm6490", precision="int8", calibration=CALIBRATION).result


def test_encodings_are_refused_without_an_sdk_and_not_passed_over(jobs: Jobs, tmp_path: Path) -> None:
    ranges = tmp_path / "model.encodings"
    ranges.write_text('{"version": "1.0.0"}')
    ended = jobs.convert(conv_net(), precision="int8", calibration=CALIBRATION, encodings=ranges)
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, Kind.OPTION)
    assert "in/encodings: QAIRT_SDK_ROOT names no SDK" in ended.failure.message
    assert "leave the encodings out" in ended.failure.hint


def test_an_open_size_is_refused_before_anything_is_tried(jobs: Jobs) -> None:
    made = replace(conv_net("n"), inputs=conv_net().inputs, outputs=conv_net().outputs)
    ended = jobs.convert(made)
    assert ended.result.status is Status.REFUSED
    assert ended.failure.kind is Kind.DYNAMIC_SHAPE
    assert "'x' has the shape [n, 3, 16, 20]" in ended.failure.message
    # Without this guard the toolchain calls the first operator unsupported, which a repair would then look for.
    blind = jobs.convert(made, name="blind", program=OPEN_SIZES)
    assert blind.failure.kind is Kind.UNSUPPORTED_OP


def test_a_file_that_is_no_onnx_is_a_failure(jobs: Jobs) -> None:
    made, folder = conv_net(), jobs.root / "spoilt"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"PK\x03\x04 a zip")
    options = {"precision": "fp16", "target": "sm8650", "inputs": made.inputs, "outputs": made.outputs}
    ended = jobs.job(Step.CONVERT, {"model": folder}, options, "convert")
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.INVALID_MODEL)
    assert ended.failure.message.startswith("model.onnx: ")


def test_weights_that_are_missing_beside_the_model_are_a_failure(jobs: Jobs) -> None:
    made, folder = conv_net(), jobs.root / "torn"
    folder.mkdir()
    path = folder / "model.onnx"
    onnx.save_model(made.model, path, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    (folder / "model.onnx.data").unlink()
    options = {"precision": "fp16", "target": "sm8650", "inputs": made.inputs, "outputs": made.outputs}
    ended = jobs.job(Step.CONVERT, {"model": folder}, options, "convert")
    assert ended.result.status is Status.FAILED
    assert "model.onnx.data" in ended.failure.message


def test_a_graph_in_parts_is_no_artefact(jobs: Jobs) -> None:
    made = one("Mish")
    made.model.opset_import[0].version = 18
    assert "3 containers" in jobs.convert(made).failure.message


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        ("made.write_bytes(b'')", "no container"),
        ("made.unlink()", "0 containers"),
        ("made.write_bytes(made.read_bytes().replace(b'model', b'nodel'))", "but no graph"),
        ("made.write_bytes(made.read_bytes().replace(b'\\x01\\0\\0\\0y\\0', b'\\x01\\0\\0\\0z\\0'))", "called 'y'"),
    ],
)
def test_a_container_that_is_not_whole_is_found_out(jobs: Jobs, spoilt: str, words: str) -> None:
    program = f"""
from runtimes.kit import qualcomm
really_open = qualcomm.open_session
def open_session(*arguments):
    import pathlib
    opened = really_open(*arguments)
    (made,) = pathlib.Path.cwd().glob("*.dlc")
    {spoilt}
    return opened
qualcomm.open_session = open_session
"""
    assert words in jobs.convert(conv_net(), program=program).failure.message
    if "unlink" not in spoilt:
        off = program + without("ir", "check")
        assert jobs.convert(conv_net(), name="off", program=off).result


def test_calibration_data_that_does_not_fit_is_the_quantizers_failure(jobs: Jobs) -> None:
    wrong = {"c": {"x": np.zeros((1, 3, 4, 4), dtype=np.float32)}}
    ended = jobs.convert(conv_net(), precision="int8", calibration=wrong)
    assert ended.failure.kind is Kind.TOOLCHAIN
    assert "Got invalid dimensions for input: x" in ended.failure.message


@pytest.mark.parametrize(
    ("precision", "target", "words"),
    [("fp32", "sm8650", "HTP calculates floats in fp16"), ("fp16", "cpu", "calculates floats in fp32")],
)
def test_a_precision_that_the_target_does_not_have_is_refused(
    jobs: Jobs, precision: str, target: str, words: str
) -> None:
    ended = jobs.convert(conv_net(), precision=precision, target=target)
    assert ended.result.status is Status.REFUSED
    assert ended.failure.kind is Kind.OPTION
    assert words in ended.failure.message


def test_a_step_that_does_not_make_the_precision_is_misused(jobs: Jobs) -> None:
    assert jobs.convert(conv_net(), precision="int8").result.status is Status.MISUSED
    assert jobs.convert(conv_net(), name="other", calibration=CALIBRATION).result.status is Status.MISUSED
