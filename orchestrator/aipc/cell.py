"""A cell: one model on one runtime in one precision for one target, `model[#shape]/runtime/precision[@target]`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aipc import runtime as runtimes
from aipc.config import Matrix, Model
from aipc.errors import NothingSelected, UsageError
from aipc.model import MODEL_NAME, NAME, Input, check_shape
from aipc.tables import near, one_line
from runtimes.contract import Misused, Verdict, suggest

FORM = "model[#shape]/runtime[/precision][@target], for instance esrgan#64x64/openvino/fp16@cpu"

_HW = 2
_NCHW = 4
_SHAPE = re.compile(r"\d{1,10}(x\d{1,10})*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is deployed.

    Attributes:
        model: the model's name.
        shape: of its input, in full, or H, W; () for the model's own.
        runtime: the runtime's name.
        precision: the precision's name.
        target: the target's name.
    """

    model: str
    shape: tuple[int, ...] = ()
    runtime: str
    precision: str
    target: str

    def __post_init__(self) -> None:
        # Only such names make a folder that is safe, and a text that says the same cell when it is parsed.
        if not MODEL_NAME.fullmatch(self.model):
            raise UsageError(one_line(f"cell: {self.model!r} is no model's name; write {FORM}"))
        for what, name in (("runtime", self.runtime), ("precision", self.precision), ("target", self.target)):
            if not NAME.fullmatch(name):
                raise UsageError(one_line(f"cell: {name!r} is no {what}'s name; write {FORM}"))
        try:
            check_shape(self.shape)
        except Misused as error:
            raise UsageError(f"cell {self.model}: {error}") from error

    def __str__(self) -> str:
        shape = f"#{_times(self.shape)}" if self.shape else ""
        return f"{self.model}{shape}/{self.runtime}/{self.precision}@{self.target}"

    @property
    def folder(self) -> Path:
        """A relative path for what belongs to this cell; `#` would cut a link to a file in it, so it is `_` here."""
        shape = f"_{_times(self.shape)}" if self.shape else ""
        return Path(f"{self.model}{shape}", self.runtime, f"{self.precision}@{self.target}")


def parse(text: str) -> Cell:
    """Return the cell that `text` names; a precision or target that it leaves out is the runtime's default.

    Whether there is such a model is for `config.find_model` to say.

    Raises:
        UsageError: it is no cell, or the runtime, precision or target is not known.
    """
    model, _, rest = text.partition("/")
    path, at, target = rest.partition("@")
    runtime, slash, precision = path.partition("/")
    if not model or not runtime or (slash and not precision) or (at and not target):
        raise UsageError(one_line(f"cell {text!r}: a part is missing; write {FORM}"))
    name, hash_sign, shape = model.partition("#")
    return make(name, parse_shape(shape) if hash_sign else (), runtime, precision, target)


