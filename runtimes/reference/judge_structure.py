"""Gates over names, shapes and types: whether the artefact answered at all what it was asked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from runtimes.reference.judge_case import Case, Port
from runtimes.reference.judge_words import Gate, counted, differences, quoted
from runtimes.reference.measures import kind_of


def samples_complete(case: Case) -> Sequence[Gate]:
    """The inputs, the golden outputs and the artefact's outputs are there for the samples that were asked for."""
    asked = case.options.expected_samples
    problems: list[str] = []
    for what, found in (("outputs", case.outputs), ("golden outputs", case.golden), ("inputs", case.samples)):
        problems += differences(
            asked, found, f"sample {{}} has no {what}", f"sample {{}} has {what} that nobody asked for"
        )
    return [counted("samples_complete", problems, f"all {len(asked)} samples are there")]


def outputs_named(case: Case) -> Sequence[Gate]:
    """In every sample the golden outputs and the artefact's are those of the model, and the groups hold the same."""
    names = [port.name for port in case.options.expected_outputs]
    problems: dict[str, list[str]] = {}
    for sample, tensors in case.golden.items():
        found = differences(
            names, tensors, "the golden output {} is missing", "golden output {} is not among the model's"
        )
        made = case.outputs.get(sample)
        if made is not None:
            found += differences(names, made, "output {} is missing", "output {} is not among the model's")
        for problem in found:
            problems.setdefault(problem, []).append(sample)
    told = [f"{problem} in sample {quoted(samples)}" for problem, samples in problems.items()]
    grouped = [output for group in case.options.groups for output in group.outputs]
    told += differences(
        names, grouped, "output {} is in no group", "output {} is in a group, but not among the model's"
    )
    told += [] if names else ["the model has no output"]
    return [counted("outputs_named", told, f"the same outputs everywhere: {quoted(names)}")]


def outputs_declared(case: Case) -> Sequence[Gate]:
    """The artefact declares the model's outputs, in the model's order, of the same size and kind."""
    expected = {port.name: port for port in case.options.expected_outputs}
    given = [port.name for port in case.options.declared_outputs]
    problems = differences(
        expected, given, "output {} is not declared", "output {} is declared, but the model has none such"
    )
    if not problems and given != list(expected):
        problems.append(f"the outputs are declared in the order {given}, the model has them in {list(expected)}")
    for port in case.options.declared_outputs:
        problems += _misdeclared(port, expected[port.name]) if port.name in expected else []
    return [counted("outputs_declared", problems, f"{quoted(given)} as the model has them")]


def _misdeclared(port: Port, expected: Port) -> list[str]:
    """Return how a declared output differs from the model's. The shape may be another layout's, the size may not.

    A size that is known only when the artefact runs is seen there, by `shapes_match`; here the others must leave room.
    """
    problems = []
    sizes = [size for size in port.shape if isinstance(size, int) and size >= 0]
    wanted = math.prod(size for size in expected.shape if isinstance(size, int))
    known, free = math.prod(sizes), len(sizes) < len(port.shape)
    if known != wanted and not (free and known and wanted % known == 0):
        problems.append(
            f"output {port.name!r} is declared as {list(port.shape)}, the model's is {list(expected.shape)}"
        )
    if _kind(port.dtype) != _kind(expected.dtype):
        problems.append(f"output {port.name!r} is declared as {port.dtype!r}, the model's is {expected.dtype!r}")
    return problems


def _kind(dtype: str) -> str:
    """Return the kind of a type, or "" where numpy has no such type of real numbers."""
    try:
        return kind_of(np.empty(0, dtype=np.dtype(dtype)))
    except (TypeError, ValueError):
        return ""


def shapes_match(case: Case) -> Sequence[Gate]:
    """Every output has the golden shape."""
    problems = [
        f"{pair.where} has shape {list(pair.made.shape)}, golden {list(pair.golden.shape)}"
        for pair in case.pairs
        if pair.made is not None and pair.aligned is None
    ]
    return [counted("shapes_match", problems, "every output has the golden shape")]


def dtypes_match(case: Case) -> Sequence[Gate]:
    """Floating stays floating, integer integer, boolean boolean; the width may differ."""
    problems: list[str] = []
    widths: set[str] = set()
    for pair in case.pairs:
        if pair.made is None:
            continue
        golden, made = pair.golden.dtype.name, pair.made.dtype.name
        if kind_of(pair.golden) != kind_of(pair.made):
            problems.append(f"{pair.where} is {made}, golden {golden}")
        elif golden != made:
            widths.add(f"{made} for {golden}")
    return [counted("dtypes_match", problems, ", ".join(["every output is of the golden kind", *sorted(widths)]))]
