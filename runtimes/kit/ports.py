"""Inputs and outputs of a model: what was asked for, compared with what an artefact has."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Port:
    """An input or output as it is asked for, as an artefact has it, or as a tensor is stored.

    Attributes:
        name: its name in the ONNX model.
        shape: its sizes; −1 is a size that is known only when it runs.
        dtype: numpy's name of its element type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


def differences(what: str, asked: Sequence[Port], found: Sequence[Port]) -> list[str]:
    """Return what is wrong with the inputs or outputs of an artefact, in both directions; [] when all is as asked.

    Args:
        what: "input" or "output".
        asked: what it should have.
        found: what it has. A size of −1 agrees with any.
    """
    wanted, present = {port.name: port for port in asked}, {port.name: port for port in found}
    wrong = [f"{what} {name!r} is missing" for name in wanted if name not in present]
    wrong += [f"{what} {name!r} was never asked for" for name in present if name not in wanted]
    if len(present) != len(found):
        wrong.append(f"{what}s share a name: {[port.name for port in found]}")
    for name in wanted.keys() & present.keys():
        ours, theirs = wanted[name], present[name]
        if len(ours.shape) != len(theirs.shape) or any(
            size not in (-1, other) for size, other in zip(theirs.shape, ours.shape, strict=True)
        ):
            wrong.append(f"{what} {name!r} has the shape {list(theirs.shape)} instead of {list(ours.shape)}")
        if ours.dtype != theirs.dtype:
            wrong.append(f"{what} {name!r} is {theirs.dtype} instead of {ours.dtype}")
    return sorted(wrong)
