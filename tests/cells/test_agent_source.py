"""An agent that changes the PyTorch source: a branch that cannot be exported, and the way that the skill tells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.command import ROOT, Aipc, Done

SOURCE = '''"""A network with a branch that hangs on a value."""

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, image):
        mixed = self.mix(image)
        if mixed.mean() > 0:
            return mixed
        return 0.5 * mixed


def build():
    torch.manual_seed(0)
    return Gate().eval()
'''
OLD = """        if mixed.mean() > 0:
            return mixed
        return 0.5 * mixed
"""
NAME = "{{skill:guard on data-dependent expression` \\| `([\\w.]+)`}}"
NEW = f"        return {NAME}(mixed.mean() > 0, mixed, 0.5 * mixed)\n"
WRITTEN = "        return torch.where(mixed.mean() > 0, mixed, 0.5 * mixed)\n"
SPOILT = "        return torch.where(mixed.mean() > 0, mixed, 0.75 * mixed)\n"
ROW = "| `if` on a value of a tensor |"
READ = {"thought": "how", "action": "read_skill", "section": "aipc#1-replace-a-module-before-export"}
LOOK = {"thought": "the code", "action": "source", "path": "gate.py"}
PATCH = {"thought": "both branches", "action": "patch_source", "path": "gate.py", "old": OLD, "new": NEW}
CONVERT, COMPARE = ({"thought": "next", "action": name} for name in ("convert", "compare"))
SUBMIT = {"thought": "it agrees", "action": "submit", "summary": "no branch is left"}


class Workshop:
    """A network of a person's own that cannot be exported as it is."""

    def __init__(self, folder: Path, checkout: Path, store: Path) -> None:
        shutil.copytree(ROOT / "skills", checkout / "skills")
        self.skill = checkout / "skills" / "aipc" / "references" / "mending.md"
        self.folder = folder
        self.aipc = Aipc(folder, {"AIPC_HOME": str(checkout), "AIPC_STORE": str(store)})
        self.source = folder / "net"
        self.source.mkdir()
        (self.source / "gate.py").write_text(SOURCE)

    def deploy(self, *answers: dict[str, Any]) -> Done:
        replay = self.folder / "replay.json"
        replay.write_text(json.dumps({"synthetic": True, "answers": [{"content": each} for each in answers]}))
        options = ("--runtime", "openvino", "--engine", "venv", "--agent", "repair", "--replay", str(replay))
        return self.aipc.deploy("gate:build#1x3x12x16", "--source", str(self.source), *options)


@pytest.fixture
def workshop(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    checkout: Path,
    reference_python: Path,
    openvino_python: Path,
) -> Workshop:
    assert reference_python.exists()
    assert openvino_python.exists()
    return Workshop(tmp_path, checkout, tmp_path_factory.getbasetemp() / "source-store")


def test_an_agent_changes_the_source_as_the_skill_tells_and_the_report_shows_the_patch(workshop: Workshop) -> None:
    done = workshop.deploy(READ, LOOK, PATCH, CONVERT, COMPARE, SUBMIT)
    assert done.code == 0, done.out + done.error
    report = workshop.aipc.report()
    assert report["verdict"] == "agrees"
    assert report["agent"]["edits"] == [{"path": "gate.py", "old": OLD, "new": WRITTEN}]
    (page,) = workshop.aipc.runs.rglob("report.html")
    shown = page.read_text()
    assert "-         if mixed.mean() &gt; 0:" in shown
    assert "+         return torch.where(mixed.mean() &gt; 0, mixed, 0.5 * mixed)" in shown
    assert (workshop.source / "gate.py").read_text() == SOURCE


def test_without_that_line_of_the_skill_the_source_stays_as_it_is(workshop: Workshop) -> None:
    lines = workshop.skill.read_text().splitlines(keepends=True)
    left = [line for line in lines if not line.startswith(ROW)]
    assert len(left) == len(lines) - 1
    workshop.skill.write_text("".join(left))
    done = workshop.deploy(READ, LOOK, PATCH, CONVERT, COMPARE, SUBMIT)
    assert done.code == 1
    work = workshop.aipc.report()["agent"]
    assert (work["taken"], work["edits"]) == (False, [])
    assert "does not hold" in work["ended"], work["ended"]


def test_a_patch_that_changes_what_the_model_computes_is_not_taken(workshop: Workshop) -> None:
    done = workshop.deploy({**PATCH, "new": SPOILT}, SUBMIT)
    assert done.code == 1
    work = workshop.aipc.report()["agent"]
    assert (work["claim"], work["verdict"], work["taken"], work["edits"]) == ("agrees", "failed", False, [])
