"""The judge as a job: in a workspace, and once as the process that an engine starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runtimes
from runtimes import contract
from runtimes.contract import EXIT_CODES, Job, Kind, Layout, Misused, Result, Status, Step, Verdict
from runtimes.kit import tensors
from runtimes.kit.work import Failed, Work
from runtimes.reference.judge import judge
from runtimes.reference.judge_case import Case, Samples
from tests.runtimes.judge_cases import OUTPUTS, SAMPLES, accelerated, good, mapped, replace, without_tensor

GOOD = good()
KEYS = {"verdict", "reasons", "gates", "measures", "pictures"}


def lay(root: Path, case: Case, **options: Any) -> Layout:
    """Lay out the judge's job for a case in a new workspace."""
    layout = Layout(root)
    layout.tmp.mkdir(parents=True)
    layout.outputs.mkdir()
    names = ["golden", "outputs", "samples"]
    names += ["cpu"] if case.options.accelerator else []
    for name in names:
        tensors.save_samples(layout.inputs / name, getattr(case, name))
    job = Job(
        step=Step.JUDGE, runtime="reference", inputs=tuple(names), options={**contract.encode(case.options), **options}
    )
    contract.write(job, layout.job)
    return layout


def work_on(layout: Layout) -> Work:
    return Work(layout, contract.read(Job, layout.job))


@pytest.mark.parametrize("case", [GOOD, accelerated()])
def test_the_job_writes_its_facts(tmp_path: Path, case: Case) -> None:
    layout = lay(tmp_path / "work", case)
    facts = judge(work_on(layout))
    assert set(facts) == KEYS
    assert facts["verdict"] == "agrees"
    assert facts == json.loads((layout.outputs / "verdict.json").read_text(encoding="utf-8"))
    assert len(facts["measures"]) == len(SAMPLES) * len(OUTPUTS)
    for view in facts["pictures"]:
        assert (layout.outputs / view["golden"]).is_file()


def test_the_same_job_gives_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for name in ("first", "second"):
        layout = lay(tmp_path / name, GOOD)
        judge(work_on(layout))
        files = sorted(path for path in layout.outputs.rglob("*") if path.is_file())
        found.append({str(path.relative_to(layout.outputs)): path.read_bytes() for path in files})
    assert found[0] == found[1]
    assert len(found[0]) > 2


def test_an_output_that_is_missing_still_has_its_row(tmp_path: Path) -> None:
    case = replace(GOOD, outputs=without_tensor(GOOD.outputs, "photo", "scores"))
    rows = judge(work_on(lay(tmp_path / "work", case)))["measures"]
    (row,) = [row for row in rows if (row["sample"], row["output"]) == ("photo", "scores")]
    assert row["cosine"] is row["snr_db"] is row["max_abs"] is None


def test_nan_in_the_outputs_is_null_in_the_facts(tmp_path: Path) -> None:
    case = replace(GOOD, outputs=mapped(GOOD.outputs, "scores", lambda scores: np.full_like(scores, np.nan)))
    layout = lay(tmp_path / "work", case)
    facts = judge(work_on(layout))
    assert facts["verdict"] == "disagrees"
    rows = [row for row in facts["measures"] if row["output"] == "scores"]
    assert {(row["cosine"], row["nan"]) for row in rows} == {(None, 40)}


def test_a_link_to_the_golden_outputs_is_not_followed(tmp_path: Path) -> None:
    layout = lay(tmp_path / "work", GOOD)
    shutil.rmtree(layout.inputs / "outputs" / "photo")
    (layout.inputs / "outputs" / "photo").symlink_to(layout.inputs / "golden" / "photo")
    with pytest.raises(Failed, match="in/outputs: ") as caught:
        judge(work_on(layout))
    assert caught.value.failure.kind is Kind.MISSING_RESULT


def test_a_claim_without_the_answers_of_the_cpu_is_no_job(tmp_path: Path) -> None:
    layout = lay(tmp_path / "work", GOOD, accelerator=True)
    with pytest.raises(Misused, match="'cpu' is missing"):
        judge(work_on(layout))


def run_worker(layout: Layout, code: Path) -> int:
    """Run the job as an engine does: a process of its own, with just the code that belongs to it."""
    source = Path(next(iter(runtimes.__path__)))
    (code / "runtimes").mkdir(parents=True)
    for name in ("__init__.py", "contract.py"):
        shutil.copy(source / name, code / "runtimes")
    for name in ("kit", "reference"):
        shutil.copytree(source / name, code / "runtimes" / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = (sys.executable, "-P", "-m", "runtimes.kit", str(layout.root))
    environment = {**os.environ, "PYTHONPATH": str(code)}
    with layout.log.open("wb") as log:
        done = subprocess.run(
            command, cwd=layout.root, env=environment, stdout=log, stderr=log, check=False, timeout=60
        )
    return done.returncode


@pytest.mark.parametrize(
    ("outputs", "verdict"),
    [(GOOD.outputs, Verdict.AGREES), (mapped(GOOD.outputs, "boxes", np.zeros_like), Verdict.DISAGREES)],
)
def test_disagreement_is_data_and_not_an_exit_code(tmp_path: Path, outputs: Samples, verdict: Verdict) -> None:
    layout = lay(tmp_path / "work", replace(GOOD, outputs=outputs))
    code = run_worker(layout, tmp_path / "code")
    result = contract.read(Result, layout.result)
    assert code == EXIT_CODES[Status.DONE], layout.log.read_text(encoding="utf-8")
    assert result.facts["verdict"] == verdict
    assert set(result.outputs) == {"pictures", "verdict.json"}


def test_outputs_that_cannot_be_read_are_a_failure_with_their_own_words(tmp_path: Path) -> None:
    layout = lay(tmp_path / "work", GOOD)
    (layout.inputs / "outputs" / "photo" / "1.npy").write_bytes(b"no tensor")
    code = run_worker(layout, tmp_path / "code")
    result = contract.read(Result, layout.result)
    assert (code, result.status) == (EXIT_CODES[Status.FAILED], Status.FAILED)
    assert result.failure is not None
    assert result.failure.kind is Kind.MISSING_RESULT
    assert "in/outputs: photo/1.npy: 9 bytes" in result.failure.message
