"""A cell with an agent: the rules first (or not at all), then the agent, then its candidate built anew and judged.

The candidate is frozen before the judge's inputs are drawn. Whatever the agent says, the verdict is the judge's.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from aipc import home, pipeline
from aipc.agent import deviations, evidence, told
from aipc.agent.broker import Broker
from aipc.agent.budget import Spent
from aipc.agent.candidate import Candidate, Edit, Opset, Replacement
from aipc.agent.deviations import AGREES
from aipc.agent.evidence import Visit
from aipc.agent.exchange import ChatModel, Over
from aipc.agent.key import Key
from aipc.agent.settings import Mode, Settings
from aipc.agent.workbench import Bench, Workbench
from aipc.cell import Cell
from aipc.config import Matrix
from aipc.deployment import STAGES, AgentWork, Deployment, Stop
from aipc.jobs import Session, StepRun
from aipc.mending import reached
from aipc.model import Model
from aipc.repairs import HOPELESS, Wish
from aipc.runtime import find
from runtimes.contract import Failure, Json, Kind, Status, Step, Verdict

AGENT = "agent"
SEEDS = 2**31


@dataclass(frozen=True, kw_only=True)
class Agent:
    """Who is asked, and how.

    Attributes:
        settings: mode and bounds.
        model: the language model.
        key: what must get out nowhere.
        skills: whether it may read the skills.
        transcript: the file to write; there must be none.
        draw: returns the seed of the judge's inputs; asked once, when the candidate is frozen.
    """

    settings: Settings
    model: ChatModel
    key: Key
    transcript: Path
    skills: bool = True
    draw: Callable[[], int] = lambda: secrets.randbelow(SEEDS - 1) + 1


def deploy(
    session: Session, matrix: Matrix, cell: Cell, model: Model, runs: Path, agent: Agent, wishes: tuple[Wish, ...] = ()
) -> Deployment:
    """Take one cell to a verdict, with an agent where the rules do not do.

    Args:
        session: the engine, the store and who is told.
        matrix: tolerances, pictures, seed and magnitudes.
        cell: what is asked for; a precision in floating point.
        model: the model of the cell, its shape already resolved.
        runs: the folder of the reports.
        agent: who is asked.
        wishes: rewrites that a person asks for; they come before the agent's.

    Raises:
        AipcError: a file that cannot be had, or an engine, disk or network that failed.
    """
    mode = agent.settings.mode
    first = pipeline.deploy(session, matrix, cell, model, runs, wishes=wishes) if mode is Mode.REPAIR else None
    if first is not None and not _is_mendable(first):
        return first
    with tempfile.TemporaryDirectory(prefix="aipc-patched-") as scratch:
        bench = Bench(
            session=session,
            matrix=matrix,
            cell=cell,
            model=model,
            runs=runs,
            own={},
            seed=matrix.seed,
            scratch=Path(scratch),
        )
        workbench = _begin(bench, first, wishes)
        before = evidence.watch(bench.source)
        run, spent, gone, jobs = _visit(session, cell, agent, workbench)
        work = _work(agent, run, spent, gone, workbench)
        visit = _visited(cell, work, run, jobs, evidence.differing(before, evidence.watch(bench.source)))
        if workbench.claim != AGREES:
            work = replace(work, deviations=deviations.find(evidence.gather(visit, first, None)))
            return replace(_nothing(cell, model, work) if first is None else first, agent=work)
        seed = agent.draw()
        built = _rebuild(replace(bench, matrix=replace(matrix, seed=seed)), workbench.candidate)
    found = deviations.find(evidence.gather(visit, first, built))
    work = replace(work, seed=seed, verdict=built.verdict, reasons=built.reasons, deviations=found)
    if first is not None and not built:
        return replace(first, agent=work)
    return replace(built, agent=replace(work, taken=True))


def _begin(bench: Bench, first: Deployment | None, wishes: tuple[Wish, ...]) -> Workbench:
    """Return the workbench as an agent finds it: with what helped before, where `first` is what the rules came to."""
    if first is None:
        problem = "nothing is done yet; export comes first"
        return Workbench(bench=bench, candidate=Candidate(edits=wishes), problem=problem, exported=False)
    edits = (*wishes, *_helpful(first))
    return Workbench(bench=bench, candidate=Candidate(edits=edits), problem=_problem(first), exported=True)


def _problem(first: Deployment) -> str:
    """Return what is wrong as the rules have left it, beginning with the node where it begins, if that is known."""
    bad = first.found.bisection.first if first.found else None
    where = (f"the first node with wrong numbers is {bad.op} {bad.node!r}",) if bad else ()
    return "; ".join((*where, *first.reasons))


def _visited(cell: Cell, work: AgentWork, run: StepRun, jobs: tuple[StepRun, ...], changed: tuple[str, ...]) -> Visit:
    """Return what there is to see of a session: the agent's job, those done for it, and what changed meanwhile."""
    return Visit(
        cell=cell,
        drives=work.mode == Mode.DRIVE.value,
        skills=work.skills,
        facts=run.result.facts,
        ended=work.ended,
        claim=work.claim,
        jobs=jobs,
        changed=changed,
    )


