"""Jobs of the RKNN adapter started as the engine starts them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx

from runtimes.contract import Step
from runtimes.kit import tensors
from tests.runtimes.openvino_jobs import ROOT, Ended, Made, Workspaces

WITHOUT = """
from runtimes.rknn import adapter
assert callable(adapter.{name})
adapter.{name} = lambda *_, **__: {answer}
"""
Samples = Mapping[str, Mapping[str, Any]]


def repairs() -> list[dict[str, Any]]:
    """Return the lines of RKNN's repairs.toml that a failure or wrong numbers call for, in order."""
    lines: list[dict[str, Any]] = tomllib.loads((ROOT / "rknn" / "repairs.toml").read_text(encoding="utf-8"))["repairs"]
    return lines


class Jobs(Workspaces):
    """Builds and infers in one job.

    Attributes:
        first: Python that each job does first.
    """

    first = ""

    def __init__(self, root: Path, python: Path) -> None:
        super().__init__(root, python, "rknn")

    def convert(
        self,
        made: Made,
        samples: Samples,
        *,
        target: str = "rk3588",
        name: str = "convert",
        calibration: Samples | None = None,
        write: Callable[[Made, Path], object] | None = None,
        without: str = "",
        answer: str = "None",
    ) -> Ended:
        """Convert in fp16, or quantize in int8 with calibration data; the guard `without` always returns `answer`."""
        inputs = {"model": self.root / f"{name}-model", "samples": self.root / f"{name}-samples"}
        inputs["model"].mkdir()
        (write or (lambda made, folder: onnx.save_model(made.model, folder / "model.onnx")))(made, inputs["model"])
        tensors.save_samples(inputs["samples"], samples)
        step, precision = Step.CONVERT, "fp16"
        if calibration is not None:
            step, precision = Step.QUANTIZE, "int8"
            inputs["calibration"] = self.root / f"{name}-calibration"
            tensors.save_samples(inputs["calibration"], calibration)
        options = {"precision": precision, "target": target, "inputs": made.inputs, "outputs": made.outputs}
        spoil = self.first + WITHOUT.format(name=without, answer=answer) if without else self.first
        return self.job(step, inputs, options, name, spoil=spoil)
