"""What rknn-toolkit2's words say about a failure: it tells kinds apart in prose only, and prints much of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtimes.contract import Failure, Kind
from runtimes.rknn.layers import Unlowered

LAST_WORDS = 100
"""So many of the last lines are kept of a process that died; all of them are in the log of the job."""
PICTURE_RANK = 4
"""Batch, channels, height and width."""

_LISTING = re.compile(r"^[DI] ")
"""What the toolkit tells of its own work, a line for each node: it would push out the vendor's words."""

_RULE = re.compile(r"You can add disable_rules=\['(?P<rule>\w+)'\] in rknn\.config\(\)")
_MATCHED = re.compile(r"Show op fuse match nodes:\nRule: .*\nSubgraph:\nOp type: (?P<op>.*)\nOp name: (?P<node>.*)\n")
_ERROR_LINE = re.compile(r"^E (?!rknn-toolkit2 version)(?!RKNN: .* Unkown op target)")
_NEXT_LINE = re.compile(r"^(?:[DEIW] |\[|compress=)")
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Graph|Fail|NotImplemented)(?:: |$)", re.MULTILINE)
_TRACE = re.compile(r"^(?:Traceback \(most recent|  File |    )")


@dataclass(frozen=True, kw_only=True)
class _Words:
    """What some words of the toolkit stand for.

    Attributes:
        pattern: finds them; its groups `op` and `node` say where.
        kind: what sort of failure they are.
        hint: what to do.
        refusal: the toolkit says that it cannot, rather than that it tried.
    """

    pattern: re.Pattern[str]
    kind: Kind
    hint: str = ""
    refusal: bool = False


_OTHER_OPERATOR = "write the operator with others that the toolkit has: docs/runtimes/rknn.md lists them"
_KNOWN = (
    _Words(
        pattern=re.compile(r"Unsupport onnx opset \d+, need <= \d+!"),
        kind=Kind.UNSUPPORTED_OPSET,
        hint="export the model with opset 19 or below",
        refusal=True,
    ),
    _Words(
        pattern=re.compile(r"The input shape \[.*\] of '(?P<node>[^'\n]*)' is not support!"),
        kind=Kind.DYNAMIC_SHAPE,
        hint="export the model with fixed shapes",
        refusal=True,
    ),
    _Words(
        pattern=re.compile(
            r"The (?:input \d+ of )?(?P<op>\w+)\('(?P<node>[^'\n]*)'\) "
            r"(?:need to be constant|will cause the graph to be a dynamic graph)"
        ),
        kind=Kind.UNSUPPORTED_OP,
        hint=_OTHER_OPERATOR,
        refusal=True,
    ),
    _Words(
        pattern=re.compile(r"Found Random node '(?P<node>[^'\n]*)', which is not supported"),
        kind=Kind.UNSUPPORTED_OP,
        hint="export the model in evaluation mode",
        refusal=True,
    ),
    _Words(
        pattern=re.compile(r"The Op of '(?P<op>\w+)' is not supported yet"),
        kind=Kind.UNSUPPORTED_OP,
        hint=_OTHER_OPERATOR,
        refusal=True,
    ),
    _Words(
        pattern=re.compile(
            r'In Node, \("(?P<node>[^"\n]*)", (?P<op>[^,\n]+), .*(?:No opset import for domain|No Op registered for)'
        ),
        kind=Kind.UNSUPPORTED_OP,
        hint="write the operator with standard ONNX operators",
        refusal=True,
    ),
    _Words(
        pattern=re.compile(r"Current target_platform\(.*\) not support do_quantization = \w+"),
        kind=Kind.OPTION,
        hint="take int8 for this target: it has no floating-point units",
        refusal=True,
    ),
    _Words(pattern=re.compile(r"Invalid target_platform '.*'!"), kind=Kind.OPTION, refusal=True),
    _Words(
        pattern=re.compile(r"Not support input data type '\w+'"),
        kind=Kind.TOOLCHAIN,
        hint="inputs may be float16, float32, float64, int8, int32, int64 or bool",
        refusal=True,
    ),
    _Words(pattern=re.compile(r"std::bad_alloc|MemoryError|Unable to allocate"), kind=Kind.MEMORY),
    _Words(pattern=re.compile(r"No space left on device"), kind=Kind.DISK, hint="free some space"),
    _Words(
        pattern=re.compile(
            r"Can not find tensor value info for '[^'\n]*'|Error parsing message|Model file .* not exists!"
            r"|All outputs \[.*\] of model are constants"
        ),
        kind=Kind.INVALID_MODEL,
        hint="check the file with `aipc inspect`",
    ),
)
_BRANCHING = ("If", "Loop", "Scan")
_RECURRENT = ("GRU", "LSTM", "RNN")
_OMITTED = re.compile(r"Could not find OrtValue with name ''|^KeyError: ''\s*$", re.MULTILINE)
"""It does not know that a node may leave out an output, as exporters do of recurrent ones."""
_UNCONNECTED = re.compile(r"All outputs \[.*\] of model are constants|^KeyError: '.*'\s*$", re.MULTILINE)
_MISSING_KEY = re.compile(r"^KeyError: '(?P<name>.*)'\s*$", re.MULTILINE)


def crashing_rule(lines: Sequence[str]) -> str:
    """Return the rule of the graph optimiser that the toolkit says to disable, or ""."""
    found = [match["rule"] for line in lines if (match := _RULE.search(line))]
    return found[-1] if found else ""


