"""A study's file, and the counting of its trials: nothing here runs anything."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aipc.agent import study_plan, study_table
from aipc.agent.deviations import Deviation, DeviationKind
from aipc.agent.settings import Mode
from aipc.agent.study_table import Head, Trial, wilson
from aipc.errors import UsageError
from runtimes.contract import Verdict
from tests.command import ROOT

FILE = """
trials = 2

[agent]
steps = 8
temperature = 0.7

[models.local]
base_url = "http://127.0.0.1:9997/v1"
model = "qwen"

[models.scripted]
replay = "answers"

[failures.einsum]
model = "net.onnx"
runtime = "ortqnn"
withheld = ["einsum_to_matmul"]
"""
HEAD = Head(
    name="paper", engine="venv", trials=4, bounds="At most 8 steps.", withheld={"einsum": ("einsum_to_matmul",)}
)


def load(folder: Path, text: str) -> study_plan.Plan:
    (folder / "study.toml").write_text(text)
    return study_plan.load(folder / "study.toml")


def trial(**more: Any) -> Trial:
    return dataclasses.replace(
        Trial(
            model="local",
            failure="einsum",
            skills=True,
            number=1,
            cell="net/ortqnn/fp16@sm8650",
            verdict=Verdict.AGREES,
            taken=True,
            language_model="qwen",
            model_sha256="",
            synthetic=False,
            ended="submitted",
            claim="agrees",
            steps=5,
            tokens=4000,
            estimated=False,
            seconds=41.4,
            deviations=(),
            sampling_seed=7,
            judge_seed=9,
            commit="abc",
            made="2026-12-01T10:00:00+00:00",
        ),
        **more,
    )


def fail(kind: DeviationKind) -> Deviation:
    return Deviation(kind=kind, step=1, note="")


# Wilson's interval. The figures are Newcombe's, Statistics in Medicine 17 (1998), table I, method 3.
@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_is_the_published_one(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_nothing_is_known_of_what_was_not_tried() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(1, 500).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_the_interval_holds_the_share_and_is_mirrored_and_shrinks(counts: tuple[int, int]) -> None:
    successes, trials = counts
    low, high = wilson(successes, trials)
    assert 0.0 <= low <= successes / trials <= high <= 1.0
    assert wilson(trials - successes, trials) == pytest.approx((1 - high, 1 - low))
    more_low, more_high = wilson(4 * successes, 4 * trials)
    assert more_high - more_low < high - low


# The file.
def test_paths_are_relative_to_the_file_and_bounds_are_those_of_the_agent(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    plan = load(tmp_path, FILE)
    assert plan.failures["einsum"].model == str(tmp_path / "net.onnx")
    assert plan.subjects["scripted"].replay == tmp_path / "answers"
    for subject in plan.subjects.values():
        assert (subject.settings.mode, subject.settings.steps, subject.settings.tokens) == (Mode.REPAIR, 8, 200_000)


def test_each_trial_has_a_seed_of_its_own_and_the_same_one_again(tmp_path: Path) -> None:
    plan, again = load(tmp_path, FILE.replace("trials = 2", "trials = 50")), load(tmp_path, FILE)
    seeds = {str(slot): plan.settings(slot).seed for slot in plan.slots}
    assert len(set(seeds.values())) == len(seeds) == 200
    assert all(0 < seed < 2**31 for seed in seeds.values())
    assert {str(slot): again.settings(slot).seed for slot in again.slots}.items() <= seeds.items()


def test_trials_with_and_without_skills_take_turns(tmp_path: Path) -> None:
    slots = load(tmp_path, FILE).slots
    assert [slot.path for slot in slots[:4]] == [
        "local/einsum/with-1",
        "local/einsum/without-1",
        "scripted/einsum/with-1",
        "scripted/einsum/without-1",
    ]
    assert {slot.number for slot in slots[4:]} == {2}


def test_the_study_that_comes_with_aipc_is_one() -> None:
    plan = study_plan.load(ROOT / "studies" / "seeded.toml")
    assert (plan.trials, len(plan.failures), len(plan.slots)) == (4, 3, 24)
    assert all(subject.settings.steps <= 8 for subject in plan.subjects.values())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("trials = 2", "", "the key 'trials' is missing"),
        ("trials = 2", "trials = 0", "trials: 0 is not above 0"),
        ("trials = 2", 'trials = "many"', "trials: 'many' is"),
        ("trials = 2", "trails = 2", "unknown key 'trails'; did you mean 'trials'?"),
        ("[agent]", "[agents]", "unknown key 'agents'; did you mean 'agent'?"),
        ("[models.local]", "[models.Local]", "models: 'Local' is no name"),
        ("steps = 8", "steps = 0", "models.local: agent: steps: 0 is not above 0"),
        ("steps = 8", "stops = 8", "models.local: agent: unknown key 'stops'; did you mean 'steps'?"),
        ("steps = 8", "seed = 8", "models.local: seed: each trial has its own"),
        ("steps = 8", 'mode = "off"', "models.local: mode: 'off' asks nobody"),
        ("temperature = 0.7", "", "models.local: temperature: 0 makes one trial out of 2"),
        ('base_url = "http://127.0.0.1:9997/v1"', "", "models.local: neither base_url nor replay"),
        ('model = "qwen"', 'replay = "answers"\nmodel = "qwen"', "models.local: replay: a folder, and no base_url"),
        ('replay = "answers"', "replay = 3", "models.scripted: replay: a folder"),
        ('withheld = ["einsum_to_matmul"]', "withheld = []", "failures.einsum: withheld: []"),
        ('withheld = ["einsum_to_matmul"]', "", "failures.einsum: the key 'withheld' is missing"),
        ('runtime = "ortqnn"', "", "failures.einsum: the key 'runtime' is missing"),
        ('runtime = "ortqnn"', 'runtime = "ortqnn"\nsource = "gone"', "failures.einsum.source:"),
        ("[failures.einsum]", "[failures.einsum-]", "failures: 'einsum-' is no name"),
    ],
)
def test_a_file_that_does_not_fit_is_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in FILE
    with pytest.raises(UsageError) as caught:
        load(tmp_path, FILE.replace(old, new))
    assert words in str(caught.value)
    assert "study.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("table", "words"), [("models", "models: none"), ("failures", "failures: none")])
def test_a_study_of_nothing_is_none(tmp_path: Path, table: str, words: str) -> None:
    blocks = FILE.split("\n\n")
    with pytest.raises(UsageError, match=words):
        load(tmp_path, "\n\n".join(block for block in blocks if not block.startswith(f"[{table}.")))


def test_answers_are_found_by_failure_and_trial_and_missing_ones_are_named(tmp_path: Path) -> None:
    plan = load(tmp_path, FILE)
    slot = next(each for each in plan.slots if each.model == "scripted")
    with pytest.raises(UsageError, match="with-1.json: no such file; it answers for scripted, einsum, with skills"):
        plan.replay(slot)
    file = tmp_path / "answers" / "einsum" / "with-1.jsonl"
    file.parent.mkdir(parents=True)
    file.touch()
    assert plan.replay(slot) == file
    assert plan.replay(next(each for each in plan.slots if each.model == "local")) is None


def test_what_makes_it_another_study_is_named(tmp_path: Path) -> None:
    text = "\n".join(line for line in FILE.splitlines() if line not in {"[models.scripted]", 'replay = "answers"'})
    before = load(tmp_path, text).digests()
    for old, new, piece in (
        ("trials = 2", "trials = 3", "trials"),
        ("steps = 8", "steps = 9", "models.local"),
        ("einsum_to_matmul", "erf_to_polynomial", "failures.einsum"),
        ("failures.einsum", "failures.other", "failures.einsum, failures.other"),
    ):
        now = load(tmp_path, text.replace(old, new)).digests()
        assert ", ".join(study_plan.difference(before, now)) == piece
    assert list(study_plan.difference(before, load(tmp_path, f"# a remark\n{text}").digests())) == []


# The table.
def test_success_is_what_the_judge_agrees_with_and_the_agent_submitted() -> None:
    assert trial()
    assert not trial(verdict=Verdict.REFUSED)
    assert not trial(taken=False)


def test_trials_are_counted_by_model_and_skills() -> None:
    repeated, help_needed = fail(DeviationKind.REPEATED_FAILURE), fail(DeviationKind.HELP_NEEDED)
    lost = trial(
        skills=False, verdict=Verdict.REFUSED, taken=False, steps=8, deviations=(repeated, repeated, help_needed)
    )
    made = (trial(), trial(number=2, steps=6, tokens=6000, seconds=50.0), lost, dataclasses.replace(lost, number=2))
    text = study_table.markdown(HEAD, made)
    lines = text.splitlines()
    assert "| local | with | einsum | 2 of 2 (34–100 %) | 5.5 (5–6) | 5000 (4000–6000) | 46 (41–50) |" in lines
    assert "| local | without | einsum | 0 of 2 (0–66 %) | 8.0 | 4000 | 41 |" in lines
    assert "| `repeated_failure` | 0 of 2 (0–66 %) | 2 of 2 (34–100 %), 4 times |" in lines
    assert "| `help_needed` | 0 of 2 (0–66 %) | 2 of 2 (34–100 %) |" in lines
    assert "from commit `abc` on 2026-12-01, on the venv engine. 4 trials. At most 8 steps." in text
    assert "- failure einsum (`net/ortqnn/fp16@sm8650`): no rule may try `einsum_to_matmul`" in lines


def test_several_failures_have_a_row_together() -> None:
    text = study_table.markdown(HEAD, (trial(), trial(failure="celu", taken=False)))
    assert "| local | with | **all** | 1 of 2 (9–91 %) |" in text


def test_trials_that_are_missing_are_said_first() -> None:
    assert "**3 of 4 trials are not made yet.**" in study_table.markdown(HEAD, (trial(),))
    nothing = study_table.markdown(HEAD, ())
    assert "**4 of 4 trials are not made yet.**" in nothing
    assert "| model |" not in nothing


def test_answers_of_a_person_are_no_language_model_and_weights_are_named() -> None:
    assert "- model local: answers that a person wrote, no language model" in study_table.markdown(
        HEAD, (trial(synthetic=True),)
    )
    named = study_table.markdown(HEAD, (trial(model_sha256="c" * 64),))
    assert f"- model local: `qwen`, sha256 of its weights {'c' * 64}" in named


def test_estimated_tokens_are_marked() -> None:
    assert "| about 4000 |" in study_table.markdown(HEAD, (trial(estimated=True),))


def test_a_trial_counts_once_for_a_deviation_however_often_it_shows_it() -> None:
    repeated = fail(DeviationKind.REPEATED_FAILURE)
    text = study_table.markdown(HEAD, (trial(deviations=(repeated, repeated)), trial(number=2)))
    assert "| `repeated_failure` | 1 of 2 (9–91 %), 2 times |" in text
