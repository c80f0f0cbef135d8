from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from runtimes.contract import Verdict
from runtimes.kit.tensors import Array
from runtimes.reference.judge import decide
from runtimes.reference.judge_case import Samples, all_equal
from runtimes.reference.judge_words import beside, no_better
from tests.runtimes.judge_cases import (
    GROUPS,
    OUTPUTS,
    SAMPLES,
    accelerated,
    asking,
    good,
    group,
    mapped,
    only,
    replace,
    with_tensor,
    without,
    without_tensor,
)

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
GOOD = good()
FLOATING = ("boxes", "picture", "scores")


def _at_one_place(tensor: Array, place: int, value: float) -> Array:
    spoiled = tensor.copy()
    spoiled.flat[place % tensor.size] = value
    return spoiled


# Each spoils one output of one sample: (tensor, a number that hypothesis draws) -> another tensor.
VALUES: Mapping[str, Callable[[Array, int], Array]] = {
    "NaN at one place": lambda tensor, place: _at_one_place(tensor, place, math.nan),
    "infinity at one place": lambda tensor, place: _at_one_place(tensor, place, -math.inf),
    "all NaN": lambda tensor, _: np.full_like(tensor, np.nan),
    "constant": lambda tensor, place: np.full_like(tensor, tensor.flat[place % tensor.size]),
    "zero": lambda tensor, _: np.zeros_like(tensor),
    "mean": lambda tensor, _: np.full_like(tensor, tensor.mean()),
    "scaled by 1.01": lambda tensor, _: tensor * np.float32(1.01),
    "scaled by 0.99": lambda tensor, _: tensor * np.float32(0.99),
    "negative": lambda tensor, _: -tensor,
    "offset": lambda tensor, _: tensor + np.float32(0.01) * np.abs(tensor).max(),
    "shuffled": lambda tensor, seed: np.random.default_rng(seed).permutation(tensor.ravel()).reshape(tensor.shape),
    "shifted by one": lambda tensor, _: np.roll(tensor, 1, axis=-1),
    "mirrored": lambda tensor, _: tensor[..., ::-1].copy(),
    "clipped": lambda tensor, _: tensor.clip(0, np.float32(0.9) * tensor.max()),
    "of eight bits": lambda tensor, _: (np.rint(tensor / tensor.max() * 127) / 127 * tensor.max()).astype(np.float32),
    "its channels swapped": lambda tensor, _: tensor[:, ::-1].copy(),
    "transposed": lambda tensor, _: np.swapaxes(tensor, -1, -2).copy(),
    "transposed, its shape kept": lambda tensor, _: np.swapaxes(tensor, -1, -2).reshape(tensor.shape).copy(),
    "channels last, its shape kept": lambda tensor, _: np.moveaxis(tensor, 1, -1).reshape(tensor.shape).copy(),
    "flat": lambda tensor, _: tensor.ravel(),
    "without its batch": lambda tensor, _: tensor[0],
    "cut off": lambda tensor, _: tensor[..., :-1].copy(),
    "empty": lambda tensor, _: tensor[..., :0].copy(),
    "whole numbers": lambda tensor, _: np.rint(tensor).astype(np.int32),
    "truth values": lambda tensor, _: tensor > tensor.mean(),
}

# Each spoils the set of outputs: (outputs, sample, output, another output of the same shape) -> other outputs.
SETS: Mapping[str, Callable[[Samples, str, str], Samples]] = {
    "an output is missing": without_tensor,
    "an output is missing everywhere": lambda outputs, _, name: {
        sample: without(made, name) for sample, made in outputs.items()
    },
    "an output is renamed": lambda outputs, sample, name: with_tensor(
        without_tensor(outputs, sample, name), sample, f"{name}_1", outputs[sample][name]
    ),
    "an output is too many": lambda outputs, sample, name: with_tensor(
        outputs, sample, f"{name}_1", outputs[sample][name]
    ),
    "boxes are scores": lambda outputs, sample, _: {
        **outputs,
        sample: {**outputs[sample], "boxes": outputs[sample]["scores"], "scores": outputs[sample]["boxes"]},
    },
    "a sample is missing": lambda outputs, sample, _: without(outputs, sample),
    "a sample is too many": lambda outputs, sample, _: {**outputs, f"{sample}-1": outputs[sample]},
    "a sample is renamed": lambda outputs, sample, _: {**without(outputs, sample), f"{sample}-1": outputs[sample]},
    "all samples are this one": lambda outputs, sample, _: dict.fromkeys(outputs, outputs[sample]),
    "nothing": lambda _outputs, _sample, _name: {},
    "nothing in it": lambda outputs, sample, _: {**outputs, sample: {}},
}


