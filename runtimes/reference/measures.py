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
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runtimes.kit.tensors import Array

SNR_CAP_DB = 200.0
"""The SNR of an exact match; every SNR lies within ± this value."""

PIECE = 1 << 13
"""So many values are looked at together: they and their differences fit into a core's own cache, and no BLAS starts
threads for so few."""

SAFE = 1e200
"""A sum of squares between this and its inverse has neither overflowed nor vanished."""

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
    """Return how far `output` lies from `golden`; piece by piece, so that it takes next to no memory of its own.

    Args:
        golden: booleans, integers or floating numbers, of any shape.
        output: the same shape; any of these types, not necessarily the same one.

    Raises:
        ValueError: the shapes differ, or a type is no real number.
    """
    _check(golden, output)
    left, right = golden.reshape(-1), output.reshape(-1)
    parts = [_part(left[at : at + PIECE], right[at : at + PIECE]) for at in range(0, golden.size, PIECE)]
    nan, inf = sum(part.nan for part in parts), sum(part.inf for part in parts)
    if (golden.size and not any(part.counted for part in parts)) or not all(part.finite for part in parts):
        return Measure(cosine=None, snr_db=None, max_abs=None, max_rel=None, nan=nan, inf=inf)
    signal, made, error = (_Length.of([getattr(part, name) for part in parts]) for name in ("left", "right", "error"))
    if error.peak == 0.0:
        return Measure(cosine=1.0, snr_db=SNR_CAP_DB, max_abs=0.0, max_rel=0.0, nan=nan, inf=inf)
    return Measure(
        cosine=_cosine(parts, signal, made),
        snr_db=_snr_db(signal, error),
        max_abs=error.peak,
        max_rel=_ratio(error.peak, signal.peak or made.peak),
        nan=nan,
        inf=inf,
    )


def rms(tensor: Array) -> float:
    """Return the root mean square of the finite values of a tensor; 0 where there is none."""
    flat, counted, parts = tensor.reshape(-1), 0, []
    for at in range(0, flat.size, PIECE):
        piece = flat[at : at + PIECE]
        finite = piece[np.isfinite(piece)].astype(np.float64)
        counted += finite.size
        parts.append(_length(finite))
    length = _Length.of(parts)
    return length.unit * math.sqrt(length.squares / counted) if counted else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Length:
    """The length of a vector, so that no square overflows or vanishes.

    Attributes:
        peak: the largest absolute value.
        unit: what the values are divided by before they are squared.
        squares: the sum of the squares then.
    """

    peak: float
    unit: float
    squares: float

    @classmethod
    def of(cls, parts: Sequence[_Length]) -> _Length:
        """Return the length of vectors put together."""
        peak = max((part.peak for part in parts), default=0.0)
        unit = max((part.unit for part in parts if part.peak), default=1.0)
        squares = math.fsum(part.squares * (part.unit / unit) ** 2 for part in parts)
        return cls(peak=peak, unit=unit, squares=squares)

    @property
    def decades(self) -> float:
        """The logarithm to the base 10 of the length, which is not 0."""
        return math.log10(self.unit) + math.log10(self.squares) / 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Part:
    """What is known of one piece of two tensors.

    Attributes:
        left: of the golden values that count.
        right: of the output's values there.
        error: of their differences.
        product: the sum of the products of both, each divided by its unit.
        counted: how many places count.
        finite: whether the output is finite at each of them.
        nan: how many of the output's values are NaN, anywhere.
        inf: how many of them are infinite, anywhere.
    """

    left: _Length
    right: _Length
    error: _Length
    product: float
    counted: int
    finite: bool
    nan: int
    inf: int


