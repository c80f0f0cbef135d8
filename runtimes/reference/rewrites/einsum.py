"""Einsum as Transpose, Reshape and one MatMul: some runtimes know only a few equations, and some none.

An operand's labels fall into four sorts: those of both operands that stay (the batch), those of both that are summed
up (the inner size of the MatMul), and those that only one operand has, which stay (rows, columns) or are summed up
beforehand. A label that an operand has twice stands for the diagonal of the two axes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always

Labels = tuple[str, ...]
"""Letters as the equation has them, and for the axes of `...` the numbers "0" (the last one), "1", …"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operand:
    """A tensor with a label for each axis, and how long each is."""

    value: ir.Value
    labels: Labels
    sizes: tuple[int, ...]

    def size(self, labels: Labels) -> int:
        """Return how many elements the axes `labels` span."""
        return math.prod(self.sizes[self.labels.index(label)] for label in labels)


def _rewrite(model: ir.Model, _given: Given) -> list[str]:
    opset = edits.opset_of(model)
    found = edits.nodes_of(model, "Einsum")
    for node in found:
        maker = Maker(edits.Nodes(node), opset)
        maker.nodes.replace(maker.make())
    return [node.name or "" for node in found]


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Return the labels of each operand and of the output.

    Args:
        equation: as ONNX has it: `bij,bjk->bik`, with blanks, without an arrow, with `...`.
        ranks: how many axes each operand has.

    Raises:
        Unsuitable: it does not fit the operands.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Unsuitable(f"equation {equation!r} has {len(terms)} operands, the node {len(ranks)}")
    operands = [_expand(term, rank, equation) for term, rank in zip(terms, ranks, strict=True)]
    dots = max((len([label for label in labels if label.isdigit()]) for labels in operands), default=0)
    shared = tuple(str(index) for index in reversed(range(dots)))
    if arrow:
        before, point, behind = right.partition("...")
        return operands, (*before, *(shared if point else ()), *behind)
    letters = [label for labels in operands for label in labels if not label.isdigit()]
    once = sorted(
        (label for label in set(letters) if letters.count(label) == 1), key=lambda each: (each.isupper(), each)
    )
    return operands, (*shared, *once)


def _expand(term: str, rank: int, equation: str) -> Labels:
    before, point, behind = term.partition("...")
    dots = rank - len(before) - len(behind)
    if dots < 0 or (dots and not point):
        raise Unsuitable(f"equation {equation!r}: {term!r} does not fit an operand of {rank} axes")
    return (*before, *(str(index) for index in reversed(range(dots))), *behind)


