"""The matrix.toml of a new project: the cells that were asked for, with what aipc's own matrix says of their model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import aipc
from aipc import asked as asking
from aipc import config, home, runtime
from aipc.asked import Asked
from aipc.cell import Cell
from aipc.errors import UsageError
from aipc.home import RUNS
from aipc.model import Model
from runtimes.contract import Json, encode

SAMPLE = "esrgan-compact"
"""The model of a project that names none: the quickest of aipc's own."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a project is for; an empty text stands for a default.

    Attributes:
        model: a model of aipc's matrix, a file, module:function, each with #SHAPE if need be, or a whole cell.
        runtimes: to which; () for all.
        precision: of each cell.
        target: of each cell.
        source: the folder of a module:function, the current one by default.
    """

    model: str = ""
    runtimes: tuple[str, ...] = ()
    precision: str = ""
    target: str = ""
    source: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The cells of a project, and its matrix.toml."""

    cells: tuple[Cell, ...]
    text: str


def configure(wanted: Wanted, root: Path) -> Configuration:
    """Return the configuration of a project in the folder `root`.

    Raises:
        UsageError: there is no such model, runtime, precision or target.
    """
    matrix = config.load(home.own_matrix_file())
    name = wanted.model or SAMPLE
    found = [asking.find(matrix, _asked(name, each, wanted)) for each in _runtimes(wanted, name)]
    cells = tuple(cell for _, cell in found)
    # A model of the matrix keeps its own size there, and [shapes] says what it is tried at: the report tells both.
    model = matrix.models.get(cells[0].model, found[0][0])
    for cell in cells:
        config.tolerance(matrix, runtime.find(cell.runtime), cell.precision)
    pictures = [_plain(each, root) for each in matrix.pictures]
    return Configuration(cells=cells, text=_text(model, cells, pictures, matrix, root))


def _runtimes(wanted: Wanted, model: str) -> Sequence[str]:
    """Return the runtimes of the cells; "" where the model is a whole cell.

    Raises:
        UsageError: one of them is none.
    """
    builders = [each.name for each in runtime.all_runtimes() if each.builds]
    for name in wanted.runtimes:
        if name not in builders:
            raise UsageError(f"--runtime: there is no {name!r}; known are {', '.join(builders)}")
    if asking.is_cell(model):
        return wanted.runtimes or ("",)
    return tuple(dict.fromkeys(wanted.runtimes)) or builders


def _asked(model: str, name: str, wanted: Wanted) -> Asked:
    return Asked(
        model=model,
        runtime=name,
        precision=wanted.precision,
        target=wanted.target,
        shape="",
        source=wanted.source,
        trusted=False,
        runs=RUNS,
        matrix_path=None,
        engine="",
        base_image="",
    )


def _text(model: Model, cells: Sequence[Cell], pictures: Sequence[Json], matrix: config.Matrix, root: Path) -> str:
    shape = "x".join(map(str, cells[0].shape))
    head = (
        "# What this project deploys: `aipc plan` shows the cells, `aipc deploy CELL` deploys one, `aipc matrix` all.\n"
        f"# Made by aipc {aipc.__version__}, and yours to change. Paths are relative to this file.\n\n"
        f"seed = {matrix.seed}                # of everything that is drawn at random\n"
        f"magnitudes = {_value(list(matrix.magnitudes))}    # of the random samples\n\n"
        "# Photographs that picture inputs are cut from, and that a quantised precision is calibrated on.\n"
        f"pictures = {_value(pictures)}\n"
    )
    tried = [f"# The size that it is tried at.\n[shapes]\n{_value(model.name)} = {_value(shape)}\n"] if shape else []
    runtimes = [
        f"[runtimes.{cell.runtime}]\nprecisions = {_value([cell.precision])}\ntargets = {_value([cell.target])}\n"
        for cell in cells
    ]
    entry = _plain(replace(model, precisions=()), root)
    lines = "".join(f"{key} = {_value(each)}\n" for key, each in entry.items() if key != "name")
    return "\n".join([head, *tried, *runtimes, f"[models.{model.name}]\n{lines}"])


def _plain(value: object, root: Path) -> Json:
    """Return a dataclass as JSON data without what is so by default; a path of a file below `root` is relative."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(field, getattr(value, field.name)) for field in dataclasses.fields(value)]
        said = {field.name: _plain(each, root) for field, each in fields if each != field.default}
        return {key: _placed(str(each), root) if key in {"path", "folder"} else each for key, each in said.items()}
    if isinstance(value, tuple):
        return [_plain(each, root) for each in value]
    return encode(value)


def _placed(path: str, root: Path) -> str:
    place = Path(path).resolve()
    return place.relative_to(root).as_posix() if place.is_relative_to(root) else str(place)


def _value(value: Json, *, inline: bool = False) -> str:
    """Return JSON data without null as TOML; a list of tables has one on each line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(each, inline=True)}" for key, each in value.items()) + " }"
    if isinstance(value, list) and not inline and any(isinstance(each, Mapping) for each in value):
        return "[\n" + "".join(f"  {_value(each, inline=True)},\n" for each in value) + "]"
    if isinstance(value, list):
        return "[" + ", ".join(_value(each, inline=True) for each in value) + "]"
    # JSON's texts and numbers are TOML's too, but for one sign that TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
