"""What the toolkit prints of the network that it has built: where each layer runs, and which have no kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_STAMP = re.compile(r"^D RKNN: \[[\d:.]+\] ")
_HEADER = re.compile(r"^ID\s+OpType\s+DataType\s+Target\s.*\sFullName\s*$")
_ROW = re.compile(r"^(?P<id>\d+)\s+(?P<op>\S+)\s+(?P<dtype>\S+)\s+(?P<device>[A-Z]+)\s")
_RULER = re.compile(r"^-+$")
_UNLOWERED = re.compile(r"No lowering found for: (?P<node>.*), node type = (?P<op>[^,]+), use")
_NO_LAYERS = ("InputOperator", "OutputOperator")


class BadTable(ValueError):
    """A layer table that is not printed as this version of the toolkit prints it."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of the network, after the toolkit has fused and split the nodes of the model.

    Attributes:
        node: its name, mostly that of the (first) ONNX node that it came from; its number where it has none.
        op: the toolkit's name of what it does: `ConvRelu`, `exMatMul`, `Reshape`.
        device: `NPU`, or `CPU` for the board's own.
        dtype: what it calculates in: `FLOAT16`, `INT8`.
    """

    node: str
    op: str
    device: str
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Unlowered:
    """A node that was built, but has no kernel on the chip: the simulator calculates it all the same."""

    node: str
    op: str


def read(lines: Sequence[str]) -> list[Layer]:
    """Return the layers of the last table in a log, without those that only stand for inputs and outputs.

    Raises:
        BadTable: there is no table, or it holds a line that cannot be read; a layer must not get lost.
    """
    texts = [_STAMP.sub("", line) for line in lines]
    headers = [index for index, text in enumerate(texts) if _HEADER.match(text)]
    if not headers:
        raise BadTable("the toolkit printed no table of layers")
    header = texts[headers[-1]]
    found: list[Layer] = []
    for number, text in enumerate(texts[headers[-1] + 2 :]):
        if _RULER.match(text.strip()):
            return [layer for layer in found if layer.op not in _NO_LAYERS]
        found.append(_read_row(text, number, header.index("FullName")))
    raise BadTable("the table of layers has no end")


def _read_row(text: str, number: int, column: int) -> Layer:
    """Return one line of the table; names start at the same column in all lines, and may hold blanks."""
    row = _ROW.match(text)
    if not row or int(row["id"]) != number or text[column - 1 : column] != " ":
        raise BadTable(f"line {number} of the table of layers cannot be read: {text!r}")
    _, _, node = text[column:].strip().partition(":")
    return Layer(node=node or f"layer {number}", op=row["op"], device=row["device"], dtype=row["dtype"])


def unlowered(lines: Sequence[str]) -> list[Unlowered]:
    """Return the nodes that the toolkit found no kernel for, in its order."""
    matches = (_UNLOWERED.search(line) for line in lines)
    return [Unlowered(node=match["node"], op=match["op"]) for match in matches if match]
