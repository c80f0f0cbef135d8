"""Jobs of the RKNN adapter started as the engine starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx

from runtimes import contract
from runtimes.contract import EXIT_CODES, Job, Json, Layout, Result, Step
from runtimes.kit import tensors
from tests.runtimes.openvino_jobs import ROOT, START, Ended, Made

WITHOUT = """
from runtimes.rknn import adapter
assert callable(adapter.{name})
adapter.{name} = lambda *_, **__: {answer}
"""
Samples = Mapping[str, Mapping[str, Any]]


class Jobs:
    """Does jobs in workspaces below a folder."""

    def __init__(self, root: Path, python: Path) -> None:
        self.root = root
        self.python = python
        self.code = root / "code"
        for folder in ("kit", "rknn"):
            shutil.copytree(
                ROOT / folder, self.code / "runtimes" / folder, ignore=shutil.ignore_patterns("__pycache__")
            )
        for name in ("__init__.py", "contract.py"):
            shutil.copy(ROOT / name, self.code / "runtimes" / name)

    def job(
        self,
        step: Step,
        inputs: Mapping[str, Path],
        options: Mapping[str, Json],
        name: str,
        *,
        without: str = "",
        answer: str = "None",
    ) -> Ended:
        """Do one job.

        Args:
            step: what to do.
            inputs: name to folder.
            options: the step's options.
            name: of the workspace.
            without: the adapter's guard that is switched off in this job.
            answer: what that guard then always returns.
        """
        layout = Layout(self.root / name)
        layout.inputs.mkdir(parents=True)
        layout.tmp.mkdir()
        for key, path in inputs.items():
            shutil.copytree(path, layout.inputs / key)
        contract.write(Job(step=step, runtime="rknn", inputs=tuple(inputs), options=options), layout.job)
        start: tuple[str, ...] = ("-m", "runtimes.kit")
        if without:
            start = ("-c", WITHOUT.format(name=without, answer=answer) + START)
        with layout.log.open("wb") as log:
            ended = subprocess.run(
                (str(self.python), "-P", *start, str(layout.root)),
                stdout=log,
                stderr=log,
                env={**self._environment, "HOME": str(layout.tmp), "TMPDIR": str(layout.tmp)},
                cwd=layout.root,
                check=False,
                timeout=100,
            )
        text = layout.log.read_text(encoding="utf-8")
        assert layout.result.is_file(), text
        result = contract.read(Result, layout.result)
        assert ended.returncode == EXIT_CODES[result.status]
        return Ended(result=result, layout=layout, log=text)

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": os.defpath, "PYTHONPATH": str(self.code), "PYTHONDONTWRITEBYTECODE": "1"}

    def program(self, text: str) -> list[str]:
        """Return the lines that a Python program prints inside the environment."""
        argv = (str(self.python), "-P", "-c", text)
        ended = subprocess.run(argv, env=self._environment, capture_output=True, text=True, check=False, timeout=100)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()

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
        """Convert in fp16; with calibration data, quantize in int8."""
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
        return self.job(step, inputs, options, name, without=without, answer=answer)
