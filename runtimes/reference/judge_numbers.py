"""Gates over values: how near the artefact's answers are to the golden ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from runtimes.kit.tensors import Array
from runtimes.reference.judge_case import Case, Group, Pair
from runtimes.reference.judge_words import Gate, beside, counted, no_better
from runtimes.reference.measures import SNR_CAP_DB, measure, rms


def finite(case: Case) -> Sequence[Gate]:
    """No NaN or infinity where golden is finite."""
    problems, broken = [], 0
    for pair in case.pairs:
        if pair.aligned is None:
            continue
        values = pair.aligned[np.isfinite(pair.golden)]
        nan, inf = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        if nan or inf:
            problems.append(f"{pair.where} has {nan} NaN and {inf} infinite of {pair.golden.size} values")
            broken += nan + inf
    return [counted("finite", problems, "no NaN and no infinity", measured=float(broken))]


def cosine(case: Case) -> Sequence[Gate]:
    """Each output of each sample, and the group's outputs of each sample as one vector, point the golden way."""

    def values(pairs: list[Pair]) -> list[tuple[str, float | None]]:
        numeric = [pair for pair in pairs if not pair.exact]
        return [*((pair.where, pair.measure.cosine) for pair in numeric if pair.measure), *_joined(numeric)]

    return _per_group(case, "cosine", values, lambda group: group.cosine)


def snr(case: Case) -> Sequence[Gate]:
    """The error in each output of each sample is small beside golden; of fixed point, beside the strongest sample."""

    def values(pairs: list[Pair]) -> list[tuple[str, float | None]]:
        return [
            (_beside(case, pair), case.snr_db(pair.output, pair.golden, pair.aligned, pair.measure))
            for pair in pairs
            if pair.measure and pair.aligned is not None and not pair.exact
        ]

    return _per_group(case, "snr", values, lambda group: group.snr_db)


def max_abs(case: Case) -> Sequence[Gate]:
    """No value of any output lies too far off, where the group sets a limit."""

    def values(pairs: list[Pair]) -> list[tuple[str, float | None]]:
        return [(pair.where, pair.measure.max_abs) for pair in pairs if pair.measure]

    return _per_group(case, "max_abs", values, lambda group: group.max_abs)


def equal(case: Case) -> Sequence[Gate]:
    """Labels are right: the share of equal values is held to the number of the group's cosine."""

    def values(pairs: list[Pair]) -> list[tuple[str, float | None]]:
        return [(pair.where, pair.equal) for pair in pairs if pair.measure and pair.exact]

    return _per_group(case, "equal", values, lambda group: group.cosine)


TILE = 8
"""The side of a tile, in pixels."""
PLANE = 2
LOCAL_DB = 10.0
"""So much lower than the SNR of the whole picture that of its worst tile may be."""


def local(case: Case) -> Sequence[Gate]:
    """No tile of a picture is so wrong that only the rest of the picture hides it."""

    def values(pairs: list[Pair]) -> list[tuple[str, float | None]]:
        return [
            (f"the worst tile of {_beside(case, pair)}", worst_tile(pair.golden, pair.aligned, _strength(case, pair)))
            for pair in pairs
            if pair.measure and pair.measure.snr_db is not None and pair.aligned is not None
            if pair.golden.ndim >= PLANE and pair.golden.size
        ]

    def threshold(group: Group) -> float | None:
        return group.snr_db - LOCAL_DB if group.content == "picture" else None

    return _per_group(case, "local", values, threshold)


def _beside(case: Case, pair: Pair) -> str:
    return f"{pair.where}, beside the strongest sample," if case.options.quantized else pair.where


def _strength(case: Case, pair: Pair) -> float:
    return case.strengths[pair.output] if case.options.quantized else rms(pair.golden)


