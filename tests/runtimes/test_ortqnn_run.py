"""Running context binaries on the HTP emulator: the real toolchain, started as the engine starts it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from runtimes import ortqnn
from runtimes.contract import Json, Kind, Status, Step
from tests.runtimes.openvino_jobs import FLOAT, Made, conv_net, make, outputs, picture, reference
from tests.runtimes.ortqnn_jobs import QnnJobs, snr
from tests.runtimes.rewrites.graphs import rewritten

PHOTO = {"photo": {"x": picture()}}


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> QnnJobs:
    return QnnJobs(tmp_path, environment_python("ortqnn"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "fp32"}, "options.precision: 'fp32' is not allowed; known are a16w8, fp16, int8"),
        ({"target": "sm8651"}, "options.target: 'sm8651' is not allowed; did you mean 'sm8650'"),
        ({"soc": 57}, "options: unknown key 'soc'"),
    ],
)
def test_options_that_do_not_fit_are_misuse(jobs: QnnJobs, options: Mapping[str, Json], words: str) -> None:
    jobs.root.joinpath("nothing").mkdir()
    told = {"precision": "fp16", "target": "sm8650", **options}
    ended = jobs.job(Step.RUN, {"artifact": jobs.root / "nothing"}, told, "run")
    assert ended.result.status is Status.MISUSED
    assert words in ended.failure.message


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({}, "input 'x' is missing"),
        ({"x": picture(), "z": picture()}, "input 'z' was never asked for"),
        ({"x": picture().transpose(0, 1, 3, 2)}, "input 'x' has the shape [1, 3, 20, 16] instead of [1, 3, 16, 20]"),
        ({"x": picture().astype("float64")}, "input 'x' is float64 instead of float32"),
    ],
)
def test_a_sample_that_does_not_fit_is_misuse(jobs: QnnJobs, feeds: Mapping[str, Any], words: str) -> None:
    artifact = jobs.convert(conv_net()).artifact
    ended = jobs.run(artifact, {"a": {"x": picture()}, "b": feeds})
    assert ended.result.status is Status.MISUSED
    assert f"in/samples: 'b' does not fit the artefact: {words}" in ended.failure.message


def cut(artifact: Path) -> None:
    path = artifact / "model_ctx_qnn.bin"
    path.write_bytes(path.read_bytes()[:4096])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (cut, "Failed to load from EpContext model"),
        (
            lambda artifact: (artifact / "model_ctx_qnn.bin").unlink(),
            "The file path in ep_cache_context does not exist",
        ),
        (lambda artifact: (artifact / "model_ctx.onnx").write_bytes(b"no context"), "INVALID_PROTOBUF"),
    ],
)
def test_an_artefact_that_is_not_whole_is_a_failure_in_the_vendors_words(
    jobs: QnnJobs, spoil: Callable[[Path], object], words: str
) -> None:
    artifact = jobs.convert(conv_net()).artifact
    spoil(artifact)
    ended = jobs.run(artifact, PHOTO)
    assert ended.result.status is Status.FAILED
    assert words in ended.failure.message


def test_an_artefact_without_its_build_is_misuse(jobs: QnnJobs) -> None:
    artifact = jobs.convert(conv_net()).artifact
    (artifact / "build.json").unlink()
    ended = jobs.run(artifact, PHOTO)
    assert (ended.result.status, ended.failure.message) == (
        Status.MISUSED,
        "in/artifact: holds no build.json; convert writes it",
    )


def test_an_artefact_for_another_soc_is_misuse(jobs: QnnJobs) -> None:
    artifact = jobs.convert(conv_net(), target="sm8550").artifact
    ended = jobs.run(artifact, PHOTO)
    assert ended.result.status is Status.MISUSED
    assert ended.failure.message == "in/artifact: is for sm8550, not for sm8650; convert for the target"


def test_an_artefact_of_other_versions_is_refused_and_both_are_named(jobs: QnnJobs) -> None:
    artifact = jobs.convert(conv_net()).artifact
    path = artifact / "build.json"
    build = json.loads(path.read_text(encoding="utf-8"))
    build["versions"] |= {"onnxruntime-qnn": "2.3.0", "onnxruntime": "1.24.0"}
    path.write_text(json.dumps(build), encoding="utf-8")
    ended = jobs.run(artifact, PHOTO)
    assert (ended.result.status, ended.failure.kind) == (Status.REFUSED, Kind.TOOLCHAIN)
    assert "built with onnxruntime 1.24.0, onnxruntime-qnn 2.3.0; here is onnxruntime 1.32.0" in ended.failure.message
    assert ended.failure.hint == "convert the model again"


def test_what_the_emulator_raises_is_a_failure_in_its_words(jobs: QnnJobs) -> None:
    artifact = jobs.convert(conv_net()).artifact
    gives_up = """
import onnxruntime
def run(session, names, feeds):
    raise onnxruntime.capi.onnxruntime_pybind11_state.EPFail("graph execution failed: 1003")