def make(model: str, shape: tuple[int, ...], runtime: str, precision: str = "", target: str = "") -> Cell:
    """Return the cell of these names, "" standing for the runtime's default.

    Raises:
        UsageError: the runtime builds nothing, or has no such precision or target.
    """
    found = runtimes.find(runtime)
    if not found.builds:
        builders = [each.name for each in runtimes.all_runtimes() if each.builds]
        raise UsageError(f"runtime {runtime!r}: builds no artefacts{suggest(runtime, builders)}")
    for what, name, known in (("precision", precision, found.precisions), ("target", target, tuple(found.targets))):
        if name and name not in known:
            near = suggest(name, known)
            all_of_them = "" if near.startswith("; known") else f" (known are {', '.join(known)})"
            raise UsageError(one_line(f"runtime {runtime!r}: has no {what} {name!r}{near}{all_of_them}"))
    return Cell(
        model=model,
        shape=shape,
        runtime=runtime,
        precision=precision or found.default_precision,
        target=target or found.default_target,
    )


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the shape in `text`: `64x96` (height and width) or `1x3x64x96`.

    Raises:
        UsageError: it is no shape.
    """
    if not _SHAPE.fullmatch(text):
        raise UsageError(
            one_line(f"shape {text!r}: is no shape; write height and width like 64x96, or all like 1x3x64x96")
        )
    shape = tuple(int(number) for number in text.split("x"))
    try:
        check_shape(shape, f"shape {text!r}")
    except Misused as error:
        raise UsageError(str(error)) from error
    return shape


def resolve_shape(model: Model, shape: tuple[int, ...]) -> Model:
    """Return `model` with its inputs of that shape.

    Height and width go to every input of rank 4; a full shape goes to the one input of its rank.

    Args:
        model: with declared inputs, or a file that says them itself.
        shape: in full, or H, W; () changes nothing.

    Raises:
        UsageError: no input has that rank, or several have.
    """
    if not shape:
        return model
    if not model.inputs:
        return replace(model, shape=shape)
    wide = [each.name for each in model.inputs if len(each.shape) == _NCHW]
    if len(shape) == _HW and wide:
        return _reshaped(model, wide, lambda each: (*each.shape[:_HW], *shape))
    fitting = [each.name for each in model.inputs if len(each.shape) == len(shape)]
    if len(fitting) != 1:
        inputs = ", ".join(f"{each.name} {_times(each.shape) or 'scalar'}" for each in model.inputs)
        raise UsageError(
            f"shape {_times(shape)}: {len(fitting)} inputs of {model.name} have {len(shape)} dimensions; "
            f"its inputs are {inputs}"
        )
    return _reshaped(model, fitting, lambda _: shape)


def _reshaped(model: Model, names: list[str], shape_of: Callable[[Input], tuple[int, ...]]) -> Model:
    try:
        inputs = tuple(replace(each, shape=shape_of(each)) if each.name in names else each for each in model.inputs)
    except Misused as error:
        raise UsageError(f"model {model.name}: {error}") from error
    return replace(model, inputs=inputs)


def cells(matrix: Matrix) -> tuple[Cell, ...]:
    """Return every cell that `matrix` asks for, in its order, each at the size that it is tried at.

    Raises:
        UsageError: a pattern of `shapes` or `expected` fits no cell, or a shape is none.
    """
    plain = tuple(
        Cell(model=name, runtime=runtime, precision=precision, target=target)
        for name, model in matrix.models.items()
        for runtime, asked in matrix.runtimes.items()
        for precision in asked.precisions + tuple(each for each in model.precisions if each in asked.others)
        for target in asked.targets
    )
    for key, patterns in (("shapes", matrix.shapes), ("expected", matrix.expected)):
        for pattern in patterns:
            if not any(_fits(_forms(each), pattern) for each in plain):
                raise UsageError(one_line(f"{key}: {pattern!r} fits no cell of the matrix; `aipc plan` shows them all"))
    shapes = {pattern: parse_shape(text) for pattern, text in matrix.shapes.items()}
    return tuple(
        replace(each, shape=next((shape for pattern, shape in shapes.items() if _fits(_forms(each), pattern)), ()))
        for each in plain
    )


def expected(matrix: Matrix, cell: Cell) -> Verdict | None:
    """Return the verdict that `matrix` expects of `cell`, None where it says nothing; the first pattern counts."""
    return next((verdict for pattern, verdict in matrix.expected.items() if _fits(_forms(cell), pattern)), None)


def select(among: Sequence[Cell], patterns: Sequence[str]) -> tuple[Cell, ...]:
    """Return the cells that one of `patterns` fits, in their order; all of them when there is no pattern.

    A pattern is a cell's text with `*` and `?`; what it leaves out at the end (target, precision, runtime) may be any.

    Raises:
        NothingSelected: a pattern fits no cell: a typing error must not look like success.
    """
    forms = [(each, _forms(each)) for each in among]
    for pattern in patterns:
        if not any(_fits(names, pattern) for _, names in forms):
            known = sorted({name for _, names in forms for name in names})
            raise NothingSelected(one_line(f"{pattern!r}: no cell of the matrix{near(pattern, known)}"))
    return tuple(each for each, names in forms if not patterns or any(_fits(names, pattern) for pattern in patterns))


def _forms(cell: Cell) -> tuple[str, ...]:
    """Return the texts that mean `cell`, or it and others; its shape may be left out."""
    model, runtime, _ = str(cell).split("/")
    forms = str(cell), f"{model}/{runtime}/{cell.precision}", f"{model}/{runtime}", model
    return (*forms, *_forms(replace(cell, shape=()))) if cell.shape else forms


def _fits(names: tuple[str, ...], pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _times(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))
