"""Activations written out, and the guard of the SiLU."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from runtimes.reference.expansion import Graft, attribute, expansion, given

ERF = (2.66674928, -6.2763135, 5.87936205, -2.56294176, -0.0472025532, 1.64424771, 1.12837971)
"""Coefficients of P in erf(x) = tanh(x P(x²/16)), |x| <= 4: a minimax fit, off by 5.8e-8 where computed exactly."""

SCALED_TANH = math.sqrt(2 / math.pi)


def _squashed(node: ir.Node) -> ir.Value | None:
    """Return x of a Mul that is x · Sigmoid(x), or None."""
    first, second = node.inputs
    for value, gate in ((first, second), (second, first)):
        producer = gate.producer() if gate is not None else None
        if producer is not None and producer.op_type == "Sigmoid" and producer.inputs[0] is value:
            return value
    return None


def _after_conv(node: ir.Node) -> bool:
    value = _squashed(node)
    producer = None if value is None else value.producer()
    if producer is not None and producer.op_type == "BatchNormalization":
        before = producer.inputs[0]
        producer = None if before is None else before.producer()
    return producer is not None and producer.op_type in {"Conv", "ConvTranspose"}


def _guard(graft: Graft, node: ir.Node) -> ir.Value:
    value = _squashed(node)
    gate = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
    # A sigmoid is never below 0, so a Relu behind it changes no bit.
    return graft.op("Mul", value, graft.op("Relu", gate))


def erf(graft: Graft, value: ir.Value) -> ir.Value:
    """Return erf of `value`: in float32 off by 1.4e-7 and by what Tanh is off (ONNX Runtime 2.5e-7); float16 7e-4."""
    quarter = graft.op("Mul", value, 0.25)
    square = graft.op("Clip", graft.op("Mul", quarter, quarter), 0.0, 1.0)
    return graft.op("Tanh", graft.op("Mul", value, graft.horner(square, ERF)))


def softplus(graft: Graft, value: ir.Value) -> ir.Value:
    """Return log(1 + exp(value)), without overflow."""
    rest = graft.op("Exp", graft.op("Neg", graft.op("Abs", value)))
    return graft.op("Add", graft.op("Relu", value), graft.op("Log", graft.op("Add", rest, 1.0)))


def _sigmoid(graft: Graft, node: ir.Node) -> ir.Value:
    """Return the Sigmoid by powers of e that never exceed 1: where it is near 0, it keeps all of its digits."""
    value = given(node, 0)
    above = graft.op("Exp", graft.op("Min", value, 0.0))
    return graft.op("Div", above, graft.op("Add", graft.op("Exp", graft.op("Neg", graft.op("Abs", value))), 1.0))


def _gelu(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    if attribute(node, "approximate", "none") == "tanh":
        square = graft.op("Mul", value, value)
        factor = graft.op("Add", graft.op("Mul", square, 0.044715 * SCALED_TANH), SCALED_TANH)
        inner = graft.op("Tanh", graft.op("Mul", value, factor))
    else:
        inner = graft.op("Erf", graft.op("Mul", value, math.sqrt(0.5)))
    return graft.op("Mul", graft.op("Mul", value, 0.5), graft.op("Add", inner, 1.0))


def _exponential(graft: Graft, value: ir.Value, alpha: float, width: float = 1.0) -> ir.Value:
    """Return x where it is positive, else alpha (exp(x / width) - 1)."""
    low = graft.op("Neg", graft.op("Relu", graft.op("Neg", value)))
    if width != 1.0:
        low = graft.op("Div", low, width)
    below = graft.op("Mul", graft.op("Sub", graft.op("Exp", low), 1.0), alpha)
    return graft.op("Add", graft.op("Relu", value), below)


def _elu(graft: Graft, node: ir.Node) -> ir.Value:
    return _exponential(graft, given(node, 0), attribute(node, "alpha", 1.0))


def _celu(graft: Graft, node: ir.Node) -> ir.Value:
    alpha = attribute(node, "alpha", 1.0)
    return _exponential(graft, given(node, 0), alpha, alpha)


def _selu(graft: Graft, node: ir.Node) -> ir.Value:
    alpha = attribute(node, "alpha", 1.67326319217681884765625)
    return graft.op(
        "Mul", _exponential(graft, given(node, 0), alpha), attribute(node, "gamma", 1.05070102214813232421875)
    )


def _mish(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    return graft.op("Mul", value, graft.op("Tanh", softplus(graft, value)))


def _shrink(graft: Graft, node: ir.Node) -> ir.Value:
    value, bias, edge = given(node, 0), attribute(node, "bias", 0.0), attribute(node, "lambd", 0.5)
    zero = graft.scalar(0.0, value.dtype)
    above = graft.op("Where", graft.op("Greater", value, edge), graft.op("Sub", value, bias), zero)
    return graft.op("Where", graft.op("Less", value, -edge), graft.op("Add", value, bias), above)


def _thresholded(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    above = graft.op("Greater", value, attribute(node, "alpha", 1.0))
    return graft.op("Where", above, value, graft.scalar(0.0, value.dtype))


def _softsign(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    return graft.op("Div", value, graft.op("Add", graft.op("Abs", value), 1.0))


def _gate(graft: Graft, value: ir.Value, alpha: float, beta: float) -> ir.Value:
    return graft.op("Clip", graft.op("Add", graft.op("Mul", value, alpha), beta), 0.0, 1.0)


def _hard_sigmoid(graft: Graft, node: ir.Node) -> ir.Value:
    return _gate(graft, given(node, 0), attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5))


def _hard_swish(graft: Graft, node: ir.Node) -> ir.Value:
    return graft.op("Mul", given(node, 0), _gate(graft, given(node, 0), 1 / 6, 0.5))


FORMULAS: dict[str, Callable[[Graft, ir.Node], ir.Value]] = {
    "Celu": _celu,
    "Elu": _elu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Mish": _mish,
    "Selu": _selu,
    "Shrink": _shrink,
    "Softplus": lambda graft, node: softplus(graft, given(node, 0)),
    "Softsign": _softsign,
    "ThresholdedRelu": _thresholded,
}
"""By op type: the activation in Exp, Log, Tanh, Relu, Clip, Where and arithmetic."""

REWRITES = (
    expansion(
        name="guard_silu",
        summary="a Relu behind the Sigmoid of x · Sigmoid(x) after a Conv, so that HTP does not fuse the three",
        ops=["Mul"],
        picks=_after_conv,
        build=_guard,
    ),
    expansion(
        name="decompose_gelu",
        summary="Gelu by Erf, or by Tanh where it asks for that approximation",
        ops=["Gelu"],
        build=_gelu,
    ),
    expansion(
        name="erf_to_polynomial",
        summary="Erf by a Tanh of a polynomial, off by 3e-7 at most",
        ops=["Erf"],
        build=lambda graft, node: erf(graft, given(node, 0)),
    ),
    expansion(
        name="sigmoid_to_exp",
        summary="Sigmoid by Exp, for an HTP whose own is a multiple of 2^-11",
        ops=["Sigmoid"],
        build=_sigmoid,
    ),
    expansion(
        name="decompose_activation",
        summary="Celu, Elu, HardSigmoid, HardSwish, Mish, Selu, Shrink, Softplus, Softsign and ThresholdedRelu in full",
        ops=list(FORMULAS),
        build=lambda graft, node: FORMULAS[node.op_type](graft, node),
    ),
)
