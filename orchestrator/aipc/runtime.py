"""The runtimes: what each folder under runtimes/ says of itself in its runtime.toml."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from aipc import environment, home
from aipc.errors import UsageError
from aipc.model import NAME, Tolerance, check_distinct
from aipc.tables import decode, read_table, show
from runtimes.contract import Misused, Step, suggest

FILE = "runtime.toml"

_PYTHON = re.compile(r"3\.[1-9]\d?")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


class Run(enum.StrEnum):
    """Where the outputs of a runtime come from."""

    ARTIFACT = "artifact"
    """A job of its own loads the artefact and runs it."""
    IN_CONVERT = "in_convert"
    """The process that builds the artefact also runs it."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What an artefact is built for.

    Attributes:
        devices: the names, in a placement table, of the devices that a node may be placed on.
        accelerator: it claims more than the host's CPU, and must prove it.
        description: what it is, for people.
    """

    devices: tuple[str, ...]
    accelerator: bool = False
    description: str = ""

    def __post_init__(self) -> None:
        if not self.devices:
            raise Misused("devices: []; name at least one")


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """Which jobs of a runtime get the NVIDIA GPUs of a host that has some.

    Attributes:
        steps: those that always do.
        with_sdk: those that do where the user has the runtime's SDK.
        environment: the folder in images/ in which these jobs are then done, the runtime's own for "".
    """

    steps: tuple[Step, ...]
    with_sdk: tuple[Step, ...] = ()
    environment: str = ""

    def __post_init__(self) -> None:
        check_distinct("steps", (*self.steps, *self.with_sdk))
        if not self.steps:
            raise Misused("steps: []; name the steps that need a GPU, or remove the table")


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A target toolchain; or `reference`, which has no targets.

    Attributes:
        name: the folder's name.
        title: its name for people.
        steps: what its adapter does.
        precisions: what it can build.
        quantized: those of them that are built with calibration data, by the step `quantize` in place of `convert`.
        targets: what it can build for.
        environment: the folder in images/ with its toolchain; the same name unless it says otherwise.
        python: the Python version of that environment.
        run: where its outputs come from.
        default_precision: taken when a cell names none; the first one unless it says otherwise.
        default_target: taken when a cell names none; the first one unless it says otherwise.
        timeout_seconds: after which a job is ended.
        memory_bytes: what a job may use.
        tolerances: how close a precision must come that no matrix needs to know of.
        sdk: the variable of the host that names the folder of a vendor's SDK, where the user has one; "" for none.
        encodings: its step `quantize` takes a file of ranges, the optional input `encodings`; by the SDK, if any.
        rewrites: those that a person may ask for by name; of another than the reference, its step `patch` does them.
        quantizers: those of them that quantise: only for a precision that is built with calibration data.
        gpu: which of its jobs get a GPU, where there is one; None for none.
    """

    name: str
    title: str
    steps: tuple[Step, ...]
    precisions: tuple[str, ...] = ()
    quantized: tuple[str, ...] = ()
    targets: Mapping[str, Target] = field(default_factory=dict)
    environment: str = ""
    python: str = "3.11"
    run: Run = Run.ARTIFACT
    default_precision: str = ""
    default_target: str = ""
    timeout_seconds: float = 3600.0
    memory_bytes: int = 8 * 2**30
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    sdk: str = ""
    encodings: bool = False
    rewrites: tuple[str, ...] = ()
    quantizers: tuple[str, ...] = ()
    gpu: GpuUse | None = None

    def __post_init__(self) -> None:
        for key, names in (("precisions", self.precisions), ("targets", tuple(self.targets))):
            check_distinct(key, names)
            for name in names:
                if not NAME.fullmatch(name):
                    raise Misused(f"{key}: {name!r} is no name; use small letters and digits, a letter first")
        for key, name, names in (
            ("default_precision", self.default_precision, self.precisions),
            ("default_target", self.default_target, tuple(self.targets)),
        ):
            if name and name not in names:
                raise Misused(f"{key}: {name!r} is not in the list{suggest(name, names)}")
        if not _PYTHON.fullmatch(self.python):
            raise Misused(f"python: {self.python!r} is no version; write it like 3.11")
        if not 0 < self.timeout_seconds < math.inf:
            raise Misused(f"timeout_seconds: {self.timeout_seconds} is no time; give a number above 0")
        if self.memory_bytes <= 0:
            raise Misused(f"memory_bytes: {self.memory_bytes} is no size; give a number above 0")
        for key, names in (("tolerances", tuple(self.tolerances)), ("quantized", self.quantized)):
            for name in names:
                if name not in self.precisions:
                    raise Misused(f"{key}: {name!r} is not in precisions{suggest(name, self.precisions)}")
        self._check_given()
        self._check_rewrites()
        self._check_steps()

    def _check_given(self) -> None:
        if self.encodings and not self.quantized:
            raise Misused("encodings: true, but nothing is quantised; remove it or add 'quantized'")
        if self.sdk and not _VARIABLE.fullmatch(self.sdk):
            raise Misused(f"sdk: {self.sdk!r} is no variable; write it like VENDOR_SDK_ROOT")
        if self.gpu:
            for step in (*self.gpu.steps, *self.gpu.with_sdk):
                if step not in self.steps:
                    raise Misused(f"gpu: {step.value!r} is not in steps{suggest(step, self.steps)}")
            if self.gpu.with_sdk and not self.sdk:
                raise Misused("gpu.with_sdk: there is no 'sdk'; remove it, or name the SDK's variable")

    def _check_rewrites(self) -> None:
        check_distinct("rewrites", self.rewrites)
        if self.rewrites and not {Step.REWRITE, Step.PATCH} & {*self.steps}:
            raise Misused("rewrites: only for the step 'rewrite' or 'patch'; remove them or add the step")
        for name in self.quantizers:
            if name not in self.rewrites:
                raise Misused(f"quantizers: {name!r} is not in rewrites{suggest(name, self.rewrites)}")

    def _check_steps(self) -> None:
        check_distinct("steps", self.steps)
        if not self.steps:
            raise Misused("steps: []; name what the adapter does")
        if self.builds:
            for key, names in (("precisions", self.precisions), ("targets", tuple(self.targets))):
                if not names:
                    raise Misused(f"{key}: none, but it does the step 'convert'; name at least one")
            if (Step.RUN in self.steps) != (self.run is Run.ARTIFACT):
                raise Misused(
                    f"run: {self.run.value!r} with steps {[step.value for step in self.steps]}; "
                    "'artifact' needs the step 'run', 'in_convert' has none"
                )
            if set(self.precisions) == set(self.quantized):
                raise Misused(f"quantized: {list(self.quantized)} is all of precisions; name one in floating point too")
            if (Step.QUANTIZE in self.steps) != bool(self.quantized):
                raise Misused(
                    f"quantized: {list(self.quantized)} with steps {[step.value for step in self.steps]}; "
                    "the step 'quantize' and the precisions that it builds go together"
                )
        elif self.precisions or self.targets:
            raise Misused("precisions, targets: only for the step 'convert'; remove them or add the step")

    @property
    def builds(self) -> bool:
        """Whether it makes artefacts, so that a cell may name it."""
        return Step.CONVERT in self.steps

    def wants_gpu(self, step: Step, *, with_sdk: bool) -> bool:
        """Whether a job gets the GPU of a host that has one."""
        return self.gpu is not None and (step in self.gpu.steps or (with_sdk and step in self.gpu.with_sdk))

    def environment_with(self, *, gpu: bool) -> str:
        """Return the folder in images/ of a job that has a GPU, or has none."""
        return (self.gpu.environment if gpu and self.gpu else "") or self.environment

    @property
    def float_precision(self) -> str:
        """The precision that comes before a quantised one."""
        floats = [each for each in (self.default_precision, *self.precisions) if each and each not in self.quantized]
        return floats[0]


