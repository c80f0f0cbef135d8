"""The repair loop: try, and where that fails or gives wrong numbers, rewrite the graph and try again.

A rewrite stays in the model where it helped: the cell came further, ended in another way, or answers better. Otherwise
the model goes back to what it was before. What comes of the cell is what came of its best attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol

from aipc.jobs import Session, StepRun
from aipc.repairs import Always, Repair, Rule, Symptom, Wish, symptom_of
from aipc.runtime import Runtime
from aipc.store import Material
from runtimes.contract import Json, Step, Verdict

MOST = 12
"""So often a cell is tried again after a rewrite that changed something."""


PROGRESS = (Step.PREPARE, Step.EXPORT, Step.REWRITE, Step.CALIBRATE, Step.CONVERT, Step.QUANTIZE, Step.RUN, Step.JUDGE)
"""The steps of a cell in the order in which they come."""


GAIN_DB = 0.1
"""By so much the worst SNR must rise for wrong numbers to be better ones: rounding alone moves it a little."""


class Stopped(Exception):
    """A step was not done: this attempt goes no further."""


@dataclass
class Walk:
    """One walk along the steps of a cell; it remembers how each went, and what was rewritten.

    Attributes:
        session: the engine, the store and who is told.
        runs: every step that was tried, in order.
        path: those of them that led to the model as it is now, without what was taken back.
        repairs: every rewrite that was tried, in order.
    """

    session: Session
    runs: list[StepRun] = field(default_factory=list)
    path: list[StepRun] = field(default_factory=list)
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
        self._remember(run, rewrites, symptom)
        return run

    def grant(self, reference: Runtime, inputs: Mapping[str, Material], wish: Wish, precision: str) -> StepRun:
        """Do a rewrite that was asked for; what is not made by the reference's own code is checked there.

        Args:
            reference: checks, and knows rewrites of its own.
            inputs: what the reference rewrites; `calibration` too where the wish quantises.
            wish: what is asked for.
            precision: that of the cell.
        """
        asked = Always(rewrite=wish.rewrite, options=wish.options)
        options: dict[str, Json] = {"rewrites": [{"name": wish.rewrite, "options": wish.options}]}
        if wish.code or wish.runtime.name != reference.name:
            given = {name: material for name, material in inputs.items() if name in {"model", "calibration"}}
            told = {"code": wish.code} if wish.code else {**options, "precision": precision}
            run = self._try(Step.PATCH, wish.runtime, given, told, ("model",))
            if run.entry is None or not run:
                self._remember(run, (asked,), None, asked=True)
                return run
            inputs = {**inputs, "made": run.entry.output("model")}
            options["precision"] = "int8" if wish.quantizes else "fp32"
        run = self._try(Step.REWRITE, reference, inputs, options, ("model", "cpu"))
        self._remember(run, (asked,), None, asked=True)
        return run

    def _remember(
        self, run: StepRun, rewrites: tuple[Rule | Always, ...], symptom: Symptom | None, *, asked: bool = False
    ) -> None:
        changed = run.result.facts["changed"] if run else {}
        failure = run.result.failure
        self.repairs += [
            Repair(
                rewrite=each.rewrite,
                symptom=symptom,
                asked=asked,
                options=each.options,
                status=run.result.status,
                changed=tuple(changed.get(each.rewrite, ())),
                problem=failure.message if failure else "",
            )
            for each in rewrites
        ]

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
        self.path.append(run)
        return run


class Mendable(Protocol):
    """A part of a cell whose model can be rewritten, and be put back."""

    def attempt(self) -> StepRun:
        """Take the model as it is now as far as it comes.

        Raises:
            Stopped: a step is not done.
        """

    def rewrite(self, rule: Rule, symptom: Symptom) -> StepRun:
        """Do one rewrite, and take what it made as the model where something changed."""

    def keep(self) -> Callable[[], None]:
        """Return what puts the model back to what it is now."""


def reached(walk: Walk, go: Callable[[], StepRun]) -> StepRun:
    """Return the step at which `go` came to its end: what it returns, or the one that was not done."""
    try:
        return go()
    except Stopped:
        return walk.runs[-1]


def mend(walk: Walk, cell: Mendable, rules: tuple[Rule, ...]) -> StepRun:
    """Try until it is well, or nothing is left that could help; return the last step of the best attempt.

    After an attempt that shows a symptom, the first rule that fits and was not used yet rewrites the model. Where that
    helped, led to a symptom that was not there before, or to the very same failure, it goes on from there: it may be
    what the next rewrite needs. Where numbers got no better, and where nothing is left that fits, the model goes back
    to the one before. A rewrite that cannot be done, or changes nothing, gives its turn to the next rule. Once
    something made the best attempt better, what was taken back may be tried again; and what did not help alone is
    tried together, once.

    Args:
        walk: remembers all of it.
        cell: has the model; in the end it is that of the best attempt.
        rules: the lines of repairs.toml, in order.
    """
    search = _Search(walk, cell, rules)
    while search.is_open and (search.go_on() or search.try_together()):
        pass
    return search.end()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Attempt:
    """One attempt: how it ended, and what led to it: `rules` by the place of each rewrite among all repairs."""

    last: StepRun
    path: tuple[StepRun, ...]
    rules: Mapping[int, Rule]
    back: Callable[[], None]

    @property
    def symptom(self) -> Symptom | None:
        """What is wrong, None where nothing is, or nothing can be mended."""
        failure, facts = self.last.result.failure, self.last.result.facts
        if failure is not None:
            return symptom_of(self.last.step, failure)
        if self.last.step is Step.JUDGE and facts["verdict"] == Verdict.DISAGREES:
            return Symptom(step=Step.JUDGE, kind=None, message="; ".join(facts["reasons"]))
        return None

    def is_better(self, other: _Attempt) -> bool:
        """Return whether it came further than `other`, or as far as the judge, with better numbers."""
        (mine, snr), (its, other_snr) = self._score, other._score
        return other_snr < snr >= other_snr + GAIN_DB if mine == its else mine > its

    @property
    def _score(self) -> tuple[tuple[int, bool, int], float]:
        """How far it came, whether nothing is wrong there, how many gates do not fail; and the worst SNR in dB."""
        came, facts = PROGRESS.index(self.last.step), self.last.result.facts
        if not self.last or self.last.step is not Step.JUDGE:
            return (came, False, 0), 0.0
        failed = sum(not gate["passed"] for gate in facts["gates"])
        ratios = [each["snr_db"] for each in facts["measures"] if each.get("equal") is None]
        worst = min((-inf if ratio is None else ratio for ratio in ratios), default=-inf)
        return (came, self.symptom is None, -failed), worst


class _Search:
    """The attempts of one `mend`: the best one, and the line of those that lead to what is tried now."""

    def __init__(self, walk: Walk, cell: Mendable, rules: tuple[Rule, ...]) -> None:
        self._walk, self._cell, self._rules = walk, cell, rules
        self._left = list(rules)
        self._tried: list[Rule] = []
        self._tries = 0
        self._best = self._attempt({})
        self._line = [self._best]

    @property
    def is_open(self) -> bool:
        """Whether something is wrong still that may be mended, and the bound is not reached."""
        return self._best.symptom is not None and self._tries < MOST

    def go_on(self) -> bool:
        """Try the next rewrite that changes something; go back where nothing fits. Return whether there was one."""
        while self._line:
            here = self._line[-1]
            self._return_to(here)
            while rule := next((each for each in self._left if here.symptom and each.fits(here.symptom)), None):
                self._left.remove(rule)
                if (made := self._rewrite(rule, here)) is not None:
                    self._look({**here.rules, made: rule})
                    return True
            self._line.pop()
        return False

    def try_together(self) -> bool:
        """Try at once what did not help the best attempt alone; return whether there were two rewrites or more."""
        best = self._best
        rules = [each for each in self._rules if each in self._tried and best.symptom and each.fits(best.symptom)]
        if len(rules) < 2:
            return False
        self._return_to(best)
        self._line = [best]
        made = {place: rule for rule in rules if (place := self._rewrite(rule, best)) is not None}
        self._tried = []
        if len(made) < 2:
            return False
        self._look({**best.rules, **made})
        return True

    def end(self) -> StepRun:
        """Go back to the best attempt, and write down which rewrites helped; return its last step."""
        self._return_to(self._best)
        repairs = self._walk.repairs
        for place in self._best.rules:
            repairs[place] = replace(repairs[place], helped=True)
        return self._best.last

    def _look(self, rules: Mapping[int, Rule]) -> None:
        """Attempt the model as it is now, and see whether it is worth to go on from there."""
        self._tries += 1
        now, best = self._attempt(rules), self._best
        is_better = now.is_better(best)
        if is_better:
            # What was taken back may help now.
            used, waiting = list(rules.values()), [*self._left, *self._tried]
            self._left = [each for each in self._rules if each in waiting and each not in used]
            self._tried = []
        symptom = now.symptom
        known = [each.symptom for each in self._line]
        is_new = symptom is not None and not any(each and symptom.is_same(each) for each in known)
        # The same failure again: the rewrite may be what the next one needs. Numbers tell by themselves.
        is_same = symptom is not None and symptom.kind is not None and bool(known[-1] and symptom.is_same(known[-1]))
        if is_better or (is_new and best in self._line and not best.is_better(now)):
            self._best = now
        if is_better or is_new or is_same:
            self._line.append(now)

    def _attempt(self, rules: Mapping[int, Rule]) -> _Attempt:
        last = reached(self._walk, self._cell.attempt)
        return _Attempt(last=last, path=tuple(self._walk.path), rules=rules, back=self._cell.keep())

    def _rewrite(self, rule: Rule, at: _Attempt) -> int | None:
        """Return the place of a rewrite among the repairs, None where it changed nothing."""
        assert at.symptom is not None  # noqa: S101 - the rule fits it
        self._cell.rewrite(rule, at.symptom)
        if not self._walk.repairs[-1].changed:
            return None
        self._tried.append(rule)
        return len(self._walk.repairs) - 1

    def _return_to(self, attempt: _Attempt) -> None:
        attempt.back()
        self._walk.path[:] = attempt.path