@settings(PATIENT, max_examples=300)
@given(
    corruption=st.sampled_from(sorted(VALUES)),
    sample=st.sampled_from(SAMPLES),
    output=st.sampled_from(FLOATING),
    number=st.integers(0, 2**16),
)
def test_no_spoiled_value_agrees(corruption: str, sample: str, output: str, number: int) -> None:
    spoiled = VALUES[corruption](GOOD.outputs[sample][output], number)
    case = replace(GOOD, outputs=with_tensor(GOOD.outputs, sample, output, spoiled))
    assert decide(case).verdict is Verdict.DISAGREES
    assert any(repr(output) in reason or repr(sample) in reason for reason in decide(case).reasons)


@pytest.mark.parametrize("corruption", SETS)
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("output", OUTPUTS)
def test_no_spoiled_set_of_outputs_agrees(corruption: str, sample: str, output: str) -> None:
    case = replace(GOOD, outputs=SETS[corruption](GOOD.outputs, sample, output))
    assert decide(case).verdict is Verdict.DISAGREES


@pytest.mark.parametrize("label", [0, 3, 9])
def test_one_wrong_label_of_ten_disagrees(label: int) -> None:
    labels = GOOD.outputs["photo"]["labels"].copy()
    labels[0, label] += 1
    case = replace(GOOD, outputs=with_tensor(GOOD.outputs, "photo", "labels", labels))
    assert decide(case).verdict is Verdict.DISAGREES


def test_labels_past_the_reach_of_a_double_are_compared_exactly() -> None:
    golden = mapped(GOOD.golden, "labels", lambda labels: labels + 2**60)
    same = replace(GOOD, golden=golden, outputs=mapped(GOOD.outputs, "labels", lambda labels: labels + 2**60))
    wrong = replace(GOOD, golden=golden, outputs=mapped(GOOD.outputs, "labels", lambda labels: labels + 2**60 + 1))
    assert decide(same).verdict is Verdict.AGREES
    assert decide(wrong).verdict is Verdict.DISAGREES


def test_channels_given_last_disagree_even_where_every_side_is_as_long() -> None:
    draw = np.random.default_rng(1)
    cube = {sample: {"y": draw.random((1, 8, 8, 8)).astype(np.float32)} for sample in SAMPLES}
    last = mapped(cube, "y", lambda y: np.moveaxis(y, 1, -1))
    case = only(GOOD, "y", cube, cosine=0.95, snr_db=20.0)
    assert decide(case).verdict is Verdict.AGREES
    assert decide(replace(case, outputs=last)).verdict is Verdict.DISAGREES


def test_a_narrower_float_agrees_where_the_tolerance_allows_it() -> None:
    half = {
        sample: {name: tensor.astype(np.float16) if name in FLOATING else tensor for name, tensor in made.items()}
        for sample, made in GOOD.golden.items()
    }
    groups = tuple(group(one.name, *one.outputs, cosine=0.999, snr_db=30.0) for one in GROUPS)
    decision = decide(asking(replace(GOOD, outputs=half), groups=groups))
    assert decision.verdict is Verdict.AGREES
    assert "float16 for float32" in next(gate.detail for gate in decision.gates if gate.name == "dtypes_match")


def test_a_small_output_is_not_hidden_by_a_large_one_of_its_group() -> None:
    """Boxes are hundreds of times larger than scores; over both as one vector wrong scores would pass."""
    wrong = replace(GOOD, outputs=mapped(GOOD.outputs, "scores", lambda scores: scores * 0.5))
    failed = [gate.name for gate in decide(wrong).gates if not gate]
    assert failed == ["snr:detections"]


def test_a_wrong_artefact_disagrees_even_where_the_evidence_is_weak() -> None:
    weak = asking(GOOD, sensitivity={})
    assert decide(weak).verdict is Verdict.VACUOUS
    wrong = decide(replace(weak, outputs=mapped(GOOD.outputs, "scores", np.zeros_like)))
    assert wrong.verdict is Verdict.DISAGREES
    assert "scores" in wrong.reasons[0]
    assert any("is not known to change" in reason for reason in wrong.reasons)


