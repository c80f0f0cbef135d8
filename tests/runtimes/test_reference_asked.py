"""What a person may ask for: every rewrite of the reference by name, onnxsim, and models that were made elsewhere."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest

from runtimes.contract import Job, Layout, Step
from runtimes.kit import tensors
from runtimes.kit.work import Failed, Work
from runtimes.reference import adapter, rewrites
from tests.command import ROOT
from tests.runtimes.rewrites.graphs import build, node, run

X = np.random.default_rng(3).normal(size=(2, 3)).astype(np.float32)


def doubled(operator: str = "Add", name: str = "y") -> onnx.ModelProto:
    return build([node("Relu", ["x"], ["r"]), node(operator, ["r", "r"], [name])], {"x": X}, [name])


def adopt(root: Path, made: onnx.ModelProto, precision: str = "fp32") -> Work:
    layout = Layout(root)
    for folder, model in (("model", doubled()), ("made", made)):
        (layout.inputs / folder).mkdir(parents=True)
        onnx.save(model, layout.inputs / folder / "model.onnx")
    tensors.save_samples(layout.inputs / "samples", {"one": {"x": X}})
    tensors.save_samples(layout.inputs / "golden", {"one": run(doubled(), {"x": X})})
    options = {"rewrites": [{"name": "theirs"}], "precision": precision}
    inputs = ("golden", "made", "model", "samples")
    return Work(layout, Job(step=Step.REWRITE, runtime="reference", inputs=inputs, options=options))


def test_runtime_toml_lists_every_rewrite_that_there_is() -> None:
    table = tomllib.loads((ROOT / "runtimes/reference/runtime.toml").read_text(encoding="utf-8"))
    assert sorted(table["rewrites"]) == sorted(rewrites.known())


def test_a_model_made_elsewhere_that_answers_the_same_is_taken_over(tmp_path: Path) -> None:
    made = build(
        [node("Relu", ["x"], ["r"]), node("Mul", ["r", "two"], ["y"])],
        {"x": X},
        ["y"],
        constants={"two": np.array(2, np.float32)},
    )
    work = adopt(tmp_path, made)
    assert adapter.rewrite(work)["changed"] == {"theirs": ["node_y"]}
    assert onnx.load(work.layout.outputs / "model" / "model.onnx") == made


def test_a_model_made_elsewhere_that_is_the_same_changed_nothing(tmp_path: Path) -> None:
    assert adapter.rewrite(adopt(tmp_path, doubled()))["changed"] == {"theirs": []}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (doubled("Sub"), "gate neutral"),
        (doubled(name="z"), "a rewrite must leave them alone"),
    ],
)
def test_a_model_made_elsewhere_that_is_another_is_not_taken(
    tmp_path: Path, made: onnx.ModelProto, message: str
) -> None:
    with pytest.raises(Failed, match=message):
        adapter.rewrite(adopt(tmp_path, made))
