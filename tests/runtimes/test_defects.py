"""The defects that toolchains let through, each a small graph: what they do with it, and what catches it here.

The adapters get each graph as no gate would let it reach them. Where one says "done", nothing else stands between the
defect and a user.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from runtimes.contract import Verdict
from runtimes.kit import qualcomm
from runtimes.kit.work import Failed
from runtimes.reference import gates
from runtimes.reference.judge import decide
from runtimes.reference.judge_case import Case, Samples
from tests.runtimes import openvino_jobs, ortqnn_jobs, rknn_jobs, tensorrt_jobs
from tests.runtimes.judge_cases import asked, group
from tests.runtimes.openvino_jobs import FLOAT, INT64, Ended, Made, conv_net, make, outputs, picture, reference
from tests.runtimes.test_ortqnn_guards import WITHOUT_STRICT

SHAPE = (1, 3, 6, 8)
RUNTIMES = ("openvino", "ortqnn", "rknn", "tensorrt")
"""QAIRT without an SDK reads a model by the ONNX Runtime that ortqnn has."""
BELIEVES_THE_CPU = f"""{WITHOUT_STRICT}
import sys
from pathlib import Path
import numpy as np
from runtimes.kit import qualcomm
qualcomm._taken = lambda session: tuple(node for nodes in qualcomm._assigned(session).values() for node in nodes)
qualcomm.check_providers = lambda session: None
model, feeds, answer = map(Path, sys.argv[1:])
opened = qualcomm.open_session(model, {{"backend_type": "htp", "soc_model": "57"}}, {{}}, answer.with_suffix(".log"))
np.save(answer, opened.session.run(None, dict(np.load(feeds)))[0])
"""
"""ONNX Runtime as it is without the strict flag, and a session that is believed."""

Convert = Callable[[str, Made], Ended]


def between(*nodes: onnx.NodeProto, kind: int = FLOAT) -> Made:
    return make(nodes, [("x", kind, SHAPE)], [("y", kind, SHAPE)])


def node(op: str, taken: str, given: str, name: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, taken.split(), [given], name or f"/{given}", **attributes)


def out_of_order() -> Made:
    return between(node("Neg", "a", "y"), node("Relu", "x", "a"))


def two_of_one_name() -> Made:
    return between(node("Relu", "x", "a", "/same"), node("Neg", "a", "y", "/same"))


def written_by_two_casts() -> Made:
    casts = [node("Cast", "x", "a", name, to=FLOAT) for name in ("/one", "/two")]
    return between(*casts, node("Relu", "a", "y"))


def halved() -> Made:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    made = conv_net()
    return dataclasses.replace(made, model=convert_float_to_float16(made.model, keep_io_types=True))


def cast_among_halves() -> Made:
    half = TensorProto.FLOAT16
    nodes = [node("Cast", "x", "a", to=FLOAT), node("Mul", "a x", "b"), node("Cast", "b", "y", to=half)]
    return between(*nodes, kind=half)


def opset_99() -> Made:
    made = between(node("Relu", "x", "y"))
    made.model.opset_import[0].version = 99
    return made


def wide_constant() -> Made:
    return make(
        [node("Add", "x big", "y")], [("x", INT64, [2, 3])], [("y", INT64, [2, 3])], {"big": np.array([2**31 + 5])}
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A defect of a file, the gate that stops it, and what each adapter says when it gets it all the same."""

    make: Callable[[], Made]
    gate: str
    openvino: str
    ortqnn: str
    rknn: str
    tensorrt: str


ROWS = {
    "nodes out of order": Row(
        make=out_of_order, gate="order", openvino="done", ortqnn="done", rknn="failed: invalid_model", tensorrt="done"
    ),
    "two nodes of one name": Row(
        make=two_of_one_name,
        gate="node_names",
        openvino="done",
        ortqnn="failed: invalid_model",
        rknn="done",
        tensorrt="done",
    ),
    "one output of two casts": Row(
        make=written_by_two_casts,
        gate="ssa",
        openvino="done",
        ortqnn="failed: invalid_model",
        rknn="done",
        tensorrt="failed: invalid_model",
    ),
    "fp16 by onnxruntime.transformers": Row(
        make=halved, gate="order", openvino="done", ortqnn="done", rknn="failed: invalid_model", tensorrt="done"
    ),
    "a cast to float among halves": Row(
        make=cast_among_halves,
        gate="session",
        openvino="failed: invalid_model",
        ortqnn="failed: invalid_model",
        rknn="done",
        tensorrt="failed: invalid_model",
    ),
    "opset 99": Row(
        make=opset_99,
        gate="opset",
        openvino="done",
        ortqnn="failed: unsupported_opset",
        rknn="refused: unsupported_opset",
        tensorrt="done",
    ),
    "whole numbers of more than 32 bits": Row(
        make=wide_constant, gate="wide_integers", openvino="done", ortqnn="done", rknn="done", tensorrt="done"
    ),
}


