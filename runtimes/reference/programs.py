"""A model that `torch.export.save` wrote (`.pt2`): it tells its own inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtimes.contract import Kind
from runtimes.kit.work import Refused, refuse
from runtimes.reference import archives, foreign
from runtimes.reference.files import describe_input
from runtimes.reference.options import Input, ModelOptions
from runtimes.reference.sizes import settle_all


def load(path: Path, options: ModelOptions) -> tuple[Any, tuple[Input, ...], tuple[str, ...]]:
    """Return the module in a `.pt2` file, its inputs, and notes.

    Raises:
        Refused: it is no such file, may run code and is not trusted, takes something that is no tensor, or leaves a
            size open.
    """
    import torch

    where = f"{path.name} ({path.stat().st_size} bytes): cannot be read"
    hint = "write it with torch.export.save, by a PyTorch not newer than the one that reads it"
    with foreign.wall(where, hint=hint, ends=Refused):
        program = torch.export.load(path if options.trusted else archives.copy_plain(path))
        module = program.module()
    # What was exported has its mode frozen in, and raises an error when the exporter asks for another.
    module.train = lambda _mode=True: module
    notes = (f"{path.name} ran its code while it was read, as you allowed",) if options.trusted else ()
    if options.inputs:
        return module, options.inputs, notes
    held = inputs_of(program)
    shapes, chosen = settle_all([(name, dims) for name, _dtype, dims in held], options.shape, path.name)
    found = [describe_input(name, shape, dtype) for (name, dtype, _dims), shape in zip(held, shapes, strict=True)]
    return module, tuple(each for each, _note in found), (*notes, *chosen, *(note for _each, note in found))


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
