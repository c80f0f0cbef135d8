"""Jobs of the QAIRT adapter started as the engine starts them, with a stand-in of the SDK and without."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from runtimes.contract import Step
from runtimes.kit import tensors
from tests.runtimes.openvino_jobs import FLOAT, INT64, Ended, Made, Workspaces, make

WITHOUT = """
from runtimes.qairt import {module}
assert callable({module}.{name})
{module}.{name} = lambda *_, **__: {value}
"""
"""Switches off a guard."""


def tokens() -> Made:
    """Return a model of whole numbers: rows of a table, each with a number beside it."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], "/gather"),
        helper.make_node("Relu", ["rows"], ["y"], "/relu"),
        helper.make_node("Add", ["ids", "one"], ["/next"], "/add"),
    ]
    table = np.random.default_rng(5).normal(0, 1, (10, 4)).astype(np.float32)
    outputs = [("y", FLOAT, [1, 3, 4]), ("/next", INT64, [1, 3])]
    return make(nodes, [("ids", INT64, [1, 3])], outputs, {"table": table, "one": np.array(1)})


class Jobs(Workspaces):
    """Does jobs in workspaces below a folder; `sdk` is the SDK of the next ones, None for none."""

    def __init__(self, root: Path, python: Path, sdk: Path | None = None) -> None:
        super().__init__(root, python, "qairt")
        self.sdk = sdk

    @property
    def _environment(self) -> dict[str, str]:
        return {**super()._environment, **({"QAIRT_SDK_ROOT": str(self.sdk)} if self.sdk else {})}

    def convert(
        self,
        made: Made,
        *,
        precision: str = "fp16",
        target: str = "sm8650",
        name: str = "convert",
        program: str = "",
        calibration: Mapping[str, Mapping[str, Any]] | None = None,
        encodings: Path | None = None,
    ) -> Ended:
        """Convert, or quantize where there is calibration data."""
        folder = self.root / f"{name}-model"
        folder.mkdir()
        onnx.save_model(made.model, folder / "model.onnx")
        inputs = {"model": folder, **({"encodings": encodings} if encodings else {})}
        step = Step.CONVERT
        if calibration is not None:
            step = Step.QUANTIZE
            inputs["calibration"] = self.root / f"{name}-calibration"
            tensors.save_samples(inputs["calibration"], calibration)
        options = {"precision": precision, "target": target, "inputs": made.inputs, "outputs": made.outputs}
        return self.job(step, inputs, options, name, spoil=program)

    def run(
        self,
        artifact: Path,
        samples: Mapping[str, Mapping[str, Any]],
        *,
        precision: str = "fp16",
        target: str = "sm8650",
        name: str = "run",
        program: str = "",
    ) -> Ended:
        folder = self.root / f"{name}-samples"
        tensors.save_samples(folder, samples)
        options = {"precision": precision, "target": target}
        return self.job(Step.RUN, {"artifact": artifact, "samples": folder}, options, name, spoil=program)


def without(module: str, name: str, value: str = "None") -> str:
    """Return the program that switches off the function `name` of a module: it then returns `value`."""
    return WITHOUT.format(module=module, name=name, value=value)


def arguments(ended: Ended, tool: str) -> list[list[str]]:
    """Return the command lines with which a job started a tool of the SDK, without its path."""
    lines = [line.split(" ") for line in ended.log.splitlines() if line.startswith("$ ")]
    found = []
    for line in lines:
        at = next((index for index, part in enumerate(line) if part.endswith(f"/bin/x86_64-linux-clang/{tool}")), None)
        if at is not None:
            found.append(line[at + 1 :])
    return found
