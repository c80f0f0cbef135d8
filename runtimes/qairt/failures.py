"""What the words of Qualcomm's tools say about a failure: they tell kinds apart in prose only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from runtimes.contract import Failure, Kind

_KINDS: Mapping[Kind, str] = {
    Kind.DISK: r"No space left on device|Disk quota exceeded",
    Kind.MISSING_PACKAGE: r"No module named|cannot open shared object file|ImportError|command not found",
    Kind.MEMORY: r"MemoryError|std::bad_alloc|Cannot allocate memory",
    Kind.UNSUPPORTED_OPSET: r"opset\b.*\b(not supported|unsupported|maximum|higher than)|unsupported .*opset",
    Kind.DYNAMIC_SHAPE: r"dynamic (shape|dimension|input|axis|axes)|symbolic dimension",
}
_HINTS: Mapping[Kind, str] = {
    Kind.DISK: "free some space where aipc keeps its store",
    Kind.MISSING_PACKAGE: "see docs/runtimes/qairt.md for what the SDK needs of the machine",
    Kind.UNSUPPORTED_OPSET: "export the model with a lower opset",
    Kind.DYNAMIC_SHAPE: "export the model with fixed shapes",
    Kind.UNSUPPORTED_OP: "write the operator with others that the SDK has",
}
_OPS = (
    re.compile(r"No translation registered for op type (?:onnx_)?(?P<op>\w+)"),
    re.compile(r"[Uu]nsupported [Oo]p(?:eration|erator)?s?(?: type)?\b[^\w\n]*(?:onnx_)?(?P<op>\w+)"),
    re.compile(r"\b[Oo]p(?:eration|erator)?(?: type)?\b[^\w\n]*(?:onnx_)?(?P<op>\w+)[^\w\n]* is not supported"),
)
_NODE = re.compile(r"[Nn]ode(?: name)?\b[:\s'\"=]+(?P<node>[^\s'\",:]+)")
_USAGE = re.compile(r"unrecognized arguments|^usage:|unknown option|invalid choice", re.MULTILINE | re.IGNORECASE)


def describe(words: str, source: Path) -> Failure:
    """Return the failure that the output of a tool stands for; its message is the output, whole.

    Args:
        words: what the tool said.
        source: the ONNX model, which tells the right spelling of an operator; it may not be there.
    """
    for kind, pattern in _KINDS.items():
        if re.search(pattern, words, re.IGNORECASE):
            return Failure(kind=kind, message=words, hint=_HINTS.get(kind, ""))
    if operator := find_op(words):
        op, node = _spell(operator, words, source)
        hint = _HINTS[Kind.UNSUPPORTED_OP]
        return Failure(kind=Kind.UNSUPPORTED_OP, message=words, hint=hint, op=op, node=node)
    hint = "this SDK's tools take other options; use a newer SDK" if _USAGE.search(words) else ""
    return Failure(kind=Kind.TOOLCHAIN, message=words, hint=hint)


def find_op(words: str) -> str:
    """Return the operator that `words` call unsupported, as they spell it, or ""."""
    found = next((match for pattern in _OPS if (match := pattern.search(words))), None)
    return found["op"] if found else ""


def _spell(operator: str, words: str, source: Path) -> tuple[str, str]:
    """Return the ONNX operator that is meant, and a node of that type: the one that `words` name, else the first."""
    import onnx

    if not source.is_file():
        return operator, ""
    nodes = onnx.load(source, load_external_data=False).graph.node
    like = [node for node in nodes if node.op_type.lower() == operator.lower()]
    if not like:
        return operator, ""
    named = {match["node"] for match in _NODE.finditer(words)}
    node = next((node for node in like if node.name in named), like[0])
    return node.op_type, node.name
