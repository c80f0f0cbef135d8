"""Runs the command `aipc` as a person does, in a process of its own, with a store and reports of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "tests" / "models"
TINY = "tiny:upscaler"
"""A small convolutional network, for tests of what happens around a model; give its folder with --source."""


@dataclass(frozen=True)
class Done:
    """How the command ended."""

    code: int
    out: str
    error: str

    @property
    def last_line(self) -> str:
        """What it told a person about its error."""
        return self.error.strip().splitlines()[-1] if self.error.strip() else ""


@dataclass(frozen=True)
class Aipc:
    """The command with a place of its own for results and reports; environments come from the usual cache."""

    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def variables(self) -> dict[str, str]:
        return {**os.environ, "AIPC_STORE": str(self.store), **self.environ}

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "aipc", *arguments]

    def deploy_argv(self, *arguments: str) -> list[str]:
        return self.argv("deploy", *arguments, "--runs", str(self.runs))

    def __call__(self, *arguments: str) -> Done:
        done = subprocess.run(
            self.argv(*arguments), env=self.variables(), cwd=self.folder, capture_output=True, text=True, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def deploy(self, *arguments: str) -> Done:
        return self("deploy", *arguments, "--runs", str(self.runs))

    def tiny(self, *arguments: str, engine: str = "venv", runtime: str = "openvino") -> Done:
        """Deploy the small network."""
        return self.deploy(*tiny(runtime), "--engine", engine, *arguments)

    def report(self) -> dict[str, Any]:
        """Return the only report that is there."""
        (path,) = self.runs.rglob("report.json")
        return dict(json.loads(path.read_text()))

    def reports(self) -> dict[str, dict[str, Any]]:
        """Return the reports that are there, by precision."""
        found = [dict(json.loads(path.read_text())) for path in self.runs.rglob("report.json")]
        return {str(each["precision"]): each for each in found}

    def artifact(self) -> dict[str, str]:
        """Return the files of the artefact with their sha256."""
        return {each["name"]: each["sha256"] for each in self.report()["artifact"]["components"]}

    def steps_in_store(self) -> dict[str, int]:
        """Return how many entries each step has."""
        counts: dict[str, int] = {}
        for path in self.store.glob("*/entry.json"):
            step = json.loads(path.read_text())["parts"]["step"]
            counts[step] = counts.get(step, 0) + 1
        return counts


def tiny(runtime: str = "openvino") -> tuple[str, ...]:
    """Return the arguments that deploy the small network."""
    return (f"{TINY}#1x3x20x24", "--source", str(MODELS), "--runtime", runtime)
