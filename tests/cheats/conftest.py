"""The hosts of the cheats' tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aipc.engines import cage
from tests.cells.test_repairs import REFUSES, graph, save
from tests.cheats.scene import Scene, add_sixth


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that all tests share: most of what they need is the same."""
    return tmp_path_factory.getbasetemp() / "cheats-store"


@pytest.fixture(params=["venv", "docker"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine; of the embedded one with its cage."""
    name = str(request.param)
    if name == "docker":
        request.getfixturevalue("docker_daemon")
    elif why := cage.why_not():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    return name


@pytest.fixture
def scene(tmp_path: Path, store: Path, environment_python: Callable[[str], Path]) -> Scene:
    """A net with an Einsum, which ortqnn refuses, and no rule that mends it."""
    for name in ("reference", "ortqnn", "agent"):
        assert environment_python(name).exists()
    net = save(tmp_path / "net.onnx", graph())
    made = Scene(tmp_path, store, (str(net), "--runtime", "ortqnn"))
    (made.checkout / "runtimes" / "ortqnn" / "repairs.toml").write_text("")
    return made


NET = '''"""A small network whose activation the sixth runtime does not take."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(6, 5)

    def forward(self, values):
        mixed = self.mix(values)
        return torch.tanh(mixed)


def build():
    torch.manual_seed(0)
    return Net().eval()
'''


@pytest.fixture
def cell(tmp_path: Path, store: Path, environment_python: Callable[[str], Path]) -> Scene:
    """A PyTorch function that the sixth runtime refuses, on the embedded engine; no rule mends it."""
    for name in ("reference", "agent"):
        assert environment_python(name).exists()
    source = tmp_path / "net"
    source.mkdir()
    (source / "net.py").write_text(NET)
    options = ("net:build#1x4x6", "--source", str(source), "--runtime", "sixth", "--engine", "venv")
    made = Scene(tmp_path, store, options)
    add_sixth(made, REFUSES, "Tanh")
    return made
