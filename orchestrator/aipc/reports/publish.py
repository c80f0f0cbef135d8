"""From a deployment to its run folder: the artefact with its manifest, the pictures, report.json and report.html.

`runs/<cell>/` is only a view of the store. It is made beside and swapped in: a reader sees the old one or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import aipc
from aipc import workspace
from aipc.config import DEFAULT_TOLERANCES, Group, Matrix, Model, tolerance
from aipc.deployment import Deployment, order
from aipc.engines import Engine
from aipc.facts import ConvertFacts, ExportFacts, Judgement, PrepareFacts, RunFacts
from aipc.jobs import StepRun as Run
from aipc.reports import html, report
from aipc.reports.report import (
    EnvironmentUsed,
    FailedStep,
    GroupTolerance,
    InputUsed,
    ModelFacts,
    Report,
    StageTaken,
    Thresholds,
)
from aipc.store import StoredFile, UnsafeOutput, digest, scan
from runtimes import contract
from runtimes.contract import Artifact, Component, Json, Step, decode, encode

ARTIFACT = "artifact"
MANIFEST = "manifest.json"
FINGERPRINT = "fingerprint.json"
PIECE = "first-bad"
"""The smallest piece of the model that fails: the ONNX file, its inputs, the right outputs and the artefact's."""
LOG = "log.txt"
"""What the step that was not done printed."""
FIRST = (Step.PREPARE, Step.EXPORT)
NO_TIME = "1970-01-01T00:00:00+00:00"


@dataclass(frozen=True, kw_only=True)
class Published:
    """A report and where it lies; `is_cached` where no job was started for it."""

    report: Report
    folder: Path
    is_cached: bool

    @property
    def page(self) -> Path:
        """The report for people."""
        return self.folder / html.FILE_NAME


