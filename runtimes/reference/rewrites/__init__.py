"""Rewrites: changes of an ONNX graph that leave its answers alone, each in a module of this folder.

A rewrite is chosen by name: in a runtime's `repairs.toml`, where a line says which failure it mends. It works on an
`onnx_ir.Model` in place, never touches the names, order, shapes or types of the model's inputs and outputs, and is
believed only after `ensures` and after ONNX Runtime has given the same answers before and behind it.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from runtimes.contract import Json, suggest
from runtimes.kit.tensors import Array

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


class Unsuitable(Exception):
    """A rewrite that cannot be done on this graph: `<node or value>: <why>`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given:
    """What a rewrite is given besides the graph.

    Attributes:
        options: those of the line in repairs.toml.
        samples: sample name to the model's inputs by name; empty for a file that is not prepared yet.
        calibration: the same of samples to measure ranges on; empty where nothing is to be quantised.
    """

    options: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    samples: Mapping[str, Mapping[str, Array]] = dataclasses.field(default_factory=dict)
    calibration: Mapping[str, Mapping[str, Array]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewrite:
    """One change of a graph.

    Attributes:
        name: as repairs.toml spells it: small letters, digits and `_`.
        summary: what it does, for people: one phrase.
        requires: returns why it cannot be tried on a graph, or "" where it can. A graph without a place that the
            rewrite would change is fine: it then changes nothing.
        rewrite: changes the graph in place, and returns the name of every node (or value) that it replaced.
            It may raise `Unsuitable`. Shapes and types are those that onnx infers.
        ensures: returns what should be gone or there after it and is not, or "".
        precision: whose tolerance its answers must keep: `fp32` for a change that is neutral, `fp16` or `int8` for one
            that lowers the precision on purpose.
        mend: changes the file before it is read as a graph, where what it mends cannot be read; returns what `rewrite`
            returns.
    """

    name: str
    summary: str
    requires: Callable[[ir.Model], str]
    rewrite: Callable[[ir.Model, Given], list[str]]
    ensures: Callable[[ir.Model], str]
    precision: str = "fp32"
    mend: Callable[[onnx.ModelProto], list[str]] | None = None


def always(_model: ir.Model) -> str:
    """Require nothing."""
    return ""


def known() -> dict[str, Rewrite]:
    """Return every rewrite by name: each module of this folder lists its own in `REWRITES`."""
    found: dict[str, Rewrite] = {}
    for module in sorted(each.name for each in pkgutil.iter_modules(__path__)):
        for each in importlib.import_module(f"{__name__}.{module}").REWRITES:
            if each.name in found:
                raise ValueError(f"two rewrites are called {each.name!r}; rename one")
            found[each.name] = each
    return found


def find(name: str) -> Rewrite:
    """Return the rewrite called `name`.

    Raises:
        LookupError: there is none.
    """
    rewrites = known()
    if name not in rewrites:
        raise LookupError(f"rewrite {name!r}: there is none{suggest(name, rewrites)}")
    return rewrites[name]
