"""What a model is: its source, its weights, its inputs and outputs, and how close its outputs must come.

Each class checks itself; `contract.decode` puts the file and the key before what it says.
"""

from __future__ import annotations

import enum
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from runtimes.contract import Misused, suggest

MODEL_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
NAME = re.compile(r"[a-z][a-z0-9]*")
"""What a runtime, a precision, a target and an environment are called, so that module, folder and cell agree."""
FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)

_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGEST_DIMENSION = 2**31 - 1
_PICTURE_RANKS, _CHANNELS = (3, 4), (1, 3, 4)

INTEGERS = {
    "bool": (0, 1),
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
}
"""The dtypes of whole numbers, with the least and the largest that each holds."""
FLOATS = ("float16", "float32", "float64")

ARCHITECTURES = ("esrgan", "compact")
"""What an ncnn file can hold, as far as aipc reads it."""


class Origin(enum.StrEnum):
    """Where a model comes from."""

    NCNN = "ncnn"
    CHECKPOINT = "checkpoint"
    FUNCTION = "function"
    EXPORTED = "exported"
    ONNX = "onnx"


class Content(enum.StrEnum):
    """What an input is filled with."""

    PICTURE = "picture"
    UNIFORM = "uniform"
    NORMAL = "normal"
    INTEGERS = "integers"
    MASK = "mask"


_HELD = {Content.PICTURE: ("uint8", "int8"), Content.MASK: tuple(INTEGERS)}  # beside FLOATS


class OutputContent(enum.StrEnum):
    """What an output is: a picture is also shown in the report."""

    TENSOR = "tensor"
    PICTURE = "picture"


class Exporter(enum.StrEnum):
    """Which of PyTorch's two ONNX exporters."""

    TORCHSCRIPT = "torchscript"
    DYNAMO = "dynamo"


