"""Tensors whose data lies outside the ONNX file: where it may lie, and how long it must be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import onnx
from onnx import AttributeProto, GraphProto, TensorProto

from runtimes.reference.structure import attributes_of, graphs_of

_BITS = {
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32), 32),
    **dict.fromkeys((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64, TensorProto.COMPLEX64), 64),
    TensorProto.COMPLEX128: 128,
    **dict.fromkeys((TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1), 4),
    **dict.fromkeys((TensorProto.INT2, TensorProto.UINT2), 2),
}
"""Bits of one element; 8 of any other type."""


def find_misplaced(model: onnx.ModelProto, path: Path) -> list[str]:
    """Return what is wrong with data outside the file: missing, too short, or outside the model's folder."""
    problems = [_problem(tensor, path.parent) for tensor in tensors_of(model) if is_outside(tensor)]
    return [problem for problem in problems if problem]


def is_outside(tensor: TensorProto) -> bool:
    """Tell whether the data of `tensor` lies in another file."""
    return tensor.data_location == TensorProto.EXTERNAL


def locations(model: onnx.ModelProto) -> list[str]:
    """Return the files that the data of `model` lies in, as they are written there, sorted."""
    return sorted({_entries(tensor).get("location", "") for tensor in tensors_of(model) if is_outside(tensor)})


def tensors_of(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor that `model` holds, in graphs inside graphs and in functions too."""
    for graph in graphs_of(model):
        yield from _initializers(graph)
    for attribute in attributes_of(model):
        yield from _held(attribute)


def _initializers(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)


def _held(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    for sparse in (
        *((attribute.sparse_tensor,) if attribute.HasField("sparse_tensor") else ()),
        *attribute.sparse_tensors,
    ):
        yield from (sparse.values, sparse.indices)


def _entries(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _problem(tensor: TensorProto, folder: Path) -> str:
    entries = _entries(tensor)
    location = entries.get("location", "")
    said = f"tensor {tensor.name}: its data lies in {location!r}"
    inside = PurePosixPath(location)
    if (
        not location
        or inside.is_absolute()
        or ".." in inside.parts
        or "\\" in location
        or "\0" in location
        or ":" in location
    ):
        return f"{said}, which is no path below the model's folder; save the model and its data in one folder"
    file = folder / inside
    steps = [folder.joinpath(*inside.parts[: count + 1]) for count in range(len(inside.parts))]
    if any(step.is_symlink() for step in steps):
        return f"{said}, a symbolic link; put the file itself there"
    if not file.is_file():
        return f"{said}, which is not there; put that file beside the model"
    return _wrong_size(tensor, entries, file, said)


def _wrong_size(tensor: TensorProto, entries: dict[str, str], file: Path, said: str) -> str:
    needed = size_bytes(tensor)
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries.get("length") or needed)
    except ValueError as error:
        return f"{said}, at no whole number ({error}); save the model anew"
    if offset < 0 or length != needed:
        shape = list(tensor.dims)
        return f"{said}, {length} bytes from {offset}, but its shape {shape} takes {needed}; save the model anew"
    held = file.stat().st_size
    if offset + length > held:
        return f"{said}, up to byte {offset + length}, but the file ends at {held}; it is cut short, get it anew"
    return ""


def size_bytes(tensor: TensorProto) -> int:
    """Return how many bytes the shape and type of `tensor` take."""
    count = 1
    for size in tensor.dims:
        count *= size
    bits = next((each for kind, each in _BITS.items() if kind == tensor.data_type), 8)
    return -(-count * bits // 8)
