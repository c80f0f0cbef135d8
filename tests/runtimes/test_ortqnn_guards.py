"""The guards against false success on the HTP: each case passes only without its guard, switched off by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from runtimes.contract import Kind, Status
from tests.runtimes.openvino_jobs import Ended, Made, conv_net, outputs, picture
from tests.runtimes.ortqnn_jobs import QnnJobs, einsums

PHOTO = {"photo": {"x": picture()}}
WITHOUT_STRICT = """
import onnxruntime
really_add = onnxruntime.SessionOptions.add_session_config_entry
onnxruntime.SessionOptions.add_session_config_entry = lambda settings, key, value: (
    None if key == "session.disable_cpu_ep_fallback" else really_add(settings, key, value)
)
"""
ONLY_CPU = """
import onnxruntime
really_make = onnxruntime.InferenceSession
class Session(really_make):
    def get_providers(self):
        return ["CPUExecutionProvider"]
onnxruntime.InferenceSession = Session
"""
SAYS_NOTHING = """
import onnxruntime
onnxruntime.InferenceSession.get_provider_graph_assignment_info = lambda session: []
"""
AFTER_BUILDING = """
from runtimes.kit import qualcomm
really_open = qualcomm.open_session
def open_session(model, backend, entries, log):
    opened = really_open(model, backend, entries, log)
    if path := entries.get("ep.context_file_path"):
        from pathlib import Path
        folder = Path(path).parent
        {then}
    return opened
qualcomm.open_session = open_session
"""
NO_CONTEXT = AFTER_BUILDING.format(then="(folder / 'model_ctx.onnx').unlink()")
NO_BINARY = AFTER_BUILDING.format(then="(folder / 'model_ctx_qnn.bin').unlink()")
EMPTY_BINARY = AFTER_BUILDING.format(then="(folder / 'model_ctx_qnn.bin').write_bytes(b'')")
# What is not opened again is not missed.
BELIEVED = """
from runtimes.ortqnn import adapter
from runtimes.kit import qualcomm
kept = []
opens = qualcomm.open_session
def keep(*arguments):
    kept.append(opens(*arguments))
    return kept[-1]
qualcomm.open_session = keep
adapter._load = lambda *arguments: kept[-1].session
"""
SAVES_ANOTHER = AFTER_BUILDING.format(
    then="""import onnx
        graph = onnx.load(folder / 'model_ctx.onnx')
        {change}
        onnx.save(graph, folder / 'model_ctx.onnx')"""
)
ADDS_A_NODE = SAVES_ANOTHER.format(
    change="graph.graph.node.append(onnx.helper.make_node('Relu', ['y'], ['z'], '/left'))"
)
RENAMES_AN_OUTPUT = SAVES_ANOTHER.format(change="graph.graph.node[0].output[0] = graph.graph.output[0].name = 'other'")
RESIZES_AN_INPUT = SAVES_ANOTHER.format(change="graph.graph.input[0].type.tensor_type.shape.dim[3].dim_value = 21")
RETYPES_AN_INPUT = SAVES_ANOTHER.format(change="graph.graph.input[0].type.tensor_type.elem_type = 10")
NO_OUTPUTS = SAVES_ANOTHER.format(change="del graph.graph.output[:]")
OTHER_SOC = """
from runtimes.ortqnn import adapter
really = adapter._backend
adapter._backend = lambda *numbers: really(43)
"""
FEWER_SOCS = """
from runtimes.ortqnn import adapter
really = adapter._backend
adapter._backend = lambda *numbers: really(*numbers[:2])
"""
RENAMES = """
from runtimes.ortqnn import adapter
really_ports = adapter._ports
adapter._ports = lambda described: [
    adapter.Port(name=port.name.upper(), shape=port.shape, dtype=port.dtype) for port in really_ports(described)
]
"""
MORE_THAN_CONTEXTS = """
from runtimes.kit import qualcomm
really_open = qualcomm.open_session
def open_session(model, backend, entries, log):
    opened = really_open(model, backend, entries, log)
    nodes = () if entries else (qualcomm.Node(name="/left", op="Relu"),)
    return qualcomm.Opened(session=opened.session, nodes=(*opened.nodes, *nodes))
