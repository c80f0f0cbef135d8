"""A checkout in a temporary folder, so that the tests of the host's files depend on no real runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aipc import home

ALPHA = """
title = "Alpha"
steps = ["convert", "run"]
precisions = ["fp16", "fp32", "w8a16"]
default_target = "cpu"

[targets.npu]
accelerator = true
devices = ["NPU"]

[targets.cpu]
devices = ["CPU"]
description = "the CPU of this machine"
"""

REFERENCE = """
title = "PyTorch"
steps = ["prepare", "export", "judge", "inspect"]
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with the runtime `alpha` and the reference, in which aipc is now at home."""
    root = tmp_path / "checkout"
    for name, text in (("alpha", ALPHA), ("reference", REFERENCE)):
        runtime = root / "runtimes" / name
        runtime.mkdir(parents=True)
        (runtime / "runtime.toml").write_text(text)
        image = root / "images" / name
        image.mkdir(parents=True)
        (image / "requirements.in").write_text("numpy\n")
    (root / "images" / "base").mkdir()
    monkeypatch.setattr(home, "HOME", root)
    monkeypatch.chdir(tmp_path)
    return root


@pytest.fixture
def forbidden_file(tmp_path: Path) -> Iterator[Path]:
    """Return a file that the test may not read: root becomes somebody else, since to root chmod means nothing."""
    file = tmp_path / "net.onnx"
    file.touch(0)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    yield file
    os.seteuid(me)
