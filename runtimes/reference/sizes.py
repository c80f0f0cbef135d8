"""The sizes of a file's inputs where it leaves some open: from the shape that is given, and from what they share."""

from __future__ import annotations

from collections.abc import Sequence

from runtimes.contract import Kind
from runtimes.kit.work import refuse

Dims = Sequence[int | str]
"""The sizes of an input as a file has them: a number, or a name where one is open, "?" where it has none."""

UNNAMED = "?"
HW, NCHW = 2, 4
LARGEST = 2**31 - 1
"""What the tools count sizes with: 32 bits and a sign."""


def settle_all(
    inputs: Sequence[tuple[str, Dims]], shape: tuple[int, ...], file: str
) -> tuple[list[tuple[int, ...]], tuple[str, ...]]:
    """Return the sizes of each input of a file, and notes that say which were chosen.

    - `shape` goes to every open input that takes it: to those of its rank whose fixed sizes are the same, or as height
      and width to those of rank 4. Where none is open, an input must have it.
    - An open size has the same value wherever the file uses its name.
    - A first size that is still open is the batch, and becomes 1. So does one without a name where `shape` went to
      other inputs.

    Args:
        inputs: name and sizes of each.
        shape: all sizes, or height and width of inputs of rank 4; () for none.
        file: the file's name.

    Raises:
        Refused: a size stays open, or no input takes `shape`.
    """
    known: dict[str, int] = {}
    settled = dict(inputs)
    if shape:
        settled |= _give(inputs, shape, known, file)
    notes = []
    for name, dims in inputs:
        # What the shape closed tells what the same names are elsewhere, before any batch is chosen.
        settled[name] = [known.get(dim, dim) if isinstance(dim, str) else dim for dim in settled[name]]
        first = next(iter(settled[name]), 1)
        if isinstance(first, str):
            settled[name] = [1, *settled[name][1:]]
            if first != UNNAMED:
                known[first] = 1
            notes.append(f"input {name}: its first size, {dims[0]}, is open: it is 1")
        if shape and UNNAMED in settled[name]:
            settled[name] = [1 if dim == UNNAMED else dim for dim in settled[name]]
            notes.append(
                f"input {name} [{_join(dims)}]: the shape given is for others, and a size has no name: it is 1"
            )
    for name, dims in inputs:
        settled[name] = [known.get(dim, dim) if isinstance(dim, str) else dim for dim in settled[name]]
        _refuse_open(name, dims, settled[name], file, alone=len(inputs) == 1)
        _refuse_vast(name, dims, settled[name], file)
    return [tuple(int(dim) for dim in settled[name]) for name, _dims in inputs], tuple(notes)


def settle(name: str, dims: Dims, shape: tuple[int, ...], file: str) -> tuple[int, ...]:
    """Return the sizes of an input, the open ones taken from `shape`; see `settle_all`.

    Raises:
        Refused: a size stays open, or `shape` contradicts the file.
    """
    ((sizes,), _notes) = settle_all([(name, dims)], shape, file)
    return sizes


def _give(
    inputs: Sequence[tuple[str, Dims]], shape: tuple[int, ...], known: dict[str, int], file: str
) -> dict[str, Dims]:
    """Return the sizes of the inputs that take `shape`; write down what it makes of their names in `known`.

    Raises:
        Refused: no input takes it, or it gives one name two values.
    """
    wide = len(shape) == HW and any(len(dims) == NCHW for _name, dims in inputs)
    found: dict[str, Dims] = {}
    for name, dims in inputs:
        full = _spread(dims, shape) if wide else shape
        if not _fits(dims, full) or (wide and len(dims) != NCHW):
            continue
        found[name] = full
        for dim, size in zip(dims, full, strict=True):
            if isinstance(dim, str) and dim != UNNAMED and known.setdefault(dim, size) != size:
                said = f"{file}: the shape given is {_cross(shape)}, and input {name} is [{_join(dims)}]"
                refuse(Kind.DYNAMIC_SHAPE, f"{said}: {dim} is both {known[dim]} and {size}", hint=_example(dims, file))
    if found:
        return found
    opened = [(name, dims) for name, dims in inputs if any(isinstance(dim, str) for dim in dims)]
    if len(opened) == 1:
        name, dims = opened[0]
        said = f"{file}: input {name} is [{_join(dims)}], the shape given is {_cross(shape)}"
        refuse(Kind.DYNAMIC_SHAPE, said, hint=_example(dims, file))
    taken = ", ".join(f"{name} [{_join(dims)}]" for name, dims in inputs)
    hint = _example(opened[0][1], file) if opened else f"the file leaves no size open; leave out the shape: {file}"
    return refuse(
        Kind.DYNAMIC_SHAPE, f"{file}: the shape given is {_cross(shape)}, and no input takes it: {taken}", hint=hint
    )


def _refuse_open(name: str, dims: Dims, settled: Dims, file: str, *, alone: bool) -> None:
    names = [dim for dim in settled if isinstance(dim, str)]
    if not names:
        return
    unnamed = " (the file has no name for it)" if UNNAMED in names else ""
    said = f"{_join(names)}{unnamed} {'is' if len(names) == 1 else 'are'} open, and every size must be known"
    hint = _example(dims, file)
    if not alone:
        hint += f"; where one shape does not suit all inputs, list them in matrix.toml, {name} too, each with its shape"
    refuse(Kind.DYNAMIC_SHAPE, f"{file}: input {name} is [{_join(dims)}]: {said}", hint=hint)


def _refuse_vast(name: str, dims: Dims, settled: Dims, file: str) -> None:
    vast = next((size for size in settled if int(size) > LARGEST), None)
    if vast is not None:
        said = f"{file}: input {name} is [{_join(dims)}]: no tensor has the size {vast}"
        refuse(Kind.INVALID_MODEL, said, hint=f"save it with sizes up to {LARGEST}")


def _spread(dims: Dims, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the height and width in `shape` with batch and channels before them: 1 where they are open."""
    return (*(dim if isinstance(dim, int) else 1 for dim in dims[:HW]), *shape)


def _fits(dims: Dims, full: tuple[int, ...]) -> bool:
    return len(full) == len(dims) and all(
        dim == size or isinstance(dim, str) for dim, size in zip(dims, full, strict=True)
    )


def _example(dims: Dims, file: str) -> str:
    sizes = (str(dim) if isinstance(dim, int) else "1" if index == 0 else "64" for index, dim in enumerate(dims))
    return f"add a shape after the name, e.g. {file}#{'x'.join(sizes)}"


def _join(dims: Dims) -> str:
    return ", ".join(str(dim) for dim in dims)


def _cross(shape: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in shape)
