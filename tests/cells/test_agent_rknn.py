"""An agent on RKNN: the rule for the layout of a recurrent layer is taken out, and the skill names the rewrite."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.command import ROOT, Aipc, Done

RULE = '[[always]]\nrewrite = "drop_layout"\n'
ROW = "| `Unrecognized attribute: layout for operator LSTM` |"
ANSWERS: list[dict[str, Any]] = [
    {"thought": "what is known of it", "action": "read_skill", "section": "rknn#failures-by-their-words-building"},
    {
        "thought": "the table names it",
        "action": "rewrite",
        "name": "{{skill:layout for operator LSTM` \\|[^|]*\\|[^|]*\\| `(\\w+)`}}",
    },
    {"thought": "next", "action": "convert"},
    {"thought": "next", "action": "compare"},
    {"thought": "it agrees", "action": "submit", "summary": "the attribute is dropped"},
]
SIZES = (3, 1, 4, 5)
"""Steps, batch, features and state of the layer."""


class Workshop:
    """A checkout whose rules for RKNN do not know the attribute layout, and an LSTM that has it."""

    def __init__(self, folder: Path, checkout: Path, store: Path) -> None:
        shutil.copytree(ROOT / "skills", checkout / "skills")
        rules = checkout / "runtimes" / "rknn" / "repairs.toml"
        text = rules.read_text()
        assert text.count(RULE) == 1
        rules.write_text(text.replace(RULE, ""))
        self.skill = checkout / "skills" / "rknn" / "SKILL.md"
        self.folder = folder
        self.aipc = Aipc(folder, {"AIPC_HOME": str(checkout), "AIPC_STORE": str(store)})
        self.net = folder / "recurrent.onnx"
        onnx.save_model(recurrent(), self.net)

    def deploy(self) -> Done:
        replay = self.folder / "replay.json"
        replay.write_text(json.dumps({"synthetic": True, "answers": [{"content": each} for each in ANSWERS]}))
        options = ("--runtime", "rknn", "--engine", "venv", "--agent", "repair", "--replay", str(replay))
        return self.aipc.deploy(str(self.net), *options)


def recurrent() -> onnx.ModelProto:
    """Return an LSTM with the attribute layout = 0, as an exporter writes it."""
    steps, batch, features, state = SIZES
    draw = np.random.default_rng(5)
    weights = {"w": (1, 4 * state, features), "r": (1, 4 * state, state), "b": (1, 8 * state)}
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], "/lstm", hidden_size=state, layout=0)
    made = helper.make_graph(
        [node],
        "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, features])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [steps, 1, batch, state])],
        [numpy_helper.from_array(draw.normal(0, 0.4, size).astype(np.float32), name) for name, size in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def workshop(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    checkout: Path,
    environment_python: Callable[[str], Path],
) -> Workshop:
    for name in ("reference", "rknn"):
        assert environment_python(name).exists()
    return Workshop(tmp_path, checkout, tmp_path_factory.getbasetemp() / "rknn-store")


def test_an_agent_mends_a_layout_that_the_rules_do_not_know_by_what_it_reads_in_the_skill(workshop: Workshop) -> None:
    done = workshop.deploy()
    assert done.code == 0, done.out + done.error
    report = workshop.aipc.report()
    assert report["verdict"] == "agrees"
    assert [edit["rewrite"] for edit in report["agent"]["edits"]] == ["drop_layout"]


def test_without_that_line_of_the_skill_the_layout_stays_a_failure(workshop: Workshop) -> None:
    lines = workshop.skill.read_text().splitlines(keepends=True)
    left = [line for line in lines if not line.startswith(ROW)]
    assert len(left) == len(lines) - 1
    workshop.skill.write_text("".join(left))
    done = workshop.deploy()
    assert done.code == 1
    work = workshop.aipc.report()["agent"]
    assert (work["taken"], work["edits"]) == (False, [])
    assert "does not hold" in work["ended"], work["ended"]
