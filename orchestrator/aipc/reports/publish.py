"""From a deployment to its run folder: the artefact with its manifest, the pictures, report.json and report.html.

`runs/<cell>/` is only a view of the store. It is made beside and swapped in: a reader sees the old one or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aipc
from aipc import workspace
from aipc.config import DEFAULT_TOLERANCES, Group, Matrix, Model
from aipc.engines import Engine
from aipc.fetch import hash_file
from aipc.jobs import StepRun as Run
from aipc.pipeline import ORDER, Deployment
from aipc.reports import html, report
from aipc.reports.report import (
    EnvironmentUsed,
    ExportFacts,
    FailedStep,
    InputUsed,
    IoContract,
    Judgement,
    ModelFacts,
    Placed,
    Report,
    StepRun,
    Thresholds,
    Tolerance,
)
from aipc.store import digest, scan
from runtimes import contract
from runtimes.contract import Artifact, Component, Json, Step, decode, encode

ARTIFACT = "artifact"
MANIFEST = "manifest.json"
FINGERPRINT = "fingerprint"


@dataclass(frozen=True, kw_only=True)
class Published:
    """A report and where it lies."""

    report: Report
    folder: Path

    @property
    def page(self) -> Path:
        """The report for people."""
        return self.folder / html.FILE_NAME


def publish(
    deployment: Deployment, matrix: Matrix, engine: Engine, runs: Path, seconds: float, reproduce: tuple[str, ...]
) -> Published:
    """Write the run folder of a deployment, or find it written.

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
    with _held(folder):
        mark = digest(
            [_code(), reproduce, [[run.key, run.result.status] for run in deployment.runs], encode(deployment.groups)]
        )
        found = _unchanged(folder, mark) if all(run.entry for run in deployment.runs) else None
        if found is not None:
            return Published(report=found, folder=folder)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            beside.chmod(0o755)
            made = _write(deployment, matrix, engine, beside, seconds, reproduce)
            (beside / FINGERPRINT).write_text(mark, encoding="utf-8")
            _swap(beside, folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return Published(report=made, folder=folder)


def _write(
    deployment: Deployment, matrix: Matrix, engine: Engine, folder: Path, seconds: float, reproduce: tuple[str, ...]
) -> Report:
    """Fill the new run folder, and return the report that lies in it."""
    judged = deployment.run(Step.JUDGE)
    if judged and judged.entry:
        with contextlib.suppress(KeyError):
            workspace.copy(judged.entry.output("pictures"), folder / "pictures")
    converted = deployment.run(Step.CONVERT)
    artifact = None
    if converted and converted.entry:
        workspace.copy(converted.entry.output(ARTIFACT), folder / ARTIFACT)
        manifest = _manifest(deployment, reproduce)
        components = tuple(
            Component(name=file.path, sha256=file.sha256, size_bytes=file.size_bytes)
            for file in scan(folder / ARTIFACT)
        )
        artifact = Artifact(components=components, manifest=manifest)
        contract.write(artifact, folder / ARTIFACT / MANIFEST)
    made = _report(deployment, matrix, engine, artifact, seconds, reproduce)
    report.write(made, folder / report.FILE_NAME)
    html.write(made, folder)
    return made


def _report(
    deployment: Deployment,
    matrix: Matrix,
    engine: Engine,
    artifact: Artifact | None,
    seconds: float,
    reproduce: tuple[str, ...],
) -> Report:
    cell, model, last = deployment.cell, deployment.model, deployment.runs[-1]
    judged = deployment.run(Step.JUDGE)
    judgement = decode(Judgement, judged.result.facts, "verdict.json") if judged else None
    exported = deployment.run(Step.EXPORT)
    converted, ran = deployment.facts(Step.CONVERT), deployment.facts(Step.RUN)
    failure = last.result.failure
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
        inputs=_inputs(deployment, matrix.models.get(cell.model, model)),
        tolerances=tuple(_tolerance(group, matrix, cell.precision) for group in deployment.groups),
        gates=judgement.gates if judgement else (),
        measures=judgement.measures if judgement else (),
        pictures=judgement.pictures if judgement else (),
        stages=tuple(_stage(run) for run in deployment.runs),
        not_reached=ORDER[len(deployment.runs) :],
        environments=_environments(deployment.runs),
        uncaged=tuple(sorted({word for run in deployment.runs for word in run.uncaged})),
        artifact=artifact,
        artifact_folder=ARTIFACT,
        io=decode(IoContract, converted["io"], "facts of convert: io") if "io" in converted else None,
        placement=tuple(
            decode(Placed, placed, "facts: placement")
            for placed in ran.get("placement") or converted.get("placement", ())
        ),
        device=ran.get("device", ""),
        execution=ran.get("execution", {}),
        export=_export_facts(exported) if exported and exported.result else None,
        failure=FailedStep(step=last.step, status=last.result.status, failure=failure, log_tail=last.log_tail)
        if failure
        else None,
        notes=tuple(note for run in deployment.runs for note in run.result.facts.get("notes", ())),
    )


