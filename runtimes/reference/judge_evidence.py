"""Gates over the evidence: could the comparison have shown a broken artefact? A cell that fails one is vacuous."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from runtimes.kit.tensors import Array
from runtimes.reference.inputs import PHOTO
from runtimes.reference.judge_case import Case, Group, all_equal, is_exact, share_equal
from runtimes.reference.judge_words import Gate, beside, counted
from runtimes.reference.measures import SNR_CAP_DB, kind_of, measure

MAGNITUDE_RATIO = 1.5
"""Two inputs differ in magnitude when the values of one spread more than so many times as far as the other's."""

MARGIN = 2.0
"""A worthless answer must be refused even where an error of so many times the size is allowed.

What matters is the nearest answer that an artefact could give without looking at its input, and that lies halfway
between two golden ones: it errs by half of what they differ.
"""

LEAST_CHANGE = 1e-3
"""The smallest relative change of a golden output that counts as one, however near an artefact must come."""


def golden_finite(case: Case) -> Sequence[Gate]:
    """Golden is finite: where it is not, nothing can be said of the artefact."""
    counts = [(pair, int((~np.isfinite(pair.golden)).sum())) for pair in case.pairs]
    problems = [
        f"{count} of {pair.golden.size} golden values of {pair.where} are not finite" for pair, count in counts if count
    ]
    return [counted("golden_finite", problems, "golden is finite", measured=float(sum(count for _, count in counts)))]


def sensitive(case: Case) -> Sequence[Gate]:
    """Each golden output depends on each input (of its group) so much that ignoring it shows; each input counts."""
    gates = [_sensitive(case, group) for group in case.options.groups if case.inputs]
    if any(group.inputs for group in case.options.groups):
        used = {name for group in case.options.groups for name in group.inputs or case.inputs}
        problems = [f"no output is said to depend on input {name!r}" for name in case.inputs if name not in used]
        gates.append(counted("sensitive", problems, "some output depends on each input"))
    return gates


def _sensitive(case: Case, group: Group) -> Gate:
    """Return the gate of one group: an artefact that ignores an input must not keep within its tolerances."""
    problems: list[str] = []
    found: list[tuple[float, float]] = []
    for output in group.outputs:
        floor = _floor(case, group, output)
        for name in group.inputs or case.inputs:
            change = case.options.sensitivity.get(output, {}).get(name)
            known = change is not None and math.isfinite(change)
            found.append((change if change is not None and known else 0.0, floor))
            told = f"changes by {beside(found[-1][0], floor)}" if known else "is not known to change"
            if found[-1][0] < floor:
                problems.append(
                    f"golden output {output!r} {told} with input {name!r}, at least {floor:.4g} is asked: "
                    f"the tolerances of group {group.name!r} would hardly tell an artefact that ignores it"
                )
            elif _passes_unseen(case, group, output, name):
                problems.append(
                    f"the tolerances of group {group.name!r} would accept an {output!r} that ignores input {name!r}"
                )
    fine = f"each output of group {group.name!r} depends on its inputs"
    gate = counted(f"sensitive:{group.name}", problems, fine)
    smallest, floor = min(found, key=lambda item: item[0] / item[1], default=(None, LEAST_CHANGE))
    return dataclasses.replace(gate, measured=smallest, threshold=floor)


def _floor(case: Case, group: Group, output: str) -> float:
    """Return the least change of a golden output with which a comparison proves something.

    A change s is the error of an artefact that ignores the input, which so reaches an SNR of −20·log₁₀(s). Labels are
    held to no SNR.
    """
    if any(pair.exact for pair in case.of_output(output)):
        return LEAST_CHANGE
    # No SNR lies below the cap, so a lower limit is the same.
    return max(LEAST_CHANGE, MARGIN * math.pow(10.0, -max(group.snr_db, -SNR_CAP_DB) / 20.0))


def _passes_unseen(case: Case, group: Group, output: str, name: str) -> bool:
    """Return whether, where only input `name` is another, the answer for the old one keeps within the tolerances."""
    golden = {pair.sample: pair.golden for pair in case.of_output(output)}
    before, after = golden.get(PHOTO), golden.get(f"other-{name}")
    if before is None or after is None or before.shape != after.shape:
        return False
    return _accepts(case, group, output, after, before)


