"""What the tests of whole cells share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Aipc


@pytest.fixture
def aipc(tmp_path: Path, reference_python: Path, openvino_python: Path) -> Aipc:
    """The command with an empty store; the environments of the venv engine are there."""
    assert reference_python.exists()
    assert openvino_python.exists()
    return Aipc(tmp_path)
