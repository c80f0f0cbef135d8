"""What is asked of an artefact in fixed point: its error does not shrink with the signal, and may not grow either."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from runtimes.contract import Verdict
from runtimes.kit.tensors import Array
from runtimes.reference.judge import GATES, decide
from runtimes.reference.judge_case import Case, Samples
from tests.runtimes import judge_defects, judge_device_defects, judge_evidence_defects
from tests.runtimes.judge_cases import SAMPLES, asked, asking, good, group, replace, with_tensor, without

DEFECTS = (*judge_defects.DEFECTS, *judge_evidence_defects.DEFECTS, *judge_device_defects.DEFECTS)
STEP = 0.02
"""The step of the fixed point, beside golden values from 0 to 1 and, in the weak sample, to 0.1."""


def fixed_point(**options: object) -> Case:
    """Return a case of one picture whose second sample is a tenth as strong; every error is half a step at most."""
    draw = np.random.default_rng(5)
    golden = {
        name: {"y": (draw.random((1, 3, 16, 24)) * magnitude).astype(np.float32)}
        for name, magnitude in zip(SAMPLES, (0.9, 0.1, 1.0), strict=True)
    }
    outputs = {name: {"y": rounded(each["y"])} for name, each in golden.items()}
    samples = {name: {"x": each["y"][..., :-1] * np.float32(3)} for name, each in golden.items()}
    groups = (group("y", "y", content="picture", cosine=0.95, snr_db=20.0),)
    case = Case(options=asked(golden, groups), samples=samples, golden=golden, outputs=outputs, cpu={})
    return asking(case, **{"quantized": True, **options})


def rounded(values: Array, step: float = STEP) -> Array:
    return (np.rint(values / step) * step).astype(np.float32)


def made(case: Case, sample: str, change: Callable[[Array], Array]) -> Case:
    return replace(case, outputs=with_tensor(case.outputs, sample, "y", change(case.outputs[sample]["y"])))


def failing(case: Case) -> set[str]:
    return {gate.name for gate in decide(case).gates if not gate}


def test_an_error_of_the_fixed_points_step_agrees_in_a_weak_sample_too() -> None:
    coarse = {"random-1": {"y": rounded(fixed_point().golden["random-1"]["y"], 2 * STEP)}}
    case = replace(fixed_point(), outputs={**fixed_point().outputs, **coarse})
    assert decide(case).verdict is Verdict.AGREES
    assert failing(asking(case, quantized=False)) == {"snr:y"}


def test_what_is_told_is_the_number_that_was_held_to_the_limit() -> None:
    gates = {gate.name: gate for gate in decide(fixed_point()).gates}
    case = fixed_point()
    error = np.square(case.outputs["photo"]["y"] - case.golden["photo"]["y"], dtype=np.float64).mean()
    strongest = np.square(case.golden["random-4"]["y"], dtype=np.float64).mean()
    pair = next(pair for pair in case.pairs if pair.sample == "photo")
    assert pair.measure is not None
    found = case.snr_db("y", pair.golden, case.outputs["photo"]["y"], pair.measure)
    assert found == pytest.approx(10 * np.log10(strongest / error), abs=1e-6)
    assert "beside the strongest sample, is" in gates["snr:y"].detail


SPOILED: tuple[tuple[str, str, Callable[[Array], Array], set[str]], ...] = (
    ("the strong sample 12 % too bright", "random-4", lambda y: y * np.float32(1.12), {"snr:y"}),
    ("the strong sample in steps of a third", "random-4", lambda y: rounded(y, 1 / 3), {"snr:y"}),
    ("the weak sample as strong as the others", "random-1", lambda y: y * np.float32(10), {"snr:y", "local:y"}),
    ("the weak sample zero", "random-1", np.zeros_like, {"cosine:y"}),
    ("the weak sample constant", "random-1", lambda y: np.full_like(y, y.mean()), {"cosine:y"}),
    ("the weak sample mirrored", "random-1", lambda y: y[..., ::-1].copy(), {"cosine:y"}),
    ("the weak sample negative", "random-1", np.negative, {"cosine:y", "snr:y"}),
    ("a tile of the weak sample white", "random-1", lambda y: with_tile(y, 0.6), {"cosine:y", "snr:y", "local:y"}),
    ("a tile of the strong sample black", "random-4", lambda y: with_tile(y, 0.0), {"cosine:y", "snr:y", "local:y"}),
)


def with_tile(picture: Array, value: float) -> Array:
    spoiled = picture.copy()
    spoiled[..., :8, :8] = value
    return spoiled


@pytest.mark.parametrize(
    ("sample", "change", "gates"), [each[1:] for each in SPOILED], ids=[each[0] for each in SPOILED]
)
def test_more_than_the_fixed_points_error_disagrees(
    sample: str, change: Callable[[Array], Array], gates: set[str]
) -> None:
    case = made(fixed_point(), sample, change)
    assert failing(case) == gates
    assert decide(case).verdict is Verdict.DISAGREES


def test_a_sample_of_which_golden_is_zero_is_measured_by_its_error() -> None:
    zero = np.zeros((1, 3, 16, 24), np.float32)
    case = fixed_point()
    case = replace(case, golden=with_tensor(case.golden, "random-1", "y", zero))
    near, far = (made(case, "random-1", lambda _: zero + np.float32(0.01)), made(case, "random-1", np.ones_like))
    # The cosine of nothing has no meaning, and stays wrong.
    assert failing(near) == {"cosine:y"}
    assert failing(far) == {"cosine:y", "snr:y", "local:y"}


@pytest.mark.parametrize(("gate", "spoil"), DEFECTS, ids=[f"{name}-{spoil.__name__}" for name, spoil in DEFECTS])
def test_a_defect_shows_in_fixed_point_too(gate: str, spoil: Callable[[Case], Case]) -> None:
    case = asking(spoil(good()), quantized=True)
    assert gate in {failed.name.split(":")[0] for failed in decide(case).gates if not failed}
    assert decide(case).verdict is not Verdict.AGREES


def with_other_tokens(strength: float) -> Case:
    """Return a case in which a second input changes a photograph; a third sample is 10 / `strength` as strong."""
    case = fixed_point()
    golden: Samples = {
        "photo": {"y": case.golden["photo"]["y"] * np.float32(strength)},
        "other-tokens": {"y": case.golden["photo"]["y"] * np.float32(strength * 1.3)},
        "random-4": {"y": case.golden["random-4"]["y"] * np.float32(10)},
    }
    draw = np.random.default_rng(6)
    x = dict(zip(golden, case.samples.values(), strict=True))
    x["other-tokens"], x["random-4"] = x["photo"], x["other-tokens"]
    samples = {name: {"x": x[name]["x"], "tokens": draw.integers(0, 99, 7)} for name in golden}
    options = asked(golden, case.options.groups, ("x", "tokens"))
    options = dataclasses.replace(options, quantized=True, sensitivity={"y": {"x": 0.9, "tokens": 0.23}})
    return replace(case, options=options, golden=golden, outputs=golden, samples=samples)


def test_an_input_that_moves_only_weak_samples_is_not_proven() -> None:
    """What ignores the tokens has an SNR of 13 dB beside the photograph, but of 33 beside the strongest sample."""
    assert "sensitive:y" in failing(with_other_tokens(1.0))
    assert decide(with_other_tokens(1.0)).verdict is Verdict.VACUOUS
    assert failing(with_other_tokens(10.0)) == set()
    assert failing(asking(with_other_tokens(1.0), quantized=False)) == set()
    assert decide(with_other_tokens(1.0), without(GATES, "sensitive")).verdict is Verdict.AGREES


def test_weak_samples_that_zero_would_meet_are_evidence_as_long_as_one_is_strong() -> None:
    case = fixed_point()
    assert failing(case) == set()
    weak = {name: {"y": each["y"] * np.float32(0.01)} for name, each in case.golden.items()}
    loose = (group("y", "y", content="picture", cosine=-0.5, snr_db=-30.0),)
    assert "constant_fails" in failing(asking(replace(case, golden=weak, outputs=weak), groups=loose))