def publish(
    deployment: Deployment, matrix: Matrix, engine: Engine, runs: Path, seconds: float, reproduce: tuple[str, ...]
) -> Published:
    """Write the run folder of a deployment, or find that it says the same already.

    Args:
        deployment: the cell as far as it came.
        matrix: gives the default tolerances.
        engine: where the jobs ran.
        runs: the folder that holds all run folders.
        seconds: wall time of the deploy so far.
        reproduce: the command that does it again.

    Raises:
        OSError: the folder cannot be written.
    """
    folder = runs / deployment.cell.folder
    base = deployment.base.runs if deployment.base else ()
    is_cached = all(run.cached for run in (*base, *deployment.runs))
    with held(folder):
        made = _report(deployment, matrix, engine, seconds, reproduce)
        mark = _mark(made)
        found = _unchanged(folder, mark)
        if found is not None:
            return Published(report=found, folder=folder, is_cached=is_cached)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            beside.chmod(0o755)
            _write(made, deployment, beside)
            contract.write(_Print(mark=mark, files=scan(beside)), beside / FINGERPRINT)
            _swap(beside, folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return Published(report=made, folder=folder, is_cached=is_cached)


@dataclass(frozen=True, kw_only=True)
class _Print:
    """What tells whether a run folder still is what would be written: of the report, and of every file."""

    mark: str
    files: tuple[StoredFile, ...]


def _mark(made: Report) -> str:
    """Return the digest of all that a report says but for times and what was cached, and of the code that writes it."""
    stages = tuple(replace(stage, seconds=0.0, cached=False) for stage in made.stages)
    code = [[file.path, file.sha256] for file in scan(Path(__file__).parent) if "__pycache__" not in file.path]
    return digest([code, encode(replace(made, made=NO_TIME, seconds=0.0, stages=stages))])


def _unchanged(folder: Path, mark: str) -> Report | None:
    """Return the report in `folder` when it says what `mark` stands for, and every file of it is as it was written."""
    try:
        kept = contract.read(_Print, folder / FINGERPRINT)
        files = tuple(file for file in scan(folder) if file.path != FINGERPRINT)
        return report.read(folder / report.FILE_NAME) if (kept.mark, kept.files) == (mark, files) else None
    except (OSError, UnsafeOutput, contract.Misused):
        return None


def _write(made: Report, deployment: Deployment, folder: Path) -> None:
    """Fill the new run folder."""
    judged, converted = deployment.run(Step.JUDGE), deployment.built
    if judged and judged.entry and made.pictures:
        workspace.copy(judged.entry.output("pictures"), folder / "pictures")
    if converted and converted.entry and made.artifact:
        workspace.copy(converted.entry.output(ARTIFACT), folder / ARTIFACT)
        contract.write(made.artifact, folder / ARTIFACT / MANIFEST)
    if deployment.stop:
        (folder / LOG).write_bytes(deployment.stop.log)
    if deployment.found:
        for name, material in deployment.found.files.items():
            workspace.copy(material, folder / PIECE / name)
    report.write(made, folder / report.FILE_NAME)
    html.write(made, folder)


def _report(
    deployment: Deployment, matrix: Matrix, engine: Engine, seconds: float, reproduce: tuple[str, ...]
) -> Report:
    cell, model = deployment.cell, deployment.model
    prepared = _facts(deployment, Step.PREPARE, PrepareFacts)
    converted = decode(ConvertFacts, deployment.built.result.facts, "facts") if deployment.built else None
    ran = _facts(deployment, Step.RUN, RunFacts) or converted
    judged = _facts(deployment, Step.JUDGE, Judgement)
    return Report(
        cell=str(cell),
        runtime=cell.runtime,
        runtime_title=deployment.runtime.title,
        precision=cell.precision,
        target=cell.target,
        verdict=deployment.verdict,
        reasons=deployment.reasons,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=seconds,
        reproduce=reproduce,
        engine=engine.name,
        engine_reason=engine.reason,
        model=_model_facts(deployment),
        host={"aipc": aipc.__version__, "Python": platform.python_version(), "system": platform.platform()},
        inputs=_inputs(prepared, matrix.models.get(cell.model, model)),
        tolerances=tuple(_tolerance(group, matrix, deployment) for group in deployment.groups),
        gates=judged.gates if judged else (),
        measures=judged.measures if judged else (),
        pictures=judged.pictures if judged else (),
        stages=tuple(_stage(run) for run in deployment.runs),
        not_reached=_not_reached(deployment),
        environments=_environments(deployment.runs),
        uncaged=_uncaged(deployment),
        artifact=_artifact(deployment, reproduce),
        artifact_folder=ARTIFACT,
        io=converted.io if converted else None,
        placement=(ran.placement if ran else ()) or (converted.placement if converted else ()),
        device=ran.device if ran else "",
        simulated=ran.simulated if ran else "",
        execution=ran.execution if ran else {},
        export=decode(ExportFacts, deployment.onnx, "facts") if deployment.onnx else None,
        repairs=deployment.repairs,
        bisection=deployment.found.bisection if deployment.found else None,
        agent=deployment.agent,
        withheld=matrix.withheld,
        piece_folder=PIECE if deployment.found and deployment.found.files else "",
        failure=_failure(deployment),
        notes=_notes(deployment),
    )


def _uncaged(deployment: Deployment) -> tuple[str, ...]:
    """Return what was not kept from some job of the deployment, that of the agent among them."""
    parts = (*(run.uncaged for run in deployment.runs), deployment.agent.uncaged if deployment.agent else ())
    return tuple(sorted({word for words in parts for word in words}))


T = TypeVar("T")


def _facts(deployment: Deployment, step: Step, cls: type[T]) -> T | None:
    """Return the facts of a step that was done."""
    run = deployment.run(step)
    return decode(cls, run.result.facts, f"facts of {step}") if run else None


def _failure(deployment: Deployment) -> FailedStep | None:
    stop = deployment.stop
    if stop is None:
        return None
    return FailedStep(step=stop.step, status=stop.status, failure=stop.failure, log_tail=workspace.tail(stop.log))


def _not_reached(deployment: Deployment) -> tuple[Step, ...]:
    """Return the steps that would have come after the one at which it ended."""
    steps = order(deployment.runtime, deployment.cell.precision)
    if deployment.stop is None:
        return ()
    if deployment.stop.step in steps:
        return steps[steps.index(deployment.stop.step) + 1 :]
    done = {run.step for run in deployment.runs if run}
    return tuple(step for step in steps if step not in done)


def _notes(deployment: Deployment) -> tuple[str, ...]:
    """Return what is worth knowing: of the steps that counted in the end, each note once."""
    kept = [deployment.run(step) for step in order(deployment.runtime, deployment.cell.precision)]
    notes = [note for run in kept if run for note in run.result.facts.get("notes", ())]
    file = [each.rewrite for each in deployment.repairs if each.helped and each.symptom and each.symptom.step in FIRST]
    if file:
        notes.insert(0, f"the given file was repaired before it was taken: {', '.join(file)}")
    if deployment.base is not None:
        notes.append(f"its cell in floating point, {deployment.base.cell}, is {deployment.base.verdict.value}")
        notes.append("the SNR of fixed point is measured beside the strongest sample of each output")
    return tuple(dict.fromkeys(notes))


def _artifact(deployment: Deployment, reproduce: tuple[str, ...]) -> Artifact | None:
    converted = deployment.built
    if not converted or converted.entry is None:
        return None
    files = converted.entry.output(ARTIFACT).files
    manifest = json.loads(contract.dumps(_manifest(deployment, reproduce)))  # in the order that a reader gets too
    return Artifact(components=_components(files), manifest=manifest)


def _components(files: Iterable[StoredFile]) -> tuple[Component, ...]:
    return tuple(Component(name=file.path, sha256=file.sha256, size_bytes=file.size_bytes) for file in files)


def _model_facts(deployment: Deployment) -> ModelFacts:
    model, prepared = deployment.model, deployment.facts(Step.PREPARE)
    return ModelFacts(
        name=model.name,
        source=model.source,
        reference=prepared.get("reference", "onnxruntime" if model.source == "onnx" else "pytorch"),
        licence=model.licence,
        weights=_components(deployment.weights),
        parameters=prepared.get("parameters", 0),
        sensitivity=prepared.get("sensitivity", {}),
    )


def _inputs(prepared: PrepareFacts | None, declared: Model) -> tuple[InputUsed, ...]:
    """Return the inputs as they were tried, each with its declared shape where that is another."""
    shapes = {port.name: port.shape for port in declared.inputs}
    return tuple(
        InputUsed(
            name=fed.name,
            shape=fed.shape,
            dtype=fed.dtype,
            content=fed.content,
            declared=() if shapes.get(fed.name, fed.shape) == fed.shape else shapes[fed.name],
        )
        for fed in (prepared.inputs if prepared else ())
    )


def _tolerance(group: Group, matrix: Matrix, deployment: Deployment) -> GroupTolerance:
    precision = deployment.cell.precision
    usual = tolerance(matrix, deployment.runtime, precision)
    default = DEFAULT_TOLERANCES.get(precision, usual)
    applied = group.tolerance(usual)
    return GroupTolerance(
        group=group.name,
        outputs=group.outputs,
        content=group.content,
        applied=Thresholds(cosine=applied.cosine, snr_db=applied.snr_db, max_abs=applied.max_abs),
        default=Thresholds(cosine=default.cosine, snr_db=default.snr_db, max_abs=default.max_abs),
    )


def _stage(run: Run) -> StageTaken:
    return StageTaken(
        step=run.step,
        status=run.result.status,
        seconds=run.result.seconds,
        cached=run.cached,
        key=run.key,
        peak_memory_bytes=run.result.peak_memory_bytes,
    )


def _environments(runs: tuple[Run, ...]) -> tuple[EnvironmentUsed, ...]:
    used: dict[str, EnvironmentUsed] = {}
    for run in runs:
        before = used.get(run.identity.environment)
        used[run.identity.environment] = EnvironmentUsed(
            name=run.identity.environment,
            engine=run.identity.engine,
            digest=run.identity.digest,
            interpreter=run.identity.interpreter,
            base_image=run.identity.base_image,
            steps=(*(before.steps if before else ()), run.step),
            versions={**(before.versions if before else {}), **run.result.versions},
        )
    return tuple(used.values())


def _manifest(deployment: Deployment, reproduce: tuple[str, ...]) -> dict[str, Json]:
    """Return what must be known of an artefact wherever it goes."""
    cell, built = deployment.cell, deployment.built
    return {
        "aipc": aipc.__version__,
        "cell": str(cell),
        "model": encode(_model_facts(deployment)),
        "runtime": cell.runtime,
        "precision": cell.precision,
        "target": cell.target,
        "environments": encode(_environments(deployment.runs)),
        "io": built.result.facts.get("io") if built else None,
        "opset": deployment.onnx.get("opset"),
        "rewrites": [each.rewrite for each in deployment.repairs if each.is_kept],
        "verdict": deployment.verdict,
        "reasons": list(deployment.reasons),
        "tolerances": encode(deployment.groups),
        "reproduce": list(reproduce),
    }


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the run folder: two deploys of one cell write one after the other; what a killed one left is mended."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        old = _old(folder)
        if old.exists() and not folder.exists():
            old.rename(folder)
        for left in folder.parent.glob(f".{folder.name}.*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(handle)


def _swap(beside: Path, folder: Path) -> None:
    """Put `beside` where `folder` is; after a kill between the two renames, `held` puts the old one back."""
    if folder.exists():
        folder.rename(_old(folder))
    beside.rename(folder)
    shutil.rmtree(_old(folder), ignore_errors=True)


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")
