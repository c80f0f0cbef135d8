"""Transposes between channels first and channels last, taken away where what stands between them works either way.

A model from TensorFlow keeps its activations channels last, with a Transpose on either side of each convolution. What
lies between (operators of single elements, Concat, Pad, reductions, Resize, Softmax, Split, Slice) only names its axes,
and can name others: a region of such nodes is turned as a whole where that leaves fewer Transposes that move no more
elements in all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from runtimes.reference import edits
from runtimes.reference.expansion import Graft
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always
from runtimes.reference.turning import Order, chain, flows, inverse, is_plain, keeps_rank, order_of, takes, turn

ROUNDS = 8
"""So often is looked again with what shape inference knows of the new graph."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Region:
    """Nodes of one graph that see their axes in the same order.

    Attributes:
        nodes: in the order of the graph.
        order: from the axes that they would have to those that they have.
    """

    nodes: tuple[ir.Node, ...]
    order: Order

    def gain(self) -> tuple[int, int]:
        """Return how many Transposes fewer there would be, and how many elements fewer they would move."""
        inside = frozenset(self.nodes)
        turned = {value for node in self.nodes if keeps_rank(node) for value in node.outputs}
        entering = {value for node in self.nodes for value in flows(node)} - turned
        behind = {value: [each for each in _takers(value) if order_of(each) is not None] for value in turned}
        transposes = {node for value in entering if (node := value.producer()) and order_of(node) is not None}
        transposes.update(node for nodes in behind.values() for node in nodes)
        changes = [(value, 1) for value in entering if value.producer() not in transposes]
        changes += [(value, 1) for value in turned if self._leaves(value, inside, but=behind[value])]
        changes += [
            (node.outputs[0], self._needed(node, inside, is_turned=node.inputs[0] in turned) - 1) for node in transposes
        ]
        return -sum(count for _, count in changes), -sum(count * _size(value) for value, count in changes)

    def _needed(self, transpose: ir.Node, inside: frozenset[ir.Node], *, is_turned: bool) -> int:
        """Return how many Transposes there would be in place of one."""
        order, value = order_of(transpose), transpose.outputs[0]
        assert order is not None  # noqa: S101 - it is a Transpose
        now = chain(self.order, order) if is_turned else order
        is_used_inside = any(each in inside and value in flows(each) for each in _takers(value))
        count = int(is_used_inside and not is_plain(chain(now, inverse(self.order))))
        return count + int(self._leaves(value, inside) and not is_plain(now))

    def _leaves(self, value: ir.Value, inside: frozenset[ir.Node], but: Iterable[ir.Node] = ()) -> bool:
        """Return whether something outside takes a value as it is now."""
        takers = (each for each in _takers(value) if each not in but)
        return value.is_graph_output() or any(each not in inside or value not in flows(each) for each in takers)


def _takers(value: ir.Value) -> list[ir.Node]:
    return list(dict.fromkeys(node for node, _ in value.uses()))


def _size(value: ir.Value) -> int:
    count = 1
    for size in edits.shape_of(value) or ():
        count *= size
    return count


def _regions(model: ir.Model) -> Iterator[Region]:
    """Yield every region that a Transpose leads into, or comes out of."""
    opset, seen = edits.opset_of(model), set[tuple[ir.Node, Order]]()
    for node in edits.nodes_of(model, "Transpose"):
        order, source = order_of(node), node.inputs[0]
        if order is None or source is None:
            continue
        seeds = [(each, order) for each in _takers(node.outputs[0])]
        if (maker := source.producer()) is not None and keeps_rank(maker):
            seeds.append((maker, inverse(order)))
        for seed, order_of_it in seeds:
            if (seed, order_of_it) not in seen and takes(seed, order_of_it, opset):
                region = _grown(seed, order_of_it, opset)
                seen.update((each, order_of_it) for each in region.nodes)
                yield region


