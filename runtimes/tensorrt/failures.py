"""What TensorRT's own words say about a failure: the parser's errors are data, the builder's are prose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from runtimes.contract import Failure, Kind
from runtimes.kit.work import Failed, Refused

UNSUPPORTED = frozenset({Kind.UNSUPPORTED_OP, Kind.UNSUPPORTED_OPSET, Kind.DYNAMIC_SHAPE})
"""The toolchain cannot; any other kind means that it tried."""
KINDS: Mapping[str, Kind] = {
    "MEM_ALLOC_FAILED": Kind.MEMORY,
    "MODEL_DESERIALIZE_FAILED": Kind.INVALID_MODEL,
    "INVALID_VALUE": Kind.INVALID_MODEL,
    "INVALID_GRAPH": Kind.INVALID_MODEL,
    "INVALID_NODE": Kind.INVALID_MODEL,
    "UNSUPPORTED_GRAPH": Kind.UNSUPPORTED_OP,
    "UNSUPPORTED_NODE": Kind.UNSUPPORTED_OP,
    "UNSUPPORTED_NODE_ATTR": Kind.UNSUPPORTED_OP,
    "UNSUPPORTED_NODE_INPUT": Kind.UNSUPPORTED_OP,
    "UNSUPPORTED_NODE_DATATYPE": Kind.UNSUPPORTED_OP,
    "UNSUPPORTED_NODE_DYNAMIC": Kind.DYNAMIC_SHAPE,
    "UNSUPPORTED_NODE_SHAPE": Kind.UNSUPPORTED_OP,
}
"""What a code of the parser stands for; any other is the toolchain's own fault."""
HINTS: Mapping[Kind, str] = {
    Kind.UNSUPPORTED_OP: "write the operator with others that docs/runtimes/tensorrt.md lists",
    Kind.UNSUPPORTED_OPSET: "export the model again with a newer opset",
    Kind.DYNAMIC_SHAPE: "export the model with fixed shapes",
    Kind.INVALID_MODEL: "check the file with `aipc inspect`",
    Kind.MEMORY: "it may use more where memory_bytes in runtime.toml says so",
}

DISTRUSTED: Mapping[str, tuple[Kind, str]] = {
    "Defaulting to INT8 instead": (Kind.UNSUPPORTED_OP, "QuantizeLinear"),
    "not guaranteed to work": (Kind.UNSUPPORTED_OPSET, ""),
}
"""Words of a mere warning that mean another model: the kind of failure, and the operator.

The first is what the parser says of uint8: it reads it as int8, and all above 127 becomes 127.
"""

_UNSUPPORTED = re.compile(
    r"\b([Nn]ot|n't) support|\b[Uu]nsupported\b|Plugin not found|has no runners|[Cc]ould not find any implementation"
)
_OPSET = re.compile(r"\bpre-opset|\bopset \d+ is not|getOpsetVersion\(\) >=", re.IGNORECASE)
_MEMORY = re.compile(r"std::bad_alloc|out of memory|OutOfMemory", re.IGNORECASE)
_REPEATED = ("ModelImporter.cpp:", "(deserializeOnnxModel)")
_PROFILE = "no optimization profile has been defined"
_OPERATION = re.compile(r"(\w+) operation was not supported")
_WORD = re.compile(r"[^\s()\[\]{}:,]+")


@dataclass(frozen=True, kw_only=True)
class Told:
    """One error of the ONNX parser.

    Attributes:
        code: the name of its `ErrorCode`.
        text: its description.
        op: the ONNX operator, "" where it speaks of the file.
        node: the node's name, or "".
        place: where in the parser's source it was raised.
    """

    code: str
    text: str
    op: str = ""
    node: str = ""
    place: str = ""

    def __str__(self) -> str:
        named = f"{self.op} {self.node!r}: " if self.op else ""
        return f"{named}{self.code}: {self.text} ({self.place})"

    @property
    def kind(self) -> Kind:
        """What it stands for."""
        if _OPSET.search(self.text):
            return Kind.UNSUPPORTED_OPSET
        kind = KINDS.get(self.code, Kind.TOOLCHAIN)
        return Kind.UNSUPPORTED_OP if kind is Kind.INVALID_MODEL and _UNSUPPORTED.search(self.text) else kind


def errors(parser: Any, nodes: Mapping[str, str]) -> list[Told]:
    """Return all errors of an `OnnxParser`.

    Args:
        parser: the parser.
        nodes: the ONNX nodes that it came to, in order, each with its operator. Not every error names its own.
    """
    found = [parser.get_error(index) for index in range(parser.num_errors)]
    node, op = [("", ""), *nodes.items()][-1]
    return [
        Told(
            code=error.code().name,
            text=error.desc(),
            op=error.node_operator() or (op if error.func() == f"import{op}" else ""),
            node=error.node_name() or (node if error.func() == f"import{op}" else ""),
            place=f"{error.func()}, {error.file()}:{error.line()}",
        )
        for error in found
    ]


def of_parsing(told: Sequence[Told], words: Sequence[str]) -> Failure:
    """Return the failure that the parser's errors stand for: all of them, led by the first that names an operator.

    Args:
        told: the parser's errors.
        words: what the logger was told as errors; what it was told of the parser's errors is left out.
    """
    more = [text for text in words if not text.startswith(_REPEATED)]
    if not told:
        return Failure(kind=Kind.TOOLCHAIN, message="\n".join(more) or "the ONNX parser failed, and said nothing")
    first = next((error for error in told if error.op), told[0])
    text = "\n".join(map(str, told))
    return _failure(first.kind, "\n".join([text, *(each for each in more if each not in text)]), first.op, first.node)


def of_warnings(words: Sequence[str], nodes: Mapping[str, str]) -> Failure | None:
    """Return the failure that warnings of the parser stand for, None where they are harmless."""
    for text in words:
        for distrusted, (kind, op) in DISTRUSTED.items():
            if distrusted in text:
                return _failure(kind, text, op, _only(op, nodes))
    return None


def of_building(words: Sequence[str], nodes: Mapping[str, str]) -> Failure:
    """Return the failure that the builder's messages stand for.

    Args:
        words: what the logger was told as errors.
        nodes: the ONNX nodes, each with its operator.
    """
    text = "\n".join(words) or "TensorRT built no engine, and said nothing"
    found_words = [word.rstrip(".") for word in _WORD.findall(text)]
    node = next((name for word in found_words for name in (word, re.sub(r"_\d+$", "", word)) if name in nodes), "")
    op = nodes.get(node, "")
    if found := _OPERATION.search(text):
        op = op or found[1]
        node = node or _only(op, nodes)
    if _PROFILE in text:
        return _failure(Kind.DYNAMIC_SHAPE, text, op, node)
    if _MEMORY.search(text):
        return _failure(Kind.MEMORY, text, op, node)
    return _failure(Kind.UNSUPPORTED_OP if _UNSUPPORTED.search(text) else Kind.TOOLCHAIN, text, op, node)


def end(failure: Failure) -> NoReturn:
    """Raise `Refused` where the toolchain cannot, `Failed` where it tried."""
    raise (Refused if failure.kind in UNSUPPORTED else Failed)(failure)


def _failure(kind: Kind, message: str, op: str, node: str) -> Failure:
    return Failure(kind=kind, message=message, hint=HINTS.get(kind, ""), op=op, node=node)


def _only(op: str, nodes: Mapping[str, str]) -> str:
    """Return the node with the operator `op` where there is one only, else ""."""
    found = [node for node, each in nodes.items() if each == op]
    return found[0] if len(found) == 1 else ""
