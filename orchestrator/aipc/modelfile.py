"""A user's own model, deployed without an edit of matrix.toml: a file, or a function that returns the module."""

from __future__ import annotations

import hashlib
import mmap
import re
from pathlib import Path

from aipc.errors import UsageError
from aipc.fetch import hash_file
from aipc.model import FUNCTION, Content, Input, Model, Origin, Source
from aipc.tables import beside, near, show

KINDS = {
    ".onnx": Origin.ONNX,
    ".pt2": Origin.EXPORTED,
    ".pth": Origin.CHECKPOINT,
    ".pt": Origin.CHECKPOINT,
    ".ckpt": Origin.CHECKPOINT,
    ".safetensors": Origin.CHECKPOINT,
}
"""What a file is, by how its name ends."""

_NAME_LENGTH = 48
_HASH_LENGTH = 8
_PICTURE_RANK = 4
# A StringStringEntryProto whose key is "location", as protobuf writes it; the length of the value and the value follow.
_LOCATION = b"\x0a\x08location\x12"


def model_from_file(
    path: str | Path, shape: tuple[int, ...] = (), *, folder: Path | None = None, trusted: bool = False
) -> Model:
    """Return the model in a file, or of a function.

    Args:
        path: a file (see `KINDS`), or `module:function`.
        shape: the shape of its input, or H, W; () when the file says it itself.
        folder: where the function's module lies; the current folder by default.
        trusted: a checkpoint may run code when it is loaded.

    Returns:
        A model called by the file's stem and 8 hex digits of its sha256.

    Raises:
        UsageError: there is no such file, it is of no known kind, or a file that belongs to it is missing.
    """
    text = str(path)
    file = Path(text).expanduser().absolute()
    where = show(file)
    kind = KINDS.get(file.suffix.lower())
    try:
        if not file.exists():
            if FUNCTION.fullmatch(text):
                return _from_function(text, shape, (folder or Path()).expanduser().absolute())
            raise UsageError(f"{where}: no such file{near(file.name, beside(file))}")
        if kind is None or not file.is_file():
            what = f"{file.suffix!r} is no kind of model" if file.is_file() else "not a file"
            raise UsageError(f"{where}: {what}; give a file that ends in {', '.join(KINDS)}, or module:function")
        sha256 = hash_file(file)
        data = [hash_file(each) for each in external_data(file).values()] if kind is Origin.ONNX else []
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be read: {error.strerror}; check who may read it") from error
    together = hashlib.sha256("".join([sha256, *data]).encode()).hexdigest() if data else sha256
    return Model(
        name=_name(file.stem, together),
        source=kind,
        trusted=trusted,
        weights=(Source(path=str(file), sha256=sha256),),
        shape=shape,
    )


def external_data(file: Path) -> dict[str, Path]:
    """Return the files that hold the larger tensors of an ONNX file, by their names relative to its folder, sorted.

    The host does not parse ONNX; it finds the names by the bytes that stand before them.

    Raises:
        UsageError: one is not there, or lies outside the folder.
    """
    names = set()
    if not file.stat().st_size:
        return {}  # mmap refuses it
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = content.find(_LOCATION)
        while found >= 0:
            start, length = _varint(content, found + len(_LOCATION))
            names.add(content[start : start + length].decode("utf-8", "replace"))
            found = content.find(_LOCATION, start)
    paths = {name: file.parent / name for name in sorted(names)}
    for name, path in paths.items():
        if Path(name).is_absolute() or ".." in Path(name).parts or not name.isprintable():
            raise UsageError(
                f"{show(file)}: its tensors are in {name!r}, outside its folder; save it again with its data beside it"
            )
        if any(part.is_symlink() for part in (path, *path.parents) if part.is_relative_to(file.parent)):
            raise UsageError(f"{show(file)}: its tensors are in {name!r}, which is a link; put the file itself there")
        if not path.is_file():
            raise UsageError(f"{show(file)}: its tensors are in {name!r}, which is not there; put that file beside it")
    return paths


def _from_function(text: str, shape: tuple[int, ...], folder: Path) -> Model:
    module, _, function = text.partition(":")
    place = folder.joinpath(*module.split("."))
    file = next((each for each in (place.with_name(f"{place.name}.py"), place / "__init__.py") if each.is_file()), None)
    if file is None:
        modules = [Path(name).stem for name in beside(place) if name.endswith(".py")]
        raise UsageError(f"{text}: no module {module!r} in {show(folder)}{near(place.name, modules)}")
    if not shape:
        raise UsageError(f"{text}: a function does not say the shape of its input; add it, for instance #1x3x96x128")
    whole = shape if len(shape) != 2 else (1, 3, *shape)
    picture = len(whole) == _PICTURE_RANK and whole[1] in {1, 3}
    return Model(
        name=_name(function, hashlib.sha256(f"{text}\n{hash_file(file)}".encode()).hexdigest()),
        source=Origin.FUNCTION,
        function=text,
        folder=str(folder),
        inputs=(Input(name="input", shape=whole, content=Content.PICTURE if picture else Content.UNIFORM),),
    )


def _name(stem: str, sha256: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", stem.lower())[:_NAME_LENGTH].strip("-")
    if not plain[:1].isalpha():
        plain = f"model-{plain}".rstrip("-")
    return f"{plain}-{sha256[:_HASH_LENGTH]}"


def _varint(content: mmap.mmap, start: int) -> tuple[int, int]:
    """Return where the number at `start` ends, and the number: protobuf writes seven bits a byte, the lowest first."""
    value = shift = 0
    while start < len(content):
        byte = content[start]
        value |= (byte & 0x7F) << shift
        start += 1
        shift += 7
        if byte < 0x80:
            break
    return start, value
