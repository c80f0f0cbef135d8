"""A study from command to table: real cells, agents whose answers are written down, a kill in the middle.

The answers are synthetic, and the table says so: no language model was asked.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cells.test_repairs import graph, save
from tests.command import ROOT, Aipc, Done

FILE = """
trials = 2

[agent]
steps = 8

[models.scripted]
replay = "answers"

[failures.einsum]
model = "net.onnx"
runtime = "ortqnn"
withheld = ["einsum_to_matmul"]
"""
TRIALS = ("with-1", "without-1", "with-2", "without-2")


def say(action: str, **arguments: Any) -> dict[str, Any]:
    return {"thought": "next", "action": action, **arguments}


SECTION = "ortqnn#operators-that-are-not-taken-products-and-pictures"
READ, CONVERT, COMPARE = say("read_skill", section=SECTION), say("convert"), say("compare")
FOUND = say("rewrite", name="{{skill:\\| `Einsum` \\|[^|]*\\| `(\\w+)` \\|}}")
SUBMIT, GIVE_UP = say("submit", summary="it agrees"), say("give_up", summary="nothing helps")
ANSWERS: Mapping[str, Sequence[Any]] = {
    "with-1": (READ, FOUND, CONVERT, COMPARE, SUBMIT),
    "without-1": (say("rewrites"), say("rewrite", name="neg_to_sub"), CONVERT, CONVERT, GIVE_UP),
    "with-2": (READ, FOUND, SUBMIT),
    "without-2": (SUBMIT,),
}


class Desk:
    """A folder with a study of one failure, and its answers."""

    def __init__(self, folder: Path, answers: Mapping[str, Sequence[Any]] = ANSWERS, text: str = FILE) -> None:
        self.folder, self.aipc = folder, Aipc(folder)
        self.kept = folder / "runs" / "studies" / "paper"
        self.trials = self.kept / "scripted" / "einsum"
        save(folder / "net.onnx", graph())
        for name, said in answers.items():
            self.answer(name, said)
        self.write(text)

    def answer(self, name: str, said: Sequence[Any]) -> None:
        path = self.folder / "answers" / "einsum" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"synthetic": True, "answers": [{"content": each} for each in said]}))

    def write(self, text: str) -> None:
        (self.folder / "paper.toml").write_text(text)

    def run(self, *more: str) -> Done:
        return self.aipc("study", "paper.toml", "--engine", "venv", *more)

    def killed_after(self, trial: str) -> None:
        """Begin, and kill it as soon as `trial` is finished."""
        argv = self.aipc.argv("study", "paper.toml", "--engine", "venv")
        log = self.folder / "killed.log"
        with log.open("w") as out:
            begun = subprocess.Popen(argv, env=self.aipc.variables(), cwd=self.folder, stdout=out, stderr=out)
            until = time.monotonic() + 240
            while not (self.trials / f"{trial}.trial.json").exists():
                assert begun.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
            begun.send_signal(signal.SIGKILL)
            assert begun.wait() == -signal.SIGKILL

    def trial(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.trials / f"{name}.trial.json").read_text()))

    def report(self, name: str) -> dict[str, Any]:
        (path,) = (self.trials / name).rglob("report.json")
        return dict(json.loads(path.read_text()))

    def said(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.trials / f"{name}.jsonl").read_text().splitlines()]


class Paper(Desk):
    """The study, killed after its first trial, and gone on with."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.killed_after("with-1")
        self.first = (self.trials / "with-1.trial.json").read_bytes()
        self.left = sorted(path.name for path in self.trials.glob("*.trial.json"))
        self.done = self.run("--markdown", str(folder / "table.md"))


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory, reference_python: Path) -> Paper:
    assert reference_python.exists()
    return Paper(tmp_path_factory.mktemp("study"))


@pytest.fixture
def desk(tmp_path: Path, reference_python: Path) -> Desk:
    assert reference_python.exists()
    return Desk(tmp_path)


def kinds(trial: Mapping[str, Any]) -> list[str]:
    return [each["kind"] for each in trial["deviations"]]


