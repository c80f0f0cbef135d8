"""Converting with OpenVINO: the real toolchain, started as the engine starts it, and what it makes agrees with ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runtimes.contract import Json, Kind, Status
from tests.runtimes.openvino_jobs import (
    FLOAT,
    INT64,
    Declared,
    Jobs,
    Made,
    conv_net,
    make,
    one,
    outputs,
    picture,
    reference,
)

pytestmark = pytest.mark.toolchain


@pytest.fixture
def jobs(tmp_path: Path, openvino_python: Path) -> Jobs:
    return Jobs(tmp_path, openvino_python)


def test_a_conv_net_is_converted_and_its_artefact_agrees_with_onnx_runtime(jobs: Jobs) -> None:
    made = conv_net()
    converted = jobs.convert(made)
    assert sorted(path.name for path in converted.artifact.iterdir()) == ["model.bin", "model.xml"]
    facts = converted.result.facts
    assert {entry["device"] for entry in facts["placement"]} == {"CPU"}
    assert [entry["op"] for entry in facts["placement"]].count("Convolution") == 2
    assert "/body/Relu" in [entry["node"] for entry in facts["placement"]]
    assert [(entry["name"], entry["shape"], entry["dtype"]) for entry in facts["io"]["inputs"]] == [
        ("x", [1, 3, 16, 20], "float32")
    ]
    assert [entry["name"] for entry in facts["io"]["outputs"]] == ["y"]
    assert converted.result.versions["openvino"].startswith("2026.")
    samples = {"photo": {"x": picture()}, "random-4": {"x": picture(1) * 4}}
    ran = jobs.run(converted.artifact, samples)
    found = outputs(ran)
    assert ran.result.facts["device"] == "CPU"
    assert ran.result.facts["execution"]["INFERENCE_PRECISION_HINT"] == "f32"
    # The layers do not say where they run, and the asked device beside each of them would prove nothing.
    assert "placement" not in ran.result.facts
    assert sum(ran.result.facts["execution"]["kernels"].values()) >= 2
    assert sorted(found) == ["photo", "random-4"]
    for sample, feeds in samples.items():
        np.testing.assert_allclose(found[sample]["y"], reference(made, feeds)["y"], rtol=1e-5, atol=1e-5)


def test_fp16_stores_the_weights_in_half_the_space_and_stays_near(jobs: Jobs) -> None:
    made = conv_net()
    wide = jobs.convert(made, name="fp32")
    half = jobs.convert(made, precision="fp16", name="fp16")
    sizes = [(ended.artifact / "model.bin").stat().st_size for ended in (wide, half)]
    assert sizes[1] * 2 == sizes[0]
    assert half.result.facts["notes"] == []
    # The nodes that widen weights on loading are part of the storage, not of the model.
    assert half.result.facts["placement"] == wide.result.facts["placement"]
    found = outputs(jobs.run(half.artifact, {"photo": {"x": picture()}}))
    np.testing.assert_allclose(found["photo"]["y"], reference(made, {"x": picture()})["y"], rtol=1e-2, atol=1e-2)


def test_equal_models_give_equal_bytes_from_any_folder_and_hash_seed(jobs: Jobs, tmp_path: Path) -> None:
    first = jobs.convert(conv_net(), precision="fp16", name="first")
    second = jobs.convert(conv_net(), precision="fp16", name="a much/longer/path")
    assert first.hashes() == second.hashes()
    text = (first.artifact / "model.xml").read_text(encoding="utf-8")
    assert str(tmp_path) not in text


def test_weights_beside_the_model_reach_the_artefact(jobs: Jobs) -> None:
    def beside(made: Made, folder: Path) -> None:
        onnx.save_model(
            made.model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0
        )

    inside = jobs.convert(conv_net(), name="inside")
    assert jobs.convert(conv_net(), name="beside", write=beside).hashes()["model.bin"] == inside.hashes()["model.bin"]


def test_weights_that_are_missing_beside_the_model_are_a_failure(jobs: Jobs) -> None:
    def torn(made: Made, folder: Path) -> None:
        onnx.save_model(
            made.model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0
        )
        (folder / "model.onnx.data").unlink()

    ended = jobs.convert(conv_net(), write=torn)
    assert ended.failure.kind is Kind.INVALID_MODEL
    assert "model.onnx.data" in ended.failure.message


def test_a_file_that_is_no_onnx_is_a_failure(jobs: Jobs) -> None:
    ended = jobs.convert(conv_net(), write=lambda _, folder: (folder / "model.onnx").write_bytes(b"no model"))
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.INVALID_MODEL)
    assert "Cannot recognize input model" in ended.failure.message


def test_a_folder_without_a_model_is_misuse(jobs: Jobs) -> None:
    ended = jobs.convert(conv_net(), write=lambda _, folder: (folder / "other.onnx").touch())
    assert (ended.result.status, ended.failure.message) == (
        Status.MISUSED,
        "in/model: holds no model.onnx; export writes it",
    )


@pytest.mark.parametrize(("domain", "op"), [("", "Det"), ("com.acme", "com.acme.Det")])
def test_an_operator_that_openvino_does_not_know_is_named(jobs: Jobs, domain: str, op: str) -> None:
    ended = jobs.convert(one("Det", domain=domain))
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.UNSUPPORTED_OP)
    assert ended.failure.op == op
    assert "No conversion rule found for operations: " in ended.failure.message
    assert "OpConversionFailure" in ended.log


def test_a_variant_of_an_operator_that_openvino_does_not_know_is_named(jobs: Jobs) -> None:
    ended = jobs.convert(one("Gelu", attributes={"approximate": "odd"}))
    assert (ended.failure.kind, ended.failure.op) in {(Kind.UNSUPPORTED_OP, "Gelu"), (Kind.INVALID_MODEL, "Gelu")}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "z"}, "output 'y' was never asked for; output 'z' is missing"),
        ({"shape": [1, 4, 20, 16]}, "output 'y' has the shape [1, 4, 16, 20] instead of [1, 4, 20, 16]"),
        ({"dtype": "float16"}, "output 'y' is float32 instead of float16"),
    ],
)
def test_an_artefact_that_is_not_what_was_asked_for_is_a_failure(
    jobs: Jobs, change: Mapping[str, Json], words: str
) -> None:
    made = conv_net()
    ended = jobs.convert(replace(made, outputs=[{**made.outputs[0], **change}]))
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert words in ended.failure.message


def test_outputs_that_are_one_tensor_keep_their_own_names(jobs: Jobs) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["first"], "/relu"),
        helper.make_node("Dropout", ["first"], ["second"], "/dropout"),
        helper.make_node("Identity", ["x"], ["third"], "/identity"),
    ]
    shape = [2, 3]
    made = make(nodes, [("x", FLOAT, shape)], [(name, FLOAT, shape) for name in ("first", "second", "third")])
    converted = jobs.convert(made)
    feeds = {"x": picture(3, shape) - 0.5}
    found = outputs(jobs.run(converted.artifact, {"photo": feeds}))["photo"]
    assert sorted(found) == ["first", "second", "third"]
    for name, value in reference(made, feeds).items():
        np.testing.assert_array_equal(found[name], value)


def test_an_input_keeps_its_name_where_what_it_goes_through_changes_nothing(jobs: Jobs) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["same"], "/view"),
        helper.make_node("Relu", ["same"], ["y"], "/relu"),
    ]
    made = make(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])], {"shape": np.array([-1, 3])})
    converted = jobs.convert(made)
    feeds = {"x": picture(3, (2, 3)) - 0.5}
    found = outputs(jobs.run(converted.artifact, {"photo": feeds}))["photo"]
    np.testing.assert_array_equal(found["y"], reference(made, feeds)["y"])


def test_element_types_and_scalars_come_through(jobs: Jobs) -> None:
    nodes = [
        helper.make_node("Add", ["i", "k"], ["sum"], "/sum"),
        helper.make_node("Greater", ["i", "k"], ["more"], "/more"),
        helper.make_node("Cast", ["i"], ["half"], "/half", to=TensorProto.FLOAT16),
        helper.make_node("ReduceMean", ["x"], ["mean"], "/mean", keepdims=0),
    ]
    declared: list[Declared] = [
        ("sum", INT64, [2, 3]),
        ("more", TensorProto.BOOL, [2, 3]),
        ("half", TensorProto.FLOAT16, [2, 3]),
        ("mean", FLOAT, []),
    ]
    made = make(nodes, [("i", INT64, [2, 3]), ("x", FLOAT, [4, 5])], declared, {"k": np.array([4])})
    converted = jobs.convert(made)
    feeds = {"i": np.arange(6).reshape(2, 3), "x": picture(1, (4, 5))}
    found = outputs(jobs.run(converted.artifact, {"photo": feeds}))["photo"]
    for name, value in reference(made, feeds).items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        np.testing.assert_allclose(found[name].astype(float), value.astype(float), rtol=1e-6)


def test_a_shape_that_depends_on_the_data_is_noted(jobs: Jobs) -> None:
    made = make([helper.make_node("NonZero", ["x"], ["y"], "/nz")], [("x", FLOAT, [2, 3])], [("y", INT64, [2, 6])])
    converted = jobs.convert(made)
    assert converted.result.facts["notes"] == ["output 'y' gets its shape only when it runs"]
    found = outputs(jobs.run(converted.artifact, {"photo": {"x": np.eye(2, 3, dtype=np.float32)}}))
    assert found["photo"]["y"].tolist() == [[0, 1], [0, 1]]


def test_a_model_without_weights_may_have_an_empty_bin(jobs: Jobs) -> None:
    made = make([helper.make_node("Add", ["x", "x"], ["y"], "/a")], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])])
    converted = jobs.convert(made, precision="fp16")
    assert (converted.artifact / "model.bin").stat().st_size == 0
    found = outputs(jobs.run(converted.artifact, {"photo": {"x": np.ones((2, 3), dtype=np.float32)}}))
    assert found["photo"]["y"].tolist() == [[2, 2, 2], [2, 2, 2]]


def matmul(scale: float) -> Made:
    weights = {
        "w": (np.random.default_rng(0).normal(0, 1, (64, 64)) * scale).astype(np.float32),
        "v": np.eye(64, dtype=np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "/first"),
        helper.make_node("MatMul", ["a", "v"], ["y"], "/second"),
    ]
    return make(nodes, [("x", FLOAT, [8, 64])], [("y", FLOAT, [8, 64])], weights)


def test_weights_that_f16_cannot_hold_are_noted(jobs: Jobs) -> None:
    ended = jobs.convert(matmul(1e6), precision="fp16")
    assert ended.result.facts["notes"] == ["4096 of 8192 weights stay f32"]


def test_a_file_whose_weights_are_int8_is_no_failed_fp16(jobs: Jobs) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["d"], "/dequantize"),
        helper.make_node("MatMul", ["x", "d"], ["m"], "/m"),
        helper.make_node("Add", ["m", "b"], ["y"], "/b"),
    ]
    weights = {
        "w": np.random.default_rng(1).integers(-127, 127, (64, 64)).astype(np.int8),
        "scale": np.float32(1e6),
        "b": np.full(64, 1e6, np.float32),
    }
    made = make(nodes, [("x", FLOAT, [8, 64])], [("y", FLOAT, [8, 64])], weights)
    assert jobs.convert(made).result.failure is None


def test_nothing_of_the_environment_sends_usage_data(jobs: Jobs) -> None:
    names = jobs.program("from importlib import metadata\nfor found in metadata.distributions(): print(found.name)")
    assert "openvino" in names
    assert [name for name in names if "telemetry" in name] == []


def test_the_vendors_package_is_not_hidden_by_the_adapter(jobs: Jobs) -> None:
    assert jobs.program("import openvino, runtimes.openvino; print(openvino.__version__)")[0].startswith("2026.")
