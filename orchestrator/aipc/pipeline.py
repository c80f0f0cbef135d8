"""One cell, from PyTorch to a verdict: which jobs there are, in which order, and what each gets of the others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from aipc.cell import Cell
from aipc.config import Matrix, tolerance
from aipc.errors import UsageError
from aipc.fetch import fetch, hash_file
from aipc.jobs import Session, StepRun
from aipc.model import Content, Group, Model, OutputContent, Source, Tolerance
from aipc.modelfile import external_data
from aipc.runtime import Run, Runtime, Target, find
from aipc.store import Material, StoredFile, describe
from runtimes.contract import Json, Kind, Status, Step, Verdict, encode

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
        """Return how `step` went when it was done, else None."""
        return next((run for run in self.runs if run.step is step and run), None)

    def facts(self, step: Step) -> Mapping[str, Json]:
        """Return the facts that `step` found, empty when it was not done."""
        run = self.run(step)
        return run.result.facts if run else {}


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
        self,
        step: Step,
        runtime: Runtime,
        inputs: Mapping[str, Material],
        options: Mapping[str, Json],
        needed: tuple[str, ...],
    ) -> StepRun:
        run = self.session.step(step, runtime, inputs, options, needed)
        self.runs.append(run)
        if not run:
            raise _Stopped
        return run


def deploy(session: Session, matrix: Matrix, cell: Cell, model: Model, runs: Path) -> Deployment:
    """Take one cell through prepare, export, convert and verify, as far as it goes.

    Args:
        session: the engine, the store and who is told.
        matrix: tolerances, pictures, seed and magnitudes.
        cell: what is asked for.
        model: the model of the cell, its shape already resolved.
        runs: the folder of the reports; where it lies inside the model's source folder, it is no part of it.

    Raises:
        AipcError: a file that cannot be had, or an engine, disk or network that failed.
    """
    runtime = find(cell.runtime)
    groups: tuple[Group, ...] = ()
    weights = _loose(session, model.weights) if model.weights else None
    source = _source(model, runs)
    given = {name: material for name, material in (("weights", weights), ("source", source)) if material}
    walk = _Walk(session=session, runs=[])
    try:
        groups = _walk(walk, matrix, cell, model, runtime, given)
    except _Stopped:
        verdict, reasons = _unfinished(walk.runs[-1])
    else:
        facts = walk.runs[-1].result.facts
        verdict, reasons = Verdict(facts["verdict"]), tuple(facts["reasons"])
        elsewhere = _elsewhere(walk.runs, runtime.targets[cell.target])
        if verdict and elsewhere:
            verdict, reasons = Verdict.DISAGREES, (elsewhere,)
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
    walk: _Walk, matrix: Matrix, cell: Cell, model: Model, runtime: Runtime, given: Mapping[str, Material]
) -> tuple[Group, ...]:
    """Do the steps in order; return the output groups that were judged."""
    reference = find(REFERENCE)
    # Only loading a model may need packages of its own: the judge stays with those that nobody chose for it.
    home_of_model = replace(reference, environment=model.environment or reference.environment)
    options = _model_options(model)
    pictures = _loose(walk.session, matrix.pictures)
    prepared = walk.step(
        Step.PREPARE,
        home_of_model,
        {**given, "pictures": pictures},
        {**options, "seed": matrix.seed, "magnitudes": list(matrix.magnitudes)},
        ("samples", "golden"),
    )
    samples, golden, facts = _output(prepared, "samples"), _output(prepared, "golden"), prepared.result.facts
    exported = walk.step(
        Step.EXPORT,
        home_of_model,
        {**given, "samples": samples, "golden": golden},
        {**options, "opset": model.opset, "exporter": model.exporter},
        ("model", "cpu"),
    )
    ports = {side: [_port(each) for each in facts[side]] for side in ("inputs", "outputs")}
    converted, ran = _build(walk, cell, runtime, _output(exported, "model"), samples, ports)
    groups = _groups(model, facts, tolerance(matrix, runtime, cell.precision))
    target = runtime.targets[cell.target]
    walk.step(
        Step.JUDGE,
        reference,
        {"samples": samples, "golden": golden, "outputs": _output(ran, "outputs"), "cpu": _output(exported, "cpu")},
        {
            "groups": encode(groups),
            "sensitivity": facts["sensitivity"],
            "expected_samples": _samples(matrix, facts),
            "expected_outputs": ports["outputs"],
            "declared_outputs": [_port(each) for each in converted.result.facts["io"]["outputs"]],
            "accelerator": target.accelerator,
            "placement": ran.result.facts.get("placement") or converted.result.facts.get("placement", []),
            "accepted_devices": list(target.devices),
        },
        ("verdict.json",),
    )
    return groups


def _build(
    walk: _Walk, cell: Cell, runtime: Runtime, model: Material, samples: Material, ports: Mapping[str, Json]
) -> tuple[StepRun, StepRun]:
    """Convert and run; return the step that made the artefact, and the one that made its outputs."""
    asked = {"precision": cell.precision, "target": cell.target}
    if runtime.run is Run.IN_CONVERT:
        both = walk.step(
            Step.CONVERT, runtime, {"model": model, "samples": samples}, {**asked, **ports}, ("artifact", "outputs")
        )
        return both, both
    converted = walk.step(Step.CONVERT, runtime, {"model": model}, {**asked, **ports}, ("artifact",))
    artifact = _output(converted, "artifact")
    return converted, walk.step(Step.RUN, runtime, {"artifact": artifact, "samples": samples}, asked, ("outputs",))


def _port(port: Mapping[str, Json]) -> Json:
    return {key: port[key] for key in ("name", "shape", "dtype")}


def _samples(matrix: Matrix, facts: Mapping[str, Json]) -> list[str]:
    """Return the samples that `prepare` was asked for: a photograph, random ones, and one changed input each."""
    names = [port["name"] for port in facts["inputs"]]
    others = [f"other-{name}" for name in names] if len(names) > 1 else []
    return ["photo", *(f"random-{magnitude:g}" for magnitude in matrix.magnitudes), *others]


def _elsewhere(runs: list[StepRun], target: Target) -> str:
    """Return why what ran is not the target that was asked for, or ""."""
    device = next(run.result.facts["device"] for run in reversed(runs) if "device" in run.result.facts)
    if device in target.devices or device.partition(".")[0] in target.devices:
        return ""
    return f"the artefact ran on {device!r}, not on {' or '.join(map(repr, target.devices))}, as was asked for"


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
    named = {group.name for group in model.groups}
    pictures = any(port["content"] == Content.PICTURE for port in facts["inputs"])
    alone = tuple(
        Group(
            name=port["name"] if port["name"] not in named else f"{port['name']}-output",
            outputs=(port["name"],),
            content=OutputContent.PICTURE if pictures and _is_picture(port) else OutputContent.TENSOR,
        )
        for port in facts["outputs"]
        if port["name"] not in declared
    )
    return tuple(replace(group, **encode(group.tolerance(usual))) for group in (*model.groups, *alone))


def _is_picture(port: Mapping[str, Json]) -> bool:
    """Return whether an output has the form of a picture; whole numbers are labels, each right or wrong."""
    shape = port["shape"]
    return (
        port["dtype"].startswith("float")
        and len(shape) == NCHW
        and shape[1] in COLOURS
        and min(shape[2:]) >= SMALLEST_PICTURE
    )


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


def _source(model: Model, runs: Path) -> Material | None:
    """Return the declared source folder of a `module:function` model, whole but for what no source is.

    Hidden files, caches, virtual environments and our own reports stay behind.

    Raises:
        UsageError: a link or a pipe is in it; what lies behind it would change unnoticed, or have no end.
    """
    if not model.folder:
        return None
    folder = Path(model.folder)
    names = []
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = [name for name in folders if not _is_left_behind(here / name, runs)]
        names += [(here / name).relative_to(folder).as_posix() for name in files if not name.startswith(".")]
        for path in (here / name for name in (*folders, *files) if not name.startswith(".")):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise UsageError(f"{path}: is a link or a pipe; put the file itself there, or name another --source")
    found = describe(folder, sorted(names))
    return Material(files=found, places={file.path: folder / file.path for file in found})


def _is_left_behind(folder: Path, runs: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name == "__pycache__"
    return hidden or (folder / "pyvenv.cfg").exists() or folder.absolute() == runs.absolute()