class Maker:
    """Makes the nodes for one Einsum.

    Attributes:
        nodes: what is made.
    """

    def __init__(self, nodes: edits.Nodes, opset: int) -> None:
        self.nodes = nodes
        self.opset = opset

    def make(self) -> ir.Value:
        """Return the value that the Einsum gave.

        Raises:
            Unsuitable: the size of an operand is not known, or the equation does not fit.
        """
        node = self.nodes.node
        shapes = []
        for value in node.inputs:
            shape = edits.shape_of(value)
            if value is None or shape is None or 0 in shape:
                raise Unsuitable(
                    f"{edits.call(node)}: the sizes of {value.name if value else 'an operand'} are not known"
                )
            shapes.append(shape)
        labels, output = parse(node.attributes.get_string("equation", ""), [len(shape) for shape in shapes])
        whole = [
            self._diagonal(Operand(value=value, labels=each, sizes=shape))
            for value, each, shape in zip(node.inputs, labels, shapes, strict=True)
            if value is not None
        ]
        whole = self._broadcast(whole)
        while len(whole) > 1:
            kept = set(output) | {label for other in whole[2:] for label in other.labels}
            whole[:2] = [self._contract(whole[0], whole[1], kept)]
        (last,) = whole
        return self._order(self._sum(last, set(output)), output).value

    def _diagonal(self, operand: Operand) -> Operand:
        """Return the operand with every label once: of two axes of one label the diagonal."""
        twice = next((label for label in operand.labels if operand.labels.count(label) > 1), None)
        if twice is None:
            return operand
        first = operand.labels.index(twice)
        second = operand.labels.index(twice, first + 1)
        rest = [axis for axis in range(len(operand.labels)) if axis not in {first, second}]
        size = operand.sizes[first]
        value = self._transpose(operand.value, [*rest, first, second])
        sizes = [operand.sizes[axis] for axis in rest]
        value = self._reshape(value, [*sizes, size * size])
        ints = (np.array([number], np.int64) for number in (0, size * size, len(rest), size + 1))
        value = self.nodes.op("Slice", value, *(self.nodes.constant(each) for each in ints))
        labels = (*(operand.labels[axis] for axis in rest), twice)
        return self._diagonal(Operand(value=value, labels=labels, sizes=(*sizes, size)))

    def _broadcast(self, operands: Sequence[Operand]) -> list[Operand]:
        """Return the operands without the axes of size 1 that others have longer."""
        longest: dict[str, int] = {}
        for operand in operands:
            for label, size in zip(operand.labels, operand.sizes, strict=True):
                longest[label] = max(size, longest.get(label, 1))
        return [self._squeeze(operand, longest) for operand in operands]

    def _squeeze(self, operand: Operand, longest: Mapping[str, int]) -> Operand:
        pairs = list(zip(operand.labels, operand.sizes, strict=True))
        kept = [(label, size) for label, size in pairs if size == longest[label] or size != 1]
        wrong = next((label for label, size in kept if size != longest[label]), None)
        if wrong is not None:
            raise Unsuitable(f"{edits.call(self.nodes.node)}: the axes {wrong} are of different sizes")
        labels, sizes = tuple(label for label, _size in kept), tuple(size for _label, size in kept)
        value = operand.value if len(kept) == len(pairs) else self._reshape(operand.value, sizes)
        return Operand(value=value, labels=labels, sizes=sizes)

    def _contract(self, left: Operand, right: Operand, kept: set[str]) -> Operand:
        """Return the product of two operands, summed over what is not `kept`."""
        left = self._sum(left, kept | set(right.labels))
        right = self._sum(right, kept | set(left.labels))
        both = [label for label in left.labels if label in right.labels]
        batch = tuple(label for label in both if label in kept)
        inner = tuple(label for label in both if label not in kept)
        rows = tuple(label for label in left.labels if label not in both)
        columns = tuple(label for label in right.labels if label not in both)
        first, second = self._order(left, (*batch, *rows, *inner)), self._order(right, (*batch, *inner, *columns))
        count = [left.size(batch)] if batch else []
        product = self.nodes.op(
            "MatMul",
            self._shaped(first, [*count, left.size(rows), left.size(inner)]),
            self._shaped(second, [*count, right.size(inner), right.size(columns)]),
        )
        labels = (*batch, *rows, *columns)
        sizes = (*(left.size((label,)) for label in (*batch, *rows)), *(right.size((label,)) for label in columns))
        shape = (*count, left.size(rows), right.size(columns))
        value = product if shape == sizes else self._reshape(product, sizes)
        return Operand(value=value, labels=labels, sizes=sizes)

    def _sum(self, operand: Operand, kept: set[str]) -> Operand:
        """Return the operand summed over every label that is not `kept`."""
        axes = [axis for axis, label in enumerate(operand.labels) if label not in kept]
        if not axes:
            return operand
        if self.opset >= 13:
            value = self.nodes.op("ReduceSum", operand.value, self.nodes.constant(axes, np.int64), keepdims=0)
        else:
            value = self.nodes.op("ReduceSum", operand.value, axes=axes, keepdims=0)
        rest = [axis for axis in range(len(operand.labels)) if axis not in axes]
        return Operand(
            value=value,
            labels=tuple(operand.labels[axis] for axis in rest),
            sizes=tuple(operand.sizes[axis] for axis in rest),
        )

    def _order(self, operand: Operand, labels: Labels) -> Operand:
        """Return the operand with its axes in the order of `labels`."""
        if sorted(operand.labels) != sorted(labels):
            node = self.nodes.node
            raise Unsuitable(f"{edits.call(node)}: its output has a label that no operand has, or one twice")
        axes = [operand.labels.index(label) for label in labels]
        value = self._transpose(operand.value, axes)
        return Operand(value=value, labels=labels, sizes=tuple(operand.sizes[axis] for axis in axes))

    def _transpose(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        return value if list(axes) == sorted(axes) else self.nodes.op("Transpose", value, perm=list(axes))

    def _shaped(self, operand: Operand, sizes: Sequence[int]) -> ir.Value:
        return operand.value if operand.sizes == tuple(sizes) else self._reshape(operand.value, sizes)

    def _reshape(self, value: ir.Value, sizes: Sequence[int]) -> ir.Value:
        return self.nodes.op("Reshape", value, self.nodes.constant(list(sizes), np.int64))


def _left(model: ir.Model) -> str:
    left = edits.nodes_of(model, "Einsum")
    return f"{edits.call(left[0])} is left" if left else ""


REWRITES = (
    Rewrite(
        name="einsum_to_matmul",
        summary="Einsum as Transpose, Reshape and MatMul",
        requires=always,
        rewrite=_rewrite,
        ensures=_left,
    ),
)
