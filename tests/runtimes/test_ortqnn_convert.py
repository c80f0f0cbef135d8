"""Building context binaries for the HTP: the real toolchain, started as the engine starts it, run on its emulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from runtimes.contract import Kind, Status
from tests.runtimes.openvino_jobs import Made, conv_net, outputs, picture, reference
from tests.runtimes.ortqnn_jobs import QnnJobs, deep, einsums, erf, function, gelu, snr, typed


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> QnnJobs:
    return QnnJobs(tmp_path, environment_python("ortqnn"))


def test_a_conv_net_becomes_a_context_binary_that_agrees_with_onnx_runtime(jobs: QnnJobs) -> None:
    made = conv_net()
    converted = jobs.convert(made)
    assert sorted(path.name for path in converted.artifact.iterdir()) == [
        "build.json",
        "model_ctx.onnx",
        "model_ctx_qnn.bin",
    ]
    facts = converted.result.facts
    assert {row["device"] for row in facts["placement"]} == {"HTP"}
    assert {("/body/Conv", "Conv"), ("/body/Relu", "Relu"), ("/head/Conv", "Conv")} <= {
        (row["node"], row["op"]) for row in facts["placement"]
    }
    assert [(port["name"], port["shape"], port["dtype"]) for port in facts["io"]["inputs"]] == [
        ("x", [1, 3, 16, 20], "float32")
    ]
    tools = "onnxruntime-qnn 2.7.0 (QNN 2.51.0) in onnxruntime 1.32.0"
    assert facts["notes"] == [f"built for sm8650 (v75, soc_model 57) by {tools}; it loads in these versions only"]
    assert converted.result.versions["onnxruntime-qnn"] == "2.7.0"
    samples = {"photo": {"x": picture()}, "random-4": {"x": picture(1) * 4}}
    ran = jobs.run(converted.artifact, samples)
    assert ran.result.facts["device"] == "HTP"
    assert ran.result.facts["simulated"] == "the HTP emulator of onnxruntime-qnn 2.7.0 on this CPU"
    assert ran.result.facts["execution"]["soc_model"] == 57
    for sample, feeds in samples.items():
        found, wanted = outputs(ran)[sample]["y"], reference(made, feeds)["y"]
        assert snr(found, wanted) > 50
        # Bits equal to the CPU's would show that the CPU did the work.
        assert not np.array_equal(found, wanted)
    events = ran.layout.events.read_text(encoding="utf-8")
    assert all(f"sample {sample} on the emulator" in events for sample in samples)


@pytest.mark.parametrize("target", ["sm8550", "sm8750", "sm8850", "sm8450", "sm8350", "sc8380xp", "qcs9100"])
def test_each_soc_has_a_binary_of_its_own_that_runs(jobs: QnnJobs, target: str) -> None:
    converted = jobs.convert(conv_net(), target=target)
    ran = jobs.run(converted.artifact, {"photo": {"x": picture()}}, target=target)
    assert ran.result.facts["execution"]["soc"] == target
    assert snr(outputs(ran)["photo"]["y"], reference(conv_net(), {"x": picture()})["y"]) > 50
    assert (
        converted.hashes()["model_ctx_qnn.bin"] != jobs.convert(conv_net(), name="other").hashes()["model_ctx_qnn.bin"]
    )


def test_a_soc_that_does_not_calculate_in_fp16_is_refused_in_the_vendors_words(jobs: QnnJobs) -> None:
    ended = jobs.convert(conv_net(), target="qcm6490")
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, Kind.OPTION)
    assert ended.failure.message.startswith("the HTP of qcm6490 does not calculate in fp16: ")
    assert "failed for node `/body/Relu` of type `Relu` with error code 3110" in ended.failure.message
    assert ended.failure.hint == "take int8 or a16w8"


def test_a_binary_for_several_socs_is_built_and_cannot_be_tried_here(jobs: QnnJobs) -> None:
    converted = jobs.convert(conv_net(), target="multi")
    assert "sm8650 (v75, soc_model 57) and sm8550 (v73, soc_model 43) and" in converted.result.facts["notes"][0]
    assert {row["device"] for row in converted.result.facts["placement"]} == {"HTP"}
    ran = jobs.run(converted.artifact, {"photo": {"x": picture()}}, target="multi")
    assert (ran.result.status, ran.failure.kind) == (Status.REFUSED, Kind.NO_DEVICE)
    assert "the emulator loads no binary for several SoCs" in ran.failure.message
    assert "contextCreateFromBinary failed" in ran.failure.message
    assert "Compatible cache not found" in ran.log


def test_equal_models_give_equal_bytes_from_any_folder(jobs: QnnJobs, tmp_path: Path) -> None:
    first = jobs.convert(conv_net(), name="first")
    second = jobs.convert(conv_net(), name="a much/longer/path")
    assert first.hashes() == second.hashes()
    for path in first.artifact.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes()


def test_weights_beside_the_model_give_the_same_binary(jobs: QnnJobs) -> None:
    def beside(made: Made, folder: Path) -> None:
        onnx.save_model(
            made.model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0
        )

    assert jobs.convert(conv_net(), name="inside").hashes() == jobs.convert(conv_net(), write=beside).hashes()


def test_whole_numbers_and_truth_values_go_in_and_out_as_they_are(jobs: QnnJobs) -> None:
    made = typed()
    converted = jobs.convert(made)
    assert [port["dtype"] for port in converted.result.facts["io"]["inputs"]] == ["int64", "bool"]
    feeds = {"tokens": np.array([[3, 0, 6, 1, 5]]), "keep": np.array([[[True], [False], [True], [True], [False]]])}
    found = outputs(jobs.run(converted.artifact, {"a": feeds}))["a"]
    wanted = reference(made, feeds)
    assert (found["best"].dtype.name, found["best"].tolist()) == ("int64", wanted["best"].tolist())
    np.testing.assert_allclose(found["y"], wanted["y"], atol=1e-3)


def test_operators_that_the_htp_does_not_take_are_all_named_the_models_first_one_first(jobs: QnnJobs) -> None:
    ended = jobs.convert(einsums())
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, Kind.UNSUPPORTED_OP)
    assert (ended.failure.op, ended.failure.node) == ("Einsum", "/one")
    message = ended.failure.message
    assert message.startswith("QNNExecutionProvider does not take Einsum '/one', Einsum '/two'\n")
    assert "Unsupported nodes in QNN EP: { name: /two, type: Einsum }{ name: /one, type: Einsum }" in message
    assert "fallback to CPU EP has been explicitly disabled by the user" in message
    # The same failure must read the same: no time of day in it.
    assert jobs.convert(einsums(), name="again").failure == ended.failure


def test_a_model_of_which_nothing_is_taken_is_a_failure_that_names_its_nodes(jobs: QnnJobs) -> None:
    ended = jobs.convert(erf())
    assert "Unsupported nodes" not in ended.failure.message
    assert (ended.failure.kind, ended.failure.op, ended.failure.node) == (Kind.UNSUPPORTED_OP, "Erf", "/erf")


def test_an_operator_that_onnx_runtime_takes_apart_is_named_and_not_its_parts(jobs: QnnJobs) -> None:
    made = function()
    ended = jobs.convert(made)
    assert (ended.failure.op, ended.failure.node) == ("GroupNormalization", "/norm")
    assert ended.failure.message.startswith("QNNExecutionProvider does not take GroupNormalization '/norm'\n")
    # Where it stands alone, the vendor speaks of its parts only.
    del made.model.graph.node[0]
    made.model.graph.node[0].input[0] = "x"
    alone = jobs.convert(made, name="alone")
    assert "type: GroupNormalization" not in alone.failure.message
    assert (alone.failure.op, alone.failure.node) == ("GroupNormalization", "/norm")


def test_a_tensor_of_six_dimensions_is_named(jobs: QnnJobs) -> None:
    ended = jobs.convert(deep())
    assert (ended.failure.kind, ended.failure.op, ended.failure.node) == (Kind.UNSUPPORTED_OP, "Reshape", "/up")
    assert ended.failure.message.startswith(
        "QNN takes tensors of at most 5 dimensions, but 'b' of Reshape '/up' has 6, 'c' of Sigmoid '/sigmoid' has 6\n"
    )
    assert "error code 3110" in ended.failure.message


def test_a_gelu_of_several_nodes_is_one_operator_of_the_htp(jobs: QnnJobs) -> None:
    made = gelu()
    found = outputs(jobs.run(jobs.convert(made).artifact, {"photo": {"x": picture()}}))["photo"]["y"]
    assert snr(found, reference(made, {"x": picture()})["y"]) > 40


def test_a_file_that_is_no_onnx_is_a_failure_in_the_vendors_words(jobs: QnnJobs) -> None:
    ended = jobs.convert(conv_net(), write=lambda _, folder: (folder / "model.onnx").write_bytes(b"no model"))
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.INVALID_MODEL)
    assert "Error parsing message" in ended.failure.message


def test_weights_that_are_missing_beside_the_model_are_a_failure(jobs: QnnJobs) -> None:
    def torn(made: Made, folder: Path) -> None:
        onnx.save_model(
            made.model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0
        )
        (folder / "model.onnx.data").unlink()

    ended = jobs.convert(conv_net(), write=torn)
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.INVALID_MODEL)
    assert "model.onnx.data" in ended.failure.message


def test_a_folder_without_a_model_is_misuse(jobs: QnnJobs) -> None:
    ended = jobs.convert(conv_net(), write=lambda _, folder: (folder / "other.onnx").touch())
    assert (ended.result.status, ended.failure.message) == (
        Status.MISUSED,
        "in/model: holds no model.onnx; export writes it",
    )


def test_a_quantised_precision_is_not_converted_to(jobs: QnnJobs) -> None:
    ended = jobs.convert(conv_net(), precision="int8")
    assert ended.result.status is Status.MISUSED
    assert "precision int8 needs the step quantize" in ended.failure.message