HIGHEST_OPSET = {Exporter.TORCHSCRIPT: 20, Exporter.DYNAMO: 23}
LOWEST_OPSET = 11


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file: a member of a pinned Python package, or a path.

    Attributes:
        package: `name==version`.
        member: the file's path inside the package's wheel.
        path: a file on this machine; in a matrix it is relative to the matrix.
        sha256: of the file, 64 hex digits; a member must have it, a path may.
    """

    package: str = ""
    member: str = ""
    path: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        if bool(self.package) is bool(self.path):
            both = f"both package {self.package!r} and path {self.path!r}; keep one"
            raise Misused(both if self.path else "neither package nor path; name one")
        if self.sha256 and not _SHA256.fullmatch(self.sha256):
            raise Misused(f"sha256: {self.sha256!r} is not 64 hex digits in lower case; copy it from sha256sum")
        if self.path and self.member:
            raise Misused(f"member: {self.member!r} without a package; remove it or name the package")
        if self.package:
            self._check_package()

    def _check_package(self) -> None:
        if not _PINNED.fullmatch(self.package):
            raise Misused(f"package: {self.package!r} is not pinned; write name==version")
        if not self.member:
            raise Misused(f"member: missing for package {self.package!r}; name the file inside the wheel")
        parts = self.member.split("/")
        if "\\" in self.member or not self.member.isprintable() or {"", ".", ".."} & set(parts):
            raise Misused(f"member: {self.member!r} is no path inside a wheel; write it like package/folder/file")
        if not self.sha256:
            raise Misused(f"sha256: missing for package {self.package!r}; add that of the member")

    @property
    def name(self) -> str:
        """The file's own name."""
        return PurePosixPath(self.member or self.path).name

    def __str__(self) -> str:
        return f"{self.package}: {self.member}" if self.package else self.path


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input of a model.

    Attributes:
        name: its name in the ONNX graph.
        shape: every dimension, for a picture [N, C, H, W] or [C, H, W].
        dtype: `float32`, `int64` and so on.
        content: what it is filled with.
        low: the least value; of a picture, what black becomes; "normal" and "mask" have none.
        high: the largest value; of a picture, what white becomes; of "normal", the standard deviation.
        mean: of a picture, subtracted per channel after scaling to [low, high]; () for none.
        std: of a picture, divided by per channel after the mean; () for none.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    content: Content = Content.UNIFORM
    low: float = 0.0
    high: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _check_tensor_name("name", self.name)
        check_shape(self.shape)
        if self.dtype not in FLOATS and self.dtype not in INTEGERS:
            raise Misused(f"dtype: {self.dtype!r} is not known{suggest(self.dtype, [*FLOATS, *INTEGERS])}")
        for name, value in (("low", self.low), ("high", self.high)):
            _check_finite(name, (value,))
        if self.low >= self.high:
            raise Misused(f"low: {self.low} is not below high, {self.high}; give a range")
        if self.content is Content.PICTURE:
            self._check_picture()
        elif self.mean or self.std:
            raise Misused(f"mean, std: only for content 'picture', not {self.content.value!r}; remove them")
        if self.content is Content.INTEGERS:
            self._check_integers()
        elif self.dtype not in (*FLOATS, *_HELD.get(self.content, ())):
            raise Misused(
                f"dtype: {self.dtype!r} does not hold content {self.content.value!r}; use float32 or 'integers'"
            )

    def _check_picture(self) -> None:
        if len(self.shape) not in _PICTURE_RANKS or self.shape[-3] not in _CHANNELS:
            raise Misused(
                f"shape: {list(self.shape)} is not [N, C, H, W] or [C, H, W] with 1, 3 or 4 channels, "
                "as content 'picture' needs; give such a shape, or content 'uniform'"
            )
        channels = self.shape[-3]
        for name, values in (("mean", self.mean), ("std", self.std)):
            _check_finite(name, values)
            if values and len(values) != channels:
                raise Misused(f"{name}: {list(values)} for {channels} channels; give one number for each")
        if any(value <= 0 for value in self.std):
            raise Misused(f"std: {list(self.std)} holds a number that is not above 0; it is divided by")

    def _check_integers(self) -> None:
        if self.dtype not in INTEGERS:
            raise Misused(f"dtype: {self.dtype!r} does not hold content 'integers'; use int64, int32 and so on")
        least, largest = INTEGERS[self.dtype]
        for name, value in (("low", self.low), ("high", self.high)):
            if value != int(value) or not least <= value <= largest:
                raise Misused(f"{name}: {value} is no {self.dtype}; give a whole number from {least} to {largest}")


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far an output may be from PyTorch's own.

    Attributes:
        cosine: the least cosine similarity, from -1 to 1.
        snr_db: the least ratio of signal to error, in decibels.
        max_abs: the largest absolute difference, in the output's own unit; None for any.
    """

    cosine: float
    snr_db: float
    max_abs: float | None = None

    def __post_init__(self) -> None:
        _check_limits(self.cosine, self.snr_db, self.max_abs)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Outputs that are judged alike; a limit that is given replaces the precision's own.

    Attributes:
        name: what the report calls it.
        outputs: names of outputs.
        content: whether they are pictures.
        cosine: as in `Tolerance`, None for the precision's.
        snr_db: as in `Tolerance`, None for the precision's.
        max_abs: as in `Tolerance`, None for the precision's.
        inputs: the inputs that these outputs depend on; () for all.
    """

    name: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    content: OutputContent = OutputContent.TENSOR
    cosine: float | None = None
    snr_db: float | None = None
    max_abs: float | None = None

    def __post_init__(self) -> None:
        _check_tensor_name("name", self.name)
        if not self.outputs:
            raise Misused("outputs: []; name at least one")
        check_distinct("outputs", self.outputs)
        _check_limits(self.cosine, self.snr_db, self.max_abs)

    def tolerance(self, usual: Tolerance) -> Tolerance:
        """Return the limits of this group where those of the precision are `usual`."""
        return Tolerance(
            cosine=usual.cosine if self.cosine is None else self.cosine,
            snr_db=usual.snr_db if self.snr_db is None else self.snr_db,
            max_abs=usual.max_abs if self.max_abs is None else self.max_abs,
        )


