"""A model that `torch.export.save` wrote (`.pt2`): it tells its own inputs."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from runtimes.contract import Failure, Kind
from runtimes.kit.work import Refused, refuse
from runtimes.reference.files import describe_input
from runtimes.reference.models import settle
from runtimes.reference.options import Input, ModelOptions

_READ_ERRORS = (AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError)


def load(path: Path, options: ModelOptions) -> tuple[Any, tuple[Input, ...], tuple[str, ...]]:
    """Return the module in a `.pt2` file, its inputs, and notes.

    Raises:
        Refused: it is no such file, takes something that is no tensor, or leaves a size open.
    """
    program = read(path)
    module = program.module()
    # What was exported has its mode frozen in, and raises an error when the exporter asks for another.
    module.train = lambda _mode=True: module
    if options.inputs:
        return module, options.inputs, ()
    found = [
        describe_input(name, settle(name, dims, options.shape, path.name), dtype)
        for name, dtype, dims in inputs_of(program)
    ]
    return module, tuple(each for each, _note in found), tuple(note for _each, note in found)


def read(path: Path) -> Any:
    """Return the exported program of a `.pt2` file.

    Raises:
        Refused: it is none, or cannot be read.
    """
    import torch

    try:
        return torch.export.load(path)
    except (*_READ_ERRORS, zipfile.BadZipFile) as error:
        raise Refused(
            Failure(
                kind=Kind.INVALID_MODEL,
                message=f"{path.name} ({path.stat().st_size} bytes): cannot be read: {type(error).__name__}: {error}",
                hint="write it with torch.export.save, by a PyTorch not newer than the one that reads it",
            )
        ) from error


def inputs_of(program: Any) -> list[tuple[str, str, list[int | str]]]:
    """Return name, dtype and sizes of each input; a size is a name where it is open.

    Raises:
        Refused: an input is no tensor.
    """
    values: dict[str, Any] = {
        node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"
    }
    found = []
    for name in program.graph_signature.user_inputs:
        value: Any = values.get(name)
        if not hasattr(value, "shape"):
            refuse(
                Kind.INVALID_MODEL,
                f"input {name}: is {value!r}, not a tensor",
                hint="export the model with tensors alone",
            )
        dims: list[int | str] = [size if isinstance(size, int) else str(size) for size in value.shape]
        found.append((name, str(value.dtype).removeprefix("torch."), dims))
    return found
