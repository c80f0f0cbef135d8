"""Expansions: rewrites that put other nodes in the place of one, wherever it stands, also inside an If."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable

TRUTHS = frozenset({"And", "Equal", "Greater", "IsInf", "IsNaN", "Less", "Not", "Or"})
"""Operators that give booleans."""


class Graft(edits.Nodes):
    """Nodes in place of one, for formulas: numbers become constants, and operators are written as the opset has them.

    Attributes:
        opset: of the model.
    """

    def __init__(self, node: ir.Node, opset: int) -> None:
        super().__init__(node)
        self.opset = opset

    def op(self, operator: str, *inputs: ir.Value | float | None, **attributes: Any) -> ir.Value:
        """Return the output of a new node; a number becomes a scalar of the type of the first value that has one."""
        return self.ops(operator, *inputs, count=1, **attributes)[0]

    def ops(self, operator: str, *inputs: ir.Value | float | None, count: int, **attributes: Any) -> Sequence[ir.Value]:
        """Return the `count` outputs of a new node; see `op`."""
        types = [each.dtype for each in inputs if isinstance(each, ir.Value) and each.dtype is not None]
        # Where's first input is the condition.
        dtype = next(iter(types[1:] if operator == "Where" else types), None)
        values = [self.scalar(each, dtype) if isinstance(each, int | float) else each for each in inputs]
        made = super().ops(operator, *values, count=count, **attributes)
        for value in made:
            typed = ir.DataType(attributes["to"]) if operator == "Cast" else dtype
            if operator in TRUTHS:
                typed = ir.DataType.BOOL
            if typed is not None:
                value.dtype = typed
        return made

    def constant(self, value: Any, dtype: Any = None) -> ir.Value:
        """Return a constant of numpy's type of `value`, or of `dtype`."""
        array = np.asarray(value, dtype)
        made = super().constant(array)
        made.dtype, made.shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
        return made

    def scalar(self, number: float, dtype: ir.DataType | None) -> ir.Value:
        """Return `number` as a constant of rank 0.

        Raises:
            Unsuitable: the type is unknown.
        """
        if dtype is None:
            raise Unsuitable(f"{edits.call(self.node)}: its type is unknown")
        return self.constant(number, dtype.numpy())

    def integers(self, numbers: Sequence[int]) -> ir.Value:
        """Return `numbers` as a constant of rank 1, int64."""
        return self.constant(numbers, np.int64)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return `value` as `dtype`."""
        return value if value.dtype == dtype else self.op("Cast", value, to=int(dtype))

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        """Return `value` in `shape`, which holds no 0; a constant is reshaped here and now."""
        if sizes_of(value) == tuple(shape):
            return value
        held = edits.constant_of(value)
        if held is not None:
            return self.constant(held.reshape(tuple(shape)))
        made = self.op("Reshape", value, self.integers(shape))
        return _shaped(made, shape)

    def transpose(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Return `value` with its axes in the order `axes`; a constant is turned here and now."""
        if list(axes) == list(range(len(axes))):
            return value
        held = edits.constant_of(value)
        if held is not None:
            return self.constant(np.ascontiguousarray(held.transpose(tuple(axes))))
        made = self.op("Transpose", value, perm=list(axes))
        shape = sizes_of(value)
        return made if shape is None else _shaped(made, [shape[axis] for axis in axes])

    def reduce(self, op_type: str, value: ir.Value, axes: Sequence[int], *, keep: bool = True) -> ir.Value:
        """Return `value` reduced over `axes`, which are not empty."""
        since = 13 if op_type == "ReduceSum" else 18
        if self.opset >= since:
            return self.op(op_type, value, self.integers(axes), keepdims=int(keep))
        return self.op(op_type, value, axes=list(axes), keepdims=int(keep))

    def unsqueeze(self, value: ir.Value, axis: int) -> ir.Value:
        """Return `value` with a new axis of size 1."""
        if self.opset >= 13:
            return self.op("Unsqueeze", value, self.integers([axis]))
        return self.op("Unsqueeze", value, axes=[axis])

    def split(self, value: ir.Value, sizes: Sequence[int], axis: int) -> Sequence[ir.Value]:
        """Return the pieces of `value` along `axis`; their count is that of `sizes`."""
        if len(sizes) == 1:
            return [value]
        if self.opset >= 13:
            return self.ops("Split", value, self.integers(sizes), count=len(sizes), axis=axis)
        return self.ops("Split", value, count=len(sizes), axis=axis, split=list(sizes))

    def slice(self, value: ir.Value, start: int, end: int, axis: int) -> ir.Value:
        """Return `value` from `start` up to `end` along `axis`."""
        return self.op("Slice", value, self.integers([start]), self.integers([end]), self.integers([axis]))

    def softmax(self, value: ir.Value) -> ir.Value:
        """Return the softmax over the last axis."""
        return self.op("Softmax", value, axis=-1)

    def horner(self, value: ir.Value, factors: Sequence[float]) -> ir.Value:
        """Return the polynomial whose coefficients are `factors`, that of the highest power first."""
        total = self.op("Mul", value, factors[0])
        for factor in factors[1:-1]:
            total = self.op("Mul", self.op("Add", total, factor), value)
        return self.op("Add", total, factors[-1])


