"""One cell, from PyTorch to a verdict: which jobs there are, in which order, and what each gets of the others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from aipc.cell import Cell
from aipc.config import Matrix
from aipc.errors import UsageError
from aipc.fetch import fetch, hash_file
from aipc.jobs import Session, StepRun
from aipc.model import Content, Group, Model, OutputContent, Source, Tolerance
from aipc.modelfile import external_data
from aipc.runtime import Runtime, find
from aipc.store import Material, StoredFile, describe
from runtimes.contract import Failure, Json, Kind, Status, Step, Verdict, encode

REFERENCE = "reference"
ORDER = (Step.PREPARE, Step.EXPORT, Step.CONVERT, Step.RUN, Step.JUDGE)
NCHW = 4
COLOURS = (1, 3)
SMALLEST_PICTURE = 16
"""An output with a smaller side is no picture for people."""
STAGES: Mapping[Step, str] = {
    Step.PREPARE: "prepare",
    Step.EXPORT: "export",
    Step.CONVERT: "convert",
    Step.RUN: "verify",
    Step.JUDGE: "verify",
    Step.INSPECT: "inspect",
}
"""The stage, a word for people, that a step belongs to."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One cell as far as it came; it is true when the judge agrees."""

    cell: Cell
    model: Model
    runtime: Runtime
    groups: tuple[Group, ...]
    weights: tuple[StoredFile, ...]
    runs: tuple[StepRun, ...]
    verdict: Verdict
    reasons: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.verdict)

    def run(self, step: Step) -> StepRun | None:
        """Return how `step` went, or None when the cell never came to it."""
        return next((run for run in self.runs if run.step is step), None)

    def facts(self, step: Step) -> Mapping[str, Json]:
        """Return the facts that `step` found, empty when it was not done."""
        run = self.run(step)
        return run.result.facts if run else {}

    @property
    def failure(self) -> Failure | None:
        """Why the cell went no further, None when every step was done."""
        return self.runs[-1].result.failure if self.runs else None


def inspect(session: Session, file: Path) -> StepRun:
    """Look into a model file, in the reference environment: nothing of it is run.

    Raises:
        AipcError: the file cannot be had, or an engine, disk or network failed.
    """
    material = _loose(session, (Source(path=str(file)),))
    return session.step(Step.INSPECT, find(REFERENCE), {"file": material}, {})


class _Stopped(Exception):
    """A step was not done: the cell goes no further."""


@dataclass
class _Walk:
    """One walk along the steps of a cell; it remembers how each went."""

    session: Session
    runs: list[StepRun]

    def step(
        self, step: Step, runtime: Runtime, inputs: Mapping[str, Material], options: Mapping[str, Json]
    ) -> StepRun:
        run = self.session.step(step, runtime, inputs, options)
        self.runs.append(run)
        if not run:
            raise _Stopped
        return run


def deploy(session: Session, matrix: Matrix, cell: Cell, model: Model) -> Deployment:
    """Take one cell through prepare, export, convert and verify, as far as it goes.

    Args:
        session: the engine, the store and who is told.
        matrix: tolerances, pictures, seed and magnitudes.
        cell: what is asked for.
        model: the model of the cell, its shape already resolved.

    Raises:
        AipcError: a file that cannot be had, or an engine, disk or network that failed.
    """
    runtime = find(cell.runtime)
    walk = _Walk(session=session, runs=[])
    weights = _weights(session, model)
    groups: tuple[Group, ...] = ()
    try:
        groups = _walk(walk, matrix, cell, model, runtime, weights)
    except _Stopped:
        verdict, reasons = _unfinished(walk.runs[-1])
    else:
        facts = walk.runs[-1].result.facts
        verdict, reasons = Verdict(facts["verdict"]), tuple(facts["reasons"])
    return Deployment(
        cell=cell,
        model=model,
        runtime=runtime,
        groups=groups,
        weights=weights.files if weights else (),
        runs=tuple(walk.runs),
        verdict=verdict,
        reasons=reasons,
    )


