"""Single nodes of an ONNX file, for those who look at one: what goes in and out, with sizes, and its attributes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from runtimes.contract import Json
from runtimes.reference import edits, gates
from runtimes.reference.rewrite import read

LONGEST = 80
"""An attribute is shown up to so many characters."""


def describe(path: Path, operator: str, node: str) -> list[Json]:
    """Return the nodes of the file that have this operator type, or this name; "" fits any.

    Raises:
        Failed: onnx_ir does not read the file.
    """
    model = read(gates.parse(path), path.parent)
    edits.infer(model)
    return [
        _describe(each)
        for graph in model.graphs()
        for each in graph
        if operator in {"", each.op_type} and node in {"", each.name}
    ]


def _describe(node: ir.Node) -> Json:
    return {
        "name": node.name or "",
        "op": node.op_type,
        "domain": node.domain,
        "inputs": [_show(value) for value in node.inputs],
        "outputs": [_show(value) for value in node.outputs],
        "attributes": dict(_attributes(node)),
    }


def _show(value: ir.Value | None) -> str:
    """Return `name dtype[sizes]`; "" for an input that is left out."""
    if value is None:
        return ""
    sizes = "?" if value.shape is None else ",".join(str(size) for size in value.shape)
    dtype = "?" if value.dtype is None else onnx.TensorProto.DataType.Name(value.dtype.value).lower()
    constant = " constant" if value.is_initializer() else ""
    return f"{value.name} {dtype}[{sizes}]{constant}"


def _attributes(node: ir.Node) -> Iterator[tuple[str, str]]:
    for name, attribute in node.attributes.items():
        text = str(attribute.value)
        yield name, text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
