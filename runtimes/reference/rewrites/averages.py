"""AveragePool by a convolution: an accelerator may average a map of one row wrongly, and convolve it rightly."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from runtimes.reference.expansion import Graft, expansion, given, static, type_of
from runtimes.reference.rewrites.pooling import counts_of, obstacle_of_average, windows_of


def _average(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    shape, dtype = static(value), type_of(value).numpy()
    windows = windows_of(node, shape[2:])
    kernel, strides, dilations, before, behind = (list(part) for part in zip(*windows, strict=True))
    weight = np.full((shape[1], 1, *kernel), 1 / prod(kernel))
    mean = graft.op(
        "Conv",
        value,
        graft.constant(weight, dtype),
        dilations=dilations,
        group=shape[1],
        kernel_shape=kernel,
        pads=[*before, *behind],
        strides=strides,
    )
    factors = prod(kernel) / counts_of(node, windows)
    return mean if np.all(factors == 1) else graft.op("Mul", mean, graft.constant(factors, dtype))


REWRITES = (
    expansion(
        name="average_pool_to_conv",
        summary="AveragePool by a Conv of each channel, and a factor for each place where padding does not count",
        ops=["AveragePool"],
        build=_average,
        obstacle=obstacle_of_average,
    ),
)
