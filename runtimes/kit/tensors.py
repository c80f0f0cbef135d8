"""Tensors as files: a folder of `.npy` files and a listing, equal bytes for equal tensors.

    tensors.json     {"tensors": [{"name": "x", "dtype": "float32", "shape": [1, 3, 64, 80]}, ...]}, sorted by name
    0.npy, 1.npy     the tensors in the order of the listing; `numpy.load` reads them too

A *sample set* is a folder that holds one such folder per sample. Reading is strict, since outputs come from code that
nobody trusts: what is not exactly as written here is `BadTensors`, and symbolic links are never followed.
"""

from __future__ import annotations

import dataclasses
import math
import typing
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from runtimes import contract
from runtimes.contract import Misused
from runtimes.kit.ports import Port

if typing.TYPE_CHECKING:
    from typing import BinaryIO

Array = npt.NDArray[typing.Any]
"""A tensor of any of `DTYPES`."""

DTYPES = (
    *("float16", "float32", "float64", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
"""The element types that travel, by numpy's names."""

LISTING = "tensors.json"

MAX_RANK = 32
"""As many dimensions as every version of numpy has; newer ones have 64."""

MAX_BYTES = 2**63 - 1
"""What numpy can count; it leaves sizes of 0 out when it multiplies, and so do we."""


class BadTensors(ValueError):
    """Tensors that are not stored as they should be, or cannot be: `<where>: <what is wrong>; <what to do>`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listing:
    """What `tensors.json` holds; tensor number i lies in `<i>.npy`."""

    tensors: tuple[Port, ...]


def save(folder: Path, tensors: Mapping[str, Array]) -> None:
    """Write `tensors` to `folder`, a new or empty folder.

    Raises:
        BadTensors: a dtype is none of `DTYPES`, a name is empty, a rank is too high, or the folder holds something.
    """
    _make_empty(folder)
    ports = []
    for index, name in enumerate(sorted(tensors)):
        array = np.asarray(tensors[name])
        port = Port(name=name, shape=array.shape, dtype=array.dtype.name)
        _check_port(port, f"{folder.name}: {name!r}")
        ports.append(port)
        with (folder / f"{index}.npy").open("wb") as file:
            file.write(_header(port))
            file.write(np.asarray(array, dtype=_stored(port), order="C").tobytes())
    contract.write(Listing(tensors=tuple(ports)), folder / LISTING)


def load(folder: Path) -> dict[str, Array]:
    """Return the tensors of `folder` by name.

    Raises:
        BadTensors: the folder, its listing or a file is missing, of another size or shape, unlisted, or a link.
    """
    _check_folder(folder)
    ports = _read_listing(folder)
    names = [port.name for port in ports]
    if len(set(names)) != len(names):
        raise BadTensors(f"{folder.name}/{LISTING}: a name stands there twice: {names}; names are unique")
    expected = {LISTING, *(f"{index}.npy" for index in range(len(ports)))}
    unlisted = sorted(path.name for path in folder.iterdir() if path.name not in expected)
    if unlisted:
        raise BadTensors(f"{folder.name}: holds {unlisted}, which {LISTING} does not list; remove what does not belong")
    return {port.name: _read(folder / f"{index}.npy", port) for index, port in enumerate(ports)}


def save_samples(folder: Path, samples: Mapping[str, Mapping[str, Array]]) -> None:
    """Write a sample set to `folder`, a new or empty folder: one folder of tensors per sample.

    Args:
        folder: where to; the samples' folders are named after them, percent-encoded.
        samples: sample name to tensors by name.

    Raises:
        BadTensors: a name or dtype does not fit, or the folder holds something.
    """
    _make_empty(folder)
    for sample, tensors in samples.items():
        if sample in ("", ".", ".."):
            raise BadTensors(f"{folder.name}: {sample!r} cannot name a sample; take a word")
        save(folder / _folder_name(sample), tensors)


def load_samples(folder: Path) -> dict[str, dict[str, Array]]:
    """Return the sample set of `folder`: sample name to tensors by name, sorted by sample name.

    Raises:
        BadTensors: there is no sample, or one is malformed.
    """
    _check_folder(folder)
    names = {urllib.parse.unquote(path.name): path for path in folder.iterdir()}
    if not names:
        raise BadTensors(f"{folder.name}: holds no sample; a sample set has at least one")
    for path in folder.iterdir():
        # Two spellings of one name would let one sample hide another.
        if path.name != _folder_name(urllib.parse.unquote(path.name)):
            raise BadTensors(f"{folder.name}/{path.name}: not the name that it was written with; use save_samples")
    return {name: load(names[name]) for name in sorted(names)}


def _folder_name(sample: str) -> str:
    return urllib.parse.quote(sample, safe=" ", errors="surrogateescape")


def _make_empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise BadTensors(f"{folder.name}: is not empty; save into a new folder")


def _check_folder(folder: Path) -> None:
    if folder.is_symlink() or not folder.is_dir():
        raise BadTensors(f"{folder.name}: is no folder of tensors; write it with runtimes.kit.tensors")


def _check_port(port: Port, where: str) -> None:
    if not port.name:
        raise BadTensors(f"{where}: a tensor without a name; name it")
    if port.dtype not in DTYPES:
        raise BadTensors(f"{where}: dtype {port.dtype} does not travel; use one of {', '.join(DTYPES)}")
    if len(port.shape) > MAX_RANK:
        raise BadTensors(f"{where}: {port.name!r} has {len(port.shape)} dimensions; {MAX_RANK} is the most that travel")
    if any(size < 0 for size in port.shape):
        raise BadTensors(f"{where}: shape {list(port.shape)} has a negative size; sizes are 0 or more")
    if math.prod(size or 1 for size in port.shape) * _stored(port).itemsize > MAX_BYTES:
        raise BadTensors(
            f"{where}: shape {list(port.shape)} takes more than {MAX_BYTES} bytes; no tensor is that large"
        )


def _read_listing(folder: Path) -> tuple[Port, ...]:
    path = folder / LISTING
    where = f"{folder.name}/{LISTING}"
    if path.is_symlink() or not path.is_file():
        raise BadTensors(f"{where}: no such file; write the folder with runtimes.kit.tensors")
    try:
        ports = contract.read(Listing, path).tensors
    except Misused as error:
        raise BadTensors(f"{folder.name}/{error}") from error
    for port in ports:
        _check_port(port, where)
    return ports


def _read(path: Path, port: Port) -> Array:
    where = f"{path.parent.name}/{path.name}"
    if path.is_symlink() or not path.is_file():
        raise BadTensors(f"{where}: no such file, though {LISTING} lists {port.name!r}; write both together")
    header = _header(port)
    count = math.prod(port.shape)
    size = len(header) + count * _stored(port).itemsize
    # The sizes are compared before anything is read, so that a forged shape cannot ask for all memory.
    if path.stat().st_size != size:
        raise BadTensors(
            f"{where}: {path.stat().st_size} bytes, but {port.dtype} {list(port.shape)} of {LISTING} takes {size}; "
            "write both together"
        )
    with path.open("rb") as file:
        _skip_header(file, header, where)
    # Mapped, not read: a tensor takes memory only while somebody looks at it. A write stays with the one who writes.
    array: Array = np.zeros(0, _stored(port))
    if count:
        array = np.memmap(path, dtype=_stored(port), mode="c", offset=len(header), shape=(count,))
    try:
        return np.asarray(array).reshape(port.shape).astype(port.dtype, copy=False)
    except ValueError as error:
        raise BadTensors(
            f"{where}: cannot be read as {port.dtype} {list(port.shape)}: {error}; write it anew"
        ) from error


def _skip_header(file: BinaryIO, header: bytes, where: str) -> None:
    if file.read(len(header)) != header:
        raise BadTensors(f"{where}: its header is not that of the tensor that {LISTING} lists; write both together")


def _stored(port: Port) -> np.dtype[typing.Any]:
    return np.dtype(port.dtype).newbyteorder("<")


def _header(port: Port) -> bytes:
    # Written by hand, since numpy's own padding differs between its versions, and so that reading is one comparison.
    shape = tuple(int(size) for size in port.shape)
    text = f"{{'descr': '{_stored(port).str}', 'fortran_order': False, 'shape': {shape!r}, }}".encode("ascii")
    padded = text + b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded
