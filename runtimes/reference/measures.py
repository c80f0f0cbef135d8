"""How far an output lies from the golden one, in float64; never NaN or infinity: `None` where there is no number.

The places that count are those where the golden value is finite. The rules at the edges:

| case | cosine | SNR |
|---|---|---|
| equal at every place that counts (also: both empty, both zero) | 1.0 | 200 dB |
| the golden tensor is all zero, the output is not | 0.0 | −200 dB |
| the output is all zero, the golden tensor is not | 0.0 | 0 dB |
| the output is NaN or infinite at a place that counts | None | None |
| no place counts (nothing golden is finite) | None | None |
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from runtimes.kit.tensors import Array

SNR_CAP_DB = 200.0
"""The SNR of an exact match; every SNR lies within ± this value."""

Doubles = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measure:
    """How far one output lies from the golden one.

    Attributes:
        cosine: of the two as flat vectors, −1…1; blind to scale.
        snr_db: 10·log10(‖golden‖² / ‖golden − output‖²), −200…200.
        max_abs: the largest absolute difference.
        max_rel: the largest absolute difference in units of the largest absolute golden value; where that is zero, of
            the output's.
        nan: how many of the output's values are NaN, anywhere.
        inf: how many of the output's values are infinite, anywhere.
    """

    cosine: float | None
    snr_db: float | None
    max_abs: float | None
    max_rel: float | None
    nan: int
    inf: int


def measure(golden: Array, output: Array) -> Measure:
    """Return how far `output` lies from `golden`.

    Args:
        golden: booleans, integers or floating numbers, of any shape.
        output: the same shape; any of these types, not necessarily the same one.

    Raises:
        ValueError: the shapes differ, or a type is no real number.
    """
    _check(golden, output)
    nan, inf = int(np.isnan(output).sum()), int(np.isinf(output).sum())
    counts = np.isfinite(golden)
    kept, seen = golden[counts], output[counts]
    if (golden.size and not kept.size) or not np.isfinite(seen).all():
        return Measure(cosine=None, snr_db=None, max_abs=None, max_rel=None, nan=nan, inf=inf)
    error = _difference(kept, seen)
    left, right = kept.astype(np.float64), seen.astype(np.float64)
    max_abs = _peak(error)
    if max_abs == 0.0:
        return Measure(cosine=1.0, snr_db=SNR_CAP_DB, max_abs=0.0, max_rel=0.0, nan=nan, inf=inf)
    return Measure(
        cosine=_cosine(left, right),
        snr_db=_snr_db(left, error),
        max_abs=max_abs,
        max_rel=_ratio(max_abs, _peak(left) or _peak(right)),
        nan=nan,
        inf=inf,
    )


def worst_at(golden: Array, output: Array) -> tuple[int, ...]:
    """Return the index of the largest difference; () where there is no value.

    A value that is not finite where golden is counts as the largest. Arguments and errors are those of `measure`.
    """
    _check(golden, output)
    if not golden.size:
        return ()
    finite = np.isfinite(golden) & np.isfinite(output)
    error = np.zeros(golden.shape)
    error[finite] = np.abs(_difference(golden[finite], output[finite]))
    error[np.isfinite(golden) & ~np.isfinite(output)] = np.inf
    return tuple(int(index) for index in np.unravel_index(int(error.argmax()), golden.shape))


def kind_of(tensor: Array) -> str:
    """Return `floating`, `integer` or `boolean`.

    Raises:
        ValueError: the type is no real number.
    """
    kinds = {"f": "floating", "i": "integer", "u": "integer", "b": "boolean"}
    if tensor.dtype.kind not in kinds:
        raise ValueError(f"measure: type {tensor.dtype} is no real number; give booleans, integers or floating numbers")
    return kinds[tensor.dtype.kind]


def same_values(left: Array, right: Array) -> NDArray[np.bool_]:
    """Return where two tensors of one shape hold the same value; NaN equals NaN, 0 equals −0, the widths may differ."""
    return np.asarray((left == right) | (np.isnan(left) & np.isnan(right)), dtype=np.bool_)


def _check(golden: Array, output: Array) -> None:
    kind_of(golden)
    kind_of(output)
    if golden.shape != output.shape:
        raise ValueError(f"measure: shape {output.shape} is not the golden shape {golden.shape}; compare shapes first")


def _difference(golden: Array, output: Array) -> Doubles:
    """Return output − golden, held to the range of float64; never 0 for two integers that differ."""
    with np.errstate(over="ignore"):
        error = output.astype(np.float64) - golden.astype(np.float64)
    if golden.dtype.kind in "iu" and output.dtype.kind in "iu":
        # float64 holds integers only up to 2⁵³. Of two on one side of 0 the distance modulo 2⁶⁴ is exact.
        larger, apart = output > golden, (output < 0) != (golden < 0)
        left, right = golden.astype(np.uint64), output.astype(np.uint64)
        distance = np.where(larger, right - left, left - right).astype(np.float64)
        return np.where(apart, error, np.where(larger, distance, -distance))
    limit = np.finfo(np.float64).max
    return np.clip(error, -limit, limit)


def _peak(values: Doubles) -> float:
    return float(np.abs(values).max()) if values.size else 0.0


def _cosine(left: Doubles, right: Doubles) -> float:
    left_peak, right_peak = _peak(left), _peak(right)
    if not left_peak or not right_peak:
        return 0.0
    left, right = left / left_peak, right / right_peak
    value = float(np.dot(left / np.linalg.norm(left), right / np.linalg.norm(right)))
    return min(1.0, max(-1.0, value))


def _snr_db(golden: Doubles, error: Doubles) -> float:
    """Return the SNR for an error that is not all zero; by logarithms, so that no quotient overflows."""
    peak, error_peak = _peak(golden), _peak(error)
    if not peak:
        return -SNR_CAP_DB
    signal = math.log10(peak) + math.log10(float(np.linalg.norm(golden / peak)))
    noise = math.log10(error_peak) + math.log10(float(np.linalg.norm(error / error_peak)))
    return min(SNR_CAP_DB, max(-SNR_CAP_DB, 20.0 * (signal - noise)))


def _ratio(value: float, unit: float) -> float:
    with np.errstate(over="ignore"):
        return min(float(np.divide(value, unit)), float(np.finfo(np.float64).max))
