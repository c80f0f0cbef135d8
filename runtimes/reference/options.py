"""What the steps of this side may be told: the model, its inputs, and how it is prepared and exported."""

from __future__ import annotations

import dataclasses
import enum
import math

from runtimes.contract import Misused
from runtimes.kit import tensors


class Origin(enum.StrEnum):
    """Where a model comes from."""

    NCNN = "ncnn"
    CHECKPOINT = "checkpoint"
    FUNCTION = "function"
    EXPORTED = "exported"
    ONNX = "onnx"


class Content(enum.StrEnum):
    """What an input holds."""

    PICTURE = "picture"
    UNIFORM = "uniform"
    NORMAL = "normal"
    INTEGERS = "integers"
    MASK = "mask"


class Exporter(enum.StrEnum):
    """Which of PyTorch's two exporters makes the ONNX file."""

    TORCHSCRIPT = "torchscript"
    DYNAMO = "dynamo"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """One input of a model.

    Attributes:
        name: its name in the ONNX file.
        shape: its sizes, all known; a picture is [N,C,H,W] or [C,H,W] with 1, 3 or 4 channels.
        dtype: one of `tensors.DTYPES`.
        content: what to fill it with.
        low: the smallest value; of a picture, what black becomes; "normal" and "mask" have none.
        high: the largest value (integers: included); of a picture, what white becomes; of "normal", the standard
            deviation.
        mean: of a picture, subtracted after scaling: one number, or one per channel.
        std: of a picture, what divides afterwards: one number, or one per channel.
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
        where = f"input {self.name!r}"
        if not self.name:
            raise Misused(f"{where}: an input without a name; name it")
        if self.dtype not in tensors.DTYPES:
            raise Misused(f"{where}: dtype {self.dtype!r} does not travel; use one of {', '.join(tensors.DTYPES)}")
        if any(size < 1 for size in self.shape):
            raise Misused(f"{where}: shape {list(self.shape)} has a size below 1; give every size as a number")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise Misused(f"{where}: low {self.low} is not below high {self.high}; give two finite numbers")
        if 0.0 in self.std:
            raise Misused(f"{where}: std {list(self.std)} holds a zero; give numbers to divide by")
        self._check_picture(where)

    def _check_picture(self, where: str) -> None:
        if self.content is not Content.PICTURE:
            if self.mean or self.std:
                raise Misused(f"{where}: mean and std with content {self.content.value!r}; they belong to a picture")
            return
        if len(self.shape) not in {3, 4} or self.shape[-3] not in {1, 3, 4}:
            raise Misused(
                f"{where}: a picture of shape {list(self.shape)}; "
                "give [N,C,H,W] or [C,H,W] with 1, 3 or 4 channels, or another content"
            )
        channels = self.shape[-3]
        for word, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) not in {0, 1, channels}:
                raise Misused(f"{where}: {len(numbers)} numbers in {word}; give one, or one per channel ({channels})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model, as `prepare` and `export` are both told it.

    Attributes:
        source: where it comes from.
        architecture: of "ncnn" weights: a key of `ncnn.ARCHITECTURES`.
        function: of "function": `module:function` in the source folder.
        trusted: whether the file that holds it may run code while it is read.
        inputs: its inputs; () where the file tells them.
        outputs: the names of its outputs in order; () for those of the file, or `output`, `output_1`, …
        shape: for a file that leaves sizes open: all sizes of each input that is open, or height and width of those
            that are [N,C,H,W].
    """

    source: Origin
    architecture: str = ""
    function: str = ""
    trusted: bool = False
    inputs: tuple[Input, ...] = ()
    outputs: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        names = [*(each.name for each in self.inputs), *self.outputs]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise Misused(f"inputs and outputs: {', '.join(twice)} is named twice; give every one a name of its own")
        if any(size < 1 for size in self.shape):
            raise Misused(f"shape: {list(self.shape)} has a size below 1; give every size as a number")
        if self.shape and self.inputs:
            raise Misused(f"shape: {list(self.shape)} beside inputs; give each input its own shape")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareOptions(ModelOptions):
    """What `prepare` is told.

    Attributes:
        seed: what every random draw starts from.
        magnitudes: what both ends of an input's range are multiplied by, for one random sample each; see `inputs.draw`.
    """

    seed: int
    magnitudes: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seed < 0:
            raise Misused(f"seed: {self.seed} is negative; give a whole number from 0")
        names = {f"{magnitude:g}" for magnitude in self.magnitudes}
        if len(names) != len(self.magnitudes) or not all(0.0 < magnitude < math.inf for magnitude in self.magnitudes):
            raise Misused(f"magnitudes: {list(self.magnitudes)}; give different numbers above 0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(ModelOptions):
    """What `export` is told.

    Attributes:
        opset: the ONNX operator set to export to; a file that is ONNX already keeps its own.
        exporter: which exporter makes the file.
    """

    opset: int = 17
    exporter: Exporter = Exporter.TORCHSCRIPT