def _nothing(cell: Cell, model: Model, work: AgentWork) -> Deployment:
    """Return the deployment of a cell that was the agent's alone, and for which it has submitted nothing."""
    why = f"the agent has submitted nothing: {work.ended}{': ' + work.summary if work.summary else ''}"
    failure = Failure(kind=Kind.MISSING_RESULT, message=why)
    return Deployment(
        cell=cell,
        model=model,
        runtime=find(cell.runtime),
        verdict=Verdict.FAILED,
        reasons=(f"{STAGES[Step.AGENT]}: {why}",),
        stop=Stop(step=Step.AGENT, status=Status.FAILED, failure=failure),
    )


def _is_mendable(done: Deployment) -> bool:
    """Return whether an agent could do something about a cell that the rules could not."""
    if done.verdict is Verdict.DISAGREES:
        return True
    return done.stop is not None and done.verdict is not Verdict.UNTRIED and done.stop.failure.kind not in HOPELESS


def _helpful(done: Deployment) -> tuple[Wish, ...]:
    """Return the rewrites by which the rules have come as far as they did."""
    reference = find(pipeline.REFERENCE)
    helped = (each for each in done.repairs if each.symptom is not None and each.helped)
    return tuple(Wish(rewrite=each.rewrite, runtime=reference, options=each.options) for each in helped)


def _visit(
    session: Session, cell: Cell, agent: Agent, workbench: Workbench
) -> tuple[StepRun, Spent, str, tuple[StepRun, ...]]:
    """Let the agent work.

    Returns:
        Its job, what it used, why the model was gone before it was done ("" where it was not), and the jobs that the
        host did for it.
    """
    settings = agent.settings
    options: dict[str, Json] = {
        "mode": settings.mode.value,
        "cell": str(cell),
        "runtime": cell.runtime,
        "steps": settings.steps,
        "seconds": settings.seconds,
        "skills": agent.skills,
    }
    within = _Within(session)
    workbench.bench = replace(workbench.bench, session=replace(session, listener=within, watch=within.check))
    with Broker(
        settings=settings,
        model=agent.model,
        jobs=workbench,
        transcript=agent.transcript,
        cell=str(cell),
        key=agent.key,
    ) as broker:
        skills = home.skills_folder() if agent.skills else None
        try:
            run = told.checked(session.visit(find(cell.runtime), find(AGENT), options, broker.folder, skills))
        finally:
            within.over.set()
    workbench.bench = replace(workbench.bench, session=session)
    return run, broker.spent, broker.ended, tuple(within.runs)


class _Within:
    """Tells of the jobs that an agent has done: as words of its session, not as steps of the cell.

    Attributes:
        runs: these jobs, as they ended.
        over: the agent is gone; a job of its that still runs is ended then, since nobody waits for it.
    """

    def __init__(self, session: Session) -> None:
        self._listener = session.listener
        self.runs: list[StepRun] = []
        self.over = threading.Event()

    def check(self) -> None:
        """Go on while the agent is there.

        Raises:
            Over: it is gone.
        """
        if self.over.is_set():
            raise Over("the agent that asked for it is gone")

    def started(self, step: Step) -> None:
        """Say which job it is."""
        self.check()
        self._listener.progress(f"for the agent: {step.value}", None)

    def progress(self, text: str, fraction: float | None) -> None:
        """Pass on what the job says."""
        self.check()
        self._listener.progress(text, fraction)

    def ended(self, run: StepRun) -> None:
        """Remember it, and say nothing."""
        self.runs.append(run)


def _rebuild(bench: Bench, candidate: Candidate) -> Deployment:
    """Return what comes of a frozen candidate: every job of it anew, and no rule beside it."""
    course = bench.start(candidate)
    if course.build is None:
        return pipeline.finish(course, course.last)
    return pipeline.finish(course, reached(course.walk, course.build.attempt))


def _work(agent: Agent, run: StepRun, spent: Spent, gone: str, workbench: Workbench) -> AgentWork:
    facts, who = run.result.facts, agent.model.identity
    return AgentWork(
        mode=agent.settings.mode.value,
        model=who.model,
        model_sha256=who.model_sha256,
        synthetic=who.synthetic,
        skills=agent.skills,
        ended=gone or told.why_over(run, workbench.claim),
        claim=workbench.claim,
        summary=workbench.summary,
        edits=tuple(_data(each) for each in workbench.candidate.edits),
        steps=facts.get("steps", 0),
        calls=spent.calls,
        tokens=spent.prompt_tokens + spent.completion_tokens,
        estimated=spent.estimated,
        seconds=round(spent.seconds, 1),
        cost=spent.cost,
        uncaged=run.uncaged,
        temperature=agent.settings.temperature,
        sampling_seed=agent.settings.seed,
        transcript=agent.transcript.name,
        broken_off=bool(gone or run.result.failure),
    )


def _data(edit: Edit) -> Mapping[str, Json]:
    match edit:
        case Wish():
            return {"rewrite": edit.rewrite, "options": dict(edit.options), "code": edit.code}
        case Replacement():
            return {"path": edit.path, "old": edit.old, "new": edit.new}
        case Opset():
            return {"opset": edit.number}