@pytest.mark.parametrize("golden", [{}, {sample: {} for sample in SAMPLES}])
def test_nothing_to_compare_is_never_green(golden: Samples) -> None:
    empty = replace(GOOD, golden=golden, outputs=golden)
    assert decide(empty).verdict is not Verdict.AGREES
    assert decide(empty, {}).verdict is Verdict.VACUOUS


def test_a_model_without_outputs_is_told() -> None:
    empty: Samples = {sample: {} for sample in SAMPLES}
    case = asking(replace(GOOD, golden=empty, outputs=empty), groups=(), expected_outputs=(), declared_outputs=())
    decision = decide(case)
    assert decision.verdict is Verdict.DISAGREES
    assert decision.reasons == ("the model has no output", "no value was compared with a golden one")


def test_golden_values_that_are_nowhere_finite_prove_nothing() -> None:
    golden = mapped(GOOD.golden, "scores", lambda scores: np.full_like(scores, np.nan))
    assert decide(replace(GOOD, golden=golden)).verdict is Verdict.VACUOUS


def test_a_value_at_its_threshold_holds() -> None:
    groups = tuple(dataclasses.replace(one, cosine=1.0, snr_db=200.0, max_abs=0.0) for one in GROUPS)
    assert decide(asking(replace(GOOD, outputs=GOOD.golden), groups=groups)).verdict is Verdict.AGREES


def test_the_values_of_a_picture_are_no_labels_even_when_they_are_whole_numbers() -> None:
    whole = mapped(GOOD.golden, "picture", lambda picture: (picture * 250).astype(np.uint8))
    near = replace(GOOD, golden=whole, outputs=mapped(whole, "picture", lambda picture: picture + np.uint8(1)))
    groups = (dataclasses.replace(GROUPS[0], cosine=0.999, snr_db=30.0), *GROUPS[1:])
    near = replace(
        near,
        outputs={sample: {**GOOD.outputs[sample], "picture": near.outputs[sample]["picture"]} for sample in SAMPLES},
    )
    assert decide(asking(near, groups=groups)).verdict is Verdict.AGREES
    assert decide(near).verdict is Verdict.DISAGREES


@pytest.mark.parametrize(
    ("golden", "limits"),
    [
        # The same direction at another length: only the SNR tells them apart.
        (lambda _, number: np.abs(GOOD.golden["photo"]["boxes"]) * (number + 1), {"cosine": 0.9, "snr_db": 30.0}),
        # A small change beside a large value: only the largest difference does.
        (lambda boxes, _: 1e4 + boxes / 32, {"cosine": 0.9, "snr_db": 30.0, "max_abs": 0.5}),
        # Another shape each time: no constant answer has them all.
        (lambda boxes, number: boxes[..., number:], {}),
    ],
)
def test_an_output_that_a_constant_answer_cannot_meet_is_not_vacuous(
    golden: Callable[[Array, int], Array], limits: Mapping[str, float]
) -> None:
    boxes = {sample: {"boxes": golden(GOOD.golden[sample]["boxes"], number)} for number, sample in enumerate(SAMPLES)}
    case = only(GOOD, "boxes", boxes, **limits)
    assert decide(case).verdict is Verdict.AGREES


@pytest.mark.parametrize(
    ("tensors", "equal"),
    [
        ([], True),
        ([np.ones(3)], True),
        ([np.ones(3), np.ones(3, dtype=np.float16)], True),
        ([np.array([np.nan]), np.array([np.nan])], True),
        ([np.ones(3), np.ones(1)], False),
        ([np.ones((1, 3)), np.ones((3, 1))], False),
        ([np.ones(3), np.ones(3), np.zeros(3)], False),
    ],
)
def test_tensors_are_equal_in_shape_and_value_or_not_at_all(tensors: list[Array], equal: bool) -> None:
    assert all_equal(tensors) is equal


def test_one_sample_shows_no_dependence_and_is_vacuous() -> None:
    one = {"photo"}
    case = replace(
        GOOD, **{name: {key: getattr(GOOD, name)[key] for key in one} for name in ("samples", "golden", "outputs")}
    )
    decision = decide(asking(case, expected_samples=("photo",)))
    assert decision.verdict is Verdict.VACUOUS
    assert {gate.name for gate in decision.gates if not gate} == {"inputs_varied", "constant_fails"}


