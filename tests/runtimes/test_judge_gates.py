"""Each gate has a defect that it alone catches: with all gates the defect shows, without that one it would be green."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aipc.reports import words
from runtimes.contract import Verdict
from runtimes.reference.judge import GATES, decide
from runtimes.reference.judge_case import Case
from tests.runtimes import judge_defects, judge_device_defects, judge_evidence_defects
from tests.runtimes.judge_cases import (
    GROUPS,
    OUTPUTS,
    SAMPLES,
    accelerated,
    asking,
    claimed,
    good,
    group,
    mapped,
    only,
    replace,
    with_tensor,
    with_tokens,
    without,
)
from tests.runtimes.judge_defects import Floats, declared

DEFECTS = (*judge_defects.DEFECTS, *judge_evidence_defects.DEFECTS, *judge_device_defects.DEFECTS)


@pytest.mark.parametrize(("gate", "spoil"), DEFECTS, ids=[f"{name}-{spoil.__name__}" for name, spoil in DEFECTS])
def test_a_defect_is_caught_by_its_gate_and_would_be_green_without_it(gate: str, spoil: Callable[[Case], Case]) -> None:
    case = spoil(good())
    decision = decide(case)
    assert {failed.name.split(":")[0] for failed in decision.gates if not failed} == {gate}
    assert decision.verdict is GATES[gate][0]
    assert decision.reasons == tuple(failed.detail for failed in decision.gates if not failed)
    assert decide(case, without(GATES, gate)).verdict is Verdict.AGREES


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_caught_though_nothing_else_compares_values(value: float) -> None:
    """The cosine and the SNR catch it too, since they have no value then; without these two, this gate alone does."""

    def spoil(scores: Floats) -> Floats:
        return np.where(scores == scores.max(), np.float32(value), scores)

    case = replace(good(), outputs=mapped(good().outputs, "scores", spoil))
    decision = decide(case)
    assert decision.verdict is Verdict.DISAGREES
    assert {failed.name for failed in decision.gates if not failed} == {
        "finite",
        "cosine:detections",
        "snr:detections",
    }
    alone = {name: gate for name, gate in GATES.items() if name not in ("cosine", "snr")}
    assert decide(case, alone).verdict is Verdict.DISAGREES
    assert decide(case, without(alone, "finite")).verdict is Verdict.AGREES


def test_every_gate_has_a_defect_that_it_alone_catches() -> None:
    assert {name for name, _ in DEFECTS} | {"finite"} == set(GATES)


@pytest.mark.parametrize(
    "case",
    [
        good(),
        accelerated(),
        declared(good(), shape=(1, 10, 4)),
        declared(good(), shape=(1, 4, -1)),
        declared(good(), shape=(1, "boxes", 4)),
        declared(good(), dtype="float16"),
        with_tokens(good(), lambda number: np.arange(14).reshape(2, 7) + number),
    ],
)
def test_a_good_case_passes_every_gate(case: Case) -> None:
    decision = decide(case)
    assert decision.verdict is Verdict.AGREES
    assert decision
    assert decision.reasons == ()
    assert all(decision.gates)


def labels_that_change_a_little(case: Case) -> Case:
    """Labels are held to no SNR, so that of their group does not count."""
    changes = {**case.options.sensitivity, "labels": {"x": 0.05}}
    return asking(case, sensitivity=changes, groups=(*GROUPS[:2], group("classes", "labels", snr_db=20.0)))


def another_shape_for_another_input(case: Case) -> Case:
    return judge_evidence_defects.with_other_tokens(case, "boxes", lambda boxes: boxes[..., 1:])


def one_sample_that_is_the_input(case: Case) -> Case:
    x = case.samples["photo"]["x"]
    sets = {name: with_tensor(getattr(case, name), "photo", "picture", x) for name in ("golden", "outputs")}
    return replace(case, **sets)


def the_shape_of_the_input_in_one_sample(case: Case) -> Case:
    cut = {name: {"y": case.samples[name]["x"][..., number:]} for number, name in enumerate(SAMPLES)}
    return only(case, "y", cut)


def labels_that_are_the_tokens(case: Case) -> Case:
    return with_tokens(case, lambda number: case.golden[SAMPLES[number]]["labels"])


@pytest.mark.parametrize(
    "change",
    [
        labels_that_change_a_little,
        another_shape_for_another_input,
        one_sample_that_is_the_input,
        the_shape_of_the_input_in_one_sample,
        labels_that_are_the_tokens,
    ],
)
def test_evidence_that_looks_weak_may_be_enough(change: Callable[[Case], Case]) -> None:
    assert decide(change(good())).reasons == ()


def test_an_output_that_the_accelerator_does_not_give_is_told_once() -> None:
    case = accelerated()
    decision = decide(replace(case, outputs={sample: without(made, "boxes") for sample, made in case.outputs.items()}))
    assert [gate.name for gate in decision.gates if not gate] == ["outputs_named"]


EVERYWHERE = ["samples_complete", "outputs_named", "outputs_declared", "shapes_match", "dtypes_match", "finite"]
EVIDENCE = ["golden_finite", "sensitive:image", "sensitive:detections", "sensitive:classes", "inputs_varied"]


def test_a_gate_that_does_not_apply_is_not_in_the_list() -> None:
    numbers = ["cosine:image", "cosine:detections", "snr:image", "snr:detections", "equal:classes", "local:image"]
    device = ["placed", "not_cpu_identical"]
    tried = ["constant_fails", "identity_fails"]
    assert [gate.name for gate in decide(good()).gates] == [*EVERYWHERE, *numbers, *EVIDENCE, *tried]
    assert [gate.name for gate in decide(accelerated()).gates] == [*EVERYWHERE, *numbers, *device, *EVIDENCE, *tried]
    labels = only(good(), "labels", {sample: without_floats(good(), sample) for sample in SAMPLES})
    assert [gate.name for gate in decide(labels).gates] == [
        *EVERYWHERE,
        "equal:labels",
        "golden_finite",
        "sensitive:labels",
        "inputs_varied",
        "constant_fails",
    ]


def without_floats(case: Case, sample: str) -> dict[str, Floats]:
    return {"labels": case.golden[sample]["labels"]}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(lambda draw: draw.integers(0, 80, (1, 100)), id="labels"),
        pytest.param(lambda draw: draw.integers(0, 80, (1, 100)).astype(np.float32), id="whole numbers"),
        pytest.param(lambda draw: draw.normal(size=(1, 10)).astype(np.float32), id="few values"),
        pytest.param(
            lambda draw: draw.choice(np.linspace(0.1, 0.9, 20), size=(1, 400)).astype(np.float32),
            id="few values many times",
        ),
    ],
)
def test_nothing_is_said_of_the_cpu_where_equal_values_mean_nothing(
    values: Callable[[np.random.Generator], Floats],
) -> None:
    draw = np.random.default_rng(2)
    case = claimed(only(good(), "y", {sample: {"y": values(draw)} for sample in SAMPLES}))
    decision = decide(replace(case, cpu=case.golden))
    assert decision.verdict is Verdict.AGREES
    assert "not_cpu_identical" not in [gate.name for gate in decision.gates]


def test_an_honest_float16_device_may_round_half_of_its_values_as_a_cpu_does() -> None:
    halves = (group(one.name, *one.outputs, cosine=0.999, snr_db=30.0) for one in GROUPS[:2])
    case = accelerated(groups=(*halves, GROUPS[2]))
    draw = np.random.default_rng(4)

    def calculate(values: Floats) -> Floats:
        error = draw.normal(0, 2**-12, values.shape)
        return (values * (1 + error)).astype(np.float16)

    outputs = case.outputs
    for output in OUTPUTS:
        outputs = outputs if output == "labels" else mapped(outputs, output, calculate)
    decision = decide(replace(case, outputs=outputs))
    (gate,) = (gate for gate in decision.gates if gate.name == "not_cpu_identical")
    assert decision.verdict is Verdict.AGREES
    assert gate.measured is not None
    assert 0.5 < gate.measured < 0.9


def test_answers_that_are_a_whole_tolerance_off_the_input_are_no_returned_input() -> None:
    case = judge_evidence_defects.input_within_twice_the_tolerance(good())
    far = mapped(case.golden, "picture", lambda picture: picture + 0.005 * np.roll(picture, 1))
    outputs = {sample: {**made, "picture": far[sample]["picture"]} for sample, made in case.outputs.items()}
    assert decide(replace(case, golden=far, outputs=outputs)).verdict is Verdict.AGREES


def test_the_share_of_a_cpu_is_shown_beside_what_is_allowed() -> None:
    decision = decide(judge_device_defects.cpu_answers(good()))
    (gate,) = (gate for gate in decision.gates if not gate)
    assert (words.measured(gate.measured, gate.name), words.asked(gate.threshold, gate.name)) == ("1", "< 0.99")
    assert gate.detail.startswith("output 'picture' has the values of ONNX Runtime on the CPU in sample 'photo', ")
