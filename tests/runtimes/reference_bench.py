"""Jobs of the reference side, each in a workspace and a process of its own, as an engine starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import runtimes
from runtimes import contract
from runtimes.contract import EXIT_CODES, Failure, Job, Json, Layout, Result, Step
from runtimes.kit import tensors
from runtimes.reference.inputs import Samples

ROOT = Path(next(iter(runtimes.__path__)))
PREPARED = {"seed": 1, "magnitudes": [0.5, 1.0]}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job ended."""

    result: Result
    layout: Layout
    log: str

    @property
    def failure(self) -> Failure:
        assert self.result.failure is not None, self.log
        return self.result.failure

    @property
    def facts(self) -> Mapping[str, Json]:
        assert self.result, (self.result.failure, self.log)
        return self.result.facts

    def output(self, name: str) -> Path:
        assert self.result, (self.result.failure, self.log)
        return self.layout.outputs / name

    def samples(self, name: str) -> Samples:
        return tensors.load_samples(self.output(name))


class Bench:
    """Does jobs in workspaces below a folder."""

    def __init__(self, root: Path, python: Path) -> None:
        self.root = root
        self.python = python
        self.code = root / "code"
        for folder in ("kit", "reference"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / folder, self.code / "runtimes" / folder, ignore=ignored)
        for name in ("__init__.py", "contract.py"):
            shutil.copy(ROOT / name, self.code / "runtimes" / name)
        self.pictures = root / "pictures"
        self.pictures.mkdir()
        pixels = np.random.default_rng(3).integers(0, 255, (24, 40, 3), np.uint8)
        Image.fromarray(pixels).resize((80, 48)).save(self.pictures / "photo.png")

    def job(self, name: str, step: Step, inputs: Mapping[str, Path], options: Mapping[str, Json]) -> Ended:
        """Do one job in the workspace `name`."""
        layout = Layout(self.root / name)
        layout.inputs.mkdir(parents=True)
        layout.tmp.mkdir()
        for key, path in inputs.items():
            shutil.copytree(path, layout.inputs / key)
        contract.write(Job(step=step, runtime="reference", inputs=tuple(inputs), options=options), layout.job)
        done = subprocess.run(
            [self.python, "-P", "-m", "runtimes.kit", layout.root],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=layout.root,
            env={
                "PATH": os.defpath,
                "HOME": str(layout.tmp),
                "TMPDIR": str(layout.tmp),
                "PYTHONPATH": str(self.code),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )
        result = contract.read(Result, layout.result)
        assert done.returncode == EXIT_CODES[result.status], done.stdout
        return Ended(result=result, layout=layout, log=done.stdout)

    def prepare(self, name: str, inputs: Mapping[str, Path], model: Mapping[str, Json]) -> Ended:
        """Prepare a model."""
        options = {**model, **PREPARED}
        return self.job(f"{name}-prepare", Step.PREPARE, {**inputs, "pictures": self.pictures}, options)

    def export(
        self, name: str, inputs: Mapping[str, Path], model: Mapping[str, Json], prepared: Ended, **how: Json
    ) -> Ended:
        """Export a model that was prepared."""
        taken = {**inputs, "samples": prepared.output("samples"), "golden": prepared.output("golden")}
        return self.job(f"{name}-export", Step.EXPORT, taken, {**model, **how})


def function(name: str, *inputs: Json, outputs: Sequence[str] = ()) -> dict[str, Json]:
    """The options of a model that a function of `reference_models` builds."""
    return {
        "source": "function",
        "function": f"reference_models:{name}",
        "inputs": list(inputs) or [{"name": "x", "shape": [1, 3, 6, 8], "content": "picture"}],
        "outputs": list(outputs),
    }
