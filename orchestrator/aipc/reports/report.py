"""What is known of one cell after a deploy: the report that machines read, and that the page and the terminal show.

`report.schema.json` beside this file publishes the form (see `schema.py`).
A report that contradicts itself cannot be made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from aipc.bisection import Bisection
from aipc.deployment import AgentWork
from aipc.facts import ExportFacts, Gate, IoContract, Measure, PictureSet, Placed
from aipc.repairs import Repair
from runtimes import contract
from runtimes.contract import Artifact, Component, Failure, Json, Misused, Status, Step, Verdict

REPORT_SCHEMA = 2
"""The number of the report's form; it grows when a key changes its meaning, comes or goes."""

FILE_NAME = "report.json"


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """How near an output must be.

    Attributes:
        cosine: smallest cosine similarity.
        snr_db: smallest signal-to-noise ratio, in dB.
        max_abs: largest absolute difference, or null for no limit.
    """

    cosine: float
    snr_db: float
    max_abs: float | None = None


@dataclass(frozen=True, kw_only=True)
class GroupTolerance:
    """The thresholds of one group of outputs.

    Attributes:
        group: the group's name.
        outputs: the outputs in it.
        content: `tensor` or `picture`.
        applied: what the judge was told.
        default: what the precision has by default; where `applied` is looser, the report says so beside the verdict.
    """

    group: str
    outputs: tuple[str, ...]
    content: str
    applied: Thresholds
    default: Thresholds


