"""Operators of single elements that runtimes lack, by comparisons and arithmetic."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import reduce

import numpy as np
import onnx_ir as ir

from runtimes.reference import edits, retyping
from runtimes.reference.expansion import Graft, attribute, expansion, given, integers_of, static, type_of
from runtimes.reference.rewrites import Given, Unsuitable
from runtimes.reference.rewrites.integers import HEADROOM, LARGEST

_NARROW = frozenset({"BOOL", "INT8", "INT16", "UINT8", "UINT16"})
"""Types all of whose numbers int32 holds."""

_POWERS = frozenset({0.5, *map(float, range(1, 9))})
"""Exponents for which Mul or Sqrt gives the same as Pow."""


def _isnan(graft: Graft, node: ir.Node) -> ir.Value:
    # Nothing but a NaN differs from itself.
    return graft.op("Not", graft.op("Equal", given(node, 0), given(node, 0)))


def _isinf(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    most = float(np.finfo(type_of(value).numpy()).max)
    above, below = graft.op("Greater", value, most), graft.op("Less", value, -most)
    positive, negative = attribute(node, "detect_positive", 1), attribute(node, "detect_negative", 1)
    if positive and negative:
        return graft.op("Greater", graft.op("Abs", value), most)
    if positive or negative:
        return above if positive else below
    return graft.op("And", above, below)


def _mod(graft: Graft, node: ir.Node) -> ir.Value:
    value, divisor = given(node, 0), given(node, 1)
    if type_of(value).is_floating_point():
        return _float_mod(graft, value, divisor)
    # Div of integers drops the fraction, so what is left has the sign of the dividend.
    rest = graft.op("Sub", value, graft.op("Mul", graft.op("Div", value, divisor), divisor))
    if attribute(node, "fmod", 0) or not type_of(value).is_signed():
        return rest
    again = graft.op("Add", rest, divisor)
    return graft.op("Sub", again, graft.op("Mul", graft.op("Div", again, divisor), divisor))


def _float_mod(graft: Graft, value: ir.Value, divisor: ir.Value) -> ir.Value:
    """Return fmod: the rest has the sign of the dividend."""
    size, step = graft.op("Abs", value), graft.op("Abs", divisor)
    rest = graft.op("Sub", size, graft.op("Mul", graft.op("Floor", graft.op("Div", size, step)), step))
    # A quotient that was rounded up leaves a rest below 0.
    zero = graft.scalar(0.0, value.dtype)
    rest = graft.op("Add", rest, graft.op("Where", graft.op("Less", rest, zero), step, zero))
    # An infinite divisor, and all others above the dividend, leave it as it is.
    rest = graft.op("Where", graft.op("Less", size, step), size, rest)
    return graft.op("Where", graft.op("Less", value, zero), graft.op("Neg", rest), rest)


def _obstacle_of_mod(node: ir.Node) -> str:
    dtype = given(node, 0).dtype
    if dtype is None:
        return "its type is unknown"
    if dtype.is_floating_point() or dtype.name in {"INT32", "INT64", "UINT32", "UINT64"}:
        return ""
    return f"arithmetic in {dtype.name} is rare in runtimes"


def _or(graft: Graft, node: ir.Node) -> ir.Value:
    return graft.op("Not", graft.op("And", *(graft.op("Not", given(node, number)) for number in (0, 1))))


def _xor(graft: Graft, node: ir.Node) -> ir.Value:
    both = graft.op("And", given(node, 0), given(node, 1))
    return graft.op("And", _or(graft, node), graft.op("Not", both))


def _sign(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    zero = graft.scalar(0, value.dtype)
    above = graft.cast(graft.op("Greater", value, zero), type_of(value))
    return graft.op("Sub", above, graft.cast(graft.op("Less", value, zero), type_of(value)))


def _ceil(graft: Graft, node: ir.Node) -> ir.Value:
    return graft.op("Neg", graft.op("Floor", graft.op("Neg", given(node, 0))))


def _min(graft: Graft, node: ir.Node) -> ir.Value:
    if len(node.inputs) == 1:
        return given(node, 0)
    return graft.op("Neg", graft.op("Max", *(graft.op("Neg", value) for value in node.inputs)))


def _mean(graft: Graft, node: ir.Node) -> ir.Value:
    values = [given(node, number) for number in range(len(node.inputs))]
    total = reduce(lambda left, right: graft.op("Add", left, right), values)
    return graft.op("Mul", total, 1 / len(values))


FORMULAS: dict[str, Callable[[Graft, ir.Node], ir.Value]] = {
    "Ceil": _ceil,
    "Mean": _mean,
    "Min": _min,
    "Or": _or,
    "Sign": _sign,
    "Xor": _xor,
}


def _obstacle(node: ir.Node) -> str:
    dtype = given(node, 0).dtype
    if dtype is None:
        return "its type is unknown"
    if node.op_type in {"Min", "Sign"} and not (dtype.is_floating_point() or dtype.name in {"INT32", "INT64"}):
        return f"{dtype.name} has no negative numbers, or is too narrow for them"
    return ""


def _cast(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    if type_of(value).is_floating_point():
        # Two Casts in a row round to the nearest on HTP, where ONNX cuts off: so what they get is whole.
        above, below = (graft.op("Floor", graft.op("Relu", each)) for each in (value, graft.op("Neg", value)))
        value = graft.op("Sub", above, below)
    return graft.op("Cast", graft.op("Cast", value, to=int(ir.DataType.INT32)), to=int(ir.DataType.INT64))


def _to_long(node: ir.Node) -> bool:
    dtype = given(node, 0).dtype
    narrow = dtype is not None and dtype not in {ir.DataType.INT32, ir.DataType.INT64, ir.DataType.STRING}
    return attribute(node, "to", 0) == int(ir.DataType.INT64) and narrow


def _is_of_bytes(node: ir.Node) -> bool:
    to = ir.DataType(attribute(node, "to", 0))
    return given(node, 0).dtype == ir.DataType.UINT8 and to.is_floating_point()


def _cast_of_bytes(graft: Graft, node: ir.Node) -> ir.Value:
    return graft.cast(graft.cast(given(node, 0), ir.DataType.INT32), ir.DataType(attribute(node, "to", 0)))


def _cast_in_range(model: ir.Model, told: Given) -> list[str]:
    """Replace the Casts, unless what one of them takes may leave the range of int32.

    Raises:
        Unsuitable: it does on the samples, or comes near.
    """
    taken = {given(node, 0): node for node in edits.nodes_of(model, "Cast") if _to_long(node)}
    wide = [value for value, node in taken.items() if node.graph is model.graph and type_of(value).name not in _NARROW]
    sizes = retyping.largest_of(model, wide, told.samples)
    for value in wide:
        largest = max(sizes[value], default=0.0)
        if largest * HEADROOM > LARGEST:
            where = edits.call(taken[value])
            raise Unsuitable(f"{where}: it takes numbers up to {largest:.6g}, and int32 holds up to {LARGEST}")
    return _CAST.rewrite(model, told)


def _neg(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    return graft.op("Sub", graft.scalar(0, type_of(value)), value)


def _of_integers(node: ir.Node) -> bool:
    dtype = given(node, 0).dtype
    return dtype is not None and dtype.is_integer()


def _constant_first(node: ir.Node) -> bool:
    first, second = (edits.constant_of(value) is not None for value in node.inputs)
    return first and not second


def _is_power(node: ir.Node) -> bool:
    value, held = edits.taken(node, 0), edits.constant_of(edits.taken(node, 1))
    is_whole = value is not None and value.dtype is not None and not value.dtype.is_floating_point()
    is_one = held is not None and held.size == 1 and float(held.reshape(())) in _POWERS
    return is_one and not is_whole and not _of_a_norm(node)


def _of_a_norm(node: ir.Node) -> bool:
    """Tell whether HTP calculates the node and six behind it as one: x · (1 / √(mean(x²) + ε)) · weight, the last axis.

    That one is right, also where a square is above 65504. With Div, without a weight or over other axes it is seven.
    """
    chain = [node]
    for op_type in ("ReduceMean", "Add", "Sqrt", "Reciprocal", "Mul", "Mul"):
        users = [user for user, _ in chain[-1].outputs[0].uses()]
        if len(users) != 1 or users[0].op_type != op_type:
            return False
        chain.append(users[0])
    _, mean, _, _, _, scaled, weighed = chain
    axes = integers_of(edits.taken(mean, 1)) or list(attribute(mean, "axes", []))
    rank = edits.rank_of(node.inputs[0])
    last = rank is not None and axes in ([-1], [rank - 1])
    return (
        last
        and node.inputs[0] in scaled.inputs
        and any(edits.constant_of(value) is not None for value in weighed.inputs)
    )


def _obstacle_of_power(node: ir.Node) -> str:
    value, exponent = given(node, 0), given(node, 1)
    if value.dtype is None:
        return "its type is unknown"
    rank, other = edits.rank_of(value), edits.rank_of(exponent)
    # A scalar gives none, also where the rank of the other is unknown.
    fits = other == 0 or (rank is not None and other is not None and other <= rank)
    return "" if fits else "the exponent gives it dimensions, or may"


def _power(graft: Graft, node: ir.Node) -> ir.Value:
    value, held = given(node, 0), edits.constant_of(given(node, 1))
    exponent = 0.0 if held is None else float(held.reshape(()))
    if exponent == 0.5:
        # Of -infinity Pow gives infinity, and Sqrt none.
        return graft.op("Sqrt", value)
    if exponent == 1.0:
        return value
    square = graft.op("Mul", value, value)
    factors = [square] * int(exponent // 2) + [value] * int(exponent % 2)
    return reduce(lambda left, right: graft.op("Mul", left, right), factors)


def _spreads_both(node: ir.Node) -> bool:
    """Tell whether neither of two operands that are calculated has the shape of the result."""
    shapes = [edits.shape_of(value) for value in (*node.inputs, *node.outputs)]
    calculated = all(edits.constant_of(value) is None for value in node.inputs)
    return calculated and None not in shapes and shapes[-1] not in shapes[:-1]


def _expand_second(graft: Graft, node: ir.Node) -> ir.Value:
    wide = graft.op("Expand", given(node, 1), graft.integers(static(node.outputs[0])))
    return graft.op("Add", given(node, 0), wide)


_CAST = expansion(
    name="cast_through_int32",
    summary="Cast to int64 by way of int32, of floats cut off before; of numbers that int32 holds",
    ops=["Cast"],
    picks=_to_long,
    build=_cast,
)

REWRITES = (
    expansion(name="isnan_to_compare", summary="IsNaN(x) by x != x", ops=["IsNaN"], build=_isnan),
    expansion(
        name="isinf_to_compare",
        summary="IsInf by a comparison with the largest number of the type",
        ops=["IsInf"],
        build=_isinf,
    ),
    expansion(
        name="mod_to_arithmetic",
        summary="Mod by Div, Floor, Mul and Sub",
        ops=["Mod"],
        build=_mod,
        obstacle=_obstacle_of_mod,
    ),
    expansion(
        name="decompose_elementwise",
        summary="Ceil, Mean, Min, Or, Sign and Xor by Floor, Add, Max, Neg, And, Not, Greater and Less",
        ops=list(FORMULAS),
        build=lambda graft, node: FORMULAS[node.op_type](graft, node),
        obstacle=_obstacle,
    ),
    dataclasses.replace(_CAST, rewrite=_cast_in_range),
    expansion(
        name="constant_factor_last",
        summary="Mul with its constant as the second factor",
        ops=["Mul"],
        picks=_constant_first,
        build=lambda graft, node: graft.op("Mul", given(node, 1), given(node, 0)),
    ),
    expansion(
        name="cast_bytes_through_int32",
        summary="Cast of uint8 to floats by way of int32",
        ops=["Cast"],
        picks=_is_of_bytes,
        build=_cast_of_bytes,
    ),
    expansion(
        name="expand_operand",
        summary="Add of a column and a row, or the like, with one of them expanded to the result's shape before",
        ops=["Add"],
        picks=_spreads_both,
        build=_expand_second,
    ),
    expansion(
        name="power_to_mul",
        summary="Pow with an exponent of 0.5 or 1 to 8 by Sqrt or Mul, but in an RMS normalisation that HTP knows",
        ops=["Pow"],
        picks=_is_power,
        build=_power,
        obstacle=_obstacle_of_power,
    ),
    expansion(name="neg_to_sub", summary="Neg of integers by 0 - x", ops=["Neg"], picks=_of_integers, build=_neg),
)
