"""The repair loop: try, and where that fails or gives wrong numbers, rewrite the graph and try again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from aipc.jobs import Session, StepRun
from aipc.repairs import Always, Repair, Rule, Symptom, symptom_of
from aipc.runtime import Runtime
from aipc.store import Material
from runtimes.contract import Json, Step, Verdict

MOST = 12
"""So often a cell is tried again after a rewrite that changed something."""


PROGRESS = (Step.PREPARE, Step.EXPORT, Step.REWRITE, Step.CALIBRATE, Step.CONVERT, Step.QUANTIZE, Step.RUN, Step.JUDGE)
"""The steps of a cell in the order in which they come."""


class Stopped(Exception):
    """A step was not done: this attempt goes no further."""


@dataclass
class Walk:
    """One walk along the steps of a cell; it remembers how each went, and what was rewritten."""

    session: Session
    runs: list[StepRun] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)

    def step(
        self,
        step: Step,
        runtime: Runtime,
        inputs: Mapping[str, Material],
        options: Mapping[str, Json],
        needed: tuple[str, ...],
    ) -> StepRun:
        """Do one step.

        Raises:
            Stopped: it was not done.
        """
        run = self._try(step, runtime, inputs, options, needed)
        if not run:
            raise Stopped
        return run

    def rewrite(
        self,
        reference: Runtime,
        inputs: Mapping[str, Material],
        rewrites: tuple[Rule | Always, ...],
        symptom: Symptom | None = None,
    ) -> StepRun:
        """Rewrite the model among `inputs`, and remember what that changed."""
        wanted = [{"name": each.rewrite, "options": each.options} for each in rewrites]
        needed = ("model", "cpu") if "samples" in inputs else ("model",)
        run = self._try(Step.REWRITE, reference, inputs, {"rewrites": wanted}, needed)
        changed = run.result.facts["changed"] if run else {}
        failure = run.result.failure
        self.repairs += [
            Repair(
                rewrite=each.rewrite,
                symptom=symptom,
                options=each.options,
                status=run.result.status,
                changed=tuple(changed.get(each.rewrite, ())),
                problem=failure.message if failure else "",
            )
            for each in rewrites
        ]
        return run

    def _try(
        self,
        step: Step,
        runtime: Runtime,
        inputs: Mapping[str, Material],
        options: Mapping[str, Json],
        needed: tuple[str, ...],
    ) -> StepRun:
        run = self.session.step(step, runtime, inputs, options, needed)
        self.runs.append(run)
        return run


def mend(
    walk: Walk,
    attempt: Callable[[], StepRun],
    rewrite: Callable[[Rule, Symptom], StepRun],
    rules: tuple[Rule, ...],
) -> StepRun:
    """Try until it is well, or nothing is left that could help; return the last step of the last attempt.

    After each attempt that shows a symptom, the first rule that fits and was not used yet rewrites the model. One that
    cannot be done, or changes nothing, leaves the model as it was, and the next rule gets its turn.

    Args:
        walk: remembers all of it.
        attempt: takes the model as it is now as far as it comes; raises `Stopped` where a step is not done.
        rewrite: does one rewrite, and takes what it made as the model where something changed.
        rules: the lines of repairs.toml, in order; each is used once.
    """
    left = list(rules)
    for tries in range(MOST + 1):
        last = _attempt(walk, attempt)
        symptom = _symptom(last)
        _judge_last_repair(walk.repairs, last)
        if symptom is None or tries == MOST or not _rewrite_once(walk, symptom, rewrite, left):
            break
    return last


def _attempt(walk: Walk, attempt: Callable[[], StepRun]) -> StepRun:
    try:
        return attempt()
    except Stopped:
        return walk.runs[-1]


def _rewrite_once(walk: Walk, symptom: Symptom, rewrite: Callable[[Rule, Symptom], StepRun], left: list[Rule]) -> bool:
    """Use up rules that fit until one changes the model; return whether one did."""
    while rule := next((each for each in left if each.fits(symptom)), None):
        left.remove(rule)
        rewrite(rule, symptom)
        if walk.repairs[-1].changed:
            return True
    return False


def _symptom(run: StepRun) -> Symptom | None:
    """Return what is wrong after an attempt that ended with `run`, None where nothing is, or nothing can be mended."""
    failure = run.result.failure
    if failure is not None:
        return symptom_of(run.step, failure)
    facts = run.result.facts
    if run.step is Step.JUDGE and facts["verdict"] == Verdict.DISAGREES:
        return Symptom(step=Step.JUDGE, kind=None, message="; ".join(facts["reasons"]))
    return None


def _judge_last_repair(repairs: list[Repair], last: StepRun) -> None:
    """Write down whether the last rewrite helped: the cell came further than before, or ended in another way."""
    place = next((at for at in reversed(range(len(repairs))) if repairs[at].symptom), None)
    before = repairs[place].symptom if place is not None else None
    if place is None or before is None:
        return
    came, was = PROGRESS.index(last.step), PROGRESS.index(before.step)
    now = _symptom(last)
    helped = came > was or (came == was and not (now and now.is_same(before)))
    repairs[place] = replace(repairs[place], helped=helped and bool(repairs[place].changed))