def describe(stage: str, lines: Sequence[str], raised: str, ops: Mapping[str, str]) -> tuple[Failure, bool]:
    """Return the failure of a call that raised or returned no success, and whether the toolkit refuses by it.

    Args:
        stage: the toolkit's function.
        lines: its log, without colours.
        raised: the exception's text, or what it returned.
        ops: the model's node names, each with its operator's type.
    """
    printed = _errors(lines)
    text = "\n".join([raised, *printed])
    essence = _essence(raised, printed).removeprefix(f"{stage}: ")
    message = f"{stage}: {essence}\n\n{_whole(raised, printed)}"
    node = next((node for node, op in ops.items() if op in _BRANCHING), None)
    if node is not None and _UNCONNECTED.search(text):
        # It does not look into branches: what they take and give is missing in what it sees.
        hint = _OTHER_OPERATOR
        return Failure(kind=Kind.UNSUPPORTED_OP, message=message, hint=hint, op=ops[node], node=node), True
    node = next((node for node, op in ops.items() if op in _RECURRENT), None)
    if node is not None and _OMITTED.search(text):
        hint = "it takes no node that leaves an output out: name all of them, or write the operator with others"
        return Failure(kind=Kind.UNSUPPORTED_OP, message=message, hint=hint, op=ops[node], node=node), True
    for known in _KNOWN:
        if match := known.pattern.search(text):
            groups = match.groupdict()
            node = groups.get("node") or ""
            op = groups.get("op") or ops.get(node, "")
            failure = Failure(kind=known.kind, message=message, hint=known.hint, op=op, node=node)
            return failure, known.refusal
    if (missing := _MISSING_KEY.search(text)) and missing["name"] not in ops.values():
        hint = "a node comes before the one that makes its input: sort the nodes"
        return Failure(kind=Kind.INVALID_MODEL, message=message, hint=hint), False
    matched = _MATCHED.search("\n".join(lines))
    op, node = (matched["op"], matched["node"]) if matched else ("", "")
    return Failure(kind=Kind.TOOLCHAIN, message=message, op=op, node=node), False


def suspect(model: Any) -> tuple[str, str]:
    """Return the first node of a kind that is known to take the toolkit down: its operator and name, or two ""."""
    ranks = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) == 1}
    for node in model.graph.node:
        attributes = {attribute.name: attribute for attribute in node.attribute}
        cubic = "mode" in attributes and attributes["mode"].s == b"cubic"
        deep = any(ranks.get(name, 0) > PICTURE_RANK for name in node.input[2:])
        windows = len(attributes["kernel_shape"].ints) if "kernel_shape" in attributes else 0
        if (
            node.op_type == "ConvInteger"
            or (node.op_type == "Resize" and (cubic or deep))
            or (node.op_type == "MaxPool" and windows > PICTURE_RANK - 2)
        ):
            return node.op_type, node.name
    return "", ""


def died(stage: str, manner: str, lines: Sequence[str], op: str, node: str) -> Failure:
    """Return the failure of a process that ended by itself in the middle of a call; its last words come along.

    Args:
        stage: the toolkit's function.
        manner: how it ended, in words.
        lines: its log.
        op: the operator in the model that is known to do this, or "".
        node: its name.
    """
    farthest = max((at for at, line in enumerate(lines) if _LISTING.match(line)), default=-1)
    spoken = [line for at, line in enumerate(lines) if at == farthest or not _LISTING.match(line)]
    shown = spoken[-LAST_WORDS:]
    left = len(lines) - len(shown)
    where = f" ({left} more lines are in the job's log, log.txt)" if left else ""
    words = "\n".join(shown)
    message = f"rknn-toolkit2 {manner} in {stage}; its last words{where}:\n{words}"
    kind = Kind.MEMORY if "SIGKILL" in manner or "std::bad_alloc" in words else Kind.CRASH
    hint = f"{op} {node!r} is known to do this; write it with other operators" if op else ""
    if kind is Kind.MEMORY:
        hint = "it may use more where memory_bytes in runtime.toml says so"
    return Failure(kind=kind, message=message, hint=hint, op=op, node=node)


def without_kernel(nodes: Sequence[Unlowered]) -> Failure:
    """Return the failure of a build that the toolkit calls a success, though some nodes have no kernel on the chip."""
    words = "\n".join(
        f"No lowering found for: {each.node}, node type = {each.op}, use CustomOperatorLower instead." for each in nodes
    )
    message = f"the toolkit reports success, but the chip has no kernel for {len(nodes)} of the nodes\n\n{words}"
    first = nodes[0]
    return Failure(kind=Kind.UNSUPPORTED_OP, message=message, hint=_OTHER_OPERATOR, op=first.op, node=first.node)


def _errors(lines: Sequence[str]) -> list[str]:
    """Return what the toolkit printed as errors, with the lines that follow each of them."""
    found: list[str] = []
    inside = False
    for line in lines:
        inside = bool(_ERROR_LINE.match(line)) or (inside and not _NEXT_LINE.match(line))
        if inside and line.strip():
            found.append(line)
    return found


def _whole(raised: str, printed: Sequence[str]) -> str:
    """Return all words; what was both raised and printed stands there once."""
    fresh = [line for line in printed if line.strip() not in raised and line.partition(": ")[2].strip() not in raised]
    return "\n".join([raised.strip(), *fresh]).strip()


def _essence(raised: str, printed: Sequence[str]) -> str:
    """Return the sentence that matters of a text with tracebacks in it: what the innermost exception says."""
    starts = list(_EXCEPTION.finditer(raised))
    if starts:
        last = raised[starts[-1].start() :].strip()
        return " ".join(line.strip() for line in last.splitlines())
    spoken = [line for line in printed if not _TRACE.match(line)]
    return spoken[0].removeprefix("E ") if spoken else f"returned {raised}"
