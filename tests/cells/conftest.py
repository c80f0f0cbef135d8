"""What the tests of whole cells share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.command import ROOT, Aipc


@pytest.fixture
def aipc(tmp_path: Path, reference_python: Path, openvino_python: Path) -> Aipc:
    """The command with an empty store; the environments of the venv engine are there."""
    assert reference_python.exists()
    assert openvino_python.exists()
    return Aipc(tmp_path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what aipc reads of its checkout, and of the tests' models; tests change bytes in it."""
    copy = tmp_path / "checkout"
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("runtimes", "images"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignore)
    shutil.copytree(ROOT / "tests" / "models", copy / "models", ignore=ignore)
    shutil.copyfile(ROOT / "matrix.toml", copy / "matrix.toml")
    return copy


@pytest.fixture
def sixth(checkout: Path, reference_python: Path) -> Path:
    """The copy with a sixth runtime in it: three new folders, no edit of an existing file."""
    assert reference_python.exists()
    for part in ("runtimes", "images", "skills"):
        shutil.copytree(
            ROOT / "tests" / "sixth" / part / "sixth",
            checkout / part / "sixth",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    return checkout
