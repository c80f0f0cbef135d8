"""Each gate has a defect that it alone catches: with all gates the defect shows, without that one it would be green."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from runtimes.contract import Verdict
from runtimes.reference.judge import GATES, decide
from runtimes.reference.judge_case import Case, Group, Placed, Port
from tests.runtimes.judge_cases import (
    GROUPS,
    OUTPUTS,
    accelerated,
    asking,
    good,
    mapped,
    replace,
    with_tensor,
    without,
    without_tensor,
)

Floats = NDArray[np.float32]
LOOSE_SNR = {"snr_db": -100.0}


def missing_sample(case: Case) -> Case:
    return replace(case, outputs=without(case.outputs, "random-4"))


def sample_nobody_asked_for(case: Case) -> Case:
    return replace(case, outputs={**case.outputs, "random-9": case.outputs["photo"]})


def golden_without_a_sample(case: Case) -> Case:
    return replace(case, golden=without(case.golden, "random-4"))


def inputs_without_a_sample(case: Case) -> Case:
    return replace(case, samples=without(case.samples, "random-1"))


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


def another_order(case: Case) -> Case:
    ports = [
        Port(name=name, shape=case.golden["photo"][name].shape, dtype="float32") for name in OUTPUTS if name != "labels"
    ]
    ports.append(Port(name="labels", shape=(1, 10), dtype="int64"))
    swapped = [ports[1], ports[0], *ports[2:]]
    return asking(case, expected_outputs=tuple(ports), declared_outputs=tuple(swapped))


def declared(case: Case, **changed: str | tuple[int | str, ...]) -> Case:
    ports = []
    for name in OUTPUTS:
        golden = case.golden["photo"][name]
        fields = {
            "name": name,
            "shape": golden.shape,
            "dtype": golden.dtype.name,
            **(changed if name == "boxes" else {}),
        }
        ports.append(Port(**fields))  # type: ignore[arg-type]
    return asking(case, declared_outputs=tuple(ports))


def declared_twice(case: Case) -> Case:
    ports = declared(case).options.declared_outputs
    return asking(case, declared_outputs=(*ports, ports[0]))


def flattened_output(case: Case) -> Case:
    return replace(case, outputs=mapped(case.outputs, "boxes", np.ravel))


def whole_numbers_as_floats(case: Case) -> Case:
    return replace(case, outputs=mapped(case.outputs, "labels", lambda labels: labels.astype(np.float32)))


def turned_values(case: Case) -> Case:
    """The boxes are so far off in direction that only a loose SNR lets them pass."""

    def turn(boxes: Floats) -> Floats:
        return (boxes + np.linspace(-50, 50, boxes.size).reshape(boxes.shape)).astype(np.float32)

    groups = (GROUPS[0], Group(name="detections", outputs=("boxes", "scores"), cosine=0.999, snr_db=-100.0), GROUPS[2])
    return asking(replace(case, outputs=mapped(case.outputs, "boxes", turn)), groups=groups)


def scores_against_boxes(case: Case) -> Case:
    """Each output alone has a cosine of 1; together they point elsewhere, since one of the two is scaled."""
    groups = (GROUPS[0], Group(name="detections", outputs=("boxes", "scores"), snr_db=-100.0), GROUPS[2])
    golden = mapped(case.golden, "boxes", lambda boxes: boxes / 320)
    outputs = mapped(mapped(case.outputs, "boxes", lambda boxes: boxes / 320), "scores", lambda scores: scores * 2)
    return asking(replace(case, golden=golden, outputs=outputs), groups=groups)


def wrong_scale(case: Case) -> Case:
    return replace(case, outputs=mapped(case.outputs, "picture", lambda picture: picture * np.float32(1.01)))


def one_bad_pixel(case: Case) -> Case:
    """One value of many: neither cosine nor SNR of a loose tolerance sees it."""

    def spoil(picture: Floats) -> Floats:
        spoiled = picture.copy()
        spoiled[0, 1, 2, 3] += 0.1
        return spoiled

    group = Group(name="image", outputs=("picture",), content="picture", cosine=0.99, snr_db=20.0, max_abs=0.05)
    case = replace(case, outputs=mapped(case.outputs, "picture", spoil))
    return asking(case, groups=(group, *GROUPS[1:]))


def wrong_labels(case: Case) -> Case:
    return replace(case, outputs=mapped(case.outputs, "labels", lambda labels: np.roll(labels, 1)))


def golden_with_an_infinity(case: Case) -> Case:
    def spoil(scores: Floats) -> Floats:
        spoiled = scores.copy()
        spoiled[0, 0, 0] = np.inf
        return spoiled

    return replace(case, golden=mapped(case.golden, "scores", spoil), outputs=mapped(case.outputs, "scores", spoil))


def insensitive_output(case: Case) -> Case:
    return asking(case, sensitivity={**case.options.sensitivity, "scores": {"x": 1e-6}})


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
    groups = tuple(Group(name=one.name, outputs=one.outputs, content=one.content, inputs=("x",)) for one in GROUPS)
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


def with_tokens(case: Case, draw: Callable[[int], NDArray[np.int64]]) -> Case:
    """Return the case with a second input, of whole numbers; `draw` gets the number of the sample."""
    samples = {}
    for number, (sample, tensors) in enumerate(case.samples.items()):
        samples[sample] = {**tensors, "tokens": draw(number)}
    changes = {name: {"x": 0.5, "tokens": 0.5} for name in OUTPUTS}
    return asking(replace(case, samples=samples), sensitivity=changes)


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


def node_on_the_cpu(_: Case) -> Case:
    case = accelerated()
    stray = Placed(node="/model.12/attn/Einsum", op="Einsum", device="CPU")
    return asking(case, placement=(*case.options.placement, stray))


def no_list_of_nodes(_: Case) -> Case:
    return accelerated(placement=())


def no_accepted_device(_: Case) -> Case:
    return accelerated(accepted_devices=())


def cpu_answers(_: Case) -> Case:
    case = accelerated()
    return replace(case, outputs=case.cpu)


def cpu_answers_in_one_output(_: Case) -> Case:
    case = accelerated()
    outputs = {sample: {**made, "boxes": case.cpu[sample]["boxes"]} for sample, made in case.outputs.items()}
    return replace(case, outputs=outputs)


def copied_golden(_: Case) -> Case:
    case = accelerated()
    return replace(case, outputs=case.golden)


def cpu_answers_in_another_width(_: Case) -> Case:
    case = accelerated()
    return replace(case, outputs=mapped(case.cpu, "boxes", lambda boxes: boxes.astype(np.float64)))


def no_cpu_answer(_: Case) -> Case:
    case = accelerated()
    return replace(case, cpu=without_tensor(case.cpu, "photo", "boxes"))


DEFECTS: tuple[tuple[str, Callable[[Case], Case]], ...] = (
    ("samples_complete", missing_sample),
    ("samples_complete", sample_nobody_asked_for),
    ("samples_complete", golden_without_a_sample),
    ("samples_complete", inputs_without_a_sample),
    ("outputs_named", missing_output_in_one_sample),
    ("outputs_named", extra_output),
    ("outputs_named", renamed_output),
    ("outputs_named", golden_without_an_output),
    ("outputs_named", golden_without_an_output_in_one_sample),
    ("outputs_named", output_in_no_group),
    ("outputs_declared", another_order),
    ("outputs_declared", lambda case: declared(case, name="box")),
    ("outputs_declared", lambda case: declared(case, name="scores")),
    ("outputs_declared", lambda case: declared(case, dtype="int32")),
    ("outputs_declared", lambda case: declared(case, dtype="no type")),
    ("outputs_declared", lambda case: declared(case, shape=(1, 4, 9))),
    ("outputs_declared", lambda case: declared(case, shape=(1, 4, 10, "n"))),
    ("outputs_declared", declared_twice),
    ("shapes_match", flattened_output),
    ("dtypes_match", whole_numbers_as_floats),
    ("cosine", turned_values),
    ("cosine", scores_against_boxes),
    ("snr", wrong_scale),
    ("max_abs", one_bad_pixel),
    ("equal", wrong_labels),
    ("golden_finite", golden_with_an_infinity),
    ("sensitive", insensitive_output),
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
    ("placed", node_on_the_cpu),
    ("placed", no_list_of_nodes),
    ("placed", no_accepted_device),
    ("not_cpu_identical", cpu_answers),
    ("not_cpu_identical", cpu_answers_in_one_output),
    ("not_cpu_identical", copied_golden),
    ("not_cpu_identical", cpu_answers_in_another_width),
    ("not_cpu_identical", no_cpu_answer),
)


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
        declared(good()),
        declared(good(), shape=(1, 10, 4), layout="NHC"),
        with_tokens(good(), lambda number: np.arange(14).reshape(2, 7) + number),
    ],
)
def test_a_good_case_passes_every_gate(case: Case) -> None:
    decision = decide(case)
    assert decision.verdict is Verdict.AGREES
    assert decision
    assert decision.reasons == ()
    assert all(decision.gates)
