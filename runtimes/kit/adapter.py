"""What a runtime's adapter is: a module `runtimes/<name>/adapter.py` with one function per step that it can do.

    def versions() -> Mapping[str, str]                 optional: package name to version, of what does the work
    def convert(work: Work) -> Mapping[str, Json]       the step `convert`; what it returns are the result's facts
    def run(work: Work) -> Mapping[str, Json]           the step `run`; and so on for each `Step`

A step reads `work.input(...)`, writes below `work.output(...)`, and ends in one of three ways: it returns, it raises
`Refused` (the toolchain cannot) or it raises `Failed` (it tried and gave up, or its success is not certain).
Vendor packages are imported inside the functions, so that every adapter imports on a machine without its toolchain.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol

import runtimes
from runtimes.contract import Json, Misused, Step, suggest
from runtimes.kit.work import Work

StepFunction = Callable[[Work], Mapping[str, Json]]
"""Does one step and returns its facts."""


class Converts(Protocol):
    """An adapter that makes an artefact: input `model`, output `artifact`, facts `placement`, `io`, `notes`."""

    def convert(self, work: Work, /) -> Mapping[str, Json]:
        """Convert `in/model/model.onnx` to `out/artifact/`."""


class Runs(Protocol):
    """An adapter that runs an artefact: inputs `artifact`, `samples`, output `outputs`, facts `device`, `execution`."""

    def run(self, work: Work, /) -> Mapping[str, Json]:
        """Write to `out/outputs` what the artefact makes of every sample."""


class Versioned(Protocol):
    """An adapter that says what does its work."""

    def versions(self) -> Mapping[str, str]:
        """Return package name to version."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """An input or output as it is asked for, or as an artefact has it.

    Attributes:
        name: its name in the ONNX model.
        shape: its sizes; −1 is a size that is known only when it runs.
        dtype: numpy's name of its element type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


def differences(what: str, asked: Sequence[Tensor], found: Sequence[Tensor]) -> list[str]:
    """Return what is wrong with the inputs or outputs of an artefact, in both directions; [] when all is as asked.

    Args:
        what: "input" or "output".
        asked: what it should have.
        found: what it has. A size of −1 agrees with any.
    """
    wanted, present = {tensor.name: tensor for tensor in asked}, {tensor.name: tensor for tensor in found}
    wrong = [f"{what} {name!r} is missing" for name in wanted if name not in present]
    wrong += [f"{what} {name!r} was never asked for" for name in present if name not in wanted]
    if len(present) != len(found):
        wrong.append(f"{what}s share a name: {[tensor.name for tensor in found]}")
    for name in wanted.keys() & present.keys():
        ours, theirs = wanted[name], present[name]
        if len(ours.shape) != len(theirs.shape) or any(
            size not in (-1, other) for size, other in zip(theirs.shape, ours.shape, strict=True)
        ):
            wrong.append(f"{what} {name!r} has the shape {list(theirs.shape)} instead of {list(ours.shape)}")
        if ours.dtype != theirs.dtype:
            wrong.append(f"{what} {name!r} is {theirs.dtype} instead of {ours.dtype}")
    return sorted(wrong)


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
