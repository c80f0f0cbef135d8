"""Gates over the device: where an accelerator is claimed, it must be seen that it did the work, and not a CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from runtimes.kit.tensors import Array
from runtimes.reference.judge_case import Case, Pair
from runtimes.reference.judge_words import Gate, beside, counted, listed, quoted
from runtimes.reference.measures import same_values

NODES_NAMED = 10
"""So many nodes on other devices are named; the rest is counted."""

ENOUGH = 32
"""With fewer different values that tell something, that they are equal is chance."""

ALMOST_ALL = 0.99
"""So large a share of equal values shows a CPU. An honest float16 device comes to half or three quarters of the rounded
golden values, and near this only with a model that returns its input but for one part in a hundred."""

WIDTHS = (np.float16, np.float32, np.float64)


def placed(case: Case) -> Sequence[Gate]:
    """An accelerator is claimed: there is a list of nodes, all on accepted devices, and one at least on the first."""
    if not case.options.accelerator:
        return []
    nodes, accepted = case.options.placement, case.options.accepted_devices
    if not nodes:
        return [counted("placed", ["an accelerator is claimed, but no list says which node runs where"], "")]
    astray = [f"{node.op} {node.node!r} on {node.device!r}" for node in nodes if node.device not in accepted]
    devices = quoted(accepted) or "any device that is accepted"
    problem = f"{len(astray)} of {len(nodes)} nodes do not run on {devices}: {listed(astray, most=NODES_NAMED)}"
    problems = [problem] if astray else []
    claimed = sum(node.device == accepted[0] for node in nodes) if accepted else 0
    if not astray and not claimed:
        problems.append(f"none of {len(nodes)} nodes runs on {accepted[0]!r}, which is claimed")
    fine = (
        f"{claimed} of {len(nodes)} nodes run on {devices}"
        if len(accepted) < 2
        else (f"{claimed} of {len(nodes)} nodes run on {accepted[0]!r}, the others on {quoted(accepted[1:])}")
    )
    return [counted("placed", problems, fine, measured=float(len(astray)))]


def not_cpu_identical(case: Case) -> Sequence[Gate]:
    """An accelerator is claimed: no output has (almost) all the values of a CPU, whatever the width of either."""
    if not case.options.accelerator:
        return []
    problems: list[str] = []
    shares: list[float] = []
    for output in dict.fromkeys(pair.output for pair in case.pairs):
        telling = _telling(case.of_output(output))
        if sum(int(places.sum()) for _, places in telling) < ENOUGH:
            continue
        given = {sample: tensors[output] for sample, tensors in case.cpu.items() if output in tensors}
        cpu = {pair.sample: given[pair.sample] for pair, _ in telling if _fits(given.get(pair.sample), pair.golden)}
        missing = [pair.sample for pair, _ in telling if pair.sample not in cpu]
        if missing:
            problems.append(f"output {output!r} has no answer of the CPU to compare with in sample {quoted(missing)}")
        golden = {pair.sample: pair.golden for pair, _ in telling}
        for who, answers in (("the reference, which ran on the CPU", golden), ("ONNX Runtime on the CPU", cpu)):
            found = _shares(telling, answers)
            shares += found.values()
            where = [place for place, share in found.items() if share >= ALMOST_ALL]
            if where:
                share = beside(max(found.values()), ALMOST_ALL)
                problems.append(f"output {output!r} has the values of {who} in {listed(where)}: a share of {share}")
    if not problems and not shares:
        return []
    largest = max(shares, default=0.0)
    fine = f"at most a share of {beside(largest, ALMOST_ALL)} of an output's values are those of a CPU"
    gate = counted("not_cpu_identical", problems, fine, measured=largest)
    return [dataclasses.replace(gate, threshold=ALMOST_ALL)]


def _fits(tensor: Array | None, golden: Array) -> bool:
    return tensor is not None and tensor.shape == golden.shape


def _telling(pairs: Sequence[Pair]) -> list[tuple[Pair, NDArray[np.bool_]]]:
    """Return the pairs of one output whose values can tell devices apart, each with the places where they do.

    Whole numbers do not (labels, and what clipping, comparing and counting give on every device alike); nor does what
    is the same in every sample, which is calculated before anything runs.
    """
    first = pairs[0].golden
    moves: Array | bool = True
    if all(pair.golden.shape == first.shape for pair in pairs):
        moves = np.any([~same_values(first, pair.golden) for pair in pairs], axis=0)
    return [(pair, np.isfinite(pair.golden) & (pair.golden != np.rint(pair.golden)) & moves) for pair in pairs]


def _shares(telling: Sequence[tuple[Pair, NDArray[np.bool_]]], answers: Mapping[str, Array]) -> dict[str, float]:
    """Return which share of the telling values is that of `answers`: in each sample with `ENOUGH`, and in all together.

    As many different values as float16 tells apart are asked for: a Softmax of equal scores, or a Sigmoid at its end,
    gives the same few on every device.

    Args:
        telling: what the artefact made, and the places that count.
        answers: sample name to an answer of the golden shape; a sample that is not there is left out.
    """
    compared = {
        f"sample {pair.sample!r}": (_same(pair.aligned, answers[pair.sample])[places], _halves(pair.golden[places]))
        for pair, places in telling
        if pair.aligned is not None and pair.sample in answers
    }
    if compared:
        equal, values = (np.concatenate(each) for each in zip(*compared.values(), strict=True))
        compared["all samples together"] = (equal, values)
    return {
        where: float(equal.mean()) for where, (equal, values) in compared.items() if np.unique(values).size >= ENOUGH
    }


def _halves(golden: Array) -> Array:
    with np.errstate(over="ignore"):
        return golden.astype(np.float16)


def _same(made: Array, answer: Array) -> NDArray[np.bool_]:
    """Return where `made` holds the value of `answer`, or that value rounded to a narrower floating type."""
    with np.errstate(over="ignore"):
        same: NDArray[np.bool_] = np.any([same_values(made, answer.astype(width)) for width in WIDTHS], axis=0)
    return same