def _walk(
    walk: _Walk, matrix: Matrix, cell: Cell, model: Model, runtime: Runtime, weights: Material | None
) -> tuple[Group, ...]:
    """Do the steps in order; return the output groups that were judged."""
    reference = find(REFERENCE)
    if model.environment:
        reference = replace(reference, environment=model.environment)
    options = _model_options(model)
    source = {name: material for name, material in (("weights", weights), ("source", _source(model))) if material}
    draws = {"seed": matrix.seed, "magnitudes": list(matrix.magnitudes)}
    pictures = _pictures(walk.session, matrix)
    prepared = walk.step(Step.PREPARE, reference, {**source, "pictures": pictures}, {**options, **draws})
    samples, golden = _output(prepared, "samples"), _output(prepared, "golden")
    exported = walk.step(
        Step.EXPORT,
        reference,
        {**source, "samples": samples, "golden": golden},
        {**options, "opset": model.opset, "exporter": model.exporter},
    )
    facts = prepared.result.facts
    ports = {
        side: [{key: port[key] for key in ("name", "shape", "dtype")} for port in facts[side]]
        for side in ("inputs", "outputs")
    }
    asked = {"precision": cell.precision, "target": cell.target}
    converted = walk.step(Step.CONVERT, runtime, {"model": _output(exported, "model")}, {**asked, **ports, "extra": {}})
    ran = walk.step(
        Step.RUN, runtime, {"artifact": _output(converted, "artifact"), "samples": samples}, {**asked, "extra": {}}
    )
    groups = _groups(model, facts, matrix.precisions[cell.precision])
    target = runtime.targets[cell.target]
    walk.step(
        Step.JUDGE,
        reference,
        {"samples": samples, "golden": golden, "outputs": _output(ran, "outputs"), "cpu": _output(exported, "cpu")},
        {
            "groups": encode(groups),
            "sensitivity": facts["sensitivity"],
            "expected_outputs": ports["outputs"],
            "declared_outputs": converted.result.facts["io"]["outputs"],
            "accelerator": target.accelerator,
            "placement": ran.result.facts.get("placement") or converted.result.facts.get("placement", []),
            "accepted_devices": list(target.devices),
        },
    )
    return groups


def _unfinished(run: StepRun) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict of a cell whose last step was not done, and why."""
    failure = run.result.failure
    assert failure is not None  # noqa: S101 - Result sees to it
    reason = f"{STAGES[run.step]}: {failure.message}"
    if run.result.status is not Status.REFUSED:
        return Verdict.FAILED, (reason,)
    if run.step is Step.RUN and failure.kind is Kind.NO_DEVICE:
        return Verdict.UNTRIED, (reason,)
    return Verdict.REFUSED, (reason,)


def _output(run: StepRun, name: str) -> Material:
    assert run.entry is not None  # noqa: S101 - a step that is done is kept
    return run.entry.output(name)


def _model_options(model: Model) -> dict[str, Json]:
    return {
        "source": model.source,
        "architecture": model.architecture,
        "function": model.function,
        "trusted": model.trusted,
        "inputs": encode(model.inputs),
        "outputs": list(model.outputs),
        "shape": list(model.shape),
    }


def _groups(model: Model, facts: Mapping[str, Json], usual: Tolerance) -> tuple[Group, ...]:
    """Return the output groups to be judged, each with its limits; an output in no group is one by itself.

    Such an output is shown as a picture where a picture goes in and it has the form of one.
    """
    declared = {output for group in model.groups for output in group.outputs}
    pictures = any(port["content"] == Content.PICTURE for port in facts["inputs"])
    alone = tuple(
        Group(
            name=port["name"],
            outputs=(port["name"],),
            content=OutputContent.PICTURE if pictures and _is_picture(port["shape"]) else OutputContent.TENSOR,
        )
        for port in facts["outputs"]
        if port["name"] not in declared
    )
    return tuple(replace(group, **encode(group.tolerance(usual))) for group in (*model.groups, *alone))


def _is_picture(shape: list[int]) -> bool:
    return len(shape) == NCHW and shape[1] in COLOURS and min(shape[2:]) >= SMALLEST_PICTURE


def _loose(session: Session, sources: tuple[Source, ...]) -> Material:
    """Return files from anywhere as one material; an ONNX file brings the files of its large tensors along."""
    places: dict[str, Path] = {}
    for source in sources:
        path = fetch(source, session.cache, lambda text: session.listener.progress(text, None))
        places[source.name] = path
        if source.name.lower().endswith(".onnx"):
            places |= external_data(path)
    files = tuple(
        StoredFile(path=name, sha256=hash_file(path), size_bytes=path.stat().st_size)
        for name, path in sorted(places.items())
    )
    return Material(files=files, places=places)


def _weights(session: Session, model: Model) -> Material | None:
    return _loose(session, model.weights) if model.weights else None


def _pictures(session: Session, matrix: Matrix) -> Material:
    return _loose(session, matrix.pictures)


def _source(model: Model) -> Material | None:
    """Return the declared source folder of a `module:function` model, whole but for what no source is.

    Hidden files, caches and virtual environments stay behind.

    Raises:
        UsageError: a link is in it; what lies behind it would change unnoticed.
    """
    if not model.folder:
        return None
    folder = Path(model.folder)
    names = []
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = [name for name in folders if not _is_left_behind(here / name)]
        for path in (here / name for name in files if not name.startswith(".")):
            if path.is_symlink():
                raise UsageError(f"{path}: is a link; put the file itself there, or name another folder with --source")
            names.append(path.relative_to(folder).as_posix())
    found = describe(folder, sorted(names))
    return Material(files=found, places={file.path: folder / file.path for file in found})


def _is_left_behind(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name == "__pycache__" or (folder / "pyvenv.cfg").exists()