def feeds_of(made: Made, factor: float = 1.0) -> dict[str, Any]:
    return {port["name"]: (picture(shape=port["shape"]) * factor).astype(port["dtype"]) for port in made.inputs}


@pytest.fixture
def convert(tmp_path: Path, environment_python: Callable[[str], Path]) -> Convert:
    """Convert a model by the adapter of a runtime."""

    def convert(runtime: str, made: Made) -> Ended:
        """In the precision that the model has."""
        folder = tmp_path / runtime
        folder.mkdir()
        python = environment_python(runtime)
        if runtime == "rknn":
            return rknn_jobs.Jobs(folder, python).convert(made, {"a": feeds_of(made)})
        if runtime == "ortqnn":
            return ortqnn_jobs.QnnJobs(folder, python).convert(made)
        if runtime == "tensorrt":
            halves = any(tensor.data_type == TensorProto.FLOAT16 for tensor in made.model.graph.initializer)
            return tensorrt_jobs.Jobs(folder, python).convert(made, precision="fp16" if halves else "fp32")
        return openvino_jobs.Jobs(folder, python).convert(made)

    return convert


def told(ended: Ended) -> str:
    failure = ended.result.failure
    return f"{ended.result.status}: {failure.kind}" if failure else str(ended.result.status)


@pytest.mark.parametrize("name", ROWS)
def test_a_file_that_some_toolchain_lets_through_is_stopped_by_a_gate(
    name: str, tmp_path: Path, convert: Convert
) -> None:
    row = ROWS[name]
    made = row.make()
    path = tmp_path / "model.onnx"
    onnx.save_model(made.model, path)
    assert row.gate in {result.name for result in gates.check(path) if not result}
    found = {runtime: told(convert(runtime, made)) for runtime in RUNTIMES}
    assert found == {runtime: getattr(row, runtime) for runtime in RUNTIMES}


