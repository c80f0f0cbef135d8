"""YOLO-World from command to verdict: a model of two inputs in an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import Aipc


@pytest.mark.timeout(600)
def test_yoloworld_agrees_with_pytorch_in_boxes_and_in_scores(
    aipc: Aipc, environment_python: Callable[[str], Path]
) -> None:
    assert environment_python("yoloworld").exists()
    done = aipc.deploy("yoloworld", "--runtime", "openvino", "--engine", "venv")
    assert done.code == 0, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "agrees"
    for group in ("boxes", "scores"):
        found = [each for each in report["measures"] if each["group"] == group]
        assert min(each["cosine"] for each in found) >= 0.999
        assert min(each["snr_db"] for each in found) >= 30.0
    assert "seeded weights: structure and numerics only, no detections" in report["notes"]
