"""Gates over the evidence: could the comparison have shown a broken artefact? A cell that fails one is vacuous."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from runtimes.reference.judge_case import Case, Group, all_equal, is_exact, share_equal
from runtimes.reference.judge_words import Gate, beside, counted
from runtimes.reference.measures import Tensor, kind_of, measure

MAGNITUDE_RATIO = 1.5
"""Two inputs differ in magnitude when the values of one spread more than so many times as far as the other's."""


def golden_finite(case: Case) -> Sequence[Gate]:
    """Golden is finite: where it is not, nothing can be said of the artefact."""
    counts = [(pair, int((~np.isfinite(pair.golden)).sum())) for pair in case.pairs]
    problems = [
        f"{count} of {pair.golden.size} golden values of {pair.where} are not finite" for pair, count in counts if count
    ]
    return [counted("golden_finite", problems, "golden is finite", measured=float(sum(count for _, count in counts)))]


def sensitive(case: Case) -> Sequence[Gate]:
    """Each golden output depends on each input (of its group), and each input moves some output."""
    floor = case.options.sensitivity_floor
    problems: list[str] = []
    values: list[float] = []
    moving: set[str] = set()
    for group in case.options.groups:
        for output in group.outputs:
            for name in group.inputs or case.inputs:
                change = case.options.sensitivity.get(output, {}).get(name)
                known = change is not None and math.isfinite(change)
                values.append(change if change is not None and known else 0.0)
                told = f"changes by {beside(values[-1], floor)}" if known else "is not known to change"
                if values[-1] >= floor:
                    moving.add(name)
                else:
                    problems.append(f"golden output {output!r} {told} with input {name!r}, at least {floor:g} is asked")
    if not problems:
        problems = [f"input {name!r} is said to move no output" for name in case.inputs if name not in moving]
    gate = counted("sensitive", problems, "each golden output depends on its inputs")
    smallest = min(values, default=None)
    return [Gate(name=gate.name, passed=gate.passed, measured=smallest, threshold=floor, detail=gate.detail)]


def inputs_varied(case: Case) -> Sequence[Gate]:
    """No input is constant only, and floating inputs come in at least two magnitudes."""
    problems = [] if case.inputs else ["there is no input"]
    for name in case.inputs:
        problems += _unvaried(name, [tensors[name] for tensors in case.samples.values() if name in tensors])
        missing = sum(name not in tensors for tensors in case.samples.values())
        problems += [f"input {name!r} is missing in {missing} samples"] if missing else []
    return [counted("inputs_varied", problems, f"{len(case.samples)} samples differ in content and magnitude")]


def _unvaried(name: str, drawn: list[Tensor]) -> list[str]:
    """Return what one input, as drawn for each sample, fails to vary."""
    if not all(np.isfinite(tensor).all() for tensor in drawn):
        return [f"input {name!r} holds values that are not finite"]
    if all_equal(drawn):
        return [f"input {name!r} is the same in every sample"]
    if all(tensor.size > 1 and bool((tensor == tensor.flat[0]).all()) for tensor in drawn):
        return [f"input {name!r} is constant within every sample"]
    spreads = [spread for spread in map(_spread, drawn) if spread]
    low, high = min(spreads, default=0.0), max(spreads, default=0.0)
    if kind_of(drawn[0]) == "floating" and high <= MAGNITUDE_RATIO * low:
        asked = f"more than {MAGNITUDE_RATIO:g} times as far is asked"
        return [f"input {name!r} has one magnitude: its values spread {low:.4g} to {high:.4g}, {asked}"]
    return []


def _spread(tensor: Tensor) -> float:
    """Return how far the values lie apart (not the peak: that of a normalised picture is mostly its offset)."""
    values = tensor.astype(np.float64)
    if values.size > 1:
        return float(values.max() - values.min())
    return float(np.abs(values).sum())


def constant_fails(case: Case) -> Sequence[Gate]:
    """The tolerances would not accept one and the same answer for every sample."""
    problems = []
    for group in case.options.groups:
        for output in group.outputs:
            answers = [pair.golden for pair in case.of_output(output)]
            if answers and _accepts_constant(group, answers):
                problems.append(f"the tolerances of group {group.name!r} would accept one {output!r} for every sample")
    return [counted("constant_fails", problems, "no output could pass with the same answer for every sample")]


def _accepts_constant(group: Group, answers: list[Tensor]) -> bool:
    """Return whether an artefact that always gives one answer would pass: the mean, and for labels the first."""
    if len({tensor.shape for tensor in answers}) > 1:
        return False
    if is_exact(group, answers[0]):
        return all(_accepts(group, golden, answers[0]) for golden in answers)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.mean(np.stack([tensor.astype(np.float64) for tensor in answers]), axis=0)
    return all(_accepts(group, golden, mean) for golden in answers)


def _accepts(group: Group, golden: Tensor, answer: Tensor) -> bool:
    """Return whether `answer` keeps within the group's tolerances."""
    found = measure(golden, answer)
    if found.max_abs is None or found.cosine is None or found.snr_db is None:
        return False
    if group.max_abs is not None and found.max_abs > group.max_abs:
        return False
    if is_exact(group, golden):
        return share_equal(golden, answer) >= group.cosine
    return found.cosine >= group.cosine and found.snr_db >= group.snr_db