def worst_tile(golden: Array, made: Array, strength: float) -> float:
    """Return the SNR in dB of the tile with the largest error: its mean square beside that of a whole golden picture.

    Args:
        golden: [..., H, W]; tiles lie over the last two dimensions, and go through all others.
        made: the same shape, and finite where golden is; only these places count.
        strength: the root mean square of the golden picture.
    """
    counts = np.isfinite(golden)
    left, right = (np.where(counts, each, 0.0).astype(np.float64) for each in (golden, made))
    # In units of the largest value, so that no square overflows.
    peak = max(float(np.abs(left).max()), float(np.abs(right).max())) or 1.0
    left, right = left / peak, right / peak
    error = np.square(left - right).reshape(-1, *golden.shape[-2:]).mean(axis=0)
    rows, columns = (np.arange(0, size, TILE) for size in error.shape)
    sums = np.add.reduceat(np.add.reduceat(error, rows, axis=0), columns, axis=1)
    areas = np.outer(np.diff([*rows, error.shape[0]]), np.diff([*columns, error.shape[1]]))
    noise = peak * math.sqrt(float((sums / areas).max()))
    if not noise or not strength:
        return -SNR_CAP_DB if noise else SNR_CAP_DB
    return min(SNR_CAP_DB, max(-SNR_CAP_DB, 20.0 * (math.log10(strength) - math.log10(noise))))


WORDS = {
    "cosine": ("cosine", "", "below"),
    "snr": ("SNR", " dB", "below"),
    "max_abs": ("largest difference", "", "above"),
    "equal": ("share of equal values", "", "below"),
    "local": ("SNR", " dB", "below"),
}
"""Each number by its gate: what it is called, its unit, and on which side of its limit it is bad."""


def _per_group(
    case: Case,
    name: str,
    values: Callable[[list[Pair]], list[tuple[str, float | None]]],
    threshold: Callable[[Group], float | None],
) -> list[Gate]:
    """Return one gate for each group that has a threshold and something to hold against it."""
    gates = []
    for group in case.options.groups:
        limit = threshold(group)
        found = values([pair for pair in case.pairs if pair.group is group])
        if limit is not None and found:
            gates.append(_held(name, group, found, limit))
    return gates


def _held(name: str, group: Group, values: list[tuple[str, float | None]], limit: float) -> Gate:
    """Return the gate of one group that holds when each value is on the right side of the limit.

    Args:
        name: the gate's name, one of `WORDS`.
        group: the group.
        values: where it was measured, and what came of it; None is the worst of all.
        limit: the smallest allowed, or the largest.
    """
    word, unit, bad_side = WORDS[name]
    most = bad_side == "above"

    def badness(value: float | None) -> float:
        return math.inf if value is None else value if most else -value

    where, worst = max(values, key=lambda item: badness(item[1]))
    failing = sum(not badness(value) <= badness(limit) for _, value in values)
    subject = f"group {group.name!r}: the {word} of {where}"
    if worst is None:
        told = f"{subject} has no value, {limit:g}{unit} is asked"
    elif failing:
        told = f"{subject} is {beside(worst, limit)}{unit}, {bad_side} {limit:g}{unit}"
    else:
        told = f"{subject} is {no_better(worst, most=most)}{unit}, the worst; {limit:g}{unit} is asked"
    tail = f"; {failing} of {len(values)} comparisons fail, this is the worst" if failing else ""
    return Gate(name=f"{name}:{group.name}", passed=not failing, measured=worst, threshold=limit, detail=told + tail)


def _joined(pairs: list[Pair]) -> list[tuple[str, float | None]]:
    """Return the cosine of a group's outputs as one vector, for each sample in which there are several."""
    found: list[tuple[str, float | None]] = []
    for sample in dict.fromkeys(pair.sample for pair in pairs):
        parts = [pair for pair in pairs if pair.sample == sample and pair.measure]
        if len(parts) > 1:
            golden = np.concatenate([pair.golden.ravel().astype(np.float64) for pair in parts])
            made = np.concatenate(
                [pair.aligned.ravel().astype(np.float64) for pair in parts if pair.aligned is not None]
            )
            found.append((f"all outputs together in sample {sample!r}", measure(golden, made).cosine))
    return found
