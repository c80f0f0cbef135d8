"""With a stand-in of the SDK: every route, every way in which a tool fails, and what is tried before giving up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtimes.contract import Kind, Status
from tests.qairt import standin
from tests.qairt.standin import NEW, QNN, SNPE
from tests.runtimes.openvino_jobs import Ended, conv_net, one, outputs, picture, reference
from tests.runtimes.qairt_jobs import Jobs, arguments, tokens, without

pytestmark = pytest.mark.toolchain
SAMPLES = {"a": {"x": picture(1)}, "b": {"x": picture(2) * 0.1}}
CALIBRATION = {f"c{seed}": {"x": picture(seed)} for seed in range(3)}
MakeJobs = Callable[..., Jobs]


@pytest.fixture
def with_sdk(tmp_path: Path, qairt_python: Path) -> MakeJobs:
    """A function that makes a stand-in, and gives jobs that have it."""
    return lambda **options: Jobs(tmp_path, qairt_python, standin.make(tmp_path / "sdk", **options))


def worst(made: Any, ended: Ended) -> float:
    """Return the largest difference from ONNX Runtime, over all samples and outputs."""
    found = outputs(ended)
    return max(
        float(np.abs(found[name][output] - right).max())
        for name, feeds in SAMPLES.items()
        for output, right in reference(made, feeds).items()
    )


# The routes.
@pytest.mark.parametrize(
    ("tools", "target", "route", "files"),
    [
        ((*NEW, *QNN, *SNPE), "sm8650", "container", {"model.dlc", "context.bin", "backend.json", "htp.json"}),
        ((*NEW, *QNN), "htp", "container", {"model.dlc", "backend.json", "htp.json"}),
        (
            (*QNN, *SNPE),
            "sm8550",
            "library",
            {"model.cpp", "model.bin", "model_net.json", "libmodel.so", "context.bin", "backend.json", "htp.json"},
        ),
        (
            QNN,
            "htp",
            "library",
            {"model.cpp", "model.bin", "model_net.json", "libmodel.so", "backend.json", "htp.json"},
        ),
    ],
)
def test_each_route_leads_to_an_artefact_that_runs(
    with_sdk: MakeJobs, tools: tuple[str, ...], target: str, route: str, files: set[str]
) -> None:
    jobs, made = with_sdk(tools=tools), conv_net()
    ended = jobs.convert(made, target=target)
    assert {path.name for path in ended.artifact.iterdir()} == {*files, "interface.json"}
    assert json.loads((ended.artifact / "interface.json").read_text())["route"] == route
    assert ended.result.versions["qairt-sdk"] == standin.VERSION
    assert [row["node"] for row in ended.result.facts["placement"]] == ["/body/Conv", "/body/Relu", "/head/Conv"]
    ran = jobs.run(ended.artifact, SAMPLES, target=target)
    assert 0 < worst(made, ran) < 0.01
    assert ran.result.facts["device"] == "HTP"
    assert "stand-in" in ran.result.facts["simulated"]


def test_snpes_own_tools_make_a_container_that_only_a_device_runs(with_sdk: MakeJobs) -> None:
    jobs = with_sdk(tools=SNPE)
    ended = jobs.convert(conv_net())
    assert b'"socs": ["sm8650"]' in (ended.artifact / "model.dlc").read_bytes()
    assert any("where it runs is seen only" in note for note in ended.result.facts["notes"])
    ran = jobs.run(ended.artifact, SAMPLES)
    assert ran.failure.kind is Kind.NO_DEVICE
    assert "snpe-net-run" in ran.failure.message


@pytest.mark.parametrize("tools", [(*NEW, *QNN), QNN, SNPE])
@pytest.mark.parametrize(("precision", "bits"), [("int8", 8), ("a16w8", 16)])
def test_calibration_data_reaches_the_quantizer_of_each_route(
    with_sdk: MakeJobs, tools: tuple[str, ...], precision: str, bits: int
) -> None:
    jobs, made = with_sdk(tools=tools), conv_net()
    ended = jobs.convert(made, precision=precision, calibration=CALIBRATION)
    delivered = ended.artifact / ("model.dlc" if tools == SNPE else "context.bin")
    assert f'"activation_bits": {bits}'.encode() in delivered.read_bytes()
    if tools != SNPE:
        assert 0 < worst(made, jobs.run(ended.artifact, SAMPLES)) < 0.2


def test_fp32_goes_to_the_cpu_backend_and_nothing_is_simulated_but_by_the_stand_in(with_sdk: MakeJobs) -> None:
    jobs, made = with_sdk(), conv_net()
    ended = jobs.convert(made, precision="fp32", target="cpu")
    assert {path.name for path in ended.artifact.iterdir()} == {"model.dlc", "interface.json"}
    assert {row["device"] for row in ended.result.facts["placement"]} == {"CPU"}
    ran = jobs.run(ended.artifact, SAMPLES, precision="fp32", target="cpu")
    assert ran.result.facts["execution"]["backend"] == "libQnnCpu.so"
    assert worst(made, ran) < 1e-6


def test_encodings_of_aimet_reach_the_converter(with_sdk: MakeJobs, tmp_path: Path) -> None:
    encodings = tmp_path / "model.encodings"
    encodings.write_text(json.dumps({"activation_encodings": {"r": []}, "param_encodings": {}}))
    ended = with_sdk().convert(conv_net(), precision="int8", calibration=CALIBRATION, encodings=encodings)
    assert b'"overrides": ["r"]' in (ended.artifact / "context.bin").read_bytes()


def test_whole_numbers_travel_in_native_files_and_a_name_with_a_slash_comes_back(with_sdk: MakeJobs) -> None:
    jobs = with_sdk()
    ended = jobs.run(jobs.convert(tokens()).artifact, {"a": {"ids": np.array([[1, 2, 9]])}})
    found = outputs(ended)["a"]
    assert found["/next"].tolist() == [[2, 3, 10]]
    assert found["/next"].dtype == np.int64
    assert found["y"].shape == (1, 3, 4)
    assert "--use_native_input_files" in arguments(ended, "qnn-net-run")[0]


def test_floats_alone_travel_as_f32(with_sdk: MakeJobs) -> None:
    jobs = with_sdk()
    ended = jobs.run(jobs.convert(conv_net()).artifact, SAMPLES)
    assert "--use_native_input_files" not in arguments(ended, "qnn-net-run")[0]


def test_the_configuration_that_is_delivered_names_the_chip_and_no_folder_of_this_machine(with_sdk: MakeJobs) -> None:
    artifact = with_sdk().convert(conv_net()).artifact
    assert json.loads((artifact / "htp.json").read_text()) == {
        "graphs": [{"graph_names": ["model"], "vtcm_mb": 8, "O": 3}],
        "devices": [{"soc_model": 57, "dsp_arch": "v75"}],
    }
    extensions = json.loads((artifact / "backend.json").read_text())["backend_extensions"]
    assert extensions == {"shared_library_path": "libQnnHtpNetRunExtensions.so", "config_file_path": "htp.json"}


# What is tried before giving up.
def test_half_the_memory_is_tried_and_half_of_that(with_sdk: MakeJobs) -> None:
    ended = with_sdk(vtcm_mb=2).convert(conv_net())
    assert json.loads((ended.artifact / "htp.json").read_text())["graphs"][0]["vtcm_mb"] == 2
    # A failure that speaks of memory has named the chip right: the other names are not tried.
    assert len(arguments(ended, "qnn-context-binary-generator")) == 3
    notes = ended.result.facts["notes"]
    assert [note for note in notes if "vtcm_mb 8: failed; [ ERROR ] Graph prepare failed: 8 MB of VTCM" in note]
    assert "context for soc_model 57, dsp_arch v75, vtcm_mb 2: made" in notes


@pytest.mark.parametrize("keys", [("dsp_arch",), ("soc_id", "dsp_arch")])
def test_a_chip_is_named_in_the_way_that_the_sdk_knows(with_sdk: MakeJobs, keys: tuple[str, ...]) -> None:
    ended = with_sdk(device_keys=keys).convert(conv_net())
    (device,) = json.loads((ended.artifact / "htp.json").read_text())["devices"]
    assert set(device) <= set(keys)
    assert any("Unknown Key = devices/0/soc_model" in note for note in ended.result.facts["notes"])


def test_a_chip_and_too_much_memory_are_both_got_over(with_sdk: MakeJobs) -> None:
    ended = with_sdk(device_keys=("dsp_arch",), vtcm_mb=4).convert(conv_net())
    assert json.loads((ended.artifact / "htp.json").read_text())["graphs"][0]["vtcm_mb"] == 4


def test_when_nothing_helps_the_words_of_every_attempt_are_kept(with_sdk: MakeJobs) -> None:
    failure = with_sdk(vtcm_mb=0).convert(conv_net()).failure
    assert failure.kind is Kind.TOOLCHAIN
    for vtcm_mb in (8, 4, 2, 1):
        assert f"{vtcm_mb} MB of VTCM cannot be had" in failure.message


# How tools fail.
@pytest.mark.parametrize("tool", ["qairt-converter", "qnn-context-binary-generator"])
def test_an_exit_code_on_success_is_not_believed_and_said(with_sdk: MakeJobs, tool: str) -> None:
    ended = with_sdk(faults={tool: "exit_1"}).convert(conv_net())
    assert (
        f"{tool} ended with exit code 1, but its files are whole and it names no error" in ended.result.facts["notes"]
    )


def test_an_error_that_is_printed_on_success_is_said(with_sdk: MakeJobs) -> None:
    ended = with_sdk(faults={"qairt-converter": "complains"}).convert(conv_net())
    expected = "qairt-converter made its files, and printed: [ ERROR ] Failed to create a power configuration"
    assert expected in ended.result.facts["notes"]


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("gives_up", Kind.TOOLCHAIN, "[ ERROR ] Failed to create"),
        ("empty", Kind.MISSING_RESULT, "ended with exit code 0, without"),
        ("nothing", Kind.MISSING_RESULT, "ended with exit code 0, without"),
        ("disk", Kind.DISK, "No space left on device"),
        ("crash", Kind.CRASH, "was killed by SIGABRT, without"),
        ("usage", Kind.TOOLCHAIN, "unrecognized arguments"),
    ],
)
@pytest.mark.parametrize(
    "tool",
    ["qairt-converter", "qairt-quantizer", "qnn-context-binary-generator", "qnn-context-binary-utility"],
)
def test_each_way_of_failing_is_told_apart(with_sdk: MakeJobs, tool: str, fault: str, kind: Kind, words: str) -> None:
    jobs = with_sdk(faults={tool: fault})
    failure = jobs.convert(conv_net(), precision="int8", calibration=CALIBRATION).failure
    assert failure.kind is kind
    assert words in failure.message
    assert tool in failure.message


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("nothing", Kind.MISSING_RESULT, "left no output 'y' in Result_0"),
        ("empty", Kind.MISSING_RESULT, "y.raw has 0 bytes; float32 [1, 4, 16, 20] takes 5120"),
        ("cuts", Kind.MISSING_RESULT, "y.raw has 5119 bytes"),
        ("loses", Kind.MISSING_RESULT, "left no output 'y' in Result_1"),
        ("gives_up", Kind.TOOLCHAIN, "Failed to create a power"),
        ("crash", Kind.CRASH, "SIGABRT"),
    ],
)
def test_each_way_of_not_running_is_told_apart(with_sdk: MakeJobs, fault: str, kind: Kind, words: str) -> None:
    jobs = with_sdk(faults={"qnn-net-run": fault})
    failure = jobs.run(jobs.convert(conv_net()).artifact, SAMPLES).failure
    assert (failure.kind, words in failure.message) == (kind, True), failure.message


@pytest.mark.parametrize("tools", [(*NEW, *QNN), QNN, SNPE])
def test_an_unsupported_operator_is_spelt_as_in_onnx_with_its_node(with_sdk: MakeJobs, tools: tuple[str, ...]) -> None:
    failure = with_sdk(tools=tools).convert(one("Trilu")).failure
    assert (failure.kind, failure.op, failure.node) == (Kind.UNSUPPORTED_OP, "Trilu", "/odd")
    assert "No translation registered for op type onnx_trilu" in failure.message


def test_an_operator_that_the_converter_does_not_name_is_found_by_a_dry_run(with_sdk: MakeJobs) -> None:
    failure = with_sdk(faults={"qairt-converter": "silent"}).convert(one("Trilu")).failure
    assert (failure.kind, failure.op, failure.node) == (Kind.UNSUPPORTED_OP, "Trilu", "/odd")
    assert "Conversion failed" in failure.message
    assert "its dry run says" in failure.message


def test_an_opset_that_is_too_new_is_told_apart(with_sdk: MakeJobs) -> None:
    made = conv_net()
    made.model.opset_import[0].version = 22
    failure = with_sdk().convert(made).failure
    assert failure.kind is Kind.UNSUPPORTED_OPSET
    assert "Opset 22" in failure.message


def test_a_context_with_other_outputs_is_no_success(with_sdk: MakeJobs) -> None:
    jobs = with_sdk(faults={"qnn-context-binary-utility": "renames"})
    failure = jobs.convert(conv_net()).failure
    assert "output 'y' is missing; output 'y_1' was never asked for" in failure.message


def test_a_picture_that_was_turned_is_no_success(with_sdk: MakeJobs) -> None:
    program = "from runtimes.qairt import routes\nroutes.NCHW = 5\n"
    failure = with_sdk().convert(conv_net(), program=program).failure
    assert "input 'x' has the shape [1, 16, 20, 3] instead of [1, 3, 16, 20]" in failure.message


def test_too_little_room_is_found_before_a_tool_is_started(with_sdk: MakeJobs) -> None:
    full = """