def inputs_varied(case: Case) -> Sequence[Gate]:
    """No input is constant only, and floating inputs come in at least two magnitudes."""
    problems = [] if case.inputs else ["there is no input"]
    for name in case.inputs:
        problems += _unvaried(name, [tensors[name] for tensors in case.samples.values() if name in tensors])
        missing = sum(name not in tensors for tensors in case.samples.values())
        problems += [f"input {name!r} is missing in {missing} samples"] if missing else []
    return [counted("inputs_varied", problems, f"{len(case.samples)} samples differ in content and magnitude")]


def _unvaried(name: str, drawn: list[Array]) -> list[str]:
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


def _spread(tensor: Array) -> float:
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
            golden = [pair.golden for pair in case.of_output(output)]
            problems += [
                f"the tolerances of group {group.name!r} would accept {word} as {output!r} in every sample"
                for word, answers in _constants(group, golden)
                if all(_accepts(case, group, output, *pair) for pair in zip(golden, answers, strict=True))
            ]
    return [counted("constant_fails", problems, "no output could pass with the same answer for every sample")]


def _constants(group: Group, golden: list[Array]) -> Iterator[tuple[str, list[Array]]]:
    """Yield the answers that come nearest to all golden ones at once: a word for it, and it for each sample."""
    if not golden:
        return
    shared = len({tensor.shape for tensor in golden}) == 1
    if is_exact(group, golden[0]):
        values, counts = np.unique(np.concatenate([tensor.ravel() for tensor in golden]), return_counts=True)
        if values.size:
            commonest = values[counts.argmax()]
            yield f"the one label {commonest}", [np.full_like(tensor, commonest) for tensor in golden]
        if shared:
            yield "the most frequent label at each place", [_mode(np.stack(golden))] * len(golden)
        return
    yield "zero", [np.zeros_like(tensor) for tensor in golden]
    if shared:
        stacked = np.stack([tensor.astype(np.float64) for tensor in golden])
        with np.errstate(over="ignore", invalid="ignore"):
            yield "the mean of all samples", [np.mean(stacked, axis=0)] * len(golden)
            middle = stacked.min(axis=0) / 2.0 + stacked.max(axis=0) / 2.0
            yield "the middle between the extremes of all samples", [middle] * len(golden)


def _mode(stacked: Array) -> Array:
    """Return the most frequent value along the first axis, at each place."""
    counts = np.stack([(stacked == layer).sum(axis=0) for layer in stacked])
    mode: Array = np.take_along_axis(stacked, counts.argmax(axis=0)[np.newaxis], axis=0)[0]
    return mode


def identity_fails(case: Case) -> Sequence[Gate]:
    """The tolerances would not accept an input itself as an output of its shape."""
    problems, tried = [], 0
    for group in case.options.groups:
        for output, name in itertools.product(group.outputs, case.inputs):
            pairs = [pair for pair in case.of_output(output) if not pair.exact]
            golden = [pair.golden for pair in pairs]
            given = [case.samples.get(pair.sample, {}).get(name, np.zeros(0)) for pair in pairs]
            if not pairs or any(one.shape != other.shape for one, other in zip(golden, given, strict=True)):
                continue
            tried += 1
            if all(_accepts(case, group, output, *pair) for pair in zip(golden, given, strict=True)):
                problems.append(
                    f"the tolerances of group {group.name!r} would accept input {name!r} as {output!r} in every sample"
                )
    return [counted("identity_fails", problems, "no output could pass by returning an input")] if tried else []


def _accepts(case: Case, group: Group, output: str, golden: Array, answer: Array) -> bool:
    """Return whether `answer` keeps within the group's tolerances where errors `MARGIN` times as large are allowed."""
    found = measure(golden, answer)
    snr_db = case.snr_db(output, golden, answer, found)
    if found.max_abs is None or found.cosine is None or snr_db is None:
        return False
    if group.max_abs is not None and found.max_abs > MARGIN * group.max_abs:
        return False
    if is_exact(group, golden):
        return share_equal(golden, answer) >= 1.0 - MARGIN * (1.0 - group.cosine)
    # 1 − cosine grows with the square of the error.
    cosine = 1.0 - MARGIN**2 * (1.0 - group.cosine)
    return found.cosine >= cosine and snr_db >= group.snr_db - 20.0 * math.log10(MARGIN)