def load(folder: Path) -> Runtime:
    """Return the runtime in `folder`; its name is the folder's.

    Raises:
        UsageError: runtime.toml is missing, or something in it does not fit.
    """
    path = folder / FILE
    where = show(path)
    if not NAME.fullmatch(folder.name):
        raise UsageError(f"{where}: {folder.name!r} is no name; use small letters and digits, a letter first")
    table = read_table(path)
    if "name" in table:
        raise UsageError(f"{where}: name: {table['name']!r}; remove it, the folder's name is the name")
    made = decode(Runtime, {**table, "name": folder.name}, where)
    made = replace(
        made,
        environment=made.environment or made.name,
        default_precision=made.default_precision or next(iter(made.precisions), ""),
        default_target=made.default_target or next(iter(made.targets), ""),
    )
    check_environment(made.environment, f"{where}: environment")
    check_environment(made.environment_with(gpu=True), f"{where}: gpu.environment")
    return made


def names() -> tuple[str, ...]:
    """Return the names of all runtimes, sorted: of the folders under runtimes/ that hold a runtime.toml."""
    return tuple(sorted(path.parent.name for path in home.runtimes_folder().glob(f"*/{FILE}")))


def find(name: str) -> Runtime:
    """Return the runtime called `name`.

    Raises:
        UsageError: there is none, or its runtime.toml does not fit.
    """
    known = names()
    if name not in known:
        raise UsageError(f"runtime {name!r}: not in {show(home.runtimes_folder())}{suggest(name, known)}")
    return load(home.runtimes_folder() / name)


def all_runtimes() -> tuple[Runtime, ...]:
    """Return all runtimes, sorted by name.

    Raises:
        UsageError: one of them does not fit.
    """
    return tuple(load(home.runtimes_folder() / name) for name in names())


def check_environment(name: str, where: str) -> None:
    """Refuse an environment that has no folder in images/.

    Raises:
        UsageError: it has none.
    """
    known = environment.names()
    if name not in known:
        raise UsageError(f"{where}: {name!r} is not in {show(home.images_folder())}{suggest(name, known)}")
