"""Limits that prove nothing are tightened as far as the artefact carries it, and only a right answer gains by that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.contract import Verdict
from runtimes.kit.tensors import Array
from runtimes.reference.judge import decide, settle
from runtimes.reference.judge_case import Case
from runtimes.reference.judge_nearer import MOST_DB, SPARE_DB
from tests.runtimes import judge_evidence_defects
from tests.runtimes.judge_cases import SAMPLES, asking, good, group, mapped, only, replace

FP16 = {"cosine": 0.999, "snr_db": 30.0}


def weak(change: float) -> Case:
    """Return a case of one output in fp16 that only `change` of it tells the samples apart; the artefact is exact."""
    draw = np.random.default_rng(11)
    still = 1.0 + draw.random((1, 200))
    golden = {
        name: {"y": (still * (1 + change * draw.normal(size=still.shape))).astype(np.float64)} for name in SAMPLES
    }
    return asking(only(good(), "y", golden, **FP16), sensitivity={"y": {"x": change}})


def off(case: Case, error: float) -> Case:
    """Return the case with an artefact whose error is `error` of golden."""
    draw = np.random.default_rng(12)

    def spoil(values: Array) -> Array:
        noise = draw.normal(size=values.shape)
        return values + noise * (error * np.linalg.norm(values) / np.linalg.norm(noise))

    return replace(case, outputs=mapped(case.golden, "y", spoil))


def test_an_output_that_moves_a_little_agrees_when_the_artefact_is_much_nearer_than_that() -> None:
    case = off(weak(0.02), 0.001)
    assert decide(case).verdict is Verdict.VACUOUS
    settled = settle(case)
    assert settled.verdict is Verdict.AGREES
    gates = {gate.name: gate for gate in settled.gates}
    assert gates["tightened:y"].threshold == pytest.approx(60.0 - SPARE_DB, abs=0.2)
    assert gates["tightened:y"].threshold == gates["snr:y"].threshold
    assert gates["tightened:y"].measured == gates["snr:y"].measured
    assert gates["tightened:y"].detail == "group 'y' is held to 53.9 dB: 30 dB would prove nothing"


@pytest.mark.parametrize("error", [0.005, 0.01, 0.02])
def test_an_artefact_that_errs_by_a_quarter_of_the_change_proves_no_more_than_before(error: float) -> None:
    case = off(weak(0.02), error)
    assert settle(case) == decide(case)
    assert settle(case).verdict is Verdict.VACUOUS


def test_what_hardly_moves_stays_vacuous_however_near_the_artefact_comes() -> None:
    assert settle(weak(1e-5)).verdict is Verdict.VACUOUS
    assert settle(asking(weak(0.02), sensitivity={"y": {"x": 1e-6}})).verdict is Verdict.VACUOUS
    assert settle(asking(weak(0.02), sensitivity={"y": {"x": None}})).verdict is Verdict.VACUOUS


@given(change=st.floats(1e-6, 0.5), mix=st.floats(0.0, 1.0), error=st.floats(0.0, 0.05))
def test_an_answer_that_ignores_its_input_never_agrees(change: float, mix: float, error: float) -> None:
    """The same answer for every sample, between one sample's golden answer and the mean of all, with noise or not."""
    case = off(weak(change), error)
    answers = [each["y"] for each in case.golden.values()]
    blind = (1 - mix) * answers[0] + mix * np.mean(answers, axis=0)
    assert settle(replace(case, outputs={name: {"y": blind} for name in SAMPLES})).verdict is not Verdict.AGREES


@pytest.mark.parametrize(
    "spoil", [judge_evidence_defects.boxes_that_hardly_move, judge_evidence_defects.returned_input]
)
def test_a_worthless_answer_stays_vacuous(spoil: object) -> None:
    assert callable(spoil)
    assert settle(spoil(good())).verdict is Verdict.VACUOUS


def test_labels_are_held_to_no_snr_so_nothing_is_tightened_for_them() -> None:
    case = judge_evidence_defects.labels_with_one_place_of_ten_that_changes(good())
    assert settle(case) == decide(case)


def test_only_the_group_that_proves_nothing_is_tightened_and_no_further_than_helps() -> None:
    case = asking(
        good(),
        groups=(group("image", "picture"), group("b", "boxes", **FP16), group("s", "scores"), group("l", "labels")),
        sensitivity={**good().options.sensitivity, "boxes": {"x": 0.01}},
    )
    settled = settle(case)
    assert settled.verdict is Verdict.AGREES
    assert [gate.name for gate in settled.gates if gate.name.startswith("tightened")] == ["tightened:b"]
    assert next(gate.threshold for gate in settled.gates if gate.name == "snr:b") == MOST_DB


def test_an_artefact_that_disagrees_is_judged_by_the_limits_asked_for() -> None:
    case = off(weak(0.02), 0.05)
    assert decide(case).verdict is Verdict.DISAGREES
    assert settle(case) == decide(case)
