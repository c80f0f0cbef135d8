"""What OpenVINO could do wrong without a word: its guard catches each, and with that guard switched off it passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from runtimes.contract import Kind, Status
from tests.runtimes.openvino_jobs import FLOAT, Ended, Jobs, Made, conv_net, make, outputs, picture

pytestmark = pytest.mark.toolchain

AFTER_SAVING = """
import openvino
really_save = openvino.save_model
kept = []
def save_model(model, path, **options):
    really_save(model, path, **options)
    kept.append(model.clone())
    {then}
openvino.save_model = save_model
"""
NO_BIN = AFTER_SAVING.format(then="path.with_name('model.bin').unlink()")
NO_XML = AFTER_SAVING.format(then="path.unlink()")
EMPTY_BIN = AFTER_SAVING.format(then="path.with_name('model.bin').write_bytes(b'')")
CUT_BIN = AFTER_SAVING.format(then="file = path.with_name('model.bin'); file.write_bytes(file.read_bytes()[:-1])")
BELIEVED = """
from runtimes.openvino import adapter
adapter._read_back = lambda core, artifact: kept[0]
"""
LEAVES_ONE_OUT = """
import openvino
really_ask = openvino.Core.query_model
openvino.Core.query_model = lambda core, model, device: {
    name: place for name, place in really_ask(core, model, device).items() if name != "/body/Relu"
}
"""
FALLS_BACK = """
import openvino
really_compile = openvino.Core.compile_model
openvino.Core.available_devices = property(lambda core: ["CPU", "GPU"])
openvino.Core.compile_model = lambda core, model, device, options: really_compile(core, model, "CPU", options)
"""
CALCULATES_IN_BF16 = """
import openvino
really_get = openvino.CompiledModel.get_property
openvino.CompiledModel.get_property = lambda compiled, name: (
    openvino.Type.bf16 if name == "INFERENCE_PRECISION_HINT" else really_get(compiled, name)
)
"""
RAISES = """
import openvino
def gives_up(*arguments):
    raise RuntimeError("Exception from somewhere: no plugins")
