"""ONNX Runtime QNN cells from a command to a verdict, judged by what QNN's HTP emulator gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.command import Aipc

FILES = {"build.json", "model_ctx.onnx", "model_ctx_qnn.bin"}


@pytest.fixture
def aipc(tmp_path: Path, reference_python: Path, environment_python: Callable[[str], Path]) -> Aipc:
    """The command with an empty store; the environments of the venv engine are there."""
    assert reference_python.exists()
    assert environment_python("ortqnn").exists()
    return Aipc(tmp_path)


def save(
    path: Path, nodes: Sequence[onnx.NodeProto], shape: Sequence[int], constants: Mapping[str, np.ndarray]
) -> Path:
    """Write an ONNX file with the input x [1,3,12,20] and the output y."""
    weights = np.random.default_rng(3).normal(0, 0.2, (6, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(shape))],
        [numpy_helper.from_array(array, name) for name, array in {"w": weights, **constants}.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save_model(model, path)
    return path


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["venv", "docker"])
def test_a_network_reaches_the_htp_and_what_stood_in_for_it_is_said(
    aipc: Aipc, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "docker":
        request.getfixturevalue("docker_daemon")
    done = aipc.tiny(runtime="ortqnn", engine=engine)
    assert done.code == 0, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "agrees"
    assert set(aipc.artifact()) == FILES
    assert "the HTP emulator of onnxruntime-qnn 2.7.0 on this CPU" in done.out


def test_whole_numbers_are_calibrated_on_photographs_and_agree(aipc: Aipc) -> None:
    done = aipc.tiny("--precision", "int8", runtime="ortqnn")
    assert done.code == 0, done.out + done.error
    assert "✓ agrees" in done.out


def test_encodings_of_aimet_that_name_another_model_are_refused_in_one_line(aipc: Aipc) -> None:
    file = aipc.folder / "net.encodings"
    file.write_text('{"activation_encodings": {"elsewhere": []}, "param_encodings": {}}')
    done = aipc.tiny("--precision", "int8", "--encodings", str(file), runtime="ortqnn")
    assert done.code == 1
    assert "encodings: the model has no tensor 'elsewhere'" in done.out
    (report,) = [json.loads(path.read_text()) for path in aipc.runs.rglob("int8@*/report.json")]
    assert report["verdict"] == "refused"


def test_an_operator_that_the_htp_does_not_take_is_rewritten(aipc: Aipc) -> None:
    keys = np.random.default_rng(4).normal(0, 0.3, (1, 5, 12, 20)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Einsum", ["c", "keys"], ["e"], "/attention", equation="bchw,bdhw->bcd"),
        helper.make_node("Tanh", ["e"], ["y"], "/tanh"),
    ]
    file = save(aipc.folder / "einsum.onnx", nodes, [1, 6, 5], {"keys": keys})
    done = aipc.deploy(str(file), "--runtime", "ortqnn", "--engine", "venv")
    assert done.code == 0, done.out + done.error
    assert aipc.report()["verdict"] == "agrees"
    assert "einsum_to_matmul for operator Einsum, node /attention (convert): 1 place changed, helped" in done.out


def test_sizes_that_are_calculated_are_known_before_an_operator_is_rewritten(aipc: Aipc) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Shape", ["c"], ["sizes"], "/shape"),
        helper.make_node("Gather", ["sizes", "two"], ["size"], "/size", axis=0),
        helper.make_node("Div", ["size", "four"], ["end"], "/end"),
        helper.make_node("Range", ["zero", "end", "one"], ["rows"], "/range"),
        helper.make_node("Reshape", ["rows", "column"], ["places"], "/column"),
        helper.make_node("GatherND", ["c", "places"], ["g"], "/rows", batch_dims=1),
        helper.make_node("Tanh", ["g"], ["y"], "/tanh"),
    ]
    constants = {name: np.array(number) for name, number in {"zero": 0, "one": 1, "two": 2, "four": 4}.items()}
    file = save(aipc.folder / "sizes.onnx", nodes, [1, 3, 12, 20], {**constants, "column": np.array([1, -1, 1])})
    done = aipc.deploy(str(file), "--runtime", "ortqnn", "--engine", "venv")
    assert done.code == 0, done.out + done.error
    assert aipc.report()["verdict"] == "agrees"
    assert "gather_nd_to_gather for operator GatherND, node /rows (convert): 1 place changed, helped" in done.out


def test_an_operator_that_the_htp_takes_and_gets_wrong_is_rewritten(aipc: Aipc) -> None:
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"], "/pad", mode="edge"),
        helper.make_node("Conv", ["p", "w"], ["y"], "/conv"),
    ]
    pads = np.array([0, 0, 2, 1, 0, 0, 1, 2])
    file = save(aipc.folder / "edge.onnx", nodes, [1, 6, 13, 21], {"pads": pads})
    done = aipc.deploy(str(file), "--runtime", "ortqnn", "--engine", "venv")
    assert done.code == 0, done.out + done.error
    assert aipc.report()["verdict"] == "agrees"
    assert "pad_to_gather for wrong numbers: 1 place changed, helped" in done.out


def test_a_graph_at_which_onnx_runtime_dies_is_rewritten(aipc: Aipc) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Transpose", ["c"], ["t"], "/back", perm=[0, 3, 1, 2]),
        helper.make_node("ReduceMean", ["t"], ["m"], "/mean", axes=[2, 3]),
        helper.make_node("Reshape", ["m", "flat"], ["f"], "/flat"),
        helper.make_node("Gather", ["f", "places"], ["g"], "/strided"),
        helper.make_node("Transpose", ["g"], ["y"], "/forth", perm=[0, 2, 3, 1]),
    ]
    constants = {"flat": np.array([-1]), "places": np.arange(20).reshape(1, 20, 1, 1)}
    file = save(aipc.folder / "strided.onnx", nodes, [1, 1, 1, 20], constants)
    done = aipc.deploy(str(file), "--runtime", "ortqnn", "--engine", "venv")
    assert done.code == 0, done.out + done.error
    assert aipc.report()["verdict"] == "agrees"
    assert "flatten_gather for the process died (convert): 1 place changed, helped" in done.out


def test_a_graph_that_qnn_does_not_finish_is_rewritten(aipc: Aipc) -> None:
    nodes = [
        helper.make_node("Pow", ["x", "two"], ["p"], "/pow"),
        helper.make_node("ReduceMean", ["p"], ["m"], "/mean", axes=[-1]),
        helper.make_node("Add", ["m", "small"], ["a"], "/add"),
        helper.make_node("Sqrt", ["a"], ["s"], "/sqrt"),
        helper.make_node("Reciprocal", ["s"], ["r"], "/reciprocal"),
        helper.make_node("Mul", ["x", "r"], ["n"], "/norm"),
        helper.make_node("Mul", ["scale", "n"], ["z"], "/scale"),
        helper.make_node("Conv", ["z", "w"], ["y"], "/conv", pads=[1, 1, 1, 1]),
    ]
    scale = np.linspace(0.5, 1.5, 20, dtype=np.float32)
    constants = {"two": np.array(2, np.float32), "small": np.array(1e-6, np.float32), "scale": scale}
    file = save(aipc.folder / "rms.onnx", nodes, [1, 6, 12, 20], constants)
    done = aipc.deploy(str(file), "--runtime", "ortqnn", "--engine", "venv")
    assert done.code == 0, done.out + done.error
    assert aipc.report()["verdict"] == "agrees"
    assert "constant_factor_last for the toolchain gave up (convert): 1 place changed, helped" in done.out


def test_a_soc_that_nobody_knows_lists_those_that_are_known(aipc: Aipc) -> None:
    done = aipc.tiny("--target", "sm8651", runtime="ortqnn")
    assert done.code == 2
    assert "did you mean 'sm8650'?" in done.error


def test_a_soc_without_floats_is_refused_with_what_to_do(aipc: Aipc) -> None:
    done = aipc.tiny("--target", "qcm6490", runtime="ortqnn")
    assert done.code == 1
    assert aipc.report()["verdict"] == "refused"
    assert "error code 3110" in done.out
    assert "take int8 or a16w8" in done.out
    # It is the chip's lack and not the graph's: nothing is rewritten.
    assert [each["rewrite"] for each in aipc.report()["repairs"] if each["symptom"]] == []


def test_a_binary_for_several_socs_is_delivered_untried(aipc: Aipc) -> None:
    done = aipc.tiny("--target", "multi", runtime="ortqnn")
    assert done.code == 1
    assert aipc.report()["verdict"] == "untried"
    assert set(aipc.artifact()) == FILES