def _part(golden: Array, output: Array) -> _Part:
    nan = inf = 0
    left, right = golden.astype(np.float64), output.astype(np.float64)
    signal = _length(left)
    made = _length(right, exact=not signal.peak)
    finite = True
    if not (math.isfinite(signal.squares) and math.isfinite(made.squares)):
        # Some value is not finite: only the places where golden is count.
        nan, inf = int(np.isnan(output).sum()), int(np.isinf(output).sum())
        counts = np.isfinite(golden)
        golden, output, left, right = golden[counts], output[counts], left[counts], right[counts]
        finite = bool(np.isfinite(output).all())
        right = right if finite else np.zeros(golden.shape)
        signal = _length(left)
        made = _length(right, exact=not signal.peak)
    error = _length(_difference(golden, output, left, right) if finite else np.zeros(0))
    product = float(np.dot(_in_units(left, signal), _in_units(right, made)))
    return _Part(
        left=signal,
        right=made,
        error=error,
        product=product,
        counted=golden.size,
        finite=finite,
        nan=nan,
        inf=inf,
    )


def _length(values: Doubles, *, exact: bool = True) -> _Length:
    """Return the length of a vector; its squares are not finite exactly when one of the values is not.

    Args:
        values: the vector.
        exact: whether the peak must be that; else it may be the length instead, which is 0 for the same vectors.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = float(np.dot(values, values))
    if not exact and 1.0 / SAFE < squares < SAFE:
        return _Length(peak=math.sqrt(squares), unit=1.0, squares=squares)
    peak = _peak(values)
    if 1.0 / SAFE < squares < SAFE or not peak or not math.isfinite(peak):
        return _Length(peak=peak, unit=1.0, squares=squares)
    scaled = values / peak
    return _Length(peak=peak, unit=peak, squares=float(np.dot(scaled, scaled)))


def _in_units(values: Doubles, length: _Length) -> Doubles:
    return values if length.unit == 1.0 else values / length.unit


def worst_at(golden: Array, output: Array) -> tuple[int, ...]:
    """Return the index of the largest difference; () where there is no value.

    A value that is not finite where golden is counts as the largest. Arguments and errors are those of `measure`.
    """
    _check(golden, output)
    if not golden.size:
        return ()
    finite = np.isfinite(golden) & np.isfinite(output)
    error = np.zeros(golden.shape)
    left, right = golden[finite], output[finite]
    error[finite] = np.abs(_difference(left, right, left.astype(np.float64), right.astype(np.float64)))
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


def _difference(golden: Array, output: Array, left: Doubles, right: Doubles) -> Doubles:
    """Return output − golden, held to the range of float64; never 0 for two integers that differ.

    Args:
        golden: finite values.
        output: finite values, of the same shape.
        left: the golden values in float64.
        right: the output's values in float64.
    """
    with np.errstate(over="ignore"):
        error = right - left
    if golden.dtype.kind in "iu" and output.dtype.kind in "iu":
        # float64 holds integers only up to 2⁵³. Of two on one side of 0 the distance modulo 2⁶⁴ is exact.
        larger, apart = output > golden, (output < 0) != (golden < 0)
        whole_left, whole_right = golden.astype(np.uint64), output.astype(np.uint64)
        distance = np.where(larger, whole_right - whole_left, whole_left - whole_right).astype(np.float64)
        return np.where(apart, error, np.where(larger, distance, -distance))
    if np.float64 in (golden.dtype, output.dtype):
        # Only two values that are nearly as large as float64 holds are farther apart than it holds.
        limit = np.finfo(np.float64).max
        np.clip(error, -limit, limit, out=error)
    return error


def _peak(values: Doubles) -> float:
    return max(float(values.max()), -float(values.min())) if values.size else 0.0


def _cosine(parts: Sequence[_Part], left: _Length, right: _Length) -> float:
    if not left.peak or not right.peak:
        return 0.0
    product = math.fsum(part.product * (part.left.unit / left.unit) * (part.right.unit / right.unit) for part in parts)
    return min(1.0, max(-1.0, product / math.sqrt(left.squares) / math.sqrt(right.squares)))


def _snr_db(signal: _Length, error: _Length) -> float:
    """Return the SNR for an error that is not all zero; by logarithms, so that no quotient overflows."""
    if not signal.peak:
        return -SNR_CAP_DB
    return min(SNR_CAP_DB, max(-SNR_CAP_DB, 20.0 * (signal.decades - error.decades)))


def _ratio(value: float, unit: float) -> float:
    with np.errstate(over="ignore"):
        return min(float(np.divide(value, unit)), float(np.finfo(np.float64).max))
