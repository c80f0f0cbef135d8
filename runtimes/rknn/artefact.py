"""What a `.rknn` file says of itself: its target, the toolkit that made it, and its inputs and outputs."""

from __future__ import annotations

import ast
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtimes.kit.ports import Port

MAGIC = b"RKNN\0"
_ATTRIBUTES = b"{'attrs': {"
_TRAILER = b'{"connection":'


class BadArtefact(ValueError):
    """A file that is no `.rknn` of this toolkit: what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """What a `.rknn` says of itself.

    Attributes:
        targets: the chips that it is built for.
        toolkit: the version of what built it.
        inputs: in its order.
        outputs: in its order.
        layouts: the layout of each input and output towards the caller, by name; "" where it has none.
    """

    targets: tuple[str, ...]
    toolkit: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    layouts: Mapping[str, str]


def read(path: Path) -> Described:
    """Return what the file at `path` says of itself.

    Raises:
        BadArtefact: it does not start as a `.rknn` does, or lacks what one holds.
    """
    content = path.read_bytes()
    if not content.startswith(MAGIC):
        raise BadArtefact(f"{path.name} starts with {content[:8]!r} instead of {MAGIC!r}")
    attributes = _attributes(content, path.name)
    trailer = _trailer(content, path.name)
    sides: dict[bool, list[tuple[int, Port]]] = {False: [], True: []}
    for name, told in attributes.items():
        port = Port(name=name, shape=tuple(told["shape"]), dtype=told["dtype"])
        sides[told["is_output"]].append((told["idx"], port))
    inputs, outputs = (
        tuple(port for _, port in sorted(sides[side], key=lambda pair: pair[0])) for side in (False, True)
    )
    return Described(
        targets=tuple(trailer["target_platform"]),
        toolkit=trailer["version"],
        inputs=inputs,
        outputs=outputs,
        layouts={name: str(told["layout"]) for name, told in attributes.items()},
    )


def _attributes(content: bytes, name: str) -> Mapping[str, Any]:
    """Return its table of inputs and outputs: a Python literal with its length in the four bytes before it."""
    start = content.find(_ATTRIBUTES)
    if start < struct.calcsize("<I"):
        raise BadArtefact(f"{name} holds no table of its inputs and outputs")
    (length,) = struct.unpack_from("<I", content, start - struct.calcsize("<I"))
    try:
        table: Mapping[str, Any] = ast.literal_eval(content[start : start + length].decode("utf-8"))["attrs"]
    except (ValueError, SyntaxError) as error:
        raise BadArtefact(f"{name}: its table of inputs and outputs cannot be read: {error}") from error
    return table


def _trailer(content: bytes, name: str) -> Mapping[str, Any]:
    """Return the JSON object at its end."""
    start = content.rfind(_TRAILER)
    try:
        trailer: Mapping[str, Any]
        trailer, _ = json.JSONDecoder().raw_decode(content[max(start, 0) :].decode("utf-8", "replace"))
    except ValueError as error:
        raise BadArtefact(f"{name} does not end with what the toolkit says of it: {error}") from error
    return trailer
