"""Inputs and outputs: as the model has them, and as the vendor's graph stores them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Self

from runtimes.contract import Json
from runtimes.kit.ports import Port

LAYOUT = "as in the ONNX model"
FLOAT = "float32"
FIXED = "fixed point"
"""Whole numbers with a scale; the vendor's programs turn them into floats by themselves."""
DTYPES: Mapping[str, str] = {
    "BOOL_8": "bool",
    **{f"FLOAT_{bits}": f"float{bits}" for bits in (16, 32)},
    **{f"INT_{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"UINT_{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"{sign}FIXED_POINT_{bits}": FIXED for sign in "SU" for bits in (8, 16, 32)},
}
"""QNN's element types, without `QNN_DATATYPE_`, by numpy's names."""
NARROWED = {"int64": "int32", "uint64": "uint32"}
"""What HTP has in place of wide whole numbers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """A tensor as the vendor's graph has it."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def told(cls, info: Mapping[str, Json]) -> Self:
        """Return it as `qnn-context-binary-utility` tells of it."""
        kind = str(info["dataType"]).removeprefix("QNN_DATATYPE_")
        shape = tuple(int(size) for size in info["dimensions"])
        return cls(name=str(info["name"]), shape=shape, dtype=DTYPES.get(kind, kind))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """An input or output.

    Attributes:
        name: in the ONNX model.
        shape: in both.
        dtype: in the ONNX model.
        stored_name: in the graph; the vendor knows letters, digits and `_` only.
        stored_dtype: in the graph.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    stored_name: str
    stored_dtype: str

    @property
    def listed(self) -> Json:
        """It as a fact."""
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype, "layout": LAYOUT}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interface:
    """What `convert` tells `run`, beside the artefact's own files.

    Attributes:
        sdk: the version that made it, "" for none.
        route: the tools that made it, or `serialised`.
        inputs: of the graph.
        outputs: of the graph.
    """

    sdk: str
    route: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def plain(name: str) -> str:
    """Return the name as the vendor spells it."""
    spelt = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{spelt}" if spelt[:1].isdigit() else spelt


def as_asked(ports: Sequence[Port]) -> tuple[Tensor, ...]:
    """Return tensors that are stored as they are asked for."""
    return tuple(
        Tensor(name=port.name, shape=port.shape, dtype=port.dtype, stored_name=port.name, stored_dtype=port.dtype)
        for port in ports
    )


def match(what: str, asked: Sequence[Port], stored: Sequence[Stored]) -> tuple[list[Tensor], list[str]]:
    """Return each tensor that is asked for with how it is stored, and what is wrong.

    Args:
        what: "input" or "output".
        asked: of the model.
        stored: of the graph.
    """
    found, wrong = [], []
    left = {each.name: each for each in stored}
    for port in asked:
        each = left.pop(port.name, None) or left.pop(plain(port.name), None)
        if each is None:
            wrong.append(f"{what} {port.name!r} is missing")
        elif each.shape != port.shape:
            wrong.append(f"{what} {port.name!r} has the shape {list(each.shape)} instead of {list(port.shape)}")
        elif not _fits(port.dtype, each.dtype):
            wrong.append(f"{what} {port.name!r} is {each.dtype} instead of {port.dtype}")
        else:
            found.append(
                Tensor(
                    name=port.name,
                    shape=port.shape,
                    dtype=port.dtype,
                    stored_name=each.name,
                    stored_dtype=each.dtype,
                )
            )
    return found, [*wrong, *(f"{what} {name!r} was never asked for" for name in left)]


def _fits(asked: str, stored: str) -> bool:
    return stored in (asked, NARROWED.get(asked)) or (asked == FLOAT and stored in ("float16", FIXED))