def test_a_group_may_depend_on_some_of_the_inputs() -> None:
    draw = np.random.default_rng(3)
    two = {sample: {**given, "tokens": draw.integers(0, 99, (2, 7))} for sample, given in GOOD.samples.items()}
    changes = {**GOOD.options.sensitivity, "scores": {"x": 0.5, "tokens": 0.5}, "boxes": {"x": 0.5, "tokens": 0.5}}
    case = asking(replace(GOOD, samples=two), sensitivity=changes)
    assert decide(case).verdict is Verdict.VACUOUS
    narrow = [dataclasses.replace(one, inputs=("x",)) for one in GROUPS]
    groups = (narrow[0], GROUPS[1], narrow[2])
    assert decide(asking(case, groups=groups)).verdict is Verdict.AGREES


def test_inputs_around_their_mean_count_by_how_far_they_spread() -> None:
    """A normalised picture, as for ImageNet: its peak is mostly offset and hardly changes with the magnitude."""
    draw = np.random.default_rng(5)
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    normal = {}
    for sample, magnitude in zip(SAMPLES, (1.0, 1.0, 0.1), strict=True):
        picture = (draw.random((1, 6, 8, 3)) * magnitude - mean) / deviation
        normal[sample] = {"x": np.moveaxis(picture, -1, 1).astype(np.float32)}
    assert decide(replace(GOOD, samples=normal)).verdict is Verdict.AGREES


def test_an_accelerator_may_give_the_answers_of_the_cpu_where_they_never_change() -> None:
    """Such an output shows nothing either way; that it is constant is said by other gates."""
    case = accelerated()
    still = mapped(case.golden, "scores", lambda _: case.golden["photo"]["scores"])
    decision = decide(
        replace(case, golden=still, outputs=mapped(case.outputs, "scores", lambda _: still["photo"]["scores"]))
    )
    assert decision.verdict is Verdict.VACUOUS
    assert [gate.name for gate in decision.gates if not gate] == ["constant_fails"]


def test_a_reason_names_the_worst_place_the_value_and_the_threshold() -> None:
    outputs = mapped(GOOD.outputs, "scores", lambda scores: scores * np.float32(1.01))
    worse = with_tensor(outputs, "random-1", "scores", GOOD.outputs["random-1"]["scores"] * np.float32(1.1))
    assert decide(replace(GOOD, outputs=worse)).reasons == (
        (
            "group 'detections': the SNR of output 'scores' in sample 'random-1' is 20 dB, below 60 dB; "
            "3 of 6 comparisons fail, this is the worst"
        ),
    )


def test_a_list_of_stray_nodes_names_ten_and_counts_all() -> None:
    decision = decide(accelerated(accepted_devices=("GPU",)))
    (reason,) = decision.reasons
    assert reason.startswith("12 of 12 nodes do not run on 'GPU': Conv 'conv0' on 'NPU', ")
    assert reason.count("Conv") == 10
    assert reason.endswith(", and 2 more")


def test_a_name_with_a_line_break_leaves_a_reason_on_one_line() -> None:
    case = replace(GOOD, outputs=with_tensor(GOOD.outputs, "photo", "an\noutput", np.ones(1)))
    assert all("\n" not in reason for reason in decide(case).reasons)


@PATIENT
@given(value=st.floats(-300, 300), threshold=st.floats(-300, 300))
def test_a_number_is_never_rounded_across_its_threshold(value: float, threshold: float) -> None:
    assume(value != threshold)
    shown = float(beside(value, threshold))
    assert (shown < threshold, shown > threshold) == (value < threshold, value > threshold)


@pytest.mark.parametrize(
    ("value", "threshold", "text"),
    [
        (0.9999899, 0.99999, "0.9999899"),
        (0.99999012, 0.99999, "0.99999012"),
        (0.0500001, 0.05, "0.0500001"),
        (20.0, 20.0, "20"),
    ],
)
def test_a_number_takes_the_digits_that_tell_it_from_its_threshold(value: float, threshold: float, text: str) -> None:
    assert beside(value, threshold) == text


@pytest.mark.parametrize(
    ("value", "most"), [(0.999999947, False), (0.99949999, False), (69.447, False), (0.123456, True)]
)
def test_the_worst_value_of_a_gate_that_holds_is_never_told_better_than_it_is(value: float, most: bool) -> None:
    told = float(no_better(value, most=most))
    assert told >= value if most else told <= value
    assert told == pytest.approx(value, rel=1e-3)
