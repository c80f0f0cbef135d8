"""No If and no function: runtimes that compile a graph have neither.

An If whose condition is known becomes the branch that is taken. Another one becomes both branches and a Where between
their answers, where these are of one size and nothing in a branch may stop the program.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.rewrites import Given, Rewrite, always
from runtimes.reference.rewrites.folding import fold
from runtimes.reference.rewrites.opset import inline

_RISKY = frozenset({"Div", "Mod"})
"""Operators that stop the program on integers, where the branch is there to keep a zero away from them."""

_UNLIKE = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)


def _rewrite(model: ir.Model, _given: Given) -> list[str]:
    changed = sorted({f"function {function.name}" for function in model.functions.values()})
    inline(model)
    before = [node.name or "" for node in edits.nodes_of(model, "If")]
    if before:
        edits.tidy(model)
        fold(model)
    # What a branch gives may tell which way another one goes.
    while _inline_all(model, _taken) or _inline_all(model, _both):
        fold(model)
    left = {node.name for node in edits.nodes_of(model, "If")}
    return [*changed, *(name for name in before if name not in left)]


def _inline_all(model: ir.Model, inline_one: Callable[[ir.Node], bool]) -> int:
    """Try every If, inner ones first, until none can be inlined any more; return how many were."""
    count = 0
    while found := sum(inline_one(node) for node in reversed(edits.nodes_of(model, "If"))):
        count += found
        edits.tidy(model)
    return count


def _taken(node: ir.Node) -> bool:
    """Put the branch of a known condition in the place of the If."""
    condition = edits.constant_of(node.inputs[0])
    if condition is None or condition.size != 1:
        return False
    new = edits.Nodes(node)
    new.replace(*_move(new, node.attributes["then_branch" if condition.item() else "else_branch"].as_graph()))
    return True


def _both(node: ir.Node) -> bool:
    """Put both branches and a choice between their answers in the place of the If."""
    if _why_not(node):
        return False
    new = edits.Nodes(node)
    yes, no = (_move(new, node.attributes[f"{word}_branch"].as_graph()) for word in ("then", "else"))
    new.replace(*(new.op("Where", node.inputs[0], *pair) for pair in zip(yes, no, strict=True)))
    return True


def _why_not(node: ir.Node) -> str:
    """Return why both branches cannot be calculated, or ""."""
    yes, no = (node.attributes[f"{word}_branch"].as_graph() for word in ("then", "else"))
    for branch in (yes, no):
        for inner in ir.traversal.RecursiveGraphIterator(branch):
            whole = any(
                value is not None and value.dtype is not None and value.dtype.is_integer() for value in inner.inputs
            )
            if (inner.op_type in _RISKY and whole) or inner.op_type in _UNLIKE:
                return f"{edits.call(inner)} may not run where it did not"
    for one, other in zip(yes.outputs, no.outputs, strict=True):
        shapes = [edits.shape_of(value) for value in (one, other)]
        if None in shapes or shapes[0] != shapes[1] or not isinstance(one.type, ir.TensorType):
            return f"its branches give {one.name} {one.shape} and {other.name} {other.shape}"
    return ""


def _move(new: edits.Nodes, branch: ir.Graph) -> list[ir.Value]:
    """Take the nodes and constants out of a branch, to stand where the If does; return what the branch gives."""
    outputs, nodes = list(branch.outputs), list(branch)
    branch.outputs.clear()
    for value in list(branch.initializers.values()):
        branch.initializers.pop(value.name or "")
        if value.const_value is not None:
            value.replace_all_uses_with(made := new.op("Constant", value=value.const_value))
            outputs = [made if output is value else output for output in outputs]
    branch.remove(nodes)
    new.made.extend(nodes)
    for node in nodes:
        node.name = f"{new.node.name}_{node.name}"
    return outputs


def _left(model: ir.Model) -> str:
    left = edits.nodes_of(model, "If")
    return f"{edits.call(left[0])} is left: {_why_not(left[0])}" if left else ""


REWRITES = (
    Rewrite(
        name="inline_branches",
        summary="If and functions replaced by what is in them",
        requires=always,
        rewrite=_rewrite,
        ensures=_left,
    ),
)
