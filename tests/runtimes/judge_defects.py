"""Artefacts that answer wrongly: a good case goes in, one that disagrees comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from runtimes.reference.judge_case import Case
from tests.runtimes.judge_cases import (
    GROUPS,
    SAMPLES,
    asking,
    group,
    mapped,
    only,
    replace,
    with_tensor,
    without,
    without_tensor,
)

Floats = NDArray[np.float32]


def missing_sample(case: Case) -> Case:
    return replace(case, outputs=without(case.outputs, "random-4"))


def sample_nobody_asked_for(case: Case) -> Case:
    return replace(case, outputs={**case.outputs, "random-9": case.outputs["photo"]})


def golden_without_a_sample(case: Case) -> Case:
    return replace(case, golden=without(case.golden, "random-4"))


def inputs_without_a_sample(case: Case) -> Case:
    return replace(case, samples=without(case.samples, "random-1"))


def sample_that_nobody_made(case: Case) -> Case:
    """The three sample sets agree with each other: only the list of what was asked for tells."""
    return asking(case, expected_samples=(*SAMPLES, "other-x"))


def missing_output_in_one_sample(case: Case) -> Case:
    return replace(case, outputs=without_tensor(case.outputs, "random-1", "scores"))


def extra_output(case: Case) -> Case:
    return replace(case, outputs=with_tensor(case.outputs, "photo", "anchors", np.ones(3)))


def renamed_output(case: Case) -> Case:
    outputs = {}
    for sample, tensors in case.outputs.items():
        outputs[sample] = {("score" if name == "scores" else name): tensor for name, tensor in tensors.items()}
    return replace(case, outputs=outputs)


def golden_without_an_output(case: Case) -> Case:
    """Neither side has it, only the configuration knows of it: a comparator of what both sides have would pass."""
    golden = {sample: without(tensors, "scores") for sample, tensors in case.golden.items()}
    outputs = {sample: without(tensors, "scores") for sample, tensors in case.outputs.items()}
    return replace(case, golden=golden, outputs=outputs)


def golden_without_an_output_in_one_sample(case: Case) -> Case:
    return replace(case, golden=without_tensor(case.golden, "photo", "scores"))


def output_in_no_group(case: Case) -> Case:
    return asking(case, groups=GROUPS[:2])


def golden_output_the_model_does_not_have(case: Case) -> Case:
    """No group holds it, and the artefact does not give it."""
    ports = tuple(port for port in case.options.expected_outputs if port.name != "labels")
    outputs = {sample: without(made, "labels") for sample, made in case.outputs.items()}
    case = replace(case, outputs=outputs)
    return asking(case, expected_outputs=ports, declared_outputs=ports, groups=GROUPS[:2])


def another_order(case: Case) -> Case:
    first, second, *others = case.options.declared_outputs
    return asking(case, declared_outputs=(second, first, *others))


def nothing_declared(case: Case) -> Case:
    return asking(case, declared_outputs=())


def declared(case: Case, **changed: str | tuple[int | str, ...]) -> Case:
    """Return the case with the boxes, [1, 4, 10], declared as something else."""
    ports = [
        dataclasses.replace(port, **changed) if port.name == "boxes" else port  # type: ignore[arg-type]
        for port in case.options.declared_outputs
    ]
    return asking(case, declared_outputs=tuple(ports))


def declared_twice(case: Case) -> Case:
    ports = case.options.declared_outputs
    return asking(case, declared_outputs=(*ports, ports[0]))


def flattened_output(case: Case) -> Case:
    return replace(case, outputs=mapped(case.outputs, "boxes", np.ravel))


def whole_numbers_as_floats(case: Case) -> Case:
    return replace(case, outputs=mapped(case.outputs, "labels", lambda labels: labels.astype(np.float32)))


def turned_values(case: Case) -> Case:
    """The boxes point elsewhere by so little that the SNR, 46 dB, lets them pass."""

    def turn(boxes: Floats) -> Floats:
        error = np.resize(np.array([1.0, -1.0], dtype=np.float32), boxes.shape)
        return boxes + error * np.float32(np.sqrt(np.mean(boxes**2)) / 200)

    groups = (GROUPS[0], group("detections", "boxes", "scores", snr_db=40.0), GROUPS[2])
    return asking(replace(case, outputs=mapped(case.outputs, "boxes", turn)), groups=groups)


def scores_against_boxes(case: Case) -> Case:
    """Each output alone has a cosine of 1; together they point elsewhere, since one of the two is scaled."""
    groups = (GROUPS[0], group("detections", "boxes", "scores", snr_db=20.0), GROUPS[2])
    golden = mapped(case.golden, "boxes", lambda boxes: boxes / 320)
    outputs = mapped(mapped(case.outputs, "boxes", lambda boxes: boxes / 320), "scores", lambda scores: scores * 1.05)
    return asking(replace(case, golden=golden, outputs=outputs), groups=groups)


def wrong_scale(case: Case) -> Case:
    return replace(case, outputs=mapped(case.outputs, "boxes", lambda boxes: boxes * np.float32(1.01)))


def one_bad_pixel(case: Case) -> Case:
    """One value of many: neither cosine nor SNR of a loose tolerance sees it."""

    def spoil(picture: Floats) -> Floats:
        spoiled = picture.copy()
        spoiled[0, 1, 2, 3] += 0.1
        return spoiled

    image = group("image", "picture", content="picture", cosine=0.99, snr_db=20.0, max_abs=0.05)
    case = replace(case, outputs=mapped(case.outputs, "picture", spoil))
    return asking(case, groups=(image, *GROUPS[1:]))


def broken_tile(case: Case) -> Case:
    """64 of 12,288 pixels are wrong by a third: the whole picture still has 32 dB."""
    draw = np.random.default_rng(11)
    golden = {sample: {"picture": draw.random((1, 3, 128, 96)).astype(np.float32)} for sample in case.golden}
    made = only(case, "picture", golden, content="picture", cosine=0.999, snr_db=30.0)

    def spoil(picture: Floats) -> Floats:
        spoiled = picture.copy()
        spoiled[..., 40:48, 8:16] += np.float32(0.2)
        return spoiled

    return replace(made, outputs=mapped(made.outputs, "picture", spoil))


def wrong_labels(case: Case) -> Case:
    return replace(case, outputs=mapped(case.outputs, "labels", lambda labels: np.roll(labels, 1)))


DEFECTS: tuple[tuple[str, Callable[[Case], Case]], ...] = (
    ("samples_complete", missing_sample),
    ("samples_complete", sample_nobody_asked_for),
    ("samples_complete", golden_without_a_sample),
    ("samples_complete", inputs_without_a_sample),
    ("samples_complete", sample_that_nobody_made),
    ("outputs_named", missing_output_in_one_sample),
    ("outputs_named", extra_output),
    ("outputs_named", renamed_output),
    ("outputs_named", golden_without_an_output),
    ("outputs_named", golden_without_an_output_in_one_sample),
    ("outputs_named", output_in_no_group),
    ("outputs_named", golden_output_the_model_does_not_have),
    ("outputs_declared", nothing_declared),
    ("outputs_declared", another_order),
    ("outputs_declared", lambda case: declared(case, name="box")),
    ("outputs_declared", lambda case: declared(case, name="scores")),
    ("outputs_declared", lambda case: declared(case, dtype="int32")),
    ("outputs_declared", lambda case: declared(case, dtype="no type")),
    ("outputs_declared", lambda case: declared(case, shape=(1, 4, 9))),
    ("outputs_declared", lambda case: declared(case, shape=(1, 7, "n"))),
    ("outputs_declared", lambda case: declared(case, shape=(1, 3, -1))),
    ("outputs_declared", lambda case: declared(case, shape=(0, -1))),
    ("outputs_declared", declared_twice),
    ("shapes_match", flattened_output),
    ("dtypes_match", whole_numbers_as_floats),
    ("cosine", turned_values),
    ("cosine", scores_against_boxes),
    ("snr", wrong_scale),
    ("max_abs", one_bad_pixel),
    ("equal", wrong_labels),
    ("local", broken_tile),
)
"""The gate that alone catches it, and how a good case becomes one."""
