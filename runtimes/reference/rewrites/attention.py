"""Attention and rotary embeddings, each one node since opset 23, by MatMul, Softmax and arithmetic."""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.expansion import Graft, attribute, expansion, given, open_shape, static, type_of, used

LEAST = -1e4
"""What is added to a score that does not count: its exponential is 0, and float16 holds it."""

Shape = tuple[int, ...]


def _heads(graft: Graft, value: ir.Value, count: int) -> ir.Value:
    """Return `[batch, heads, length, size]`, of that or of `[batch, length, heads * size]`."""
    shape = static(value)
    if len(shape) == 4:
        return value
    batch, length, width = shape
    return graft.transpose(graft.reshape(value, [batch, length, count, width // count]), [0, 2, 1, 3])


def _sizes(node: ir.Node) -> tuple[Shape, Shape, int]:
    """Return the shapes of query and value as `[batch, heads, length, size]`, and how many keys lie in the past."""

    def split(number: int, count: int) -> Shape:
        shape = static(given(node, number))
        return shape if len(shape) == 4 else (shape[0], count, shape[1], shape[2] // count)

    past = edits.taken(node, 4)
    query = split(0, attribute(node, "q_num_heads", 1))
    value = split(2, attribute(node, "kv_num_heads", 1))
    return query, value, 0 if past is None else static(past)[2]


def _scores(graft: Graft, node: ir.Node, query: ir.Value, key: ir.Value) -> ir.Value:
    """Return the scores `[batch, heads, length, keys]`, not yet masked."""
    (batch, heads, length, size), (_, groups, _, _), _ = _sizes(node)
    scaled = graft.op("Mul", query, attribute(node, "scale", None) or 1 / sqrt(size))
    # Heads that share a key are rows of one product.
    rows = graft.reshape(scaled, [batch, groups, heads // groups * length, size])
    product = graft.op("MatMul", rows, graft.op("Transpose", key, perm=[0, 1, 3, 2]))
    total = _total(node)
    scores = graft.reshape(product, [batch, heads, length, total])
    cap = attribute(node, "softcap", 0.0)
    return graft.op("Mul", graft.op("Tanh", graft.op("Div", scores, cap)), cap) if cap else scores


def _total(node: ir.Node) -> int:
    _, value, past = _sizes(node)
    return value[2] + past


def _attention(graft: Graft, node: ir.Node) -> list[ir.Value | None]:
    query = _heads(graft, given(node, 0), attribute(node, "q_num_heads", 1))
    key, value = (_heads(graft, given(node, number), attribute(node, "kv_num_heads", 1)) for number in (1, 2))
    if edits.taken(node, 4) is not None:
        key = graft.op("Concat", given(node, 4), key, axis=2)
        value = graft.op("Concat", given(node, 5), value, axis=2)
    (batch, heads, length, _), (_, groups, _, value_size), past = _sizes(node)
    scores, total = _scores(graft, node, query, key), _total(node)
    dtype, mask = type_of(query), edits.taken(node, 3)
    if attribute(node, "is_causal", 0):
        seen = np.tri(length, total, past, dtype=np.bool_)
        scores = graft.op("Add", scores, graft.constant(np.where(seen, 0, LEAST), dtype.numpy()))
    truths = mask is not None and mask.dtype == ir.DataType.BOOL
    if mask is not None:
        none = graft.scalar(0, dtype)
        bias = graft.op("Where", mask, none, graft.scalar(LEAST, dtype)) if truths else mask
        scores = graft.op("Add", scores, bias)
    wide = ir.DataType(attribute(node, "softmax_precision", 0) or dtype)
    shares = graft.cast(graft.softmax(graft.cast(scores, wide)), dtype)
    if truths:
        # A row that attends to nothing gives nothing.
        shares = graft.op("Where", mask, shares, graft.scalar(0, dtype))
    rows = graft.reshape(shares, [batch, groups, heads // groups * length, total])
    made = graft.reshape(graft.op("MatMul", rows, value), [batch, heads, length, value_size])
    if len(static(given(node, 0))) == 3:
        made = graft.reshape(graft.transpose(made, [0, 2, 1, 3]), [batch, length, heads * value_size])
    return [made, key, value, None][: len(node.outputs)]


def _obstacle_of_attention(node: ir.Node) -> str:
    why = open_shape(node, *range(6))
    if why:
        return why
    mask = edits.taken(node, 3)
    reasons = {
        "its scores are used": used(node, 3),
        "its keys have lengths of their own": edits.taken(node, 6) is not None,
        "its mask is shorter than its keys": mask is not None and static(mask)[-1] not in {1, _total(node)},
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _rotary(graft: Graft, node: ir.Node) -> ir.Value:
    value, shape = given(node, 0), static(given(node, 0))
    flat = len(shape) == 3
    if flat:
        count = attribute(node, "num_heads", 1)
        value = graft.reshape(value, [*shape[:2], count, shape[2] // count])
    sizes = static(value)
    width = attribute(node, "rotary_embedding_dim", 0) or sizes[3]
    turned, *rest = graft.split(value, [width, sizes[3] - width], 3) if width < sizes[3] else [value]
    angles = []
    for number in (1, 2):
        cache = given(node, number)
        if edits.taken(node, 3) is not None:
            cache = graft.op("Gather", cache, given(node, 3), axis=0)
        # The heads come before the tokens in four dimensions, and behind them in three.
        angles.append(graft.unsqueeze(cache, 2 if flat else 1))
    cosine, sine = angles
    first, second = _pair(graft, turned, [*sizes[:3], width], bool(attribute(node, "interleaved", 0)))
    real = graft.op("Sub", graft.op("Mul", cosine, first), graft.op("Mul", sine, second))
    imaginary = graft.op("Add", graft.op("Mul", sine, first), graft.op("Mul", cosine, second))
    if attribute(node, "interleaved", 0):
        pairs = [graft.unsqueeze(each, 4) for each in (real, imaginary)]
        made = graft.reshape(graft.op("Concat", *pairs, axis=4), [*sizes[:3], width])
    else:
        made = graft.op("Concat", real, imaginary, axis=3)
    if rest:
        made = graft.op("Concat", made, *rest, axis=3)
    return graft.reshape(made, shape)


def _pair(graft: Graft, value: ir.Value, shape: list[int], interleaved: bool) -> tuple[ir.Value, ir.Value]:
    half = shape[3] // 2
    if not interleaved:
        first, second = graft.split(value, [half, half], 3)
        return first, second
    first, second = graft.split(graft.reshape(value, [*shape[:3], half, 2]), [1, 1], 4)
    return graft.reshape(first, [*shape[:3], half]), graft.reshape(second, [*shape[:3], half])


REWRITES = (
    expansion(
        name="decompose_attention",
        summary="Attention by MatMul, Softmax and arithmetic",
        ops=["Attention"],
        build=_attention,
        obstacle=_obstacle_of_attention,
    ),
    expansion(
        name="decompose_rotary_embedding",
        summary="RotaryEmbedding by Split, Concat and arithmetic",
        ops=["RotaryEmbedding"],
        build=_rotary,
        obstacle=lambda node: open_shape(node, 0),
    ),
)
