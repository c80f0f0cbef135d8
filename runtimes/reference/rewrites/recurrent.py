"""Recurrent layers step by step, for runtimes that lack them or give wrong numbers for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from runtimes.kit.tensors import Array
from runtimes.reference import edits
from runtimes.reference.expansion import Graft, attribute, expansion, given, open_shape, static, used

STEPS_MOST = 512
"""The longest sequence that is written out: every step is about ten nodes."""

ACTIVATIONS = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}
KNOWN = frozenset({"Relu", "Sigmoid", "Tanh"})
"""Activations that need no numbers of their own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
    """One direction of a layer.

    Attributes:
        steps: for each step in the order of the pass, what the input adds to the gates: `[batch, gates * hidden]`.
        recurrent: `[hidden, gates * hidden]`, the gates in ONNX's order.
        recurrent_bias: `[gates * hidden]`; for a GRU's hidden gate where that is reset after the product.
        functions: the activations.
        state: the hidden state to start from, `[batch, hidden]`.
        cell: the same for an LSTM's cell.
    """

    steps: list[ir.Value]
    recurrent: Array
    recurrent_bias: Array
    functions: list[str]
    state: ir.Value
    cell: ir.Value


def _directions(node: ir.Node) -> list[bool]:
    """Return for each direction whether it runs backwards."""
    return {"forward": [False], "reverse": [True]}.get(attribute(node, "direction", "forward"), [False, True])


def _functions(node: ir.Node, index: int) -> list[str]:
    names = list(attribute(node, "activations", [])) or ACTIVATIONS[node.op_type] * len(_directions(node))
    count = len(ACTIVATIONS[node.op_type])
    return [str(name) for name in names[index * count : (index + 1) * count]]


def _held(node: ir.Node, number: int) -> Array:
    return np.asarray(edits.constant_of(given(node, number)))


def _start(graft: Graft, node: ir.Node, number: int, index: int) -> ir.Value:
    """Return the state that direction `index` starts from."""
    _, batch, _ = static(given(node, 0))
    hidden = _held(node, 2).shape[-1]
    value = edits.taken(node, number)
    if value is None:
        return graft.constant(np.zeros((batch, hidden), _held(node, 2).dtype))
    held = edits.constant_of(value)
    if held is not None:
        return graft.constant(held[index])
    if len(_directions(node)) > 1:
        value = graft.slice(value, index, index + 1, 0)
    return graft.reshape(value, [batch, hidden])


def _pass(graft: Graft, node: ir.Node, index: int, rows: ir.Value) -> Pass:
    length, batch, _ = static(given(node, 0))
    weight, recurrent = _held(node, 1)[index], _held(node, 2)[index]
    count, hidden = recurrent.shape
    both = _held(node, 3)[index] if edits.taken(node, 3) is not None else np.zeros(2 * count, weight.dtype)
    bias, recurrent_bias = both[:count].copy(), both[count:].copy()
    if node.op_type == "GRU" and attribute(node, "linear_before_reset", 0):
        bias[: 2 * hidden] += recurrent_bias[: 2 * hidden]
    else:
        bias += recurrent_bias
    product = graft.op("MatMul", rows, graft.constant(np.ascontiguousarray(weight.T)))
    steps = list(graft.split(graft.op("Add", product, graft.constant(bias)), [batch] * length, 0))
    return Pass(
        steps=steps[::-1] if _directions(node)[index] else steps,
        recurrent=np.ascontiguousarray(recurrent.T),
        recurrent_bias=recurrent_bias,
        functions=_functions(node, index),
        state=_start(graft, node, 5, index),
        cell=_start(graft, node, 6, index) if node.op_type == "LSTM" else rows,
    )


def _rnn(graft: Graft, one: Pass) -> tuple[list[ir.Value], ir.Value]:
    matrix, state, states = graft.constant(one.recurrent), one.state, []
    for step in one.steps:
        state = graft.op(one.functions[0], graft.op("Add", step, graft.op("MatMul", state, matrix)))
        states.append(state)
    return states, state


def _lstm(graft: Graft, one: Pass) -> tuple[list[ir.Value], ir.Value]:
    matrix, state, cell, states = graft.constant(one.recurrent), one.state, one.cell, []
    hidden = len(one.recurrent)
    gate, inner, outer = one.functions
    for step in one.steps:
        total = graft.op("Add", step, graft.op("MatMul", state, matrix))
        # ONNX's order of gates: input, output, forget; then the cell.
        gates, candidate = graft.split(total, [3 * hidden, hidden], 1)
        taken, given_out, kept = graft.split(graft.op(gate, gates), [hidden] * 3, 1)
        new = graft.op("Mul", taken, graft.op(inner, candidate))
        cell = graft.op("Add", graft.op("Mul", kept, cell), new)
        state = graft.op("Mul", given_out, graft.op(outer, cell))
        states.append(state)
    return states, cell


