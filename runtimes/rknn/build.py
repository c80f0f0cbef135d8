"""One build with rknn-toolkit2, in a process of its own: `python -P -m runtimes.rknn.build <workspace> <folder>`.

The toolkit takes its whole process down on some models, says half of what went wrong from C only, and leaves files in
the current folder. So nothing but the vendor's calls happens here: load, build, export, and the samples through the
simulator, which only ever runs what this very process has built. The adapter reads what is left behind:

    <folder>/order.json     what to do, written by the adapter
    <folder>/report.json    how far it came; written before each call, so that it is there after a crash
    <folder>/model.rknn     the artefact
    <folder>/outputs/       what the simulator made of the samples
"""

from __future__ import annotations

import ctypes
import enum
import faulthandler
import io
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

import numpy as np

from runtimes import contract
from runtimes.contract import Job, Layout
from runtimes.kit import tensors
from runtimes.kit.ports import Port
from runtimes.kit.work import Work
from runtimes.rknn import artefact

ORDER, REPORT, DATASET, ARTIFACT, OUTPUTS = "order.json", "report.json", "dataset.txt", "model.rknn", "outputs"
LINE_BUFFERED = 1
"""`_IOLBF` of C's stdio.h."""

ALGORITHM = "kl_divergence"
"""How the toolkit finds ranges: a few large numbers may be cut off; `mmse` does the same, in 50 times as long."""

LAYOUT = "nchw"
"""The layout of every input with four dimensions, as in ONNX; the toolkit takes nhwc unless told."""


class Stage(enum.StrEnum):
    """What the toolkit is doing."""

    CONFIG = "config"
    LOAD = "load_onnx"
    BUILD = "build"
    EXPORT = "export_rknn"
    INIT = "init_runtime"
    INFER = "inference"
    DONE = "done"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `convert` and `quantize` are told."""

    precision: str
    target: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, kw_only=True)
class Order:
    """What one build is told beyond the job.

    Attributes:
        quantized: whether to build in int8, with the calibration data of `<folder>/dataset.txt`.
        disabled_rules: the toolkit's own names of the rules of its graph optimiser that it must not use.
    """

    quantized: bool
    disabled_rules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """How far a build came.

    Attributes:
        stage: the call that it is in, or ended with.
        returned: what that call returned where it is not what success returns, else "".
        raised: the exception that ended it: its text, whole, else "".
    """

    stage: Stage
    returned: str = ""
    raised: str = ""


class _Bad(Exception):
    """A call that returned what is no success; the report says it."""


class _Calls:
    """Makes the vendor's calls, and reports each before it is made."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / REPORT
        self.stage = Stage.CONFIG

    def make(self, stage: Stage, call: Callable[[], object]) -> None:
        """Make a call that returns 0 on success.

        Raises:
            _Bad: it returned something else.
        """
        self.begin(stage)
        returned = call()
        if returned != 0:
            self.bad(returned)

    def begin(self, stage: Stage) -> None:
        self.stage = stage
        contract.write(Report(stage=stage), self.path)

    def bad(self, returned: object) -> NoReturn:
        contract.write(Report(stage=self.stage, returned=str(returned)), self.path)
        raise _Bad(f"{self.stage} returned {returned}")

    def excepthook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Report an exception that nobody caught."""
        if not isinstance(error, _Bad):
            traceback.print_exception(kind, error, trace)
            contract.write(Report(stage=self.stage, raised=f"{kind.__name__}: {error}"), self.path)


def main(arguments: list[str]) -> int:
    """Do the job of a workspace as far as the toolkit is concerned."""
    workspace, folder = (Path(argument) for argument in arguments)
    faulthandler.enable()
    _write_whole_lines()
    calls = _Calls(folder)
    sys.excepthook = calls.excepthook
    layout = Layout(workspace)
    work = Work(layout, contract.read(Job, layout.job))
    order = contract.read(Order, folder / ORDER)
    _build(work, order, folder, calls)
    calls.begin(Stage.DONE)
    # The toolkit's words that C still holds back are written as the process ends: believe them only with its exit code.
    return 0


def _write_whole_lines() -> None:
    """Write what Python and C print line by line: their buffers would end, and mix, in the middle of a line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, LINE_BUFFERED, 0)


def _build(work: Work, order: Order, folder: Path, calls: _Calls) -> None:
    from rknn.api import RKNN

    options = work.options(Options)
    samples = tensors.load_samples(work.input("samples"))
    # It writes check*.onnx into the current folder.
    os.chdir(folder)
    rknn = RKNN(verbose=True)
    rules = {"disable_rules": list(order.disabled_rules)} if order.disabled_rules else {}
    calls.make(
        Stage.CONFIG,
        lambda: rknn.config(target_platform=options.target, quantized_algorithm=ALGORITHM, **rules),
    )
    work.progress(f"reading the ONNX model for {options.target}")
    calls.make(Stage.LOAD, lambda: rknn.load_onnx(model=str(work.input("model") / "model.onnx")))
    work.progress(f"building for {options.target}")
    dataset = {"dataset": DATASET} if order.quantized else {}
    calls.make(Stage.BUILD, lambda: rknn.build(do_quantization=order.quantized, **dataset))
    calls.make(Stage.EXPORT, lambda: rknn.export_rknn(ARTIFACT))
    calls.make(Stage.INIT, rknn.init_runtime)
    # The file says which inputs and outputs are left: the toolkit drops what is unused, constant or there twice.
    made = artefact.read(folder / ARTIFACT)
    calls.begin(Stage.INFER)
    results = {}
    for index, (sample, feeds) in enumerate(samples.items()):
        work.progress(f"simulating {sample}", index / len(samples))
        given = [as_taken(feeds[port.name]) for port in made.inputs]
        found = rknn.inference(inputs=given, data_format=[LAYOUT] * len(given))
        if found is None:
            calls.bad(found)
        # It gives a number without dimensions as one with one.
        results[sample] = {
            port.name: np.array(value) if port.shape else np.array(value).reshape(())
            for port, value in zip(made.outputs, found, strict=True)
        }
    tensors.save_samples(folder / OUTPUTS, results)
    rknn.release()


def as_taken(array: tensors.Array) -> tensors.Array:
    """Return an input as the toolkit takes it: every floating input of a model becomes float32 when it is loaded."""
    return array.astype(np.float32) if array.dtype.kind == "f" else array.copy()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