@pytest.mark.parametrize("what", ["missing", "renamed"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_toolchain_that_gives_other_outputs_than_were_asked_for_has_failed(
    runtime: str, what: str, convert: Convert
) -> None:
    """QAIRT's two ways are in the tests of its adapter, what a run gives is the judge's."""
    made = between(node("Relu", "x", "y"))
    other = {**made.outputs[0], "name": "z"}
    asked = [*made.outputs, other] if what == "missing" else [other]
    ended = convert(runtime, dataclasses.replace(made, outputs=asked))
    assert told(ended) == "failed: toolchain"
    assert "output 'z' is missing" in ended.failure.message


@pytest.mark.parametrize("runtime", ["openvino", "ortqnn"])
def test_whole_numbers_are_narrowed_without_a_word(
    runtime: str, tmp_path: Path, environment_python: Callable[[str], Path]
) -> None:
    jobs_of = {"openvino": openvino_jobs.Jobs, "ortqnn": ortqnn_jobs.QnnJobs}[runtime]
    jobs, made, feeds = jobs_of(tmp_path, environment_python(runtime)), wide_constant(), {"x": np.zeros((2, 3), int)}
    found = outputs(jobs.run(jobs.convert(made).artifact, {"a": feeds}))["a"]["y"]
    assert reference(made, feeds)["y"].flat[0] == 2**31 + 5
    assert found.flat[0] != 2**31 + 5
    assert verdict({"a": feeds}, {"a": reference(made, feeds)}, {"a": {"y": found}}) is Verdict.DISAGREES


def test_weights_that_are_not_there_end_a_build_by_tensorrt(
    tmp_path: Path, environment_python: Callable[[str], Path]
) -> None:
    """The tests of the other adapters have this for themselves."""

    def torn(made: Made, folder: Path) -> None:
        path = folder / "model.onnx"
        onnx.save_model(made.model, path, save_as_external_data=True, location="data", size_threshold=0)
        (folder / "data").unlink()

    ended = tensorrt_jobs.Jobs(tmp_path, environment_python("tensorrt")).convert(conv_net(), write=torn)
    assert told(ended) == "failed: invalid_model"
    assert "Failed to import initializer: w1" in ended.failure.message


def einsum() -> Made:
    ports = [("x", FLOAT, [1, 2, 3, 4, 5]), ("w", FLOAT, [1, 6, 2, 3])]
    return make([node("Einsum", "x w", "y", equation="bmchw,bnmc->bmhwn")], ports, [("y", FLOAT, [1, 2, 4, 5, 6])])


def modulo() -> Made:
    return make(
        [node("Mod", "x three", "y", fmod=1)], [("x", FLOAT, SHAPE)], [("y", FLOAT, SHAPE)], {"three": np.float32(3)}
    )


UNTAKEN: dict[str, Callable[[], Made]] = {
    "Einsum": einsum,
    "Erf": lambda: between(node("Erf", "x", "y")),
    "Mod": modulo,
    "Trilu": lambda: between(node("Trilu", "x", "y")),
}


@pytest.mark.parametrize("op", UNTAKEN)
def test_what_the_htp_does_not_take_is_on_the_cpu_and_identical_to_it_without_the_strict_flag(
    op: str, tmp_path: Path, environment_python: Callable[[str], Path]
) -> None:
    jobs, made = ortqnn_jobs.QnnJobs(tmp_path, environment_python("ortqnn")), UNTAKEN[op]()
    caught = jobs.convert(made)
    assert (told(caught), caught.failure.op, caught.failure.node) == ("refused: unsupported_op", op, "/y")
    feeds = feeds_of(made, 5.0)
    np.savez(tmp_path / "x.npz", **feeds)
    jobs.program(BELIEVES_THE_CPU, *(str(tmp_path / name) for name in ("convert-model/model.onnx", "x.npz", "y.npy")))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), reference(made, feeds)["y"])


def test_a_plain_onnx_runtime_opens_a_session_for_qnn_and_runs_it_on_the_cpu() -> None:
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    model = conv_net().model.SerializeToString()
    with pytest.warns(UserWarning, match="QNNExecutionProvider"):
        session = onnxruntime.InferenceSession(model, settings, providers=[qualcomm.PLUGIN])
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(Failed, match="was asked for, but ONNX Runtime uses CPUExecutionProvider"):
        qualcomm.check_providers(session)


WITHOUT_KERNEL: dict[str, Callable[[], Made]] = {
    "Det": lambda: make([node("Det", "x", "y")], [("x", FLOAT, [2, 3, 3])], [("y", FLOAT, [2])]),
    "Atan": lambda: between(node("Atan", "x", "y")),
    "ScatterElements": lambda: make(
        [node("ScatterElements", "x i u", "y", axis=1)],
        [("x", FLOAT, [1, 6])],
        [("y", FLOAT, [1, 6])],
        {"i": np.array([[1, 4]]), "u": np.array([[7.0, 8.0]], np.float32)},
    ),
}
"""Trilu and IsNaN are in the tests of the adapter's guards."""


@pytest.mark.parametrize("op", WITHOUT_KERNEL)
def test_what_the_npu_has_no_kernel_for_is_refused_and_the_simulator_agrees_without_the_guard(
    op: str, tmp_path: Path, environment_python: Callable[[str], Path]
) -> None:
    jobs, made = rknn_jobs.Jobs(tmp_path, environment_python("rknn")), WITHOUT_KERNEL[op]()
    feeds = feeds_of(made)
    caught = jobs.convert(made, {"a": feeds})
    assert (told(caught), caught.failure.op, caught.failure.node) == ("refused: unsupported_op", op, "/y")
    passed = jobs.convert(made, {"a": feeds}, name="passed", without="_check_lowered")
    np.testing.assert_allclose(outputs(passed)["a"]["y"], reference(made, feeds)["y"], rtol=1e-2, atol=1e-2)


def verdict(samples: Samples, golden: Samples, found: Samples) -> Verdict:
    """Return the judge's verdict by the tolerances of fp16."""
    options = asked(golden, (group("y", "y", cosine=0.999, snr_db=30.0),))
    return decide(Case(options=options, samples=samples, golden=golden, outputs=found, cpu={})).verdict


