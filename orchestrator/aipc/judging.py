"""An ONNX file that somebody made, judged beside the model that it stands for; no runtime takes part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aipc import materials
from aipc.building import output, port
from aipc.config import Matrix
from aipc.exporting import Exporting, loose
from aipc.facts import Gate, Measure
from aipc.jobs import Session, StepRun
from aipc.mending import Walk, reached
from aipc.model import Model, Source, Tolerance
from aipc.pipeline import REFERENCE, expected_samples, judged_groups
from aipc.runtime import find
from runtimes import contract
from runtimes.contract import Json, Status, Step, Verdict, encode

_AGREEMENT = "agreement: "
"""Stands in the words of a step that stopped since ONNX Runtime's answers are not the golden ones."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What is believed of the file; it is true when the file agrees.

    Attributes:
        verdict: as of a cell; `refused` and `failed` where the file could not be run, or the model not be loaded.
        reasons: why, each a sentence.
        gates: what the judge checked.
        measures: what the judge measured.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    gates: tuple[Gate, ...] = ()
    measures: tuple[Measure, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.verdict)


def judge(session: Session, matrix: Matrix, model: Model, file: Path, runs: Path, limit: Tolerance) -> Judged:
    """Run `file` with ONNX Runtime, and compare its answers with those of `model`.

    Args:
        session: the engine, the store and who is told.
        matrix: pictures, seed and magnitudes.
        model: its own source answers: PyTorch, or ONNX Runtime for an ONNX file.
        file: the ONNX file, with the files of its tensors beside it.
        runs: the folder of the reports, which is no part of the model's source.
        limit: how near it must come.

    Raises:
        AipcError: a file that cannot be had, or an engine, disk or network that failed.
    """
    reference = find(REFERENCE)
    weights = loose(session, model.weights) if model.weights else None
    source = materials.of_source_folder(model, runs)
    given = {name: material for name, material in (("weights", weights), ("source", source)) if material}
    candidate = materials.renamed(loose(session, (Source(path=str(file)),)), file.name, materials.ONNX_FILE)
    walk = Walk(session)
    begun = Exporting(walk=walk, model=model, matrix=matrix, reference=reference, given=given)

    def go() -> StepRun:
        trial = begun.prepare(matrix.seed)
        facts = walk.path[-1].result.facts
        checked = walk.step(Step.REWRITE, reference, {"model": candidate, **trial}, {"rewrites": []}, ("model", "cpu"))
        outputs = [port(each) for each in facts["outputs"]]
        options: dict[str, Json] = {
            "sensitivity": facts["sensitivity"],
            "expected_samples": expected_samples(matrix, facts),
            "groups": encode(judged_groups(model, facts, limit)),
            "expected_outputs": outputs,
            "declared_outputs": outputs,
            "quantized": False,
            "accelerator": False,
            "placement": [],
            "accepted_devices": [],
        }
        answers = output(checked, "cpu")
        given = {**trial, "outputs": answers, "cpu": answers}
        return walk.step(Step.JUDGE, reference, given, options, ("verdict.json",))

    return _judged(reached(walk, go))


def _judged(last: StepRun) -> Judged:
    """Return what is believed where `last` is how it ended."""
    failure = last.result.failure
    if failure is None:
        kept = ("verdict", "reasons", "gates", "measures")
        facts = {key: last.result.facts[key] for key in kept}
        return contract.decode(Judged, facts, "the judge's facts")
    differs = last.step is Step.REWRITE and _AGREEMENT in failure.message
    verdict = Verdict.REFUSED if last.result.status is Status.REFUSED else Verdict.FAILED
    return Judged(verdict=Verdict.DISAGREES if differs else verdict, reasons=(failure.message,))
