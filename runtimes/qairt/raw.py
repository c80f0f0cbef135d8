"""Tensors as Qualcomm's programs take and give them: files of bare numbers, and a list of them, a line for a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from runtimes.contract import Kind, Misused
from runtimes.kit.tensors import Array
from runtimes.kit.work import fail
from runtimes.qairt.interface import FIXED, FLOAT, Interface, Tensor, plain


def is_native(interface: Interface) -> bool:
    """Return whether files hold the graph's own types; all are f32 else, and only where every input and output is."""
    return any(each.dtype != FLOAT for each in (*interface.inputs, *interface.outputs))


def write(samples: Mapping[str, Mapping[str, Array]], inputs: Sequence[Tensor], folder: Path, *, native: bool) -> Path:
    """Write every sample below `folder`, and return the input list; its paths are relative to that folder.

    Raises:
        Misused: a sample has other inputs, or values that the graph's type does not hold.
    """
    lines = []
    for number, (sample, feeds) in enumerate(samples.items()):
        place = folder / str(number)
        place.mkdir()
        line = []
        for index, tensor in enumerate(inputs):
            array = _fed(sample, feeds, inputs, tensor)
            dtype = np.dtype(_file_dtype(tensor, native=native))
            with np.errstate(invalid="ignore"):
                stored = np.ascontiguousarray(array.astype(dtype))
            if array.dtype.kind != "f" and not np.array_equal(stored.astype(array.dtype), array):
                raise Misused(
                    f"in/samples: {sample!r}: {tensor.name!r} holds values that {dtype} does not; use smaller ones"
                )
            (place / f"{index}.raw").write_bytes(stored.tobytes())
            # A space would end the path: a relative one cannot bring one along.
            line.append(f"{tensor.stored_name}:={number}/{index}.raw")
        lines.append(" ".join(line))
    listing = folder / "inputs.txt"
    listing.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return listing


def read(folder: Path, outputs: Sequence[Tensor], *, native: bool) -> dict[str, Array]:
    """Return the outputs of one sample by name.

    Raises:
        Failed: a file is missing, or has another size.
    """
    return {tensor.name: _read(folder, tensor, native=native) for tensor in outputs}


def _read(folder: Path, tensor: Tensor, *, native: bool) -> Array:
    names = [
        f"{name}{end}" for end in ("_native.raw", ".raw") for name in (tensor.stored_name, plain(tensor.stored_name))
    ]
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        there = sorted(each.name for each in folder.glob("*")) if folder.is_dir() else []
        fail(Kind.MISSING_RESULT, f"qnn-net-run left no output {tensor.name!r} in {folder.name}, which holds {there}")
    dtype = np.dtype(_file_dtype(tensor, native=native))
    expected = int(np.prod(tensor.shape, dtype=np.int64)) * dtype.itemsize
    if path.stat().st_size != expected:
        fail(
            Kind.MISSING_RESULT,
            f"qnn-net-run: {path.name} has {path.stat().st_size} bytes; {dtype} {list(tensor.shape)} takes {expected}",
        )
    return np.fromfile(path, dtype=dtype).reshape(tensor.shape).astype(tensor.dtype)


def _file_dtype(tensor: Tensor, *, native: bool) -> str:
    if not native:
        return FLOAT
    if tensor.stored_dtype == FIXED:
        fail(
            Kind.TOOLCHAIN,
            f"{tensor.name!r} is stored in fixed point beside whole numbers; the vendor's programs convert all or none",
        )
    return tensor.stored_dtype


def _fed(sample: str, feeds: Mapping[str, Array], inputs: Sequence[Tensor], tensor: Tensor) -> Array:
    names = {each.name for each in inputs}
    array = feeds.get(tensor.name)
    if set(feeds) != names or array is None or array.shape != tensor.shape or array.dtype.name != tensor.dtype:
        have = {name: f"{each.dtype} {list(each.shape)}" for name, each in feeds.items()}
        raise Misused(
            f"in/samples: {sample!r} holds {have}, and the artefact takes {sorted(names)}; prepare makes them"
        )
    return array