def test_a_killed_study_goes_on_and_makes_no_finished_trial_again(paper: Paper) -> None:
    assert paper.done.code == 0, paper.done.out + paper.done.error
    assert paper.left == ["with-1.trial.json"]
    assert (paper.trials / "with-1.trial.json").read_bytes() == paper.first
    assert "trial 1  1 of 4" not in paper.done.out
    assert all((paper.trials / f"{name}.trial.json").exists() for name in TRIALS)


def test_the_table_of_the_paper_is_printed_and_written(paper: Paper) -> None:
    table = (paper.folder / "table.md").read_text()
    assert table == (paper.kept / "study.md").read_text()
    assert table in paper.done.out
    # The cell's name holds a digest of the file.
    assert re.search(r"^\| scripted \| with \| einsum \| 2 of 2 \(34–100 %\) \| 4\.0 \(3–5\) \|", table, re.MULTILINE)
    assert re.search(r"^\| scripted \| without \| einsum \| 0 of 2 \(0–66 %\) \| 3\.0 \(1–5\) \|", table, re.MULTILINE)
    assert "| `stage_skipped` | 1 of 2 (9–91 %) | 1 of 2 (9–91 %) |" in table
    assert "| `false_success` | 0 of 2 (0–66 %) | 1 of 2 (9–91 %) |" in table
    assert "- model scripted: answers that a person wrote, no language model" in table
    assert "not made yet" not in table


def test_deviations_are_those_of_what_was_done(paper: Paper) -> None:
    assert {name: kinds(paper.trial(name)) for name in TRIALS} == {
        "with-1": [],
        "without-1": ["repeated_failure", "repair_unused", "help_needed"],
        "with-2": ["stage_skipped"],
        "without-2": ["stage_skipped", "repair_unused", "false_success"],
    }


def test_every_trial_keeps_its_transcript_and_its_report_says_that_a_rule_was_withheld(paper: Paper) -> None:
    for name in TRIALS:
        head, *lines = paper.said(name)
        assert head["synthetic"] is True
        assert [line["kind"] for line in lines].count("chat") == paper.trial(name)["steps"] == len(ANSWERS[name])
        report = paper.report(name)
        assert report["withheld"] == ["einsum_to_matmul"]
        assert report["reproduce"][-2:] == ["--withhold", "einsum_to_matmul"]
        assert report["agent"]["deviations"] == paper.trial(name)["deviations"]


def test_trials_have_seeds_of_their_own_for_the_model_and_for_the_judge(paper: Paper) -> None:
    asked = [{line["request"]["seed"] for line in paper.said(name) if line["kind"] == "chat"} for name in TRIALS]
    assert [len(each) for each in asked] == [1] * len(TRIALS)
    assert len(set.union(*asked)) == len(TRIALS)
    judged = [seed for name in TRIALS if (seed := paper.trial(name)["judge_seed"])]
    assert len(judged) == len(set(judged)) == 3


def test_a_trial_learns_nothing_of_the_one_before_it(paper: Paper) -> None:
    """One repaired the cell; the one that follows in the same store sees the same failure, and ends refused."""
    first = {name: next(line for line in paper.said(name) if line["kind"] == "job") for name in TRIALS}
    assert len({each["response"]["observation"] for each in first.values()}) == 1
    assert "Einsum" in first["without-1"]["response"]["observation"]
    assert [paper.trial(name)["verdict"] for name in TRIALS] == ["agrees", "refused", "agrees", "refused"]


def test_a_study_that_is_done_does_nothing_and_prints_its_table(paper: Paper) -> None:
    again = paper.run()
    assert again.code == 0, again.error
    assert again.out.strip() == (paper.kept / "study.md").read_text().strip()


