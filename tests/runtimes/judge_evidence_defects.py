"""Comparisons that prove nothing: a good case goes in, a vacuous one comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from runtimes.kit.tensors import Array
from runtimes.reference.judge_case import Case, Samples
from tests.runtimes.judge_cases import (
    GROUPS,
    SAMPLES,
    asking,
    group,
    mapped,
    only,
    replace,
    with_tensor,
    with_tokens,
    without,
    without_tensor,
)

Floats = NDArray[np.float32]


def golden_with_an_infinity(case: Case) -> Case:
    def spoil(scores: Floats) -> Floats:
        spoiled = scores.copy()
        spoiled[0, 0, 0] = np.inf
        return spoiled

    return replace(case, golden=mapped(case.golden, "scores", spoil), outputs=mapped(case.outputs, "scores", spoil))


def insensitive_output(case: Case) -> Case:
    return asking(case, sensitivity={**case.options.sensitivity, "scores": {"x": 1e-6}})


def change_that_the_tolerances_would_not_see(case: Case) -> Case:
    """Half of the largest error that 30 dB allow: an artefact that gives the mean of two answers would pass."""
    scores = group("scores", "scores", cosine=0.999, snr_db=30.0)
    groups = (GROUPS[0], group("boxes", "boxes"), scores, GROUPS[2])
    return asking(case, groups=groups, sensitivity={**case.options.sensitivity, "scores": {"x": 0.06}})


def snr_that_anything_reaches(case: Case) -> Case:
    groups = (group("image", "picture", content="picture", snr_db=-1e9), *GROUPS[1:])
    return asking(case, groups=groups)


def with_other_tokens(case: Case, output: str, change: Callable[[Array], Array]) -> Case:
    """Return the case with a second input, and a sample in which only that is another; it changes one output."""
    case = with_tokens(case, lambda number: np.arange(14).reshape(2, 7) + number)

    def put(tensors: Samples, photo: Mapping[str, Array]) -> Samples:
        return {"other-tokens" if sample == "random-1" else sample: found for sample, found in tensors.items()} | {
            "other-tokens": {**tensors["random-1"], **photo}
        }

    answer = {output: change(case.golden["photo"][output])}
    samples = put(case.samples, {"x": case.samples["photo"]["x"]})
    case = replace(case, samples=samples, golden=put(case.golden, answer), outputs=put(case.outputs, answer))
    return asking(case, expected_samples=tuple(samples))


def labels_that_ignore_the_tokens(case: Case) -> Case:
    """Where the tokens are others, one label of ten is: half as many may be wrong."""
    case = with_other_tokens(case, "labels", lambda labels: labels + (np.arange(10) == 3))
    return asking(case, groups=(*GROUPS[:2], group("classes", "labels", cosine=0.95)))


def boxes_that_ignore_the_tokens(case: Case) -> Case:
    """The number that prepare gave says otherwise; what golden does counts."""
    return with_other_tokens(case, "boxes", lambda boxes: boxes * np.float32(1.0015))


def unknown_sensitivity(case: Case) -> Case:
    return asking(case, sensitivity=without(case.options.sensitivity, "scores"))


def sensitivity_without_a_number(case: Case) -> Case:
    return asking(case, sensitivity={**case.options.sensitivity, "scores": {"x": None}})


def sensitivity_that_is_nan(case: Case) -> Case:
    return asking(case, sensitivity={**case.options.sensitivity, "scores": {"x": float("nan")}})


def sensitivity_that_is_infinite(case: Case) -> Case:
    return asking(case, sensitivity={**case.options.sensitivity, "scores": {"x": float("inf")}})


def input_that_moves_nothing(case: Case) -> Case:
    """Every group says that it depends on x only, so tokens are never looked at."""
    draw = np.random.default_rng(3)
    tokens = {sample: {**tensors, "tokens": draw.integers(0, 99, (2, 7))} for sample, tensors in case.samples.items()}
    groups = tuple(dataclasses.replace(one, inputs=("x",)) for one in GROUPS)
    return asking(replace(case, samples=tokens), groups=groups)


def constant_inputs(case: Case) -> Case:
    return replace(case, samples=mapped(case.samples, "x", lambda x: np.full_like(x, x.flat[0])))


def one_magnitude(case: Case) -> Case:
    return replace(case, samples=mapped(case.samples, "x", lambda x: x / x.max()))


def one_input_for_all(case: Case) -> Case:
    return replace(case, samples=mapped(case.samples, "x", lambda _: case.samples["photo"]["x"]))


def inputs_that_are_not_finite(case: Case) -> Case:
    return replace(case, samples=mapped(case.samples, "x", lambda x: np.where(x == x.max(), np.nan, x)))


def zero_and_one_magnitude(case: Case) -> Case:
    zero = np.zeros_like(case.samples["photo"]["x"])
    return replace(case, samples=with_tensor(one_magnitude(case).samples, "photo", "x", zero))


def tokens_that_never_change(case: Case) -> Case:
    return with_tokens(case, lambda _: np.arange(14).reshape(2, 7))


def constant_tokens(case: Case) -> Case:
    return with_tokens(case, lambda number: np.full((2, 7), number))


def tokens_missing_in_a_sample(case: Case) -> Case:
    case = with_tokens(case, lambda number: np.arange(14).reshape(2, 7) + number)
    return replace(case, samples=without_tensor(case.samples, "photo", "tokens"))


def no_inputs(case: Case) -> Case:
    return asking(replace(case, samples={sample: {} for sample in case.samples}), sensitivity={})


def boxes_that_hardly_move(case: Case) -> Case:
    """A million beside a change of 10: an output that never changes scores a cosine and an SNR that pass."""
    still = mapped(case.golden, "boxes", lambda boxes: 1e6 + boxes / 32)
    return replace(case, golden=still, outputs=mapped(still, "boxes", lambda boxes: np.full_like(boxes, 1e6)))


def labels_that_never_change(case: Case) -> Case:
    same = mapped(case.golden, "labels", lambda _: np.arange(10).reshape(1, 10))
    return replace(case, golden=same, outputs=mapped(case.outputs, "labels", lambda _: np.arange(10).reshape(1, 10)))


def labels_with_one_place_of_ten_that_changes(case: Case) -> Case:
    """Ten labels, one of them another in each sample, each time elsewhere: no sample's own labels suit the others."""

    def drawn(number: int) -> Array:
        labels = np.arange(10).reshape(1, 10)
        labels[0, number] = 50
        return labels

    golden = {sample: {"labels": drawn(number)} for number, sample in enumerate(SAMPLES)}
    return only(case, "labels", golden, cosine=0.95)


