"""The range of each tensor of an ONNX model that loses least when it is cut into equal steps.

To cut off a few large numbers may lose less than coarse steps for all. So every tensor is looked at on each sample: its
smallest and its largest number, and some numbers evenly out of all; on these, narrower ranges are tried, and that with
the least mean square error is taken. The model runs once for each sample, and gives no more than that of any tensor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runtimes.kit import qualcomm, tensors

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
"""Of the smallest and of the largest number of a tensor, what is tried as the end of its range."""
PICKED = 4096
"""About so many numbers of a tensor are kept of each sample."""

Range = tuple[float, float]


def find(source: Path, samples: Mapping[str, Mapping[str, tensors.Array]], steps: int) -> dict[str, Range]:
    """Return the range of each tensor of floats that the model takes or makes, 0 in it.

    Args:
        source: an ONNX file with fixed shapes.
        samples: sample name to inputs by name.
        steps: how many steps a range is cut into: 255 for 8 bits.

    Raises:
        Failed: ONNX Runtime does not run the model with what is inside as outputs.
    """
    model, sizes = _probe(source)
    names = list(sizes)
    picked: dict[str, list[tensors.Array]] = {name: [] for name in names}
    reached: dict[str, list[tensors.Array]] = {name: [] for name in names}
    with qualcomm.vendor_errors():
        session = _start(model, source.with_name("ranges.onnx"))
        wanted = [output for name in names for output in _outputs(name)]
        for feeds in samples.values():
            found = dict(zip(wanted, session.run(wanted, dict(feeds)), strict=True))
            for name in names:
                some, *ends = (np.ravel(found[output]) for output in _outputs(name))
                picked[name].append(some)
                reached[name] += ends
    return {
        name: best(np.concatenate(picked[name]), np.concatenate(reached[name]), sizes[name] * len(samples), steps)
        for name in names
    }


def best(values: tensors.Array, reached: tensors.Array, size: int, steps: int) -> Range:
    """Return the range, 0 in it, whose equal steps give `values` back with the least mean square error.

    Args:
        values: some of the numbers of a tensor, evenly.
        reached: its smallest and its largest ones: what the range does not go beyond. They may be among no values.
        size: of so many numbers these are the ends.
        steps: how many there are in the range.
    """
    values, reached = (each[np.isfinite(each)].astype(np.float64) for each in (values, reached))
    low, high = min(0.0, reached.min(initial=0.0)), max(0.0, reached.max(initial=0.0))
    lows, highs = ([end * share for share in (SHARES if end else SHARES[:1])] for end in (low, high))
    # Of equals the first, which is the widest.
    return min(
        itertools.product(lows, highs),
        key=lambda tried: (
            _lost(values, tried, steps) / max(1, values.size) + _lost(reached, tried, steps) / max(1, size)
        ),
    )


def _lost(values: tensors.Array, within: Range, steps: int) -> float:
    """Return the sum of the square errors of `values` as multiples of a step within a range."""
    low, high = within
    step = max(high - low, float(np.finfo(np.float32).tiny)) / steps
    zero = round(-low / step)
    whole = np.clip(np.rint(values / step), -zero, steps - zero)
    return float(np.square(whole * step - values).sum())


def _probe(source: Path) -> tuple[Any, dict[str, int]]:
    """Return the model with what is looked at as its outputs, its weights not read, and the sizes of the tensors."""
    import onnx
    from onnx import TensorProto, helper

    model = onnx.load(source, load_external_data=False)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    known = {port.name: port.type.tensor_type for port in (*inferred.value_info, *inferred.input, *inferred.output)}
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    made = itertools.chain((port.name for port in graph.input), (name for node in graph.node for name in node.output))
    floats = (TensorProto.FLOAT, TensorProto.FLOAT16)
    names = [name for name in made if name in known and name not in constants and known[name].elem_type in floats]
    del graph.output[:]
    sizes = {name: math.prod(int(each.dim_value) for each in known[name].shape.dim) for name in names}
    for number, (name, size) in enumerate(sizes.items()):
        constants_of = {"flat": -1, "from": 0, "to": np.iinfo(np.int64).max, "step": _step(size)}
        ends = {key: f"aipc_{key}_{number}" for key in constants_of}
        graph.initializer.extend(
            helper.make_tensor(ends[key], TensorProto.INT64, [1], [value]) for key, value in constants_of.items()
        )
        vector, (some, least, most) = f"aipc_vector_{number}", _outputs(name)
        graph.node.extend(
            [
                helper.make_node("Reshape", [name, ends["flat"]], [vector]),
                helper.make_node("Slice", [vector, ends["from"], ends["to"], "", ends["step"]], [some]),
                helper.make_node("ReduceMin", [vector], [least]),
                helper.make_node("ReduceMax", [vector], [most]),
            ]
        )
        graph.output.extend(
            helper.make_tensor_value_info(output, known[name].elem_type, None) for output in (some, least, most)
        )
    return model, sizes


def _outputs(name: str) -> tuple[str, str, str]:
    """Return what the outputs are called that tell some numbers of a tensor, its smallest and its largest."""
    return f"aipc_some_of_{name}", f"aipc_least_of_{name}", f"aipc_most_of_{name}"


def _step(size: int) -> int:
    """Return how far apart the numbers lie that are kept of so many: no row or column of the tensor is left out."""
    step = max(1, size // PICKED)
    while size and math.gcd(step, size) > 1:
        step += 1
    return step


def _start(model: Any, path: Path) -> Any:
    """Return a session of ONNX Runtime on the CPU; the model is written to `path`, beside its weights."""
    import onnx
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    # Rewrites would make other tensors.
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    onnx.save(model, path)
    return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