@pytest.mark.parametrize(
    ("old", "new", "piece"),
    [
        ("trials = 2", "trials = 1", "the replayed answers, trials"),
        ("steps = 8", "steps = 7", "models.scripted"),
        ('"einsum_to_matmul"', '"einsum_to_matmul", "fix_shapes"', "failures.einsum"),
    ],
)
def test_a_changed_setting_is_another_study(paper: Paper, old: str, new: str, piece: str) -> None:
    paper.write(FILE.replace(old, new))
    try:
        done = paper.run()
    finally:
        paper.write(FILE)
    assert (done.code, done.error.count("\n")) == (2, 1)
    assert f"holds a study with another state of {piece}" in done.error
    assert "--runs" in done.error


def test_a_changed_model_is_another_study(paper: Paper) -> None:
    before = (paper.folder / "net.onnx").read_bytes()
    model = graph()
    model.producer_name = "changed"
    save(paper.folder / "net.onnx", model)
    try:
        done = paper.run()
    finally:
        (paper.folder / "net.onnx").write_bytes(before)
    assert (done.code, done.error.count("\n")) == (2, 1)
    assert "another state of the files of einsum" in done.error


def test_a_trial_whose_model_is_gone_does_not_count_and_can_be_made_again(desk: Desk) -> None:
    desk.answer("with-1", [READ])
    done = desk.run()
    assert (done.code, done.error.count("\n")) == (4, 1)
    assert "scripted, einsum, with skills, trial 1: " in done.error
    assert "answer 2 is asked for, and it has 1; this trial does not count" in done.error
    assert not list(desk.trials.glob("*.trial.json"))
    # What was said is kept all the same.
    assert list(desk.trials.glob("with-1/transcripts/*.jsonl"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"einsum_to_matmul"', '"einsum_to_matmull"', "failures.einsum.withheld: no rule for ortqnn tries 'einsum_to"),
        ('runtime = "ortqnn"', 'runtime = "ortqn"', "did you mean 'ortqnn'?"),
        (
            'runtime = "ortqnn"',
            'runtime = "ortqnn"\nprecision = "int8"',
            "failures.einsum.precision: int8 is quantised",
        ),
        ('"net.onnx"', '"nett.onnx"', "nett.onnx: no such file"),
        ('"answers"', '"answer"', "no such file; it answers for scripted, einsum, with skills, trial 1"),
    ],
)
def test_what_cannot_be_studied_is_said_before_any_work(desk: Desk, old: str, new: str, words: str) -> None:
    desk.write(FILE.replace(old, new))
    done = desk.run()
    assert (done.code, done.error.count("\n")) == (2, 1)
    assert words in done.error
    assert not desk.kept.exists()


def test_a_table_that_cannot_be_written_is_said_before_any_trial(desk: Desk) -> None:
    done = desk.run("--markdown", str(desk.folder / "gone" / "table.md"))
    assert (done.code, done.error.count("\n")) == (4, 1)
    assert "No such file or directory" in done.error
    assert not desk.trials.exists()


def test_a_failure_that_does_not_fail_is_none(desk: Desk) -> None:
    desk.write(FILE.replace('"einsum_to_matmul"', '"neg_to_sub"'))
    done = desk.run()
    assert done.code == 2
    assert "failures.einsum: ends 'agrees' without an agent (the cell agrees by its rules)" in done.last_line


def test_the_failures_of_the_study_that_comes_with_aipc_are_found(tmp_path: Path, reference_python: Path) -> None:
    """Its models and rules are there; without answers nothing is begun."""
    assert reference_python.exists()
    text = (ROOT / "studies" / "seeded.toml").read_text()
    models = text[text.index("[models.qwen]") : text.index("# An operator")]
    text = text.replace(models, '[models.scripted]\nreplay = "answers"\n\n')
    (tmp_path / "seeded.toml").write_text(text.replace('"networks"', f'"{ROOT / "studies" / "networks"}"'))
    for failure in ("einsum", "length", "celu"):
        for trial in range(1, 5):
            for arm in ("with", "without"):
                file = tmp_path / "answers" / failure / f"{arm}-{trial}.json"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text('{"synthetic": true, "answers": []}')
    done = Aipc(tmp_path)("study", "seeded.toml", "--engine", "venv")
    assert done.code == 4, done.error
    assert "scripted, einsum, with skills, trial 1: " in done.last_line
