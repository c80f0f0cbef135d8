"""An unchanged cell is not run again; a changed byte reruns exactly what depends on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.command import Aipc, tiny

ALL = ("prepare", "export", "convert", "run", "judge")


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def change_weights(checkout: Path) -> None:
    replace(checkout / "models" / "tiny.py", "manual_seed(0)", "manual_seed(1)")


def change_only_a_comment_of_the_model(checkout: Path) -> None:
    append(checkout / "models" / "tiny.py", "# a comment\n")


def change_a_tolerance(checkout: Path) -> None:
    replace(checkout / "matrix.toml", "fp16 = { cosine = 0.999,", "fp16 = { cosine = 0.998,")


def change_the_seed(checkout: Path) -> None:
    replace(checkout / "matrix.toml", "seed = 2718", "seed = 2719")


def change_the_adapter(checkout: Path) -> None:
    append(checkout / "runtimes" / "openvino" / "adapter.py", "# a comment\n")


def change_the_judge(checkout: Path) -> None:
    append(checkout / "runtimes" / "reference" / "judge.py", "# a comment\n")


def change_the_contract(checkout: Path) -> None:
    append(checkout / "runtimes" / "contract.py", "# a comment\n")


def change_what_only_the_host_reads(checkout: Path) -> None:
    append(checkout / "runtimes" / "openvino" / "runtime.toml", "# a comment\n")
    append(checkout / "runtimes" / "openvino" / "repairs.toml", "# a comment\n")


CHANGES = [
    (change_weights, ALL),
    # The model's own files went in, so golden outputs are made again; they come out equal, so nothing after does.
    (change_only_a_comment_of_the_model, ("prepare", "export")),
    (change_a_tolerance, ("judge",)),
    (change_the_seed, ALL[:2] + ALL[3:]),
    (change_the_adapter, ("convert", "run")),
    # The judge's code is the reference's: what that makes comes out equal, so the toolchain is left alone.
    (change_the_judge, ("prepare", "export", "judge")),
    (change_the_contract, ALL),
    (change_what_only_the_host_reads, ()),
]


@pytest.mark.timeout(600)
def test_a_changed_byte_reruns_exactly_the_steps_that_depend_on_it(aipc: Aipc, checkout: Path) -> None:
    mine = Aipc(aipc.folder, {"AIPC_HOME": str(checkout)})
    arguments = ("tiny:upscaler#1x3x20x24", "--source", str(checkout / "models"), "--runtime", "openvino")

    def deploy(*more: str) -> set[str]:
        before = mine.steps_in_store()
        done = mine.deploy(*arguments, "--engine", "venv", *more)
        assert done.code == 0, done.out + done.error
        return {step for step, count in mine.steps_in_store().items() if count > before.get(step, 0)}

    assert deploy() == set(ALL)
    assert deploy() == set()
    for change, wanted in CHANGES:
        change(checkout)
        assert deploy() == set(wanted), change.__name__
    assert deploy("--precision", "fp32") == {"convert", "run", "judge"}


def test_a_changed_byte_of_what_pins_an_environment_makes_another_one(checkout: Path) -> None:
    from aipc.environment import Environment

    before = Environment(name="openvino", folder=checkout / "images" / "openvino", python="3.11").digest
    for name in ("requirements.lock", "requirements.in", "overrides.txt", "Dockerfile"):
        append(checkout / "images" / "openvino" / name, "# a comment\n")
        after = Environment(name="openvino", folder=checkout / "images" / "openvino", python="3.11").digest
        assert after != before, name
        before = after


def test_a_spoiled_result_is_made_again_not_used(aipc: Aipc) -> None:
    assert aipc.tiny().code == 0
    before = aipc.artifact()
    (model,) = aipc.store.glob("*/out/artifact/model.bin")
    model.write_bytes(model.read_bytes()[:-1] + b"\xff")
    assert aipc.tiny().code == 0
    assert aipc.artifact() == before


def test_a_spoiled_run_folder_is_written_again(aipc: Aipc) -> None:
    assert aipc.tiny().code == 0
    (model,) = aipc.runs.rglob("model.bin")
    whole = model.read_bytes()
    model.write_bytes(b"")
    assert aipc.tiny().code == 0
    assert model.read_bytes() == whole


def test_the_rerun_of_an_unchanged_cell_starts_no_job(aipc: Aipc) -> None:
    assert aipc.tiny().code == 0
    (page,) = aipc.runs.rglob("report.html")
    before = page.stat().st_mtime_ns
    # Without an environment no job can be started, and nothing may even try to make one.
    empty = Aipc(aipc.folder, {"PATH": "/nowhere"})
    done = empty.deploy(*tiny(), "--engine", "venv")
    assert done.code == 0, done.out + done.error
    assert done.out.count("in the store") == len(ALL)
    assert page.stat().st_mtime_ns == before


def test_a_changed_byte_of_a_weights_file_reruns_every_step(aipc: Aipc) -> None:
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image", "weights"], ["out"], "conv", pads=[1, 1, 1, 1])],
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, 8, 10))],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, (1, 4, 8, 10))],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = aipc.folder / "small.onnx"
    arguments = (str(path), "--runtime", "openvino", "--engine", "venv")
    path.write_bytes(model.SerializeToString())
    assert aipc.deploy(*arguments).code == 0
    assert set(aipc.steps_in_store().values()) == {1}
    raw = model.graph.initializer[0].raw_data
    model.graph.initializer[0].raw_data = raw[:2] + bytes([raw[2] ^ 0x40]) + raw[3:]
    path.write_bytes(model.SerializeToString())
    assert aipc.deploy(*arguments).code == 0
    assert aipc.steps_in_store() == dict.fromkeys(ALL, 2)
