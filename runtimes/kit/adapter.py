"""What a runtime's adapter is: a module `runtimes/<name>/adapter.py` with one function per step that it can do.

    def versions() -> Mapping[str, str]              optional: package name to version, of what does the work
    def convert(work: Work) -> Mapping[str, Json]    the step `convert`; what it returns are the result's facts
    def run(work: Work) -> Mapping[str, Json]        the step `run`; and so on for each `Step`

`convert` makes `artifact` of `model`, with the facts `placement`, `io` and `notes`. `run` makes `outputs` of `artifact`
and `samples`, with the facts `device` and `execution`, and `placement` only where the run itself shows it.
A step reads `work.input(...)`, writes below `work.output(...)`, and ends in one of three ways: it returns, it raises
`Refused` (the toolchain cannot) or it raises `Failed` (it tried and gave up, or its success is not certain).
Vendor packages are imported inside the functions, so that every adapter imports on a machine without its toolchain.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import runtimes
from runtimes.contract import Json, Misused, Step, suggest
from runtimes.kit.work import Work

StepFunction = Callable[[Work], Mapping[str, Json]]
"""Does one step and returns its facts."""


def load(runtime: str) -> ModuleType:
    """Return the adapter of `runtime`.

    Raises:
        Misused: no folder of that name holds an adapter.
    """
    known = {path.parent.name for folder in runtimes.__path__ for path in Path(folder).glob("*/adapter.py")} - {"kit"}
    if runtime not in known:
        raise Misused(f"job.json: runtime: {runtime!r} has no adapter{suggest(runtime, known)}")
    return importlib.import_module(f"runtimes.{runtime}.adapter")


def steps(adapter: ModuleType) -> Mapping[Step, StepFunction]:
    """Return the steps that `adapter` can do, each with its function.

    Only functions of the runtime's own files count: an adapter that imports `subprocess.run` cannot run.

    Raises:
        TypeError: a step's function does not take exactly one argument, the work.
    """
    package = adapter.__name__.rpartition(".")[0]
    found = {}
    for step in Step:
        function = getattr(adapter, step.value, None)
        if not inspect.isfunction(function) or not function.__module__.startswith(f"{package}."):
            continue
        if len(inspect.signature(function).parameters) != 1:
            raise TypeError(f"{function.__module__}.{step.value}: must take one argument, the work")
        found[step] = function
    return found
