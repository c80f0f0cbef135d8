"""Trigonometric and hyperbolic functions by what every runtime has."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from runtimes.reference.expansion import Graft, expansion, given

ATAN = (
    *(-0.00405448859, 0.0218626879, -0.0559119588, 0.0964217199),
    *(-0.139086203, 0.199465639, -0.333298606, 0.999999336),
)
"""Coefficients of P in atan(x) = x P(x²), |x| <= 1: a minimax fit, off by 3.8e-8 where computed exactly."""


def atan(graft: Graft, value: ir.Value) -> ir.Value:
    """Return atan of `value`, off by 3e-7 at most in float32."""
    size = graft.op("Abs", value)
    # 1 / x where x is above 1, without a branch that divides by 0.
    small = graft.op("Div", graft.op("Clip", size, 0.0, 1.0), graft.op("Max", size, 1.0))
    near = graft.op("Mul", small, graft.horner(graft.op("Mul", small, small), ATAN))
    far = graft.op("Add", graft.op("Neg", near), math.pi / 2)
    angle = graft.op("Where", graft.op("Greater", size, 1.0), far, near)
    return graft.op("Where", graft.op("Less", value, 0.0), graft.op("Neg", angle), angle)


def _asin(graft: Graft, value: ir.Value) -> ir.Value:
    one = graft.scalar(1.0, value.dtype)
    cosine = graft.op("Sqrt", graft.op("Mul", graft.op("Sub", one, value), graft.op("Add", value, one)))
    return graft.op("Mul", atan(graft, graft.op("Div", value, graft.op("Add", cosine, one))), 2.0)


def _acos(graft: Graft, value: ir.Value) -> ir.Value:
    return graft.op("Add", graft.op("Neg", _asin(graft, value)), math.pi / 2)


def _halves(graft: Graft, value: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return exp(x) / 2 and exp(-x) / 2, which overflow no sooner than sinh and cosh do."""
    half = graft.op("Mul", value, 0.5)
    rising, falling = graft.op("Exp", half), graft.op("Exp", graft.op("Neg", half))
    return tuple(graft.op("Mul", graft.op("Mul", each, 0.5), each) for each in (rising, falling))  # type: ignore[return-value]


def _sinh(graft: Graft, value: ir.Value) -> ir.Value:
    return graft.op("Sub", *_halves(graft, value))


def _cosh(graft: Graft, value: ir.Value) -> ir.Value:
    return graft.op("Add", *_halves(graft, value))


def _tan(graft: Graft, value: ir.Value) -> ir.Value:
    return graft.op("Div", graft.op("Sin", value), graft.op("Cos", value))


def _asinh(graft: Graft, value: ir.Value) -> ir.Value:
    size = graft.op("Abs", value)
    root = graft.op("Sqrt", graft.op("Add", graft.op("Mul", size, size), 1.0))
    result = graft.op("Log", graft.op("Add", size, root))
    return graft.op("Where", graft.op("Less", value, 0.0), graft.op("Neg", result), result)


def _acosh(graft: Graft, value: ir.Value) -> ir.Value:
    root = graft.op("Sqrt", graft.op("Mul", graft.op("Sub", value, 1.0), graft.op("Add", value, 1.0)))
    return graft.op("Log", graft.op("Add", value, root))


def _atanh(graft: Graft, value: ir.Value) -> ir.Value:
    one = graft.scalar(1.0, value.dtype)
    ratio = graft.op("Div", graft.op("Add", value, one), graft.op("Sub", one, value))
    return graft.op("Mul", graft.op("Log", ratio), 0.5)


FORMULAS: dict[str, Callable[[Graft, ir.Value], ir.Value]] = {
    "Acos": _acos,
    "Acosh": _acosh,
    "Asin": _asin,
    "Asinh": _asinh,
    "Atanh": _atanh,
    "Cosh": _cosh,
    "Sinh": _sinh,
    "Tan": _tan,
}
"""By op type; near 0 they keep the absolute, not the relative accuracy of float32."""

REWRITES = (
    expansion(
        name="atan_to_polynomial",
        summary="Atan by a polynomial, off by 3e-7 at most",
        ops=["Atan"],
        build=lambda graft, node: atan(graft, given(node, 0)),
    ),
    expansion(
        name="decompose_trigonometry",
        summary="Acos, Acosh, Asin, Asinh, Atanh, Cosh, Sinh and Tan by Exp, Log, Sqrt, Sin, Cos and arithmetic",
        ops=list(FORMULAS),
        build=lambda graft, node: FORMULAS[node.op_type](graft, given(node, 0)),
    ),
)
