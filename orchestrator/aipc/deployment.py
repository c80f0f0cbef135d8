"""A deployment: one cell as far as it came, with every step, every repair and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aipc.agent.deviations import Deviation
from aipc.bisection import Found
from aipc.cell import Cell
from aipc.jobs import StepRun
from aipc.model import Group, Model
from aipc.repairs import Repair
from aipc.runtime import Run, Runtime
from aipc.store import StoredFile
from runtimes.contract import Failure, Json, Status, Step, Verdict

STAGES: Mapping[Step, str] = {
    Step.PREPARE: "prepare",
    Step.EXPORT: "export",
    Step.REWRITE: "rewrite",
    Step.PATCH: "rewrite",
    Step.CALIBRATE: "optimize",
    Step.CONVERT: "convert",
    Step.QUANTIZE: "optimize",
    Step.RUN: "verify",
    Step.JUDGE: "verify",
    Step.BISECT: "verify",
    Step.INSPECT: "inspect",
    Step.AGENT: "agent",
}
"""The stage, a word for people, that a step belongs to."""


def order(runtime: Runtime, precision: str) -> tuple[Step, ...]:
    """Return the steps that a cell takes when nothing goes wrong."""
    quantized = precision in runtime.quantized
    build = (Step.CALIBRATE, Step.QUANTIZE) if quantized else (Step.CONVERT,)
    run = (Step.RUN,) if runtime.run is Run.ARTIFACT else ()
    return (Step.PREPARE, Step.EXPORT, *build, *run, Step.JUDGE)


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Where a cell ended before it was judged.

    Attributes:
        step: which step was not done.
        status: how it ended.
        failure: why.
        log: the end of what it printed.
    """

    step: Step
    status: Status
    failure: Failure
    log: bytes = b""


@dataclass(frozen=True, kw_only=True)
class AgentWork:
    """What an agent did for a cell; nothing that it said is believed.

    Attributes:
        mode: `repair` or `drive`.
        model: the name of the language model.
        model_sha256: of its weights, "" where nobody knows.
        synthetic: a person wrote its answers.
        skills: whether it could read the skills.
        ended: why the session was over.
        claim: what it said of its candidate when it submitted, "" where it did not.
        summary: its own last words.
        edits: its candidate, as data.
        steps: its decisions.
        calls: of the model.
        tokens: of prompts and answers together.
        estimated: the tokens are estimated, since the server did not count them.
        seconds: wall time of the session.
        cost: of the tokens, 0 where there are no prices.
        seed: of the inputs that the judge drew when the candidate was frozen; 0 where nothing was judged.
        verdict: of the candidate, built anew; null where there was nothing to build.
        reasons: why.
        taken: the cell's verdict is that of the candidate.
        uncaged: what was not kept from it.
        temperature: of the model's sampling.
        sampling_seed: of it, 0 where that was left to the server.
        transcript: the name of the file in `transcripts/` with all that was asked and answered.
        broken_off: it ended because the model, or the agent's own job, was gone.
        deviations: where it left its way.
    """

    mode: str
    model: str
    model_sha256: str
    synthetic: bool
    skills: bool
    ended: str
    claim: str = ""
    summary: str = ""
    edits: tuple[Mapping[str, Json], ...] = ()
    steps: int = 0
    calls: int = 0
    tokens: int = 0
    estimated: bool = False
    seconds: float = 0.0
    cost: float = 0.0
    seed: int = 0
    verdict: Verdict | None = None
    reasons: tuple[str, ...] = ()
    taken: bool = False
    uncaged: tuple[str, ...] = ()
    temperature: float = 0.0
    sampling_seed: int = 0
    transcript: str = ""
    broken_off: bool = False
    deviations: tuple[Deviation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One cell as far as it came; it is true when the judge agrees.

    Attributes:
        cell: what was asked for.
        model: its model.
        runtime: its toolchain.
        groups: the output groups that were judged.
        weights: the files of the model.
        runs: every step, in order; those of attempts that were mended too.
        path: those of them that led to this result.
        verdict: what is believed.
        reasons: why, each a sentence.
        stop: where it ended, None where it was judged.
        repairs: what was rewritten, or tried to be.
        found: where it goes wrong, where that was looked for.
        base: the cell in floating point that a quantised one is built on.
        agent: what an agent did, None where none was asked.
    """

    cell: Cell
    model: Model
    runtime: Runtime
    groups: tuple[Group, ...] = ()
    weights: tuple[StoredFile, ...] = ()
    runs: tuple[StepRun, ...] = ()
    path: tuple[StepRun, ...] = ()
    verdict: Verdict
    reasons: tuple[str, ...]
    stop: Stop | None = None
    repairs: tuple[Repair, ...] = ()
    found: Found | None = None
    base: Deployment | None = None
    agent: AgentWork | None = None

    def __bool__(self) -> bool:
        return bool(self.verdict)

    def run(self, step: Step) -> StepRun | None:
        """Return how `step` went when it was done, else None; of what is done again, the last attempt counts alone."""
        runs = self.path
        if step in {Step.CONVERT, Step.QUANTIZE, Step.RUN, Step.JUDGE}:
            begun = [at for at, run in enumerate(runs) if run.step in {Step.CONVERT, Step.QUANTIZE}]
            runs = runs[begun[-1] :] if begun else ()
        return next((run for run in reversed(runs) if run.step is step and run), None)

    @property
    def built(self) -> StepRun | None:
        """The step that made the artefact, None where none was made."""
        return self.run(Step.CONVERT) or self.run(Step.QUANTIZE)

    @property
    def onnx(self) -> Mapping[str, Json]:
        """The facts of the ONNX model as it was last converted, empty where there is none."""
        facts: Mapping[str, Json] = {}
        for run in self.path:
            if run and (run.step is Step.EXPORT or (facts and run.step is Step.REWRITE)):
                facts = {key: fact for key, fact in run.result.facts.items() if key != "changed"}
        return facts

    def facts(self, step: Step) -> Mapping[str, Json]:
        """Return the facts that `step` found, empty when it was not done."""
        run = self.run(step)
        return run.result.facts if run else {}


def outcome(repair: Repair) -> str:
    """Return in a few words what came of a rewrite."""
    if repair.problem:
        return f"could not be done: {repair.problem.splitlines()[0]}"
    if not repair.changed:
        return "nothing to change"
    amount = "1 place" if len(repair.changed) == 1 else f"{len(repair.changed)} places"
    helped = "" if repair.symptom is None else ", helped" if repair.helped else ", did not help and was taken back"
    return f"{amount} changed{helped}"