def masks_of_mostly_background(case: Case) -> Case:
    """Background is 255, and no two masks have one size."""

    def drawn(number: int) -> Array:
        mask = np.full((1, 8, 8 + number), 255, dtype=np.uint8)
        mask[0, number, :3] = number
        return mask

    golden = {sample: {"mask": drawn(number)} for number, sample in enumerate(SAMPLES)}
    return only(case, "mask", golden, cosine=0.95)


def masks_that_are_mostly_false(case: Case) -> Case:
    def drawn(number: int) -> Array:
        mask = np.zeros((1, 8, 8 + number), dtype=np.bool_)
        mask[0, number, :3] = True
        return mask

    golden = {sample: {"mask": drawn(number)} for number, sample in enumerate(SAMPLES)}
    return only(case, "mask", golden, cosine=0.95)


def spikes(height: float) -> Samples:
    """Return golden values of 1, a third of them 1 + `height`: each time another third."""
    places = np.arange(300) % 3
    return {
        sample: {"y": (1 + height * (places == number)).astype(np.float32)} for number, sample in enumerate(SAMPLES)
    }


def values_that_their_mean_meets(case: Case) -> Case:
    """The mean lies 26.8 dB off, the middle between the extremes 26.3 dB; 32.5 dB less a margin of 6 are asked for."""
    return only(case, "y", spikes(0.1), cosine=0.9, snr_db=32.5)


def values_that_their_middle_meets(case: Case) -> Case:
    """The middle lies 0.05 off everywhere, the mean 0.067 at some places; twice 0.03 are allowed."""
    return only(case, "y", spikes(0.1), cosine=0.9, snr_db=20.0, max_abs=0.03)


def values_that_zero_meets(case: Case) -> Case:
    """The tolerances ask for nothing but a direction that is not opposite; the shapes differ, so there is no mean."""
    golden = {sample: {"y": case.golden[sample]["boxes"][..., number:]} for number, sample in enumerate(SAMPLES)}
    return asking(only(case, "y", golden, cosine=0.5, snr_db=1.0), sensitivity={"y": {"x": 2.0}})


def returned_input(case: Case) -> Case:
    def put(answers: Samples) -> Samples:
        return {sample: {**tensors, "picture": case.samples[sample]["x"]} for sample, tensors in answers.items()}

    return replace(case, golden=put(case.golden), outputs=put(case.outputs))


def input_within_twice_the_tolerance(case: Case) -> Case:
    """The golden picture is the input but for an error of 0.0015 of it, 56 dB: 60 are asked for."""
    case = returned_input(case)
    near = mapped(case.golden, "picture", lambda picture: picture + 0.0015 * np.roll(picture, 1))
    outputs = {sample: {**made, "picture": near[sample]["picture"]} for sample, made in case.outputs.items()}
    return replace(case, golden=near, outputs=outputs)


DEFECTS: tuple[tuple[str, Callable[[Case], Case]], ...] = (
    ("golden_finite", golden_with_an_infinity),
    ("sensitive", insensitive_output),
    ("sensitive", change_that_the_tolerances_would_not_see),
    ("sensitive", snr_that_anything_reaches),
    ("sensitive", labels_that_ignore_the_tokens),
    ("sensitive", boxes_that_ignore_the_tokens),
    ("sensitive", unknown_sensitivity),
    ("sensitive", sensitivity_without_a_number),
    ("sensitive", sensitivity_that_is_nan),
    ("sensitive", sensitivity_that_is_infinite),
    ("sensitive", input_that_moves_nothing),
    ("inputs_varied", constant_inputs),
    ("inputs_varied", one_magnitude),
    ("inputs_varied", one_input_for_all),
    ("inputs_varied", inputs_that_are_not_finite),
    ("inputs_varied", zero_and_one_magnitude),
    ("inputs_varied", no_inputs),
    ("inputs_varied", tokens_that_never_change),
    ("inputs_varied", constant_tokens),
    ("inputs_varied", tokens_missing_in_a_sample),
    ("constant_fails", boxes_that_hardly_move),
    ("constant_fails", labels_that_never_change),
    ("constant_fails", labels_with_one_place_of_ten_that_changes),
    ("constant_fails", masks_of_mostly_background),
    ("constant_fails", masks_that_are_mostly_false),
    ("constant_fails", values_that_their_mean_meets),
    ("constant_fails", values_that_their_middle_meets),
    ("constant_fails", values_that_zero_meets),
    ("identity_fails", returned_input),
    ("identity_fails", input_within_twice_the_tolerance),
)
"""The gate that alone catches it, and how a good case becomes one."""