def _grown(seed: ir.Node, order: Order, opset: int) -> Region:
    """Return the region around a node."""
    found, waiting = {seed}, [seed]
    while waiting:
        node = waiting.pop()
        makers = [maker for value in flows(node) if (maker := value.producer()) is not None and keeps_rank(maker)]
        takers = [
            each
            for value in (node.outputs if keeps_rank(node) else ())
            for each in _takers(value)
            if value in flows(each)
        ]
        for each in (*makers, *takers):
            if each not in found and each.graph is seed.graph and takes(each, order, opset):
                found.add(each)
                waiting.append(each)
    return Region(nodes=tuple(node for node in seed.graph or () if node in found), order=order)


def _worth(model: ir.Model) -> Region | None:
    """Return a region that is worth to be turned."""
    return next((each for each in _regions(model) if (gain := each.gain())[0] > 0 and gain[1] >= 0), None)


def _joinable(model: ir.Model) -> ir.Node | None:
    """Return a Transpose that changes nothing, or comes behind another."""
    for node in edits.nodes_of(model, "Transpose"):
        order, source = order_of(node), node.inputs[0]
        if order is not None and source is not None and (is_plain(order) or order_of(source.producer()) is not None):
            return node
    return None


def _join(model: ir.Model, node: ir.Node) -> None:
    """Take a Transpose and the one before it as one, or as none."""
    order, source = order_of(node), node.inputs[0]
    assert order is not None  # noqa: S101 - _joinable found it
    assert source is not None  # noqa: S101
    before = source.producer()
    if not is_plain(order) and before is not None and (first := order_of(before)) is not None:
        order, source = chain(first, order), before.inputs[0]
    assert source is not None  # noqa: S101 - a Transpose takes something
    graft, given = Graft(node, edits.opset_of(model)), node.outputs[0]
    maker = source.producer()
    if not is_plain(order):
        graft.replace(graft.op("Transpose", source, perm=list(order)))
    elif given.is_graph_output() and maker is not None and maker.graph is node.graph and not source.is_graph_output():
        given.replace_all_uses_with(source, replace_graph_outputs=True)
        source.name, source.type, source.shape = given.name, given.type or source.type, given.shape or source.shape
        graph = node.graph
        assert graph is not None  # noqa: S101 - it was found in one
        graph.remove(node, safe=True)
    else:
        graft.replace(source)
    _drop(before)


def _drop(node: ir.Node | None) -> None:
    """Take a Transpose out that nobody uses."""
    if node is not None and node.graph is not None and order_of(node) is not None:
        value = node.outputs[0]
        if not value.uses() and not value.is_graph_output():
            node.graph.remove(node, safe=True)


def _rewrite(model: ir.Model, given: Given) -> list[str]:
    if given.options:
        raise Unsuitable(f"channels_first: it takes no options, got {sorted(given.options)}")
    RemoveUnusedNodesPass()(model)
    changed: list[str] = []
    for _round in range(ROUNDS):
        more = _pass(model)
        if not more:
            break
        changed += more
        edits.tidy(model)
    return list(dict.fromkeys(changed))


def _pass(model: ir.Model) -> list[str]:
    """Join and turn until nothing is left to be gained; return the names of the nodes.

    Each turn takes a Transpose away at least: there are no more turns than Transposes.
    """
    changed: list[str] = []
    for _turn in range(len(edits.nodes_of(model, "Transpose")) + 1):
        while (node := _joinable(model)) is not None:
            changed.append(node.name or "Transpose")
            _join(model, node)
        region = _worth(model)
        if region is None:
            break
        changed += [node.name or node.op_type for node in region.nodes]
        turned: dict[ir.Value, ir.Value] = {}
        for node in region.nodes:
            turn(Graft(node, edits.opset_of(model)), region.order, turned)
        RemoveUnusedNodesPass()(model)
    return changed


def _left(model: ir.Model) -> str:
    node = _joinable(model)
    if node is not None:
        return f"{edits.call(node)} is not needed"
    region = _worth(model)
    return f"{edits.call(region.nodes[0])} stands between Transposes that are not needed" if region else ""


REWRITES = (
    Rewrite(
        name="channels_first",
        summary="Transposes between channels first and last taken away where what is between them can be turned",
        requires=always,
        rewrite=_rewrite,
        ensures=_left,
    ),
)
