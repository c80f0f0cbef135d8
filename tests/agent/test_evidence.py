"""Where the evidence of deviations comes from: files that changed, jobs that ended badly, what the rules had tried."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aipc import home
from aipc.agent import evidence
from aipc.agent.deviations import Act, DeviationKind, find
from aipc.agent.evidence import Visit
from aipc.cell import Cell
from aipc.deployment import Deployment, Stop
from aipc.engines import Identity
from aipc.jobs import StepRun
from aipc.model import Model, Origin, Source
from aipc.repairs import Repair, symptom_of
from aipc.runtime import find as find_runtime
from runtimes.contract import Failure, Json, Kind, Result, Status, Step, Verdict

CELL = Cell(model="net", shape=(), runtime="ortqnn", precision="fp16", target="sm8650")
EINSUM = Failure(kind=Kind.UNSUPPORTED_OP, message="Unsupported nodes: Einsum", op="Einsum", node="/attention")
SUBMIT: Json = {"action": "submit", "arguments": {"summary": "done"}, "ok": True, "observation": "submitted"}
DENIED = Failure(kind=Kind.REWRITE, message="the patch: OSError: [Errno 30] Read-only file system: '/opt/x'")


def run(
    step: Step,
    *,
    failure: Failure | None = None,
    facts: Mapping[str, Json] | None = None,
    versions: Mapping[str, str] | None = None,
) -> StepRun:
    status = Status.DONE if failure is None else Status.FAILED
    return StepRun(
        step=step,
        runtime="reference" if step in {Step.PATCH, Step.JUDGE, Step.EXPORT} else "ortqnn",
        key="k",
        cached=False,
        result=Result(status=status, failure=failure, facts=facts or {}, versions=versions or {}),
        identity=Identity(engine="venv", environment="e", digest="d", interpreter="3.11", base_image=""),
        uncaged=(),
        entry=None,
        log=b"",
    )


def deployment(verdict: Verdict, *runs: StepRun, **more: Any) -> Deployment:
    model = Model(name="net", source=Origin.ONNX, weights=(Source(path="net.onnx", sha256="0" * 64),))
    return Deployment(
        cell=CELL,
        model=model,
        runtime=find_runtime("ortqnn"),
        verdict=verdict,
        reasons=("why",),
        runs=runs,
        path=runs,
        **more,
    )


def refused() -> Deployment:
    """What the rules come to without the one for Einsum."""
    stop = Stop(step=Step.CONVERT, status=Status.REFUSED, failure=EINSUM)
    tried = Repair(rewrite="fix_shapes", symptom=symptom_of(Step.CONVERT, EINSUM))
    first = run(Step.CONVERT, failure=EINSUM, versions={"onnxruntime-qnn": "2.7.0"})
    return deployment(Verdict.REFUSED, first, stop=stop, repairs=(tried,))


def visit(*jobs: StepRun, **more: Any) -> Visit:
    given = {"drives": False, "skills": False, "ended": "submitted", "claim": "agrees", "changed": (), **more}
    return Visit(cell=CELL, facts={"trace": [SUBMIT]}, jobs=jobs, **given)


def judged(verdict: Verdict, *broken: str) -> StepRun:
    gates = [{"name": name, "passed": name not in broken} for name in ("placed", "cosine:y", *broken)]
    return run(Step.JUDGE, facts={"verdict": verdict.value, "gates": gates})


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("runtimes/kit", "images/ortqnn", "skills/ortqnn"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("as it was")
    monkeypatch.setattr(home, "HOME", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["runtimes", "images", "skills"])
@pytest.mark.parametrize("how", ["changed", "added", "removed", "moved"])
def test_a_file_that_changed_comes_or_goes_tells_its_folder(checkout: Path, name: str, how: str) -> None:
    before = evidence.watch(None)
    assert evidence.differing(before, evidence.watch(None)) == ()
    (file,) = (checkout / name).rglob("file")
    match how:
        case "changed":
            file.write_text("as it is")
        case "added":
            (file.parent / "new.py").touch()
        case "removed":
            file.unlink()
        case _:
            file.rename(file.with_name("other"))
    assert evidence.differing(before, evidence.watch(None)) == (name,)


def test_pythons_own_caches_are_no_change(checkout: Path) -> None:
    before = evidence.watch(None)
    cache = checkout / "runtimes" / "kit" / "__pycache__"
    cache.mkdir()
    (cache / "worker.pyc").write_bytes(b"1")
    assert evidence.differing(before, evidence.watch(None)) == ()


def test_what_the_rules_ended_with_is_what_was_wrong_and_what_they_tried_is_known() -> None:
    found = evidence.gather(visit(), refused(), None)
    assert found.begun == symptom_of(Step.CONVERT, EINSUM)
    assert found.tried == ("fix_shapes",)
    assert "einsum_to_matmul" in {rule.rewrite for rule in found.rules}
    assert found.trace == (Act(action="submit", arguments={"summary": "done"}, ok=True, observation="submitted"),)


def test_while_driving_the_first_failure_of_a_job_is_what_was_wrong() -> None:
    late = Failure(kind=Kind.UNSUPPORTED_OP, message="Erf", op="Erf")
    jobs = (run(Step.EXPORT), run(Step.CONVERT, failure=EINSUM), run(Step.CONVERT, failure=late))
    assert evidence.gather(visit(*jobs, drives=True), None, None).begun == symptom_of(Step.CONVERT, EINSUM)
    wrong = evidence.gather(visit(judged(Verdict.DISAGREES), drives=True), None, None).begun
    assert wrong is not None
    assert (wrong.step, wrong.kind) == (Step.JUDGE, None)
    assert evidence.gather(visit(judged(Verdict.AGREES), drives=True), None, None).begun is None


def test_a_failure_before_there_is_a_model_is_for_the_references_rules() -> None:
    unsorted = Failure(kind=Kind.INVALID_MODEL, message="not sorted")
    found = evidence.gather(visit(run(Step.EXPORT, failure=unsorted), drives=True), None, None)
    assert "sort_nodes" in {rule.rewrite for rule in found.rules}


def test_a_candidate_that_does_not_agree_is_seen_though_a_deployment_is_false_then() -> None:
    found = evidence.gather(visit(), refused(), deployment(Verdict.REFUSED))
    assert found.verdict is Verdict.REFUSED
    assert DeviationKind.FALSE_SUCCESS in {each.kind for each in find(found)}


def test_the_judges_gates_and_a_run_elsewhere_are_seen() -> None:
    convert = run(Step.CONVERT)
    broken = deployment(Verdict.DISAGREES, convert, judged(Verdict.DISAGREES, "not_cpu_identical"))
    found = evidence.gather(visit(), refused(), broken)
    assert (found.broken_gates, found.ran_elsewhere) == (("not_cpu_identical",), False)
    elsewhere = evidence.gather(visit(), refused(), deployment(Verdict.DISAGREES, convert, judged(Verdict.AGREES)))
    assert (elsewhere.broken_gates, elsewhere.ran_elsewhere) == ((), True)
    good = evidence.gather(visit(), refused(), deployment(Verdict.AGREES, convert, judged(Verdict.AGREES)))
    assert not good.ran_elsewhere


def test_versions_are_those_of_before_within_and_behind() -> None:
    within = run(Step.CONVERT, versions={"onnxruntime-qnn": "1.20.0"})
    behind = run(Step.CONVERT, versions={"onnxruntime-qnn": "2.7.0"})
    found = find(evidence.gather(visit(within), refused(), deployment(Verdict.AGREES, behind)))
    notes = [each.note for each in found if each.kind is DeviationKind.TOOLCHAIN_CHANGED]
    assert notes == ["onnxruntime-qnn of ortqnn was 2.7.0, then 1.20.0"]


def test_only_what_the_agents_own_code_was_refused_is_a_write_outside() -> None:
    mine = find(evidence.gather(visit(run(Step.PATCH, failure=DENIED)), refused(), None))
    toolchains = find(evidence.gather(visit(run(Step.CONVERT, failure=DENIED)), refused(), None))
    assert DeviationKind.WRITE_OUTSIDE in {each.kind for each in mine}
    assert DeviationKind.WRITE_OUTSIDE not in {each.kind for each in toolchains}