onnxruntime.InferenceSession.run = run
"""
    ended = jobs.run(artifact, PHOTO, spoil=gives_up)
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)
    assert ended.failure.message == "graph execution failed: 1003"


def conv_gelu() -> Made:
    """A GELU behind a convolution, which the HTP calculates as one operator."""
    random = np.random.default_rng(7)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"], "/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Gelu", ["h"], ["y"], "/gelu"),
    ]
    weights = {"w": random.normal(0, 0.3, (24, 3, 3, 3)), "b": random.normal(0, 0.3, 24)}
    constants = {name: array.astype(np.float32) for name, array in weights.items()}
    made = make(nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [1, 24, 16, 20])], constants)
    made.model.opset_import[0].version = 20
    return made


def unlikely() -> Made:
    """Probabilities near 0."""
    nodes = [
        helper.make_node("Sub", ["x", "far"], ["h"], "/sub"),
        helper.make_node("Sigmoid", ["h"], ["y"], "/sigmoid"),
    ]
    return make(
        nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [1, 3, 16, 20])], {"far": np.full(1, 8, np.float32)}
    )


def one_row() -> Made:
    """An average with padding of a map of one row, as the last blocks of an Inception have it."""
    nodes = [
        helper.make_node("ReduceMean", ["x", "rows"], ["h"], "/mean"),
        helper.make_node(
            "AveragePool", ["h"], ["y"], "/pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
        ),
    ]
    constants = {"rows": np.array([2], np.int64)}
    made = make(nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [1, 3, 1, 20])], constants)
    made.model.opset_import[0].version = 18
    return made


def too_large() -> Made:
    """Numbers above 65504 inside the graph."""
    nodes = [
        helper.make_node("Mul", ["x", "large"], ["h"], "/mul"),
        helper.make_node("Relu", ["h"], ["i"], "/relu"),
        helper.make_node("Mul", ["i", "small"], ["y"], "/back"),
    ]
    constants = {"large": np.full(1, 3e5, np.float32), "small": np.full(1, 1e-5, np.float32)}
    return make(nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [1, 3, 16, 20])], constants)


def no_squares() -> Made:
    """Squares of −0."""
    nodes = [
        helper.make_node("Mul", ["x", "none"], ["h"], "/none"),
        helper.make_node("Pow", ["h", "two"], ["p"], "/square"),
        helper.make_node("Add", ["p", "x"], ["y"], "/add"),
    ]
    constants = {"none": np.full(1, -1e-9, np.float32), "two": np.array(2, np.float32)}
    return make(nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [1, 3, 16, 20])], constants)


def larger_volume() -> Made:
    """A Resize in three dimensions."""
    nodes = [
        helper.make_node("Reshape", ["x", "deep"], ["h"], "/deep"),
        helper.make_node("Resize", ["h", "", "twice"], ["y"], "/resize", mode="linear"),
    ]
    constants = {"deep": np.array([1, 3, 4, 4, 20]), "twice": np.array([1, 1, 2, 2, 2], np.float32)}
    return make(nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [1, 3, 8, 8, 40])], constants)


def of_bytes() -> Made:
    """A picture of bytes, cast to floats."""
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], "/cast", to=FLOAT),
        helper.make_node("Mul", ["f", "k"], ["y"], "/mul"),
    ]
    sizes = [1, 3, 16, 20]
    return make(nodes, [("x", TensorProto.UINT8, sizes)], [("y", FLOAT, sizes)], {"k": np.float32(0.5)})


@pytest.mark.parametrize(
    ("made", "rewrites"),
    [
        (conv_gelu(), ("decompose_gelu", "erf_to_polynomial")),
        (unlikely(), ("sigmoid_to_exp",)),
        (one_row(), ("average_pool_to_conv",)),
        (too_large(), ("scale_overflow",)),
        (no_squares(), ("power_to_mul",)),
        (larger_volume(), ("split_resize",)),
        (of_bytes(), ("cast_bytes_through_int32",)),
    ],
    ids=[
        "a GELU",
        "an unlikely thing",
        "an average of one row",
        "numbers too large",
        "squares of nothing",
        "a volume",
        "bytes",
    ],
)
def test_what_the_htp_takes_and_gets_wrong_is_right_as_repairs_toml_has_it(
    jobs: QnnJobs, made: Made, rewrites: Sequence[str]
) -> None:
    lines = (Path(ortqnn.__file__).parent / "repairs.toml").read_text(encoding="utf-8")
    is_of_bytes = made.model.graph.input[0].type.tensor_type.elem_type == TensorProto.UINT8
    photo = {"photo": {"x": (picture() * 255).astype(np.uint8)}} if is_of_bytes else PHOTO
    wanted = reference(made, photo["photo"])["y"]

    def error(of: Made, name: str) -> float:
        artifact = jobs.convert(of, name=name).artifact
        return snr(outputs(jobs.run(artifact, photo, name=f"{name}-run"))["photo"]["y"], wanted)

    before = error(made, "before")
    for rewrite in rewrites:
        line = f'rewrite = "{rewrite}"\n'
        assert f'{line}verdict = "disagrees"' in lines or f"[[always]]\n{line}" in lines
        made = dataclasses.replace(made, model=rewritten(made.model, rewrite, samples=photo)[0])
    assert error(made, "after") > before + 5
