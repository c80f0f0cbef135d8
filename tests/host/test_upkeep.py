"""Which environments are looked after where none is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aipc import home, upkeep
from tests.command import ROOT

MODEL = """
[models.net]
source = "function"
function = "net:build"
folder = "."
environment = "own"
inputs = [{ name = "x", shape = [1, 3, 8, 8] }]
"""


def test_the_environments_that_cells_use_are_those_of_runtimes_and_models(checkout: Path) -> None:
    for name in ("own", "spare"):
        shutil.copytree(checkout / "images" / "alpha", checkout / "images" / name)
    (checkout / "matrix.toml").write_text(MODEL)
    assert upkeep.used_environments() == ("alpha", "own", "reference")


def test_what_only_tests_and_measurements_need_is_not_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "HOME", ROOT)
    used = upkeep.used_environments()
    assert {"reference", "openvino", "yoloworld"} <= set(used)
    assert not {"agent", "bench", "corpus"} & set(used)
