"""The step `patch`: somebody's own code changes the graph, and whatever it does wrong is the code's failure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from runtimes.contract import Job, Kind, Layout, Step
from runtimes.kit.work import Failed, Work
from runtimes.reference import adapter
from tests.runtimes.gate_models import outside
from tests.runtimes.test_rewrite_step import einsum
from tests.runtimes.test_rewrite_step import work_of as rewrite_of

RENAMES = """
def patch(model):
    for node in model.graph:
        node.name = f"mine_{node.op_type}"
"""


def work_of(root: Path, code: str, model: onnx.ModelProto | None = None) -> Work:
    layout = Layout(root)
    (layout.inputs / "model").mkdir(parents=True)
    proto = model or einsum()[0]
    (layout.inputs / "model" / "model.onnx").write_bytes(proto.SerializeToString())
    return Work(layout, Job(step=Step.PATCH, runtime="reference", inputs=("model",), options={"code": code}))


def test_the_code_changes_the_model_in_place(tmp_path: Path) -> None:
    work = work_of(tmp_path, RENAMES)
    assert adapter.patch(work) == {}
    made = onnx.load(work.layout.outputs / "model" / "model.onnx")
    assert [each.name for each in made.graph.node] == ["mine_Relu", "mine_Einsum"]


def test_the_code_may_return_another_model(tmp_path: Path) -> None:
    code = "def patch(model):\n    other = model.clone()\n    other.producer_name = 'me'\n    return other"
    work = work_of(tmp_path, code)
    adapter.patch(work)
    assert onnx.load(work.layout.outputs / "model" / "model.onnx").producer_name == "me"


def test_weights_in_a_file_beside_it_come_along(tmp_path: Path) -> None:
    work = work_of(tmp_path, "def patch(model):\n    model.producer_name = 'me'", outside("weights.data"))
    weights = np.arange(3, dtype=np.float32).tobytes()
    (work.layout.inputs / "model" / "weights.data").write_bytes(weights)
    adapter.patch(work)
    folder = work.layout.outputs / "model"
    assert [file.name for file in sorted(folder.iterdir())] == ["model.onnx", "model.onnx.data"]
    (weight,) = onnx.load(folder / "model.onnx").graph.initializer
    assert weight.raw_data == weights


def test_a_broken_graph_is_found_by_the_rewrite_that_follows(tmp_path: Path) -> None:
    work = work_of(tmp_path / "patch", "def patch(model):\n    model.graph.remove(model.graph[0])")
    adapter.patch(work)
    with pytest.raises(Failed, match="does not hold"):
        adapter.rewrite(rewrite_of(tmp_path / "rewrite", work.layout.outputs / "model", []))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def patch(model:", "SyntaxError"),
        ("x = 1", "defines no function patch"),
        ("patch = 3", "defines no function patch"),
        ("def patch(model):\n    return 5", "returned int"),
        ("def patch(model):\n    raise ValueError('not today')", "not today"),
        ("import sys\ndef patch(model):\n    sys.exit(0)", "SystemExit"),
    ],
)
def test_what_the_code_does_wrong_is_told_in_its_own_words(tmp_path: Path, code: str, words: str) -> None:
    with pytest.raises(Failed, match=words) as caught:
        adapter.patch(work_of(tmp_path, code))
    assert caught.value.failure.kind is Kind.REWRITE
