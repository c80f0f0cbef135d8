"""Operators that are linear in their input, by a product with a constant matrix."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from runtimes.kit.tensors import Array
from runtimes.reference import edits
from runtimes.reference.expansion import (
    Graft,
    attribute,
    expansion,
    given,
    integers_of,
    open_shape,
    static,
    type_of,
)

MATRIX_MOST = 2**22
"""The most elements of a matrix."""


def _base_grid(sizes: list[int], *, corners: bool) -> Array:
    """Return the places of all pixels from -1 to 1, x first, and a 1: `[axes + 1, pixels]`."""
    lines = [np.linspace(-1, 1, size) if corners else (2 * np.arange(size) + 1) / size - 1 for size in sizes]
    places = np.meshgrid(*lines, indexing="ij")[::-1]
    return np.stack([*places, np.ones_like(places[0])]).reshape(len(sizes) + 1, -1)


def _affine_grid(graft: Graft, node: ir.Node) -> ir.Value:
    theta = given(node, 0)
    batch, _, *sizes = integers_of(given(node, 1)) or []
    base = _base_grid(sizes, corners=bool(attribute(node, "align_corners", 0)))
    product = graft.op("MatMul", theta, graft.constant(base, type_of(theta).numpy()))
    return graft.reshape(graft.op("Transpose", product, perm=[0, 2, 1]), [batch, *sizes, len(sizes)])


def _obstacle_of_grid(node: ir.Node) -> str:
    sizes = integers_of(given(node, 1))
    if sizes is None:
        return "its size is no constant"
    # From corner to corner of one pixel: PyTorch says the middle, ONNX Runtime divides by 0.
    return "an axis of one pixel has no corners" if attribute(node, "align_corners", 0) and 1 in sizes[2:] else ""


def _resize_matrix(node: ir.Node, axis: int, opset: int) -> Array:
    """Return `[wanted, size]`: what ONNX Runtime itself makes of a 1 at each place of an axis."""
    import onnxruntime

    size, wanted = static(given(node, 0))[axis], static(node.outputs[0])[axis]
    scales = edits.constant_of(edits.taken(node, 2))
    by_scale = scales is not None and scales.size > 0
    factors: Array = np.array([1, 1, wanted, size], np.int64)
    if scales is not None and by_scale:
        factors = np.array([1, 1, scales[axis], 1], np.float32)
    line = ir.Value(name="line", shape=ir.Shape([1, 1, size, size]), type=ir.TensorType(ir.DataType.FLOAT))
    tape = ir.tape.Tape()
    held = tape.initializer(ir.tensor(factors), "factors")
    # Before opset 13 what is not given is given empty.
    blank = tape.initializer(ir.tensor(np.zeros(0, np.float32)), "blank")
    kept = {key: value for key, value in node.attributes.items() if key != "axes"}
    resized = ir.Node("", "Resize", [line, blank, *([held] if by_scale else [blank, held])], kept.values())
    resized.outputs[0].name = "resized"
    resized.outputs[0].dtype = ir.DataType.FLOAT
    graph = ir.Graph(
        [line], resized.outputs, nodes=[resized], initializers=[held, blank], opset_imports={"": opset}, name="g"
    )
    model = ir.to_proto(ir.Model(graph, ir_version=8)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (made,) = session.run(["resized"], {"line": np.eye(size, dtype=np.float32).reshape(1, 1, size, size)})
    matrix: Array = made[0, 0]
    return matrix


def _resize(graft: Graft, node: ir.Node) -> ir.Value:
    value, shape, wanted = given(node, 0), static(given(node, 0)), static(node.outputs[0])
    dtype = type_of(value).numpy()
    for axis in range(2, len(shape)):
        matrix = _resize_matrix(node, axis, graft.opset)
        if shape[axis] == wanted[axis] and np.array_equal(matrix, np.eye(shape[axis])):
            continue
        if axis == len(shape) - 1:
            value = graft.op("MatMul", value, graft.constant(np.ascontiguousarray(matrix.T), dtype))
        else:
            value = graft.op("MatMul", graft.constant(matrix, dtype), value)
    return value


def _obstacle_of_resize(node: ir.Node) -> str:
    shape, wanted = edits.shape_of(given(node, 0)), edits.shape_of(node.outputs[0])
    why = open_shape(node, 0)
    if why or shape is None or wanted is None:
        return why or "its output's shape is not known"
    scales = edits.taken(node, 2)
    reasons = {
        f"it has {len(shape)} axes, not 3 or 4": len(shape) not in {3, 4},
        "it changes the batch or the channels": shape[:2] != wanted[:2],
        "it takes only a part of its input": attribute(node, "coordinate_transformation_mode", "")
        == "tf_crop_and_resize",
        "it names its axes or keeps the aspect ratio": "axes" in node.attributes
        or attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch",
        "its scales are no constant": scales is not None and edits.constant_of(scales) is None,
        "it is not of floats": not type_of(given(node, 0)).is_floating_point(),
        "its matrix is too large": max(a * b for a, b in zip(shape, wanted, strict=True)) > MATRIX_MOST,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _fourier(length: int, size: int, count: int, *, inverse: bool) -> Array:
    """Return `[size, count]`, complex: what `size` numbers give in the first `count` of `length` frequencies.

    `size` may be less than `length`: the rest are zeros.
    """
    sign = 2j if inverse else -2j
    table: Array = np.exp(sign * np.pi * np.outer(np.arange(size), np.arange(count)) / length)
    return table / length if inverse else table


def _as_pairs(table: Array, *, real: bool) -> Array:
    """Return a complex matrix `[n, k]` as one of numbers, real and imaginary parts side by side."""
    rows = [np.stack([table.real, table.imag], -1)]
    if not real:
        rows.append(np.stack([-table.imag, table.real], -1))
    return np.stack(rows, 1).reshape(len(rows) * table.shape[0], 2 * table.shape[1])


def _dft_axis(node: ir.Node, opset: int) -> int:
    if opset < 20:
        return int(attribute(node, "axis", 1))
    held = edits.taken(node, 2)
    return -2 if held is None else (integers_of(held) or [-2])[0]


def _dft(graft: Graft, node: ir.Node) -> ir.Value:
    value, shape = given(node, 0), static(given(node, 0))
    axis = _dft_axis(node, graft.opset) % len(shape)
    length = (integers_of(edits.taken(node, 1)) or [shape[axis]])[0]
    count = length // 2 + 1 if attribute(node, "onesided", 0) else length
    size = min(shape[axis], length)
    order = [*(each for each in range(len(shape) - 1) if each != axis), axis, len(shape) - 1]
    moved = graft.transpose(value if size == shape[axis] else graft.slice(value, 0, size, axis), order)
    others = [shape[each] for each in order[:-2]]
    table = _fourier(length, size, count, inverse=bool(attribute(node, "inverse", 0)))
    matrix = _as_pairs(table, real=shape[-1] == 1)
    rows = graft.reshape(moved, [prod(others), size * shape[-1]])
    product = graft.op("MatMul", rows, graft.constant(matrix, type_of(value).numpy()))
    back = [order.index(each) for each in range(len(shape))]
    return graft.transpose(graft.reshape(product, [*others, count, 2]), back)


def _obstacle_of_dft(node: ir.Node) -> str:
    why = open_shape(node, 0)
    if not why and any(
        edits.taken(node, number) is not None and integers_of(edits.taken(node, number)) is None for number in (1, 2)
    ):
        return "its length or its axis is no constant"
    if not why and attribute(node, "inverse", 0) and attribute(node, "onesided", 0):
        return "it is inverse and one-sided"
    return why


def _stft(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    batch, size = static(value)[:2]
    (step,) = integers_of(given(node, 1)) or [1]
    window = edits.constant_of(edits.taken(node, 2))
    length = _frame(node) or size
    count = length // 2 + 1 if attribute(node, "onesided", 1) else length
    table = _fourier(length, length, count, inverse=False)
    if window is not None:
        table = table * window.reshape(-1, 1)
    kernels = _as_pairs(table, real=True).T.reshape(2 * count, 1, length)
    signal = graft.reshape(value, [batch, 1, size])
    frames = graft.op("Conv", signal, graft.constant(kernels, type_of(value).numpy()), strides=[step])
    total = (size - length) // step + 1
    return graft.reshape(graft.op("Transpose", frames, perm=[0, 2, 1]), [batch, total, count, 2])


def _frame(node: ir.Node) -> int | None:
    """Return the length of a frame: what is asked for, or that of the window."""
    window, asked = edits.constant_of(edits.taken(node, 2)), integers_of(edits.taken(node, 3))
    return asked[0] if asked else None if window is None else window.size


def _obstacle_of_stft(node: ir.Node) -> str:
    why = open_shape(node, 0)
    if why:
        return why
    fixed = all(
        edits.taken(node, number) is None or edits.constant_of(edits.taken(node, number)) is not None
        for number in (1, 2, 3)
    )
    shape = static(given(node, 0))
    reasons = {
        "its step, window or length is no constant": not fixed or _frame(node) is None,
        "its signal is complex": len(shape) == 3 and shape[2] != 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _gemm(graft: Graft, node: ir.Node) -> ir.Value:
    factors = (None, attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0))
    values = list(node.inputs)
    for index, factor in enumerate(factors[: len(values)]):
        value = values[index]
        if value is not None and factor not in {None, 1.0}:
            held = edits.constant_of(value)
            values[index] = (
                graft.op("Mul", value, factor)
                if held is None
                else graft.constant(held * np.asarray(factor, held.dtype))
            )
    kept = {name: attribute(node, name, None) for name in ("transA", "transB")}
    return graft.op("Gemm", *values, **kept)


REWRITES = (
    expansion(
        name="affine_grid_to_matmul",
        summary="AffineGrid by a product with the grid of all pixels",
        ops=["AffineGrid"],
        build=_affine_grid,
        obstacle=_obstacle_of_grid,
    ),
    expansion(
        name="resize_to_matmul",
        summary="Resize of pictures by a product for each axis, whose matrix ONNX Runtime's own Resize gives",
        ops=["Resize"],
        build=_resize,
        obstacle=_obstacle_of_resize,
    ),
    expansion(
        name="antialias_to_matmul",
        summary="Resize with antialias by such products; any other stays",
        ops=["Resize"],
        picks=lambda node: bool(attribute(node, "antialias", 0)),
        build=_resize,
        obstacle=_obstacle_of_resize,
    ),
    expansion(
        name="dft_to_matmul",
        summary="DFT by a product with its matrix",
        ops=["DFT"],
        build=_dft,
        obstacle=_obstacle_of_dft,
    ),
    expansion(
        name="stft_to_conv",
        summary="STFT of real signals by a Conv with the windowed waves",
        ops=["STFT"],
        build=_stft,
        obstacle=_obstacle_of_stft,
    ),
    expansion(
        name="plain_gemm",
        summary="Gemm with its alpha and beta multiplied into what they scale",
        ops=["Gemm"],
        picks=lambda node: attribute(node, "alpha", 1.0) != 1.0 or attribute(node, "beta", 1.0) != 1.0,
        build=_gemm,
    ),
)