import collections, shutil
Usage = collections.namedtuple("Usage", "total used free")
shutil.disk_usage = lambda path: Usage(1 << 40, 1 << 40, 1 << 20)
"""
    jobs = with_sdk()
    ended = jobs.convert(conv_net(), program=full)
    assert ended.failure.kind is Kind.DISK
    assert "QAIRT_TMP_DIR has 1 MiB free, and this conversion needs about 64 MiB" in ended.failure.message
    assert not arguments(ended, "qairt-converter")
    assert jobs.convert(conv_net(), name="off", program=full + without("sdk", "check_space")).result


# The SDK itself.
def test_an_sdk_without_a_converter_is_refused(with_sdk: MakeJobs) -> None:
    ended = with_sdk(tools=("qnn-net-run",)).convert(conv_net())
    assert ended.result.status is Status.REFUSED
    assert ended.failure.kind is Kind.MISSING_PACKAGE
    assert "qairt-converter" in ended.failure.message


def test_a_folder_that_is_no_sdk_is_refused(tmp_path: Path, qairt_python: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = Jobs(tmp_path, qairt_python, tmp_path / "empty").convert(conv_net())
    assert ended.failure.kind is Kind.MISSING_PACKAGE
    assert "bin/x86_64-linux-clang" in ended.failure.message


def test_converters_that_are_built_for_another_python_need_one_in_the_sdk(with_sdk: MakeJobs) -> None:
    jobs = with_sdk()
    assert jobs.sdk
    module = jobs.sdk / "lib/python/qti/aisw/converters/common/linux-x86_64/libPyIrGraph310.so"
    module.parent.mkdir(parents=True)
    module.touch()
    failure = jobs.convert(conv_net(), name="without").failure
    assert failure.kind is Kind.MISSING_PACKAGE
    assert "libPyIrGraph310.so" in failure.message
    own = jobs.sdk / "python" / "bin" / "python3"
    own.parent.mkdir(parents=True)
    own.write_text(f'#!/bin/sh\necho an interpreter of its own\nexec {jobs.python} "$@"\n')
    own.chmod(0o755)
    assert "an interpreter of its own" in jobs.convert(conv_net(), name="with").log
    assert jobs.convert(conv_net(), name="with-it").result