@dataclass(frozen=True, kw_only=True)
class Model:
    """A PyTorch model, or an ONNX file.

    Attributes:
        name: unique, for instance `esrgan`.
        source: where it comes from.
        architecture: what an ncnn file holds; "" for any other source.
        function: `module:function` that returns the model, for source `function`.
        folder: the folder that holds that module; it travels whole, so it should hold little else.
        trusted: its weights may run code while they are read.
        weights: its files.
        inputs: () for a file that says them itself.
        outputs: names in the order in which the model returns them; () for the file's own, or `output`, `output_1`.
        groups: how outputs are judged; an output in no group is one by itself.
        opset: the ONNX opset to export.
        exporter: which exporter.
        licence: of code and weights, an SPDX identifier.
        environment: of a model whose packages must stay apart, a folder in images/; "" for the usual one.
        shape: for a file with dynamic dimensions, the shape of its input, or H, W.
        precisions: what the matrix asks of this model on each runtime that has it, beside what it asks of all models.
    """

    name: str
    source: Origin
    architecture: str = ""
    function: str = ""
    folder: str = ""
    trusted: bool = False
    weights: tuple[Source, ...] = ()
    inputs: tuple[Input, ...] = ()
    outputs: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    opset: int = 17
    exporter: Exporter = Exporter.TORCHSCRIPT
    licence: str = ""
    environment: str = ""
    shape: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not MODEL_NAME.fullmatch(self.name):
            raise Misused(
                f"name: {self.name!r} is no name; use small letters, digits and single hyphens, a letter first"
            )
        check_shape(self.shape)
        if self.shape and self.inputs:
            raise Misused(f"shape: {list(self.shape)} beside inputs; give each input its own shape")
        highest = HIGHEST_OPSET[self.exporter]
        if not LOWEST_OPSET <= self.opset <= highest:
            raise Misused(
                f"opset: {self.opset} is not from {LOWEST_OPSET} to {highest} ({self.exporter}); 17 suits most"
            )
        check_distinct("weights", [weight.name for weight in self.weights])
        check_distinct("inputs, outputs", [*(each.name for each in self.inputs), *self.outputs])
        for output in self.outputs:
            _check_tensor_name("outputs", output)
        self._check_source()
        self._check_groups()

    def _check_source(self) -> None:
        for key, wanted in (("architecture", Origin.NCNN), ("function", Origin.FUNCTION), ("folder", Origin.FUNCTION)):
            if getattr(self, key) and self.source is not wanted:
                raise Misused(f"{key}: {getattr(self, key)!r} is only for source {wanted.value!r}; remove it")
        if self.source is Origin.NCNN and self.architecture not in ARCHITECTURES:
            raise Misused(
                f"architecture: {self.architecture!r} is not known{suggest(self.architecture, ARCHITECTURES)}"
            )
        if self.source is Origin.FUNCTION and not FUNCTION.fullmatch(self.function):
            raise Misused(f"function: {self.function!r} is not module:function; write it like package.module:build")
        if self.source is Origin.FUNCTION and not self.folder:
            raise Misused("folder: missing; name the folder that holds the function's module")
        if self.source in {Origin.NCNN, Origin.FUNCTION} and not self.inputs:
            raise Misused(f"inputs: []; source {self.source.value!r} does not say its own, declare them")
        suffixes = [PurePosixPath(weight.name).suffix.lower() for weight in self.weights]
        for suffix in WEIGHTS[self.source]:
            if suffixes.count(suffix) != 1:
                raise Misused(
                    f"weights: {suffixes.count(suffix)} files {suffix}; source {self.source.value!r} needs one"
                )
        if self.source is Origin.CHECKPOINT and len(self.weights) != 1:
            raise Misused(f"weights: {len(self.weights)} files; source 'checkpoint' needs one")

    def _check_groups(self) -> None:
        check_distinct("groups", [group.name for group in self.groups])
        for group in self.groups:
            for name in group.inputs:
                if name not in (known := [each.name for each in self.inputs]):
                    raise Misused(f"groups: {group.name}: {name!r} is not among inputs{suggest(name, known)}")
        grouped = [output for group in self.groups for output in group.outputs]
        for output in grouped:
            if output not in self.outputs:
                raise Misused(f"groups: {output!r} is not among outputs{suggest(output, self.outputs)}")
        check_distinct("groups: outputs", grouped)


WEIGHTS = {
    Origin.NCNN: (".param", ".bin"),
    Origin.CHECKPOINT: (),
    Origin.FUNCTION: (),
    Origin.EXPORTED: (".pt2",),
    Origin.ONNX: (".onnx",),
}
"""The kinds of files that the weights of each source hold exactly one of."""


def check_shape(shape: Iterable[int], where: str = "shape") -> None:
    """Refuse a shape with a dimension that no tensor has.

    Raises:
        Misused: a dimension is below 1 or above 2**31 - 1.
    """
    for dimension in shape:
        if not 1 <= dimension <= _LARGEST_DIMENSION:
            raise Misused(f"{where}: {dimension} is no dimension; give whole numbers from 1")


def check_distinct(where: str, names: Iterable[str]) -> None:
    """Refuse a name that comes twice.

    Raises:
        Misused: one does.
    """
    for name, count in Counter(names).items():
        if count > 1:
            raise Misused(f"{where}: {str(name)!r} is there {count} times; keep one")


def _check_tensor_name(where: str, name: str) -> None:
    if not name or not name.isprintable() or " " in name:
        raise Misused(f"{where}: {name!r} is no name; use printable characters without spaces")


def _check_finite(where: str, values: Iterable[float]) -> None:
    for value in values:
        if not math.isfinite(value):
            raise Misused(f"{where}: {value} is not finite; give a number")


def _check_limits(cosine: float | None, snr_db: float | None, max_abs: float | None) -> None:
    if cosine is not None and not -1 <= cosine <= 1:
        raise Misused(f"cosine: {cosine} is no cosine; give a number from -1 to 1, such as 0.999")
    if snr_db is not None:
        _check_finite("snr_db", (snr_db,))
    if max_abs is not None and not 0 <= max_abs < math.inf:
        raise Misused(f"max_abs: {max_abs} is no difference; give a number from 0")
