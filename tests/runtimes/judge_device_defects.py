"""Artefacts that run elsewhere than they claim: a case of an accelerator that disagrees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from runtimes.kit.tensors import Array
from runtimes.reference.judge_case import Case, Placed
from tests.runtimes.judge_cases import (
    GROUPS,
    accelerated,
    asking,
    claimed,
    mapped,
    only,
    replace,
    with_tensor,
    without_tensor,
)

Floats = NDArray[np.float32]


def node_on_the_cpu(_: Case) -> Case:
    case = accelerated()
    stray = Placed(node="/model.12/attn/Einsum", op="Einsum", device="CPU")
    return asking(case, placement=(*case.options.placement, stray))


def no_node_on_the_accelerator(_: Case) -> Case:
    case = accelerated(accepted_devices=("NPU", "CPU"))
    return asking(case, placement=tuple(dataclasses.replace(node, device="CPU") for node in case.options.placement))


def no_list_of_nodes(_: Case) -> Case:
    return accelerated(placement=())


def no_accepted_device(_: Case) -> Case:
    return accelerated(accepted_devices=())


def cpu_answers(_: Case) -> Case:
    case = accelerated()
    return replace(case, outputs=case.cpu)


def cpu_answers_in_one_output(_: Case) -> Case:
    return given_by_the_cpu("boxes", lambda boxes, _: boxes)


def cpu_answers_in_one_sample(_: Case) -> Case:
    case = accelerated()
    return replace(case, outputs={**case.outputs, "random-1": case.cpu["random-1"]})


def copied_golden(_: Case) -> Case:
    case = accelerated()
    return replace(case, outputs=case.golden)


def given_by_the_cpu(output: str, change: Callable[[Floats, str], Array]) -> Case:
    """Return a case of float16's tolerances whose accelerator gives what `change` makes of the CPU's answers."""
    groups = tuple(dataclasses.replace(one, cosine=0.999, snr_db=30.0) for one in GROUPS[:2])
    case = accelerated(groups=(*groups, GROUPS[2]))
    outputs = {
        sample: {**made, output: change(case.cpu[sample][output], sample)} for sample, made in case.outputs.items()
    }
    return replace(case, outputs=outputs)


def cpu_answers_in_another_width(_: Case) -> Case:
    return given_by_the_cpu("boxes", lambda boxes, _: boxes.astype(np.float64))


def cpu_answers_as_halves(_: Case) -> Case:
    return given_by_the_cpu("boxes", lambda boxes, _: boxes.astype(np.float16))


def cpu_answers_rounded_to_halves(_: Case) -> Case:
    return given_by_the_cpu("boxes", lambda boxes, _: boxes.astype(np.float16).astype(np.float32))


def golden_as_halves(_: Case) -> Case:
    case = given_by_the_cpu("boxes", lambda boxes, _: boxes)
    return replace(
        case,
        outputs={
            sample: {**made, "boxes": case.golden[sample]["boxes"].astype(np.float16)}
            for sample, made in case.outputs.items()
        },
    )


def changed_at(boxes: Floats, places: slice | int) -> Floats:
    """Return the boxes with the last bit of some of them another."""
    changed = boxes.copy()
    changed.reshape(-1).view(np.int32)[places] ^= 1
    return changed


def cpu_answers_but_for_one_bit_in_one_sample(_: Case) -> Case:
    return given_by_the_cpu("boxes", lambda boxes, sample: changed_at(boxes, 7) if sample == "photo" else boxes)


def cpu_answers_but_for_one_bit_in_each_sample(_: Case) -> Case:
    """One of 144 values."""
    return given_by_the_cpu("picture", lambda picture, _: changed_at(picture, 7))


def few_cpu_answers(_: Case) -> Case:
    """Eleven values in each sample are few, but 33 in all are not."""
    case = accelerated()
    cut = {
        name: mapped(getattr(case, name), "scores", lambda scores: scores[..., :11].reshape(-1)[:11])
        for name in ("golden", "outputs", "cpu")
    }
    ports = tuple(
        dataclasses.replace(port, shape=(11,)) if port.name == "scores" else port
        for port in case.options.expected_outputs
    )
    case = asking(replace(case, **cut), expected_outputs=ports, declared_outputs=ports)
    outputs = {sample: {**made, "scores": case.cpu[sample]["scores"]} for sample, made in case.outputs.items()}
    return replace(case, outputs=outputs)


def cpu_answers_among_whole_numbers(_: Case) -> Case:
    """Most values are clipped to 0 and 1 and equal on any device; those between show whose they are."""

    def clip(picture: Floats) -> Floats:
        return (picture * 4 - 2).clip(0, 1)

    case = given_by_the_cpu("picture", lambda picture, _: changed_at(picture, slice(0)))
    return replace(
        case, **{name: mapped(getattr(case, name), "picture", clip) for name in ("golden", "outputs", "cpu")}
    )


def cpu_answers_to_doubles(_: Case) -> Case:
    """A model of float64, which the CPU answered in float32."""
    case = accelerated()
    wide = {
        name: mapped(getattr(case, name), "boxes", lambda boxes: boxes * np.float64(1 + 1e-9))
        for name in ("golden", "cpu")
    }
    outputs = {
        sample: {**made, "boxes": wide["cpu"][sample]["boxes"].astype(np.float32)}
        for sample, made in case.outputs.items()
    }
    return replace(case, **wide, outputs=outputs)


def cpu_answers_of_another_shape_each_time(_: Case) -> Case:
    case = accelerated()
    golden = {
        sample: {"y": tensors["boxes"][..., number:]} for number, (sample, tensors) in enumerate(case.golden.items())
    }
    return claimed(replace(only(case, "y", golden), cpu=golden))


def no_cpu_answer(_: Case) -> Case:
    case = accelerated()
    return replace(case, cpu=without_tensor(case.cpu, "photo", "boxes"))


def cpu_answer_of_another_shape(_: Case) -> Case:
    case = accelerated()
    return replace(case, cpu=with_tensor(case.cpu, "photo", "boxes", case.cpu["photo"]["boxes"].ravel()))


DEFECTS: tuple[tuple[str, Callable[[Case], Case]], ...] = (
    ("placed", node_on_the_cpu),
    ("placed", no_node_on_the_accelerator),
    ("placed", no_list_of_nodes),
    ("placed", no_accepted_device),
    ("not_cpu_identical", cpu_answers),
    ("not_cpu_identical", cpu_answers_in_one_output),
    ("not_cpu_identical", cpu_answers_in_one_sample),
    ("not_cpu_identical", copied_golden),
    ("not_cpu_identical", cpu_answers_in_another_width),
    ("not_cpu_identical", cpu_answers_as_halves),
    ("not_cpu_identical", cpu_answers_rounded_to_halves),
    ("not_cpu_identical", golden_as_halves),
    ("not_cpu_identical", cpu_answers_but_for_one_bit_in_one_sample),
    ("not_cpu_identical", cpu_answers_but_for_one_bit_in_each_sample),
    ("not_cpu_identical", few_cpu_answers),
    ("not_cpu_identical", cpu_answers_among_whole_numbers),
    ("not_cpu_identical", cpu_answers_to_doubles),
    ("not_cpu_identical", cpu_answers_of_another_shape_each_time),
    ("not_cpu_identical", no_cpu_answer),
    ("not_cpu_identical", cpu_answer_of_another_shape),
)
"""The gate that alone catches it, and how a good case becomes one."""