def squares() -> Made:
    """x·400, squared, then the mean: more than float16 holds on the way."""
    nodes = [node("Mul", "x k", "a"), node("Mul", "a a", "b"), node("ReduceMean", "b", "y", axes=[3])]
    return make(nodes, [("x", FLOAT, SHAPE)], [("y", FLOAT, [1, 3, 6, 1])], {"k": np.float32(400)})


@pytest.mark.parametrize("runtime", ["ortqnn", "rknn"])
def test_an_overflow_of_float16_inside_disagrees(
    runtime: str, tmp_path: Path, environment_python: Callable[[str], Path]
) -> None:
    made = squares()
    samples = {f"times-{factor}": {"x": (picture(factor, SHAPE) + 0.5) * factor} for factor in (1, 2)}
    golden = {name: reference(made, feeds) for name, feeds in samples.items()}
    if runtime == "rknn":
        found = outputs(rknn_jobs.Jobs(tmp_path, environment_python("rknn")).convert(made, samples))
    else:
        jobs = ortqnn_jobs.QnnJobs(tmp_path, environment_python("ortqnn"))
        found = outputs(jobs.run(jobs.convert(made).artifact, samples))
    assert verdict(samples, golden, golden) is Verdict.AGREES
    assert verdict(samples, golden, found) is Verdict.DISAGREES


def test_a_picture_given_channels_last_disagrees_though_all_its_sizes_are_equal(
    tmp_path: Path, environment_python: Callable[[str], Path]
) -> None:
    weights = np.random.default_rng(1).normal(0, 0.3, (3, 3, 3, 1)).astype(np.float32)
    conv = node("Conv", "x w", "y", pads=[1, 0, 1, 0])
    made = make([conv], [("x", FLOAT, [1, 3, 3, 3])], [("y", FLOAT, [1, 3, 3, 3])], {"w": weights})
    samples = {f"times-{factor}": {"x": picture(factor, (1, 3, 3, 3)) * factor} for factor in (1, 2)}
    golden = {name: reference(made, feeds) for name, feeds in samples.items()}
    jobs = rknn_jobs.Jobs(tmp_path, environment_python("rknn"))
    assert verdict(samples, golden, outputs(jobs.convert(made, samples))) is Verdict.AGREES
    build = jobs.code / "runtimes" / "rknn" / "build.py"
    text = build.read_text(encoding="utf-8")
    assert 'LAYOUT = "nchw"' in text
    build.write_text(text.replace('LAYOUT = "nchw"', 'LAYOUT = "nhwc"'), encoding="utf-8")
    assert verdict(samples, golden, outputs(jobs.convert(made, samples, name="wrong"))) is Verdict.DISAGREES


IN_BF16 = """
import openvino
really_compile = openvino.Core.compile_model
def compile_model(core, model, device, options):
    return really_compile(core, model, device, {**options, "INFERENCE_PRECISION_HINT": "bf16"})
openvino.Core.compile_model = compile_model
"""


def test_a_cpu_with_bf16_calculates_in_f32_only_because_it_is_told_to(tmp_path: Path, openvino_python: Path) -> None:
    if "avx512_bf16" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("this CPU has no avx512_bf16")
    weights = np.random.default_rng(3).normal(0, 1, (256, 256)).astype(np.float32)
    made = make([node("MatMul", "x w", "y")], [("x", FLOAT, [256, 256])], [("y", FLOAT, [256, 256])], {"w": weights})
    feeds = {"x": picture(shape=(256, 256))}
    wanted = reference(made, feeds)["y"]
    jobs = openvino_jobs.Jobs(tmp_path, openvino_python)
    artifact = jobs.convert(made).artifact
    found = outputs(jobs.run(artifact, {"a": feeds}))["a"]["y"]
    assert np.abs(found - wanted).max() < 1e-3
    caught = jobs.run(artifact, {"a": feeds}, spoil=IN_BF16, name="caught")
    assert "CPU calculates in bf16" in caught.failure.message
    passed = jobs.run(artifact, {"a": feeds}, spoil=IN_BF16, without="_check_calculation", name="passed")
    assert np.abs(outputs(passed)["a"]["y"] - wanted).max() > 0.02
