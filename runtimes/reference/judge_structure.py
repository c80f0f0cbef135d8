"""Gates over names, shapes, types and places: whether the artefact answered at all what it was asked, and where."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from runtimes.reference.judge_case import Case, Pair, Port, all_equal
from runtimes.reference.judge_words import Gate, counted, differences, listed, quoted
from runtimes.reference.measures import Tensor, kind_of

NODES_NAMED = 10
"""So many nodes on other devices are named; the rest is counted."""


def samples_complete(case: Case) -> Sequence[Gate]:
    """The inputs, the golden outputs and the artefact's outputs have the same samples."""
    problems = [
        *differences(
            case.golden, case.outputs, "sample {} has no outputs", "sample {} has outputs that nobody asked for"
        ),
        *differences(
            case.golden, case.samples, "sample {} has no inputs", "sample {} has inputs, but no golden outputs"
        ),
    ]
    return [counted("samples_complete", problems, f"all {len(case.golden)} samples are there")]


def outputs_named(case: Case) -> Sequence[Gate]:
    """In every sample the golden outputs, the artefact's outputs and the groups name the same outputs."""
    names = case.golden_outputs
    problems: dict[str, list[str]] = {}
    for sample, tensors in case.golden.items():
        found = differences(names, tensors, "the golden output {} is missing", "")
        made = case.outputs.get(sample)
        if made is not None:
            found += differences(names, made, "output {} is missing", "output {} is not among the golden ones")
        for problem in found:
            problems.setdefault(problem, []).append(sample)
    told = [f"{problem} in sample {quoted(samples)}" for problem, samples in problems.items()]
    grouped = [output for group in case.options.groups for output in group.outputs]
    told += differences(
        names, grouped, "output {} is in no group", "output {} is in a group, but not among the golden ones"
    )
    told += [] if names else ["there is no golden output"]
    return [counted("outputs_named", told, f"the same outputs everywhere: {quoted(names)}")]


def outputs_declared(case: Case) -> Sequence[Gate]:
    """The artefact declares the model's outputs, in the model's order, of the same size and kind."""
    expected, declared = case.options.expected_outputs, case.options.declared_outputs
    if not expected and not declared:
        return []
    wanted = [port.name for port in expected] or sorted(case.golden_outputs)
    given = [port.name for port in declared]
    problems = differences(
        wanted, given, "output {} is not declared", "output {} is declared, but the model has none such"
    )
    if len(set(given)) < len(given):
        problems.append(f"the outputs {given} are declared, one of them twice")
    if not problems and expected and given != wanted:
        problems.append(f"the outputs are declared in the order {given}, the model has them in the order {wanted}")
    for port in declared:
        pairs = case.of_output(port.name)
        problems += _misdeclared(port, pairs[0].golden) if pairs else []
    return [counted("outputs_declared", problems, f"{quoted(given)} as the model has them")]


def _misdeclared(port: Port, golden: Tensor) -> list[str]:
    """Return how a declared output differs from the golden one. The shape may be another layout's, the size may not."""
    problems = []
    sizes = [size for size in port.shape if isinstance(size, int)]
    if len(sizes) < len(port.shape):
        problems.append(f"output {port.name!r} is declared with a free dimension: {list(port.shape)}")
    elif math.prod(sizes) != golden.size:
        problems.append(f"output {port.name!r} is declared as {sizes}, golden is {list(golden.shape)}")
    try:
        kind = kind_of(np.empty(0, dtype=np.dtype(port.dtype)))
    except (TypeError, ValueError):
        kind = ""
    if kind != kind_of(golden):
        problems.append(f"output {port.name!r} is declared as {port.dtype!r}, golden is {golden.dtype.name}")
    return problems


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


def placed(case: Case) -> Sequence[Gate]:
    """An accelerator is claimed: there is a list of nodes, all on accepted devices."""
    if not case.options.accelerator:
        return []
    nodes, accepted = case.options.placement, case.options.accepted_devices
    if not nodes:
        return [counted("placed", ["an accelerator is claimed, but no list says which node runs where"], "")]
    astray = [f"{node.op} {node.node!r} on {node.device!r}" for node in nodes if node.device not in accepted]
    devices = quoted(accepted) or "any device that is accepted"
    problem = f"{len(astray)} of {len(nodes)} nodes do not run on {devices}: {listed(astray, most=NODES_NAMED)}"
    fine = f"all {len(nodes)} nodes run on {devices}"
    return [counted("placed", [problem] if astray else [], fine, measured=float(len(astray)))]


def not_cpu_identical(case: Case) -> Sequence[Gate]:
    """An accelerator is claimed: no output has exactly the values of a CPU in every sample."""
    if not case.options.accelerator:
        return []
    problems = [problem for output in case.golden_outputs for problem in _cpu_like(case, case.of_output(output))]
    return [counted("not_cpu_identical", problems, "the values are not those of a CPU")]


def _cpu_like(case: Case, pairs: tuple[Pair, ...]) -> list[str]:
    """Return what is suspicious about one output. Labels, and an answer that never changes, show nothing either way."""
    if not pairs or kind_of(pairs[0].golden) != "floating" or all_equal([pair.golden for pair in pairs]):
        return []
    output = pairs[0].output
    problems = []
    if _identical(pairs, {pair.sample: pair.golden for pair in pairs}):
        problems.append(f"output {output!r} is bit-identical to the reference, which ran on the CPU, in every sample")
    cpu = {sample: tensors[output] for sample, tensors in case.cpu.items() if output in tensors}
    missing = [pair.sample for pair in pairs if pair.sample not in cpu]
    if missing:
        problems.append(f"output {output!r} has no answer of the CPU to compare with in sample {quoted(missing)}")
    elif _identical(pairs, cpu):
        problems.append(f"output {output!r} is bit-identical to ONNX Runtime on the CPU in every sample")
    return problems


def _identical(pairs: tuple[Pair, ...], answers: Mapping[str, Tensor]) -> bool:
    """Return whether the artefact gave exactly these answers wherever it gave one."""
    made = [(pair.made, answers[pair.sample]) for pair in pairs if pair.made is not None]
    return bool(made) and all(all_equal([one, answer]) for one, answer in made)
