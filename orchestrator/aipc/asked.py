"""What a command line asks for: a model and a cell, and the command that does the same again."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from aipc import cell as cells
from aipc import config, repairs, runtime
from aipc.cell import Cell
from aipc.config import Matrix, Model
from aipc.errors import UsageError
from aipc.home import RUNS
from aipc.model import FUNCTION
from aipc.pipeline import REFERENCE
from aipc.repairs import Wish
from aipc.tables import one_line
from runtimes.contract import suggest


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line of `deploy` says; an empty text stands for a default."""

    model: str
    runtime: str
    precision: str
    target: str
    shape: str
    source: Path | None
    trusted: bool
    runs: Path
    matrix_path: Path | None
    engine: str
    base_image: str
    calibration: Path | None = None
    encodings: Path | None = None
    rewrites: tuple[str, ...] = ()
    agent: str = ""
    replay: Path | None = None
    without_skills: bool = False
    withheld: tuple[str, ...] = ()


def find(matrix: Matrix, asked: Asked) -> tuple[Model, Cell]:
    """Return the model, its shape resolved, and the cell that a command line asks for."""
    name, _, marked = asked.model.partition("#")
    if asked.source and not FUNCTION.fullmatch(name):
        raise UsageError(f"--source: {str(asked.source)!r} is only for module:function, not {name!r}; leave it out")
    if is_cell(asked.model):
        if asked.runtime or asked.precision or asked.target or asked.shape:
            raise UsageError(f"{name}: is a whole cell; leave out --runtime, --precision, --target and --shape")
        cell = cells.parse(asked.model)
        model = config.find_model(matrix, cell.model)
        return cells.resolve_shape(replace(model, trusted=model.trusted or asked.trusted), cell.shape), cell
    if not asked.runtime:
        raise UsageError("--runtime: is missing; name one of those that `aipc list` shows")
    if marked and asked.shape:
        raise UsageError(f"--shape: {asked.shape!r} beside {asked.model!r}; give the shape once")
    text = marked or asked.shape
    shape = cells.parse_shape(text) if text else ()
    model = find_model(matrix, name, shape, asked.source, trusted=asked.trusted)
    return model, cells.make(model.name, shape, asked.runtime, asked.precision, asked.target)


def find_model(matrix: Matrix, name: str, shape: tuple[int, ...], source: Path | None, *, trusted: bool) -> Model:
    """Return a model of the matrix, or one of the user's own, with its shape resolved.

    Raises:
        UsageError: there is none of that name, or it cannot have that shape.
    """
    if name in matrix.models or not _is_own(name):
        model = config.find_model(matrix, name)
        return cells.resolve_shape(replace(model, trusted=model.trusted or trusted), shape)
    return config.model_from_file(name, shape, folder=source, trusted=trusted)


def is_cell(name: str) -> bool:
    """Return whether `name` is a whole cell, its second part a runtime; a file of that path comes first."""
    parts = name.partition("@")[0].split("/")
    return len(parts) in {2, 3} and parts[1] in runtime.names() and not Path(name).exists()


def _is_own(name: str) -> bool:
    """Return whether `name` can only be a file of the user's own or a function, not a model of the matrix."""
    return any(mark in name for mark in "/.:") or Path(name).exists()


def reproduce(asked: Asked, cell: Cell, engine: str) -> tuple[str, ...]:
    """Return the command that does the same again, with everything named that a default could change."""
    program = Path(sys.argv[0])
    called = str(program) if program.name == "aipc" and not shutil.which("aipc") else "aipc"
    name = asked.model.partition("#")[0]
    model = name if _is_own(name) and not is_cell(asked.model) else cell.model
    shape = "x".join(map(str, cell.shape))
    options = {
        "--runtime": cell.runtime,
        "--precision": cell.precision,
        "--target": cell.target,
        "--shape": shape,
        "--source": str(asked.source or ""),
        "--matrix": str(asked.matrix_path or ""),
        "--runs": str(asked.runs) if asked.runs != RUNS else "",
        "--engine": engine,
        "--base-image": asked.base_image,
        **(_quantized_with(asked) if is_quantized(cell) else {}),
    }
    given = [word for name, value in options.items() if value for word in (name, value)]
    if not is_quantized(cell):
        agent = {"--agent": asked.agent, "--replay": str(asked.replay or "")}
        given += [word for name, value in agent.items() if value for word in (name, value)]
        given += ["--without-skills"] if asked.without_skills else []
    given += [word for each in wished(asked, cell) for word in ("--rewrite", each.rewrite)]
    given += [word for name in asked.withheld for word in ("--withhold", name)]
    return (called, "deploy", model, *given, *(["--trusted"] if asked.trusted else []))


def check_rewrites(asked: Asked, cell: Cell) -> None:
    """Refuse a rewrite that there is not, or that quantises where nothing is to be quantised.

    Raises:
        UsageError: one of them is not for `cell`.
    """
    for each in repairs.wishes(asked.rewrites):
        if each.quantizes and not is_quantized(cell):
            quantized = runtime.find(cell.runtime).quantized
            hint = f"take {' or '.join(quantized)}" if quantized else "leave it out"
            raise UsageError(f"--rewrite: {each.rewrite} quantises, and {cell.precision} is not quantised; {hint}")


def check_withheld(withheld: tuple[str, ...], cell: Cell, where: str) -> None:
    """Refuse to withhold what no rule of the cell's runtime, or of the reference, would try.

    Args:
        withheld: the rewrites.
        cell: what is deployed.
        where: the option or the file, for errors.

    Raises:
        UsageError: there is no such rule.
    """
    known = {name for each in (cell.runtime, REFERENCE) for name in repairs.load(runtime.find(each)).names}
    for name in withheld:
        if name not in known:
            raise UsageError(one_line(f"{where}: no rule for {cell.runtime} tries {name!r}{suggest(name, known)}"))


def wished(asked: Asked, cell: Cell) -> tuple[Wish, ...]:
    """Return the rewrites that are asked for and can be done for `cell`: those that quantise only where it is.

    Raises:
        UsageError: there is no such rewrite.
    """
    return tuple(each for each in repairs.wishes(asked.rewrites) if is_quantized(cell) or not each.quantizes)


def _quantized_with(asked: Asked) -> dict[str, str]:
    return {"--calibration": str(asked.calibration or ""), "--encodings": str(asked.encodings or "")}


def is_quantized(cell: Cell) -> bool:
    """Return whether `cell` is built with calibration data."""
    return cell.precision in runtime.find(cell.runtime).quantized