qualcomm.open_session = open_session
"""
OTHER_VERSIONS = """
from runtimes.ortqnn import adapter
adapter.versions = lambda: {"onnxruntime": "1.33.0", "onnxruntime-qnn": "2.8.0", "qnn": "2.52.0"}
"""


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> QnnJobs:
    return QnnJobs(tmp_path, environment_python("ortqnn"))


@dataclass(frozen=True, kw_only=True)
class Defect:
    """Something wrong while a model is converted, and what its guard says of it."""

    guard: str
    words: str
    spoil: str
    kind: Kind = Kind.TOOLCHAIN
    target: str = "sm8650"
    blind: str = ""


def dynamic() -> Made:
    return replace(conv_net("n"), inputs=conv_net().inputs, outputs=conv_net().outputs)


CONVERTING = (
    Defect(
        guard="_check_ports",
        words="input 'X' was never asked for; input 'x' is missing; output 'Y'",
        spoil=RENAMES,
        # What this guard returns is needed, so it is told that all is well.
        blind="adapter.differences = lambda *_: []",
    ),
    *(
        Defect(guard="context._check_ports", words=words, spoil=spoil, target="multi")
        for words, spoil in (
            ("output 'other' was never asked for; output 'y' is missing", RENAMES_AN_OUTPUT),
            ("input 'x' has the shape [1, 3, 16, 21] instead of [1, 3, 16, 20]", RESIZES_AN_INPUT),
            ("input 'x' is float16 instead of float32", RETYPES_AN_INPUT),
            ("output 'y' is missing", NO_OUTPUTS),
        )
    ),
    Defect(
        guard="context._check_nodes",
        words="model_ctx.onnx holds Relu '/left' beside its context",
        spoil=ADDS_A_NODE,
        target="multi",
    ),
    Defect(
        guard="context._check_socs",
        words="model_ctx_qnn.bin is for sm8550, not for sm8650",
        kind=Kind.MISSING_RESULT,
        spoil=OTHER_SOC,
    ),
    Defect(
        guard="_check_context", words="model_ctx.onnx holds Relu '/left' beside its context", spoil=MORE_THAN_CONTEXTS
    ),
    Defect(
        guard="context._check_socs",
        words="model_ctx_qnn.bin is for sm8550, sm8650, not for sc8380xp, sm8550, sm8650, sm8750",
        kind=Kind.MISSING_RESULT,
        spoil=FEWER_SOCS,
        target="multi",
    ),
    Defect(
        guard="context.check",
        words="ONNX Runtime reported success, but wrote no model_ctx.onnx",
        kind=Kind.MISSING_RESULT,
        spoil=BELIEVED + NO_CONTEXT,
    ),
    Defect(
        guard="context.check",
        words="ONNX Runtime reported success, but wrote no context binary beside model_ctx.onnx",
        kind=Kind.MISSING_RESULT,
        spoil=BELIEVED + NO_BINARY,
    ),
    Defect(
        guard="context.check",
        words="ONNX Runtime reported success, but wrote no context binary beside model_ctx.onnx",
        kind=Kind.MISSING_RESULT,
        spoil=BELIEVED + EMPTY_BINARY,
    ),
)


def is_caught(ended: Ended, defect: Defect) -> bool:
    assert (ended.result.status, ended.failure.kind) == (Status.FAILED, defect.kind), ended.log
    return defect.words in ended.failure.message


@pytest.mark.parametrize("defect", CONVERTING, ids=lambda defect: defect.guard)
def test_a_defect_of_converting_passes_only_without_its_guard(jobs: QnnJobs, defect: Defect) -> None:
    assert is_caught(jobs.convert(conv_net(), spoil=defect.spoil, target=defect.target), defect)
    module, _, name = defect.guard.rpartition(".")
    off = f"from runtimes.ortqnn import {module}\n{defect.guard} = lambda *_: None\n" if module else defect.blind
    without = "" if off else name
    passed = jobs.convert(conv_net(), spoil=defect.spoil + off, without=without, name="without", target=defect.target)
    assert passed.result, passed.log


def test_a_dynamic_model_is_another_failure_without_its_guard(jobs: QnnJobs) -> None:
    caught = jobs.convert(dynamic())
    assert (caught.result.status, caught.failure.kind) == (Status.REFUSED, Kind.DYNAMIC_SHAPE)
    assert caught.failure.message == "model.onnx: input 'x' has the shape [n, 3, 16, 20]; sizes must be known"
    passed = jobs.convert(dynamic(), without="check_static", name="without")
    # Every node is then on the CPU, and the vendor does not say why.
    assert passed.failure.kind is Kind.UNSUPPORTED_OP


def test_the_cpu_does_not_take_over_only_because_it_is_forbidden_and_because_it_is_looked_for(jobs: QnnJobs) -> None:
    caught = jobs.convert(einsums(), spoil=WITHOUT_STRICT)
    assert (caught.result.status, caught.failure.op) == (Status.FAILED, "Einsum")
    assert caught.failure.message.startswith("CPUExecutionProvider runs Einsum")
    blind = """