Build = Callable[[Graft, ir.Node], ir.Value | Sequence[ir.Value | None]]


def none(_node: ir.Node) -> str:
    """Find nothing in the way."""
    return ""


def expansion(
    *,
    name: str,
    summary: str,
    ops: Sequence[str],
    build: Build,
    picks: Callable[[ir.Node], bool] | None = None,
    obstacle: Callable[[ir.Node], str] = none,
) -> Rewrite:
    """Return the rewrite that replaces single nodes.

    It has no options. Where some of its nodes cannot be replaced, the others are; where none can, it is not tried.

    Args:
        name: of the rewrite.
        summary: of the rewrite.
        ops: op types of ONNX's own domain.
        build: returns what takes the place of the node's outputs.
        picks: which nodes of those types are meant; all of them by default.
        obstacle: why one of those cannot be replaced, or "".
    """

    def places(model: ir.Model) -> list[ir.Node]:
        return [node for node in edits.nodes_of(model, *ops) if picks is None or picks(node)]

    def requires(model: ir.Model) -> str:
        found = [(node, obstacle(node)) for node in places(model)]
        if not found or any(not why for _, why in found):
            return ""
        return f"{edits.call(found[0][0])}: {found[0][1]}"

    def rewrite(model: ir.Model, given: Given) -> list[str]:
        if given.options:
            raise Unsuitable(f"{name}: it takes no options, got {sorted(given.options)}")
        changed = []
        for node in places(model):
            if not obstacle(node):
                graft = Graft(node, edits.opset_of(model))
                built = build(graft, node)
                graft.replace(*([built] if isinstance(built, ir.Value) else built))
                changed.append(node.name or edits.call(node))
        return changed

    def ensures(model: ir.Model) -> str:
        left = [node for node in places(model) if not obstacle(node)]
        return f"{edits.call(left[0])} is still there" if left else ""

    return Rewrite(name=name, summary=summary, requires=requires, rewrite=rewrite, ensures=ensures)


def sizes_of(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape; None where a size is unknown, or 0, which Reshape would take as "the same"."""
    shape = edits.shape_of(value)
    return shape if shape is not None and all(shape) else None


def integers_of(value: ir.Value | None) -> list[int] | None:
    """Return the numbers of a constant, flat, or None where it is no constant."""
    held = edits.constant_of(value)
    return None if held is None else [int(each) for each in held.reshape(-1)]


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """Return what an attribute holds, or `default` where the node has none."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def given(node: ir.Node, index: int) -> ir.Value:
    """Return an input that the operator always has.

    Raises:
        Unsuitable: the node has it not.
    """
    value = edits.taken(node, index)
    if value is None:
        raise Unsuitable(f"{edits.call(node)}: input {index} is missing")
    return value


def static(value: ir.Value | None) -> tuple[int, ...]:
    """Return a shape that is known.

    Raises:
        Unsuitable: it is not.
    """
    shape = sizes_of(value)
    if shape is None:
        raise Unsuitable(f"{value.name if value is not None else 'an input'}: its shape is not known")
    return shape


def type_of(value: ir.Value) -> ir.DataType:
    """Return the element type.

    Raises:
        Unsuitable: it is not known.
    """
    if value.dtype is None:
        raise Unsuitable(f"{value.name}: its type is not known")
    return value.dtype


def open_shape(node: ir.Node, *indices: int) -> str:
    """Return which of the inputs `indices` has no known shape, or ""."""
    for index in indices:
        value = edits.taken(node, index)
        if value is not None and sizes_of(value) is None:
            return f"the shape of its input {value.name} is not known, or holds a 0"
    return ""


def used(node: ir.Node, index: int) -> bool:
    """Return whether somebody uses an output."""
    if index >= len(node.outputs):
        return False
    value = node.outputs[index]
    return bool(value.uses()) or value.is_graph_output()


def axes_of(node: ir.Node) -> list[int] | None:
    """Return the axes of a reduction, all of them non-negative, or None where they are no constant.

    Empty axes mean all of them, or none where `noop_with_empty_axes` says so.
    """
    rank = edits.rank_of(given(node, 0))
    value = edits.taken(node, 1)
    axes = attribute(node, "axes", None) if value is None else integers_of(value)
    if rank is None or (value is not None and axes is None):
        return None
    if not axes:
        return [] if attribute(node, "noop_with_empty_axes", 0) else list(range(rank))
    return sorted(axis % rank for axis in axes)


def _shaped(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    value.shape = ir.Shape(shape)
    return value
