"""One cell, from PyTorch to a verdict: which jobs there are, in which order, and what each gets of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from aipc import bisection, materials, mending, repairs
from aipc.bisection import Found
from aipc.building import CALIBRATION_SAMPLES, Build, output, port
from aipc.cell import Cell
from aipc.config import Matrix, tolerance
from aipc.deployment import STAGES, Deployment, Stop, outcome
from aipc.exporting import Exporting, Patched, loose
from aipc.jobs import Listener, Session, StepRun
from aipc.mending import Walk
from aipc.model import Content, Group, Model, Origin, OutputContent, Source, Tolerance
from aipc.repairs import HOPELESS, Repair, Wish
from aipc.runtime import Runtime, Target, find
from aipc.store import Material, StoredFile
from runtimes.contract import Failure, Json, Kind, Status, Step, Verdict, encode

REFERENCE = "reference"
NCHW = 4
COLOURS = (1, 3)
SMALLEST_PICTURE = 16
"""An output with a smaller side is no picture for people."""
NUMBERS = frozenset({"cosine", "snr", "max_abs", "equal", "local", "finite"})
"""Gates of the judge that look at numbers: where one fails, some node calculates wrongly."""


def inspect(session: Session, file: Path) -> StepRun:
    """Look into a model file, in the reference environment: nothing of it is run.

    Raises:
        AipcError: the file cannot be had, or an engine, disk or network failed.
    """
    material = loose(session, (Source(path=str(file)),))
    return session.step(Step.INSPECT, find(REFERENCE), {"file": material}, {})


def inspect_onnx(session: Session, model: Material, op: str, node: str) -> StepRun:
    """Look into an ONNX model that a job has made; each node of the type `op`, or of the name `node`, is shown too."""
    return session.step(Step.INSPECT, find(REFERENCE), {"file": model}, {"op": op, "node": node})


def deploy(
    session: Session,
    matrix: Matrix,
    cell: Cell,
    model: Model,
    runs: Path,
    calibration: Path | None = None,
    encodings: Path | None = None,
    wishes: tuple[Wish, ...] = (),
) -> Deployment:
    """Take one cell from PyTorch to a verdict, as far as it goes; a quantised one after its float one.

    Args:
        session: the engine, the store and who is told.
        matrix: tolerances, pictures, seed and magnitudes.
        cell: what is asked for.
        model: the model of the cell, its shape already resolved.
        runs: the folder of the reports; where it lies inside the model's source folder, it is no part of it.
        calibration: a folder of pictures or arrays to quantise with; None for the matrix's pictures.
        encodings: a file of ranges to quantise with, for a runtime that takes one.
        wishes: rewrites that a person asks for; the cell in floats gets those that do not quantise.

    Raises:
        AipcError: a file that cannot be had, or an engine, disk or network that failed.
    """
    runtime = find(cell.runtime)
    if cell.precision not in runtime.quantized:
        return _deploy(session, matrix, cell, model, runs, {}, wishes)
    neutral = tuple(each for each in wishes if not each.quantizes)
    base = deploy(session, matrix, replace(cell, precision=runtime.float_precision), model, runs, wishes=neutral)
    if base.verdict not in {Verdict.AGREES, Verdict.UNTRIED}:
        return _refused(cell, model, runtime, base)
    own = {"folder": materials.of_folder(calibration, runs, "--calibration")} if calibration else {}
    if encodings:
        own["encodings"] = materials.of_file(encodings, "encodings")
    return replace(_deploy(session, matrix, cell, model, runs, own, wishes), base=base)


def _refused(cell: Cell, model: Model, runtime: Runtime, base: Deployment) -> Deployment:
    """Return the deployment of a quantised cell whose cell in floating point is not good."""
    why = f"{base.cell} comes first, and it is {base.verdict.value}: {'; '.join(base.reasons)}"
    hint = f"deploy {base.cell}, and mend that first"
    failure = Failure(kind=Kind.PREREQUISITE, message=why, hint=hint)
    return Deployment(
        cell=cell,
        model=model,
        runtime=runtime,
        weights=base.weights,
        verdict=Verdict.REFUSED,
        reasons=(f"{STAGES[Step.QUANTIZE]}: {why}",),
        stop=Stop(step=Step.QUANTIZE, status=Status.REFUSED, failure=failure),
        base=base,
    )


def _deploy(
    session: Session,
    matrix: Matrix,
    cell: Cell,
    model: Model,
    runs: Path,
    own: Mapping[str, Material],
    wishes: tuple[Wish, ...],
) -> Deployment:
    """Deploy one cell; `own` is what a person gives to quantise with: a `folder` of data, a file of `encodings`."""
    course = start(session, matrix, cell, model, runs, own=own, wishes=wishes)
    if course.build is None:
        return finish(course, course.last)
    return finish(course, mending.mend(course.walk, course.build, course.build.repairs.repairs))


@dataclass(frozen=True, kw_only=True)
class Course:
    """A cell on its way.

    Attributes:
        walk: remembers all that was done.
        matrix: tolerances, seed and magnitudes.
        cell: what is asked for.
        model: its model.
        weights: the files of the model.
        last: how the last step of prepare and export ended.
        build: goes on from the ONNX model, None where there is none.
    """

    walk: Walk
    matrix: Matrix
    cell: Cell
    model: Model
    weights: tuple[StoredFile, ...]
    last: StepRun
    build: Build | None


def start(
    session: Session,
    matrix: Matrix,
    cell: Cell,
    model: Model,
    runs: Path,
    *,
    own: Mapping[str, Material] | None = None,
    wishes: tuple[Wish, ...] = (),
    patched: Patched | None = None,
) -> Course:
    """Take one cell to its ONNX model.

    Args:
        session: the engine, the store and who is told.
        matrix: tolerances, pictures, seed and magnitudes.
        cell: what is asked for.
        model: its model.
        runs: the folder of the reports; where it lies inside the model's source folder, it is no part of it.
        own: what a person gives to quantise with: a `folder` of data, a file of `encodings`.
        wishes: rewrites that are asked for.
        patched: the model's source as somebody changed it; PyTorch's own answers come of the unchanged one.

    Raises:
        AipcError: a file that cannot be had, or an engine, disk or network that failed.
    """
    runtime, reference = find(cell.runtime), find(REFERENCE)
    book = repairs.load(runtime).without(matrix.withheld)
    weights = loose(session, model.weights) if model.weights else None
    source = materials.of_source_folder(model, runs)
    given = {name: material for name, material in (("weights", weights), ("source", source)) if material}
    begun = Exporting(walk=Walk(session), model=model, matrix=matrix, reference=reference, given=given, patched=patched)
    rules = repairs.load(reference).without(matrix.withheld).repairs if model.source is Origin.ONNX else ()
    last = mending.mend(begun.walk, begun, rules)
    build = _build(begun, last, cell, runtime, book, own or {}, wishes) if last else None
    files = weights.files if weights else ()
    return Course(walk=begun.walk, matrix=matrix, cell=cell, model=model, weights=files, last=last, build=build)


def finish(course: Course, last: StepRun) -> Deployment:
    """Return what came of a cell that ended with `last`; where numbers are wrong, the first bad node is looked for."""
    walk, cell, build = course.walk, course.cell, course.build
    runtime = find(cell.runtime)
    done = Deployment(
        cell=cell,
        model=course.model,
        runtime=runtime,
        groups=build.groups if build else (),
        weights=course.weights,
        runs=tuple(walk.runs),
        path=tuple(walk.path),
        repairs=tuple(walk.repairs),
        **_ending(last, runtime, walk.repairs),
    )
    if build is None or not last:
        return done
    elsewhere = _elsewhere(done, runtime.targets[cell.target])
    if done and elsewhere:
        return replace(done, verdict=Verdict.DISAGREES, reasons=(elsewhere,))
    return replace(done, found=_bisect(walk.session, build, last, tolerance(course.matrix, runtime, cell.precision)))


def _build(
    exporting: Exporting,
    exported: StepRun,
    cell: Cell,
    runtime: Runtime,
    book: repairs.Repairs,
    own: Mapping[str, Material],
    wishes: tuple[Wish, ...],
) -> Build:
    """Return the second half of a cell whose ONNX model is there, made by `exported`."""
    prepared = next(run for run in reversed(exporting.walk.path) if run.step is Step.PREPARE)
    facts, matrix = prepared.result.facts, exporting.matrix
    pictures = loose(exporting.walk.session, matrix.pictures)
    data = {"folder": own["folder"]} if "folder" in own else {"pictures": pictures} if pictures.files else {}
    return Build(
        walk=exporting.walk,
        cell=cell,
        runtime=runtime,
        reference=exporting.reference,
        repairs=book,
        wishes=wishes,
        samples=output(prepared, "samples"),
        golden=output(prepared, "golden"),
        calibration=data,
        encodings={name: material for name, material in own.items() if name == "encodings"},
        told={"inputs": facts["inputs"], "count": CALIBRATION_SAMPLES, "seed": matrix.seed},
        judged={"sensitivity": facts["sensitivity"], "expected_samples": expected_samples(matrix, facts)},
        groups=judged_groups(exporting.model, facts, tolerance(matrix, runtime, cell.precision)),
        ports={side: [port(each) for each in facts[side]] for side in ("inputs", "outputs")},
        model=output(exported, "model"),
        cpu=output(exported, "cpu"),
    )


def _bisect(session: Session, build: Build, judged: StepRun, limit: Tolerance) -> Found | None:
    """Look for the first bad node where numbers are wrong; pieces of a quantised model say nothing of the whole."""
    facts = judged.result.facts
    wrong = {gate["name"].partition(":")[0] for gate in facts["gates"] if not gate["passed"]}
    if facts["verdict"] != Verdict.DISAGREES or not wrong & NUMBERS or build.cell.precision in build.runtime.quantized:
        return None
    worst = min(facts["measures"], key=lambda each: -1e9 if each["snr_db"] is None else each["snr_db"], default=None)
    if worst is None:
        return None
    quiet = replace(session, listener=_Pieces(session.listener))
    return bisection.bisect(
        quiet, build.reference, build.model, build.samples, worst["sample"], limit, partial(build.piece, quiet)
    )


class _Pieces:
    """Tells of a search as one step: what its jobs say, but not that each begins and ends."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._jobs = 0
        listener.started(Step.BISECT)

    def started(self, step: Step) -> None:
        """Count the job."""
        self._jobs += 1
        self._listener.progress(f"looking for the first bad node: job {self._jobs}, {step.value}", None)

    def progress(self, text: str, fraction: float | None) -> None:
        """Leave the words of a piece out: they would hide which one it is."""

    def ended(self, run: StepRun) -> None:
        """Say nothing."""