"""
NO_CORE = f"{RAISES}\nopenvino.Core = gives_up"
NO_DEVICES = f"{RAISES}\nopenvino.Core.available_devices = property(gives_up)"
NO_PROPERTIES = f"{RAISES}\nopenvino.CompiledModel.get_property = gives_up"
TELLS_ONLY_WHAT_IT_MUST = f"""{RAISES}
openvino.Core.get_property = gives_up
openvino.CompiledModel.get_runtime_model = gives_up
really_get = openvino.CompiledModel.get_property
openvino.CompiledModel.get_property = lambda compiled, name: (
    gives_up() if name == "PERFORMANCE_HINT" else really_get(compiled, name)
)
"""


@pytest.fixture
def jobs(tmp_path: Path, openvino_python: Path) -> Jobs:
    return Jobs(tmp_path, openvino_python)


@dataclass(frozen=True, kw_only=True)
class Defect:
    """Something wrong, and what its guard says of it."""

    guard: str
    words: str
    kind: Kind = Kind.TOOLCHAIN
    status: Status = Status.FAILED
    spoil: str = ""


def hollow() -> Made:
    # OpenVINO 2026.4.1 turns this into a model that returns its only input, and reports success.
    nodes = [
        helper.make_node("SequenceConstruct", ["x"], ["s"], "/construct"),
        helper.make_node("SequenceAt", ["s", "i"], ["y"], "/at"),
    ]
    return make(nodes, [("x", FLOAT, [3])], [("y", FLOAT, [3])], {"i": np.array(0)})


def dynamic() -> Made:
    return replace(conv_net("n"), inputs=conv_net().inputs, outputs=conv_net().outputs)


def weightless() -> Made:
    return make([helper.make_node("Add", ["x", "x"], ["y"], "/a")], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])])


def huge() -> Made:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "/m")
    weights = {"w": np.full((64, 64), 1e6, dtype=np.float32)}
    return make([node], [("x", FLOAT, [8, 64])], [("y", FLOAT, [8, 64])], weights)


CONVERTING: tuple[tuple[Callable[[], Made], Defect], ...] = (
    (
        dynamic,
        Defect(
            guard="_check_static",
            words="model.onnx: input 'x' has the shape [?,3,16,20]; sizes must be known",
            kind=Kind.DYNAMIC_SHAPE,
            status=Status.REFUSED,
        ),
    ),
    (
        weightless,
        Defect(
            guard="_check_files",
            words="OpenVINO reported success, but wrote no model.bin",
            kind=Kind.MISSING_RESULT,
            spoil=NO_BIN,
        ),
    ),
    (hollow, Defect(guard="_check_ports", words="input 'x' is missing; input 'y' was never asked for")),
    (
        huge,
        Defect(
            guard="_check_precision", words="fp16 was asked for, but OpenVINO stored none of the 4096 weights in f16"
        ),
    ),
    (
        conv_net,
        Defect(
            guard="_check_taken",
            words="CPU does not take Relu '/body/Relu'",
            kind=Kind.UNSUPPORTED_OP,
            spoil=LEAVES_ONE_OUT,
        ),
    ),
)


def is_caught(ended: Ended, defect: Defect) -> bool:
    assert (ended.result.status, ended.failure.kind) == (defect.status, defect.kind), ended.log
    return defect.words in ended.failure.message


@pytest.mark.parametrize(("make_model", "defect"), CONVERTING, ids=[defect.guard for _, defect in CONVERTING])
def test_a_defect_of_converting_passes_only_without_its_guard(
    jobs: Jobs, make_model: Callable[[], Made], defect: Defect
) -> None:
    made = make_model()
    assert is_caught(jobs.convert(made, precision="fp16", spoil=defect.spoil), defect)
    passed = jobs.convert(made, precision="fp16", spoil=defect.spoil, without=defect.guard, name="without")
    assert passed.result, passed.log


@pytest.mark.parametrize("spoil", [EMPTY_BIN, CUT_BIN])
def test_weights_that_are_not_all_there_show_when_the_ir_is_read_back(jobs: Jobs, spoil: str) -> None:
    ended = jobs.convert(conv_net(), spoil=spoil)
    assert is_caught(ended, Defect(guard="_read_back", words="Incorrect weights in bin file"))
    assert jobs.convert(conv_net(), spoil=spoil + BELIEVED, name="without").result


def test_an_artefact_without_its_xml_is_a_missing_result(jobs: Jobs) -> None:
    ended = jobs.convert(conv_net(), spoil=NO_XML)
    assert ended.failure.kind is Kind.MISSING_RESULT
    assert ended.failure.message == "OpenVINO reported success, but wrote no model.xml"


PHOTO: Mapping[str, Any] = {"x": picture()}
RUNNING: tuple[tuple[str, Mapping[str, Any], Defect], ...] = (
    (
        "gpu",
        PHOTO,
        Defect(guard="_check_devices", words="GPU was asked for, but OpenVINO runs the model on CPU", spoil=FALLS_BACK),
    ),
    (
        "cpu",
        PHOTO,
        Defect(
            guard="_check_calculation", words="f32 was asked for, but CPU calculates in bf16", spoil=CALCULATES_IN_BF16
        ),
    ),
    # OpenVINO fills in an input that is missing, and casts one of another type.
    (
        "cpu",
        {},
        Defect(
            guard="_check_feeds",
            words="in/samples: 'photo' does not fit the artefact: input 'x' is missing",
            kind=Kind.OPTION,
            status=Status.MISUSED,
        ),
    ),
    (
        "cpu",
        {"x": picture().astype(np.float64)},
        Defect(
            guard="_check_feeds",
            words="input 'x' is float64 instead of float32",
            kind=Kind.OPTION,
            status=Status.MISUSED,
        ),
    ),
)


@pytest.mark.parametrize(("target", "feeds", "defect"), RUNNING, ids=[defect.guard for _, _, defect in RUNNING])
def test_a_defect_of_running_passes_only_without_its_guard(
    jobs: Jobs, target: str, feeds: Mapping[str, Any], defect: Defect
) -> None:
    artifact = jobs.convert(conv_net()).artifact
    samples = {"photo": feeds}
    assert is_caught(jobs.run(artifact, samples, target=target, spoil=defect.spoil), defect)
    passed = jobs.run(artifact, samples, target=target, spoil=defect.spoil, without=defect.guard, name="without")
    assert list(outputs(passed)["photo"]) == ["y"]


def test_a_device_that_is_not_here_is_no_failure_of_the_toolchain_only_with_its_guard(jobs: Jobs) -> None:
    artifact = jobs.convert(conv_net()).artifact
    caught = jobs.run(artifact, {"photo": PHOTO}, target="npu")
    assert (caught.result.status, caught.failure.kind) == (Status.REFUSED, Kind.NO_DEVICE)
    assert caught.failure.message == "target npu: OpenVINO sees no NPU here, only CPU"
    assert caught.failure.hint
    passed = jobs.run(artifact, {"photo": PHOTO}, target="npu", without="_check_present", name="without")
    assert (passed.result.status, passed.failure.kind) == (Status.FAILED, Kind.TOOLCHAIN)


def test_an_output_without_a_name_is_no_fault_of_the_adapter_only_with_its_guard(jobs: Jobs) -> None:
    artifact = jobs.convert(conv_net()).artifact
    xml = (artifact / "model.xml").read_text(encoding="utf-8")
    nameless = xml.replace(' output_names="y"', "").replace(' names="y"', "")
    (artifact / "model.xml").write_text(nameless, encoding="utf-8")
    caught = jobs.run(artifact, {"photo": PHOTO})
    assert (caught.result.status, caught.failure.kind) == (Status.FAILED, Kind.MISSING_RESULT)
    assert caught.failure.message == "the outputs of the artefact are called ['']; each needs a name of its own"
    passed = jobs.run(artifact, {"photo": PHOTO}, without="_check_names", name="without")
    assert passed.result.status is Status.BROKEN


@pytest.mark.parametrize("spoil", [NO_CORE, NO_DEVICES, NO_PROPERTIES])
def test_what_openvino_raises_is_no_fault_of_the_adapter_only_with_its_guard(jobs: Jobs, spoil: str) -> None:
    artifact = jobs.convert(conv_net()).artifact
    caught = jobs.run(artifact, {"photo": PHOTO}, spoil=spoil)
    assert is_caught(caught, Defect(guard="_vendor", words="Exception from somewhere: no plugins"))
    passed = jobs.run(artifact, {"photo": PHOTO}, spoil=spoil, without="_vendor", name="without")
    assert passed.result.status is Status.BROKEN


@pytest.mark.parametrize("spoil", [NO_CORE, NO_DEVICES])
def test_converting_without_a_core_is_a_failure_in_openvinos_words(jobs: Jobs, spoil: str) -> None:
    ended = jobs.convert(conv_net(), spoil=spoil)
    assert is_caught(ended, Defect(guard="_vendor", words="Exception from somewhere: no plugins"))


def test_what_a_device_does_not_tell_is_left_out(jobs: Jobs) -> None:
    artifact = jobs.convert(conv_net()).artifact
    ended = jobs.run(artifact, {"photo": PHOTO}, spoil=TELLS_ONLY_WHAT_IT_MUST)
    assert ended.result.facts["execution"] == {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_DEVICES": ["CPU"]}
    assert list(outputs(ended)["photo"]) == ["y"]