from runtimes.kit import qualcomm
qualcomm._taken = lambda session: tuple(qualcomm._assigned(session)[qualcomm.PLUGIN])
from runtimes.ortqnn import context
context._check_nodes = lambda graph: None
"""
    passed = jobs.convert(einsums(), spoil=WITHOUT_STRICT + blind, without="_check_context", name="without")
    assert passed.result, passed.log


def test_a_session_of_another_provider_is_a_failure_only_with_its_guard(jobs: QnnJobs) -> None:
    caught = jobs.convert(conv_net(), spoil=ONLY_CPU)
    words = "QNNExecutionProvider was asked for, but ONNX Runtime uses CPUExecutionProvider"
    assert (caught.failure.kind, caught.failure.message) == (Kind.TOOLCHAIN, words)
    blind = "from runtimes.kit import qualcomm\nqualcomm.check_providers = lambda session: None"
    assert jobs.convert(conv_net(), spoil=ONLY_CPU + blind, name="without").result


def test_a_session_that_does_not_say_where_its_nodes_run_is_a_failure(jobs: QnnJobs) -> None:
    caught = jobs.convert(conv_net(), spoil=SAYS_NOTHING)
    assert caught.failure.kind is Kind.TOOLCHAIN
    assert "the session names no node that QNNExecutionProvider runs" in caught.failure.message


def test_an_artefact_of_other_versions_runs_only_without_its_guard(jobs: QnnJobs) -> None:
    artifact = jobs.convert(conv_net(), spoil=OTHER_VERSIONS).artifact
    caught = jobs.run(artifact, PHOTO)
    assert (caught.result.status, caught.failure.kind) == (Status.REFUSED, Kind.TOOLCHAIN)
    assert list(outputs(jobs.run(artifact, PHOTO, without="_check_versions", name="without"))["photo"]) == ["y"]


def test_a_sample_that_does_not_fit_is_the_vendors_failure_without_its_guard(jobs: QnnJobs) -> None:
    artifact = jobs.convert(conv_net()).artifact
    flat = {"photo": {"x": picture()[0]}}
    assert jobs.run(artifact, flat).result.status is Status.MISUSED
    assert jobs.run(artifact, flat, without="_check_feeds", name="without").result.status is Status.FAILED


@pytest.mark.parametrize("then", ["os.abort()", "os.kill(os.getpid(), 11)"])
def test_a_crash_of_the_vendors_library_keeps_its_last_words(jobs: QnnJobs, then: str) -> None:
    dies = f"""
import os, ctypes, onnxruntime
class Session:
    def __init__(self, *arguments):
        ctypes.CDLL(None).puts(b"the vendor's last words")
        ctypes.CDLL(None).fflush(None)
        {then}
onnxruntime.InferenceSession = Session
"""
    with pytest.raises(AssertionError, match="the vendor's last words"):
        jobs.convert(conv_net(), spoil=dies)