def _ending(last: StepRun, runtime: Runtime, tried: Sequence[Repair]) -> dict[str, Any]:
    """Return verdict, reasons and stop of a cell that ended with `last`."""
    failure = last.result.failure
    if failure is None:
        facts = last.result.facts
        return {"verdict": Verdict(facts["verdict"]), "reasons": tuple(facts["reasons"])}
    verdict = Verdict.REFUSED if last.result.status is Status.REFUSED else Verdict.FAILED
    if verdict is Verdict.REFUSED and last.step is Step.RUN and failure.kind is Kind.NO_DEVICE:
        verdict = Verdict.UNTRIED
    reasons = (f"{STAGES[last.step]}: {failure.message}", *_unmended(failure, runtime, tried))
    stop = Stop(step=last.step, status=last.result.status, failure=failure, log=last.log)
    return {"verdict": verdict, "reasons": reasons, "stop": stop}


def _unmended(failure: Failure, runtime: Runtime, tried: Sequence[Repair]) -> tuple[str, ...]:
    """Return which operator and node it was that the runtime does not take, and what was tried for it."""
    places = [f"{word} {name}" for word, name in (("operator", failure.op), ("node", failure.node)) if name]
    rewrites = [each for each in tried if each.symptom]
    if failure.kind in HOPELESS or not (places or rewrites):
        return ()
    what = ", ".join(places) or f"this failure ({failure.kind.value})"
    if not rewrites:
        return (f"{runtime.title} does not get past {what}; no rewrite is known for it",)
    said = ", ".join(f"{each.rewrite} ({outcome(each)})" for each in rewrites)
    return (f"{runtime.title} does not get past {what}; rewrites that were tried: {said}",)


def expected_samples(matrix: Matrix, facts: Mapping[str, Json]) -> list[str]:
    """Return the samples that `prepare` was asked for: a photograph, random ones, and one changed input each."""
    names = [port["name"] for port in facts["inputs"]]
    others = [f"other-{name}" for name in names] if len(names) > 1 else []
    return ["photo", *(f"random-{magnitude:g}" for magnitude in matrix.magnitudes), *others]


def _elsewhere(done: Deployment, target: Target) -> str:
    """Return why what ran is not the target that was asked for, or ""."""
    ran = done.facts(Step.RUN) or (done.built.result.facts if done.built else {})
    device = ran.get("device", "")
    # Beside an accelerator its host may take some nodes, but never all.
    allowed = target.devices[:1] if target.accelerator else target.devices
    if device in allowed or device.partition(".")[0] in allowed:
        return ""
    return f"the artefact ran on {device!r}, not on {' or '.join(map(repr, allowed))}, as was asked for"


def judged_groups(model: Model, facts: Mapping[str, Json], usual: Tolerance) -> tuple[Group, ...]:
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
            inputs=tuple(facts.get("reaching", {}).get(port["name"], ())),
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