def _model_facts(deployment: Deployment) -> ModelFacts:
    model, prepared = deployment.model, deployment.facts(Step.PREPARE)
    return ModelFacts(
        name=model.name,
        source=model.source,
        reference=prepared.get("reference", "onnxruntime" if model.source == "onnx" else "pytorch"),
        licence=model.licence,
        weights=tuple(
            Component(name=file.path, sha256=file.sha256, size_bytes=file.size_bytes) for file in deployment.weights
        ),
        parameters=prepared.get("parameters", 0),
        sensitivity=prepared.get("sensitivity", {}),
    )


def _inputs(deployment: Deployment, declared: Model) -> tuple[InputUsed, ...]:
    """Return the inputs as they were tried, each with its declared shape where that is another."""
    shapes = {port.name: tuple(port.shape) for port in declared.inputs}
    used = []
    for port in deployment.facts(Step.PREPARE).get("inputs", ()):
        shape = tuple(port["shape"])
        wanted = shapes.get(port["name"], shape)
        used.append(
            InputUsed(
                name=port["name"],
                shape=shape,
                dtype=port["dtype"],
                content=port["content"],
                declared=() if wanted == shape else wanted,
            )
        )
    return tuple(used)


def _tolerance(group: Group, matrix: Matrix, precision: str) -> Tolerance:
    usual = matrix.precisions[precision]
    default = DEFAULT_TOLERANCES.get(precision, usual)
    applied = group.tolerance(usual)
    return Tolerance(
        group=group.name,
        outputs=group.outputs,
        content=group.content,
        applied=Thresholds(cosine=applied.cosine, snr_db=applied.snr_db, max_abs=applied.max_abs),
        default=Thresholds(cosine=default.cosine, snr_db=default.snr_db, max_abs=default.max_abs),
    )


def _stage(run: Run) -> StepRun:
    return StepRun(
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


def _export_facts(exported: Run) -> ExportFacts:
    known = ExportFacts.__dataclass_fields__
    facts = {name: value for name, value in exported.result.facts.items() if name in known}
    return decode(ExportFacts, facts, "facts of export")


def _manifest(deployment: Deployment, reproduce: tuple[str, ...]) -> dict[str, Json]:
    """Return what must be known of an artefact wherever it goes."""
    cell, converted = deployment.cell, deployment.facts(Step.CONVERT)
    return {
        "aipc": aipc.__version__,
        "cell": str(cell),
        "model": encode(_model_facts(deployment)),
        "runtime": cell.runtime,
        "precision": cell.precision,
        "target": cell.target,
        "environments": encode(_environments(deployment.runs)),
        "io": converted.get("io"),
        "opset": deployment.facts(Step.EXPORT).get("opset"),
        "verdict": deployment.verdict,
        "reasons": list(deployment.reasons),
        "tolerances": encode(deployment.groups),
        "reproduce": list(reproduce),
    }


def _code() -> str:
    """Return the digest of the code and the template that make a report: another one writes it anew."""
    return digest([[file.path, file.sha256] for file in scan(Path(__file__).parent) if "__pycache__" not in file.path])


def _unchanged(folder: Path, mark: str) -> Report | None:
    """Return the report in `folder` when it was made from the same jobs, and its artefact is whole."""
    try:
        if (folder / FINGERPRINT).read_text(encoding="utf-8") != mark or not (folder / html.FILE_NAME).exists():
            return None
        found = report.read(folder / report.FILE_NAME)
        components = found.artifact.components if found.artifact else ()
        whole = all(hash_file(folder / ARTIFACT / item.name) == item.sha256 for item in components)
    except (OSError, contract.Misused):
        return None
    return found if whole else None


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the run folder: two deploys of one cell write one after the other."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        for left in folder.parent.glob(f".{folder.name}.*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(handle)


def _swap(beside: Path, folder: Path) -> None:
    """Put `beside` where `folder` is; the moment between the two renames is mended by the next deploy."""
    old = folder.with_name(f".{folder.name}.old")
    if folder.exists():
        folder.rename(old)
    beside.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
