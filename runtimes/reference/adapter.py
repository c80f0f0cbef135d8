"""The reference side: PyTorch's own answer, the ONNX file for every runtime, and the judge.

Each step is a module of its own, imported when it is asked for: a judge need not wait for PyTorch.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Mapping

from runtimes.contract import Json
from runtimes.kit.work import Work
from runtimes.reference import imports

PACKAGES = ("torch", "onnx", "onnxruntime", "onnxscript", "spandrel", "numpy", "pillow")


def prepare(work: Work) -> Mapping[str, Json]:
    """Make inputs and golden outputs; see `prepare.prepare`."""
    with imports.uncollected():
        from runtimes.reference import prepare as step

    return step.prepare(work)


def export(work: Work) -> Mapping[str, Json]:
    """Make the ONNX file; see `export.export`."""
    with imports.uncollected():
        from runtimes.reference import export as step

    return step.export(work)


def rewrite(work: Work) -> Mapping[str, Json]:
    """Change the ONNX graph for a runtime; see `rewrite.rewrite`."""
    from runtimes.reference import rewrite as step

    return step.rewrite(work)


def patch(work: Work) -> Mapping[str, Json]:
    """Let somebody's own code change the ONNX graph; see `patch.patch`."""
    from runtimes.reference import patch as step

    return step.patch(work)


def judge(work: Work) -> Mapping[str, Json]:
    """Compare outputs with golden ones; see `judge.judge`."""
    from runtimes.reference import judge as step

    return step.judge(work)


def calibrate(work: Work) -> Mapping[str, Json]:
    """Make what a quantiser measures ranges on; see `calibrate.calibrate`."""
    from runtimes.reference import calibrate as step

    return step.calibrate(work)


def bisect(work: Work) -> Mapping[str, Json]:
    """Cut a piece out of an ONNX model, or compare what came of one; see `bisect.bisect`."""
    from runtimes.reference import bisect as step

    return step.bisect(work)


def inspect(work: Work) -> Mapping[str, Json]:
    """Describe a model file; see `inspect.inspect`."""
    from runtimes.reference import inspect as step

    return step.inspect(work)


def versions() -> Mapping[str, str]:
    """Return the version of each package that does the work and is there; a model's own environment may lack some."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