@dataclass(frozen=True, kw_only=True)
class StageTaken:
    """One step that was run, or found in the store.

    Attributes:
        step: which.
        status: how it ended.
        seconds: its wall time; of the first run, where it is cached.
        cached: whether the store had it already.
        key: its key in the store.
        peak_memory_bytes: peak resident memory, or 0 where unknown.
    """

    step: Step
    status: Status
    seconds: float
    cached: bool
    key: str
    peak_memory_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class EnvironmentUsed:
    """One pinned toolchain that took part.

    Attributes:
        name: the folder under `images/`.
        engine: `docker` or `venv`.
        digest: sha256 of its definition.
        interpreter: the Python in it.
        base_image: the image's id, or "".
        steps: the steps that ran in it.
        versions: package to version, of what did the work.
    """

    name: str
    engine: str
    digest: str
    interpreter: str
    base_image: str = ""
    steps: tuple[Step, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The model, and the side it is compared with.

    Attributes:
        name: its name in the cell.
        source: how it is loaded: `ncnn`, `checkpoint`, `function`, `exported` or `onnx`.
        reference: who gave the golden outputs: `pytorch`, or `onnxruntime` for an ONNX file.
        licence: of the weights, or "" where unknown.
        weights: the files, with sha256 and size.
        parameters: how many, or 0 where unknown.
        sensitivity: output to input to how much the output changes with that input, relative; null for no number.
    """

    name: str
    source: str
    reference: str = "pytorch"
    licence: str = ""
    weights: tuple[Component, ...] = ()
    parameters: int = 0
    sensitivity: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class InputUsed:
    """One input as it was tried.

    Attributes:
        name: the input's name.
        shape: the shape that was tried.
        dtype: for instance `float32`.
        content: `picture`, `uniform`, `normal` or `integers`.
        declared: the shape that the model declares, or [] where it is the same; the page names a smaller trial.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    content: str = ""
    declared: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FailedStep:
    """The step at which it ended, and the vendor's own words.

    Attributes:
        step: which step.
        status: how it ended; never `done`.
        failure: kind, message, hint, operator and node.
        log_tail: the end of what it printed.
    """

    step: Step
    status: Status
    failure: Failure
    log_tail: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is known of one cell. It is true when the cell agrees.

    Attributes:
        cell: its name, `model[#shape]/runtime/precision[@target]`.
        runtime: the toolchain's name.
        runtime_title: the toolchain's name for people.
        precision: for instance `fp16`.
        target: what the artefact is built for.
        verdict: what is believed.
        reasons: why, each a sentence.
        made: when, in ISO 8601 with a time zone.
        seconds: wall time of the whole deploy.
        reproduce: the command that does it again, as an argument list.
        engine: `docker` or `venv`.
        model: the model and its reference.
        host: name to version, of what ran outside the environments (aipc, Python, the system).
        engine_reason: why that engine was taken.
        inputs: what was fed.
        tolerances: per group of outputs.
        gates: what the judge checked.
        measures: what the judge measured.
        pictures: what the judge drew; paths relative to the run folder.
        stages: the steps that were run, in order.
        not_reached: the steps that would have come after.
        environments: the toolchains that took part.
        uncaged: what was not walled off, each a short phrase.
        artifact: the files and the manifest, or null where none was made.
        artifact_folder: where they are, relative to the run folder.
        io: what the artefact takes and gives, or null.
        placement: where each node runs, [] where the toolchain does not say.
        device: what ran the artefact, or "".
        simulated: what stood in for that device, or "" where it was the device itself.
        execution: hints in force when it ran, as read back.
        export: the ONNX model between, as it was last converted, or null.
        repairs: the rewrites of that model that were done or tried, in order.
        bisection: where the runtime goes wrong, where that was looked for, or null.
        piece_folder: the smallest failing piece of the model, relative to the run folder, or "".
        agent: what an agent did for the cell, or null where none was asked.
        withheld: rewrites that no rule was let try, as asked for: this is no normal deploy.
        failure: where it ended, or null.
        notes: anything else worth knowing.
        report_schema: the number of this form.
    """

    cell: str
    runtime: str
    runtime_title: str
    precision: str
    target: str
    verdict: Verdict
    reasons: tuple[str, ...]
    made: str
    seconds: float
    reproduce: tuple[str, ...]
    engine: str
    model: ModelFacts
    host: Mapping[str, str] = field(default_factory=dict)
    engine_reason: str = ""
    inputs: tuple[InputUsed, ...] = ()
    tolerances: tuple[GroupTolerance, ...] = ()
    gates: tuple[Gate, ...] = ()
    measures: tuple[Measure, ...] = ()
    pictures: tuple[PictureSet, ...] = ()
    stages: tuple[StageTaken, ...] = ()
    not_reached: tuple[Step, ...] = ()
    environments: tuple[EnvironmentUsed, ...] = ()
    uncaged: tuple[str, ...] = ()
    artifact: Artifact | None = None
    artifact_folder: str = "artifact"
    io: IoContract | None = None
    placement: tuple[Placed, ...] = ()
    device: str = ""
    simulated: str = ""
    execution: Mapping[str, Json] = field(default_factory=dict)
    export: ExportFacts | None = None
    repairs: tuple[Repair, ...] = ()
    bisection: Bisection | None = None
    piece_folder: str = ""
    agent: AgentWork | None = None
    withheld: tuple[str, ...] = ()
    failure: FailedStep | None = None
    notes: tuple[str, ...] = ()
    report_schema: int = REPORT_SCHEMA

    def __post_init__(self) -> None:
        problem = _contradiction(self)
        if problem:
            raise Misused(f"report of {self.cell}: {problem}")

    def __bool__(self) -> bool:
        return bool(self.verdict)


def _contradiction(report: Report) -> str:
    """Return what cannot be true of `report`, or "". A green verdict has to be carried by what lies under it."""
    verdict = report.verdict
    failed = [gate.name for gate in report.gates if not gate]
    groups = {tolerance.group for tolerance in report.tolerances}
    strange = sorted({measure.group for measure in report.measures} - groups)
    if strange:
        return f"measures of the group {strange[0]!r}, which has no tolerance; name it in tolerances"
    if verdict and not (report.gates and report.measures and report.artifact and report.artifact.components):
        return "agrees without gates, measures or artefact; an empty report is not good"
    if verdict and (failed or report.failure):
        return f"agrees, but {failed[0] if failed else 'a step'} failed; take the judge's verdict as it is"
    if verdict in (Verdict.FAILED, Verdict.REFUSED) and report.failure is None:
        return f"{verdict} without a failure; say which step ended how"
    if report.failure is not None and report.failure.status is Status.DONE:
        return f"the failed step {report.failure.step} is done; leave failure out"
    if not verdict and not report.reasons and report.failure is None:
        return f"{verdict} without a reason; say why"
    try:
        zone = datetime.fromisoformat(report.made).tzinfo
    except ValueError:
        zone = None
    return "" if zone else f"made {report.made!r} is not ISO 8601 with a time zone; write 2026-01-31T12:00:00+00:00"


def write(report: Report, path: Path) -> None:
    """Write `report` as JSON to `path`, whole or not at all."""
    contract.write(report, path)


def read(path: Path) -> Report:
    """Return the report at `path`.

    Raises:
        Misused: it is no report, contradicts itself, or is of another schema.
        FileNotFoundError: there is no such file.
    """
    try:
        number = json.loads(path.read_text(encoding="utf-8"))["report_schema"]
    except (ValueError, LookupError, TypeError) as error:
        raise Misused(f"{path}: not a report of aipc ({error!r}); name a {FILE_NAME}") from error
    if number != REPORT_SCHEMA:
        raise Misused(f"{path}: report_schema {number} is not {REPORT_SCHEMA}; read it with the aipc that wrote it")
    return contract.read(Report, path)
