"""Building engines with TensorRT for RTX: the real toolchain, started as the engine starts it, without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runtimes.contract import Json, Kind, Status
from runtimes.tensorrt.building import Target
from tests.runtimes.openvino_jobs import FLOAT, INT64, Made, conv_net, make, one
from tests.runtimes.tensorrt_jobs import Jobs, half_net, is_failure


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Jobs:
    return Jobs(tmp_path, environment_python("tensorrt"))


def test_a_conv_net_is_built_and_its_nodes_its_ports_and_the_product_are_told(jobs: Jobs) -> None:
    converted = jobs.convert(conv_net())
    assert [path.name for path in converted.artifact.iterdir()] == ["model.engine"]
    facts = converted.result.facts
    assert facts["placement"] == [
        {"node": "/body/Conv", "op": "Conv", "device": "GPU"},
        {"node": "/body/Relu", "op": "Relu", "device": "GPU"},
        {"node": "/head/Conv", "op": "Conv", "device": "GPU"},
    ]
    (given,), (made,) = facts["io"]["inputs"], facts["io"]["outputs"]
    assert (given["name"], given["shape"], given["dtype"]) == ("x", [1, 3, 16, 20], "float32")
    assert (made["name"], made["shape"], made["dtype"]) == ("y", [1, 4, 16, 20], "float32")
    assert facts["execution"] == {
        "product": "TensorRT for RTX",
        "version": "1.7.1.116",
        "compute_capabilities": ["SM89"],
    }
    assert (facts["device"], facts["simulated"]) == ("GPU", "")
    assert facts["notes"] == ["the nodes are those of the network; which kernels they became is seen on a GPU only"]
    assert converted.result.versions["TensorRT for RTX"] == "1.7.1.116"


def test_equal_models_give_equal_bytes_in_two_processes_and_from_any_folder(jobs: Jobs, tmp_path: Path) -> None:
    first = jobs.convert(half_net(), precision="fp16", name="first")
    second = jobs.convert(half_net(), precision="fp16", name="a much/longer/path")
    assert first.hashes() == second.hashes()
    assert str(tmp_path).encode() not in (first.artifact / "model.engine").read_bytes()


@pytest.mark.parametrize("target", [target.value for target in Target])
def test_an_engine_is_built_for_every_target(jobs: Jobs, target: str) -> None:
    converted = jobs.convert(conv_net(), target=target)
    assert converted.result.facts["execution"]["compute_capabilities"] == list(Target(target).capabilities)


def test_engines_for_two_targets_are_not_the_same(jobs: Jobs) -> None:
    first, second = (jobs.convert(conv_net(), target=target, name=target) for target in ("sm86", "sm89"))
    assert first.hashes() != second.hashes()


def test_an_unknown_target_lists_the_known_ones(jobs: Jobs) -> None:
    ended = jobs.convert(conv_net(), target="sm90")
    assert ended.result.status is Status.MISUSED
    assert "'sm90' is not allowed; did you mean 'sm89'?" in ended.failure.message
    ended = jobs.convert(conv_net(), target="h100", name="other")
    assert "known are all, sm120, sm121, sm75, sm80, sm86, sm89" in ended.failure.message


def test_a_model_in_float16_makes_an_fp16_engine_of_float32_ports(jobs: Jobs) -> None:
    converted = jobs.convert(half_net(), precision="fp16")
    assert [entry["dtype"] for side in converted.result.facts["io"].values() for entry in side] == ["float32"] * 2
    assert len(converted.result.facts["notes"]) == 1


def test_layers_that_stay_in_float32_are_counted(jobs: Jobs) -> None:
    converted = jobs.convert(half_net(wide_heads=1), precision="fp16")
    assert converted.result.facts["notes"][0] == "1 of 2 layers do not calculate in float16"


def test_weights_beside_the_model_reach_the_engine(jobs: Jobs) -> None:
    def beside(made: Made, folder: Path) -> None:
        onnx.save_model(
            made.model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0
        )

    def torn(made: Made, folder: Path) -> None:
        beside(made, folder)
        (folder / "model.onnx.data").unlink()

    inside = jobs.convert(conv_net(), name="inside")
    assert jobs.convert(conv_net(), name="beside", write=beside).hashes() == inside.hashes()
    ended = jobs.convert(conv_net(), name="torn", write=torn)
    assert is_failure(ended, Status.FAILED, Kind.INVALID_MODEL, "model.onnx.data")


def test_a_file_that_is_no_onnx_is_a_failure(jobs: Jobs) -> None:
    ended = jobs.convert(conv_net(), write=lambda _, folder: (folder / "model.onnx").write_bytes(b"no model"))
    assert is_failure(ended, Status.FAILED, Kind.INVALID_MODEL, "Failed to parse the ONNX model")


def test_a_folder_without_a_model_is_misuse(jobs: Jobs) -> None:
    ended = jobs.convert(conv_net(), write=lambda _, folder: (folder / "other.onnx").touch())
    assert is_failure(ended, Status.MISUSED, Kind.OPTION, "in/model: holds no model.onnx; export writes it")


def test_a_dynamic_input_gets_a_profile_of_the_asked_shape(jobs: Jobs) -> None:
    fixed = conv_net()
    made = replace(conv_net("n"), inputs=fixed.inputs, outputs=fixed.outputs)
    converted = jobs.convert(made)
    note = "input 'x' is dynamic; the engine takes the shape [1, 3, 16, 20] only"
    assert note in converted.result.facts["notes"]
    assert converted.result.facts["io"]["inputs"][0]["shape"] == [-1, 3, 16, 20]


@pytest.mark.parametrize(("domain", "op"), [("", "Det"), ("com.acme", "Fancy")])
def test_an_operator_that_the_parser_does_not_take_is_refused_and_named(jobs: Jobs, domain: str, op: str) -> None:
    ended = jobs.convert(one(op, domain=domain))
    assert is_failure(ended, Status.REFUSED, Kind.UNSUPPORTED_OP, f"{op} '/odd': ")
    assert (ended.failure.op, ended.failure.node) == (op, "/odd")
    assert "While parsing node number 1" in ended.log


def test_all_operators_that_the_parser_does_not_take_are_told_at_once(jobs: Jobs) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x"], ["s"], "/construct"),
        helper.make_node("SequenceAt", ["s", "i"], ["y"], "/at"),
    ]
    ended = jobs.convert(make(nodes, [("x", FLOAT, [3])], [("y", FLOAT, [3])], {"i": np.array(0)}))
    assert [line.split(":")[0] for line in ended.failure.message.splitlines()] == [
        "SequenceConstruct '/construct'",
        "SequenceAt '/at'",
    ]


def test_an_error_that_names_no_node_is_that_of_the_node_which_was_being_read(jobs: Jobs) -> None:
    weights = {"i": np.zeros((1, 2), np.int64), "u": np.ones((1, 2), np.float32)}
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], "/add", reduction="add")
    made = make([node], [("x", FLOAT, [3, 2])], [("y", FLOAT, [3, 2])], weights)
    made.model.opset_import[0].version = 18
    ended = jobs.convert(made)
    assert is_failure(ended, Status.REFUSED, Kind.UNSUPPORTED_OP, "Unsupported reduction type")
    assert (ended.failure.op, ended.failure.node) == ("ScatterElements", "/add")


def test_an_operator_that_only_the_builder_does_not_take_is_refused_and_named(jobs: Jobs) -> None:
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["y"], "/nms")
    inputs = [("boxes", FLOAT, [1, 6, 4]), ("scores", FLOAT, [1, 2, 6])]
    made = make([node], inputs, [("y", INT64, ["n", 3])], {"most": np.array([3])})
    ended = jobs.convert(replace(made, outputs=[{"name": "y", "shape": [6, 3], "dtype": "int64"}]))
    assert is_failure(ended, Status.REFUSED, Kind.UNSUPPORTED_OP, "has no runners that implement it")
    assert (ended.failure.op, ended.failure.node) == ("NonMaxSuppression", "/nms")


def test_a_model_that_is_not_valid_names_the_node(jobs: Jobs) -> None:
    weights = {"w": np.zeros((8, 5, 3, 3), np.float32)}
    node = helper.make_node("Conv", ["x", "w"], ["y"], "/c", pads=[1, 1, 1, 1])
    ended = jobs.convert(make([node], [("x", FLOAT, [1, 3, 8, 8])], [("y", FLOAT, [1, 8, 8, 8])], weights))
    assert is_failure(ended, Status.FAILED, Kind.INVALID_MODEL, "Kernel weight dimension failed to broadcast")
    assert (ended.failure.op, ended.failure.node) == ("Conv", "/c")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "z"}, "output 'y' was never asked for; output 'z' is missing"),
        ({"shape": [1, 4, 20, 16]}, "output 'y' has the shape [1, 4, 16, 20] instead of [1, 4, 20, 16]"),
        ({"dtype": "float16"}, "output 'y' is float32 instead of float16"),
    ],
)
def test_a_network_that_is_not_what_was_asked_for_is_a_failure(
    jobs: Jobs, change: Mapping[str, Json], words: str
) -> None:
    made = conv_net()
    ended = jobs.convert(replace(made, outputs=[{**made.outputs[0], **change}]))
    assert is_failure(ended, Status.FAILED, Kind.TOOLCHAIN, words)


def test_float64_which_tensorrt_takes_for_float32_is_a_failure(jobs: Jobs) -> None:
    ports: Any = [("x", TensorProto.DOUBLE, [2, 3])], [("y", TensorProto.DOUBLE, [2, 3])]
    ended = jobs.convert(make([helper.make_node("Relu", ["x"], ["y"], "/r")], *ports))
    assert is_failure(ended, Status.FAILED, Kind.TOOLCHAIN, "input 'x' is float32 instead of float64")


def test_outputs_that_are_one_tensor_keep_their_own_names(jobs: Jobs) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["first"], "/relu"),
        helper.make_node("Dropout", ["first"], ["second"], "/dropout"),
        helper.make_node("Identity", ["x"], ["third"], "/identity"),
    ]
    names = ("first", "second", "third")
    converted = jobs.convert(make(nodes, [("x", FLOAT, [2, 3])], [(name, FLOAT, [2, 3]) for name in names]))
    assert sorted(entry["name"] for entry in converted.result.facts["io"]["outputs"]) == list(names)


def test_element_types_and_scalars_come_through(jobs: Jobs) -> None:
    nodes = [
        helper.make_node("Add", ["i", "k"], ["sum"], "/sum"),
        helper.make_node("Greater", ["i", "k"], ["more"], "/more"),
        helper.make_node("ReduceMean", ["x"], ["mean"], "/mean", keepdims=0),
    ]
    declared: list[Any] = [("sum", INT64, [2, 3]), ("more", TensorProto.BOOL, [2, 3]), ("mean", FLOAT, [])]
    converted = jobs.convert(make(nodes, [("i", INT64, [2, 3]), ("x", FLOAT, [4, 5])], declared, {"k": np.array([4])}))
    assert {entry["name"]: (entry["dtype"], entry["shape"]) for entry in converted.result.facts["io"]["outputs"]} == {
        "sum": ("int64", [2, 3]),
        "more": ("bool", [2, 3]),
        "mean": ("float32", []),
    }


def test_a_builder_that_dies_leaves_no_result_and_the_line_that_led_there(jobs: Jobs) -> None:
    dies = """
import os, tensorrt_rtx_bindings as trt
trt.Builder.build_serialized_network = lambda *_: os.abort()
"""
    with pytest.raises(AssertionError, match=r"(?s)Fatal Python error: Aborted.*building\.py"):
        jobs.convert(conv_net(), spoil=dies)


def test_nothing_of_the_environment_sends_usage_data_or_brings_cuda(jobs: Jobs) -> None:
    names = jobs.program("from importlib import metadata\nfor found in metadata.distributions(): print(found.name)")
    assert "tensorrt_rtx_cu13_libs" in names
    assert [name for name in names if "telemetry" in name or "nvidia" in name or "cuda" in name] == []


def test_the_vendors_package_is_not_hidden_by_the_adapter(jobs: Jobs) -> None:
    program = "from runtimes.tensorrt import product; print(product.load().module.__name__)"
    assert jobs.program(program)[-1] == "tensorrt_rtx_bindings"