def _gru(graft: Graft, one: Pass, *, reset_after: bool) -> tuple[list[ir.Value], ir.Value]:
    state, states, hidden = one.state, [], len(one.recurrent)
    gates_matrix = graft.constant(np.ascontiguousarray(one.recurrent[:, : 2 * hidden]))
    matrix = graft.constant(np.ascontiguousarray(one.recurrent[:, 2 * hidden :]))
    bias = graft.constant(one.recurrent_bias[2 * hidden :])
    gate, inner = one.functions
    for step in one.steps:
        # ONNX's order of gates: update, reset; then the hidden one.
        step_gates, step_hidden = graft.split(step, [2 * hidden, hidden], 1)
        gates = graft.op(gate, graft.op("Add", step_gates, graft.op("MatMul", state, gates_matrix)))
        update, reset = graft.split(gates, [hidden, hidden], 1)
        if reset_after:
            linear = graft.op("Add", graft.op("MatMul", state, matrix), bias)
            recurrent = graft.op("Mul", reset, linear)
        else:
            recurrent = graft.op("MatMul", graft.op("Mul", reset, state), matrix)
        new = graft.op(inner, graft.op("Add", step_hidden, recurrent))
        state = graft.op("Add", graft.op("Mul", update, graft.op("Sub", state, new)), new)
        states.append(state)
    return states, state


def _unrolled(graft: Graft, node: ir.Node) -> list[ir.Value | None]:
    length, batch, width = static(given(node, 0))
    hidden = _held(node, 2).shape[-1]
    rows = graft.reshape(given(node, 0), [length * batch, width])
    sequences, lasts, cells = [], [], []
    run: Callable[[Graft, Pass], tuple[list[ir.Value], ir.Value]] = {"LSTM": _lstm, "RNN": _rnn}.get(
        node.op_type,
        lambda graft, one: _gru(graft, one, reset_after=bool(attribute(node, "linear_before_reset", 0))),
    )
    for index, backwards in enumerate(_directions(node)):
        states, cell = run(graft, _pass(graft, node, index, rows))
        lasts.append(graft.reshape(states[-1], [1, batch, hidden]))
        cells.append(graft.reshape(cell, [1, batch, hidden]))
        ordered = states[::-1] if backwards else states
        sequence = graft.op("Concat", *ordered, axis=0)
        sequences.append(graft.reshape(sequence, [length, 1, batch, hidden]))
    made = [(sequences, 1), (lasts, 0), (cells, 0)][: len(node.outputs)]
    return [_joined(graft, values, axis) if used(node, number) else None for number, (values, axis) in enumerate(made)]


def _joined(graft: Graft, values: list[ir.Value], axis: int) -> ir.Value:
    return graft.op("Concat", *values, axis=axis) if len(values) > 1 else values[0]


def _obstacle(node: ir.Node) -> str:
    why = open_shape(node, 0)
    if why:
        return why
    length = static(given(node, 0))[0]
    weights = [edits.constant_of(edits.taken(node, number)) for number in (1, 2)]
    bias, lengths = (edits.constant_of(edits.taken(node, number)) for number in (3, 4))
    own = edits.taken(node, 4) is not None and (lengths is None or bool((lengths != length).any()))
    functions = [name for index, _ in enumerate(_directions(node)) for name in _functions(node, index)]
    reasons = {
        f"it has {length} steps, more than {STEPS_MOST}": length > STEPS_MOST,
        "its batch comes first (layout 1)": attribute(node, "layout", 0),
        "it clips its gates": attribute(node, "clip", None) is not None,
        "it couples its gates": attribute(node, "input_forget", 0),
        "its weights are no constants": any(held is None for held in weights),
        "its bias is no constant": edits.taken(node, 3) is not None and bias is None,
        "its sequences have lengths of their own": own,
        "it has peepholes": edits.taken(node, 7) is not None,
        f"its activations are {functions}": not KNOWN.issuperset(functions),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


REWRITES = (
    expansion(
        name="unroll_recurrent",
        summary="LSTM, GRU and RNN of a fixed length, step by step in MatMul, Split, Sigmoid, Tanh and arithmetic",
        ops=list(ACTIVATIONS),
        build=_unrolled,
        obstacle=_obstacle,
    ),
)
