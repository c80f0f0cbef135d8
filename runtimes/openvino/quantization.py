"""How an OpenVINO model holds its numbers, and quantising it by NNCF.

Weights become int8, and what convolutions and matrix products take goes through a FakeQuantize. It is post-training
quantisation with accuracy control: samples that were kept back are run through the quantised model, and while its
answers are too far from those of the float model, NNCF gives the operators that spoil most their floats back.

NNCF divides by the metric of the float model, and dies where that is 0: here it is 1 where nothing is lost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from runtimes.contract import Failure, Kind
from runtimes.kit.tensors import Array
from runtimes.kit.work import Failed

FLOATS = ("f32", "f64")
KEPT_BACK = 4
"""One sample in so many is not calibrated on, but tried on; from the end, where draws lie among photographs."""
MOST_LOST = 0.005
"""The largest mean square error in units of the strongest sample's mean square: 23 dB, half of what int8 is allowed."""
PLAIN = "the model is too large for NNCF's accuracy control: no operator got its floats back"
MOST_PRODUCTS = 20 * 10**12
"""So many multiplications are spent on accuracy control: a quarter of an hour of two cores."""
WEIGHTED = (
    *("Convolution", "ConvolutionBackpropData", "GroupConvolution", "GroupConvolutionBackpropData"),
    "MatMul",
)
"""The operators whose time and weights quantising saves."""
MOVES = (
    *("Convert", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Split", "VariadicSplit", "Slice"),
    *("StridedSlice", "Gather", "Pad", "MaxPool", "Subtract", "Multiply", "DepthToSpace", "SpaceToDepth", "Broadcast"),
)
"""What may lie between a quantised tensor and the operator that takes it: it moves numbers, or is a weight's scale."""

Sample = Mapping[str, Array]
Trial = tuple[Sample, Sequence[Array]]
"""A sample, and the float model's answers to it."""


def quantize(model: Any, samples: Mapping[str, Sample], device: str) -> Any:
    """Return a quantised copy of `model`; under accuracy control, where that can be afforded.

    Args:
        model: an openvino.Model with floats.
        samples: sample name to inputs by name.
        device: OpenVINO's name of the device that it is for.

    Raises:
        Failed: in NNCF's words.
    """
    import nncf
    from nncf.quantization.advanced_parameters import AdvancedAccuracyRestorerParameters

    given = list(samples.values())
    target = nncf.TargetDevice[device]
    # A zero point for what an activation function cuts off on one side: nearer, and as quick to make.
    preset = nncf.QuantizationPreset.MIXED
    if not is_controlled(model, len(given)):
        with _words():
            return nncf.quantize(
                model, nncf.Dataset(given), preset=preset, target_device=target, subset_size=len(given)
            )
    back = len(given) // KEPT_BACK
    seen, kept = (given[:-back], given[-back:]) if back else (given, given)
    trials = [(sample, answers) for sample, answers in zip(kept, _answers(model, kept), strict=True)]
    with _words():
        return nncf.quantize_with_accuracy_control(
            model,
            calibration_dataset=nncf.Dataset(seen),
            validation_dataset=nncf.Dataset(trials),
            validation_fn=_Validation(trials),
            max_drop=MOST_LOST,
            drop_type=nncf.DropType.ABSOLUTE,
            preset=preset,
            target_device=target,
            subset_size=len(seen),
            # Several would need the memory of as many models, and finish in any order.
            advanced_accuracy_restorer_parameters=AdvancedAccuracyRestorerParameters(
                num_ranking_workers=1, ranking_subset_size=len(trials)
            ),
        )


def is_controlled(model: Any, samples: int) -> bool:
    """Return whether accuracy control can be afforded: to rank them, each operator is tried alone on what is kept back.

    By how much there is to multiply, not by the clock: equal models must give equal bytes on any machine.
    """
    found = [node for node in model.get_ops() if node.get_type_name() in WEIGHTED]
    products = sum(_products(node) for node in found)
    return products * len(found) * max(1, samples // KEPT_BACK) <= MOST_PRODUCTS


def _products(node: Any) -> int:
    """Return about how many numbers an operator multiplies."""
    given, weights = (_sizes(node.get_input_partial_shape(index)) for index in (0, 1))
    made = _sizes(node.get_output_partial_shape(0))
    if node.get_type_name() == "MatMul":
        return math.prod(made) * (given[-1] if given else 1)
    return math.prod(made) * math.prod(weights) // max(1, made[1] if len(made) > 1 else 1)


def _sizes(shape: Any) -> list[int]:
    """Return the sizes of a shape; 1 for one that is known only when the model runs."""
    known = shape if shape.rank.is_static else ()
    return [size.get_length() if size.is_static else 1 for size in known]


def count_weights(model: Any) -> Counter[str]:
    """Return how many weights of a model there are of each of OpenVINO's element types."""
    counts: Counter[str] = Counter()
    for node in model.get_ops():
        if node.get_type_name() == "Constant":
            size = math.prod(node.get_output_shape(0))
            # OpenVINO leaves single numbers in f32 by design.
            counts[node.get_element_type().to_string()] += size if size > 1 else 0
    return counts


def count_operators(model: Any) -> tuple[int, int]:
    """Return how many of a model's operators with weights are quantised, and how many there are."""
    found = [node for node in model.get_ops() if node.get_type_name() in WEIGHTED]
    return sum(all(_is_quantized(node, index) for index in (0, 1)) for node in found), len(found)


def notes(quantized: int, weighted: int) -> list[str]:
    """Return what is good to know of these counts."""
    wide = weighted - quantized
    return [f"{wide} of {weighted} convolutions and matrix products stay in floating point"] if wide else []


class _Validation:
    """Says how much of the float model's answers is kept: 1 is all of it, the same for each sample and for the worst.

    An error counts beside the strongest sample, since that of fixed point does not shrink with the signal.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        strengths = [[_square(answer) for answer in answers] for _, answers in trials]
        self._strongest = [max(column) for column in zip(*strengths, strict=True)]

    def __call__(self, compiled: Any, trials: Iterable[Trial]) -> tuple[float, list[float]]:
        kept = [1.0 - max(self._lost(compiled, *trial), default=0.0) for trial in trials]
        return min(kept), kept

    def _lost(self, compiled: Any, sample: Sample, answers: Sequence[Array]) -> Iterator[float]:
        for answer, made, strongest in zip(answers, _infer(compiled, sample), self._strongest, strict=True):
            if answer.dtype.kind != "f":
                yield float((made != answer).mean()) if answer.size else 0.0
            else:
                yield _square(made.astype(np.float64) - answer) / (strongest or 1.0)


def _square(values: Array) -> float:
    """Return the mean square of the finite values; 0 of none, and of labels."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values[:0]
    return float(np.square(finite, dtype=np.float64).mean()) if finite.size else 0.0


def _answers(model: Any, samples: Sequence[Sample]) -> list[list[Array]]:
    import openvino

    compiled = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [_infer(compiled, sample) for sample in samples]


def _infer(compiled: Any, sample: Sample) -> list[Array]:
    found = compiled(dict(sample))
    return [np.array(found[index]) for index in range(len(compiled.outputs))]


def _is_quantized(node: Any, index: int) -> bool:
    """Return whether what a node takes at `index` are whole numbers, or stands for them."""
    source = node.input_value(index).get_node()
    while source.get_type_name() in MOVES and source.get_input_size():
        source = source.input_value(0).get_node()
    kind = source.get_type_name()
    return kind == "FakeQuantize" or (kind == "Constant" and source.get_element_type().to_string() in ("i8", "u8"))


@contextmanager
def _words() -> Iterator[None]:
    """Turn what NNCF raises into `Failed`."""
    import nncf
    from nncf import errors

    # Its errors have no base of their own, and its Python, met with a graph of another kind, ends in any of these.
    found = vars(errors).values()
    own: list[type[Exception]] = [each for each in found if isinstance(each, type) and issubclass(each, Exception)]
    known: tuple[type[Exception], ...] = (
        *own,
        RuntimeError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        AssertionError,
    )
    try:
        yield
    except known as error:
        message = f"nncf {nncf.__version__}: {type(error).__name__}: {error}"
        raise Failed(Failure(kind=Kind.TOOLCHAIN, message=message, hint="take fp16")) from error
