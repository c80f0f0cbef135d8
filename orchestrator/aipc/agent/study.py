"""A study: trial after trial, each a deploy with an agent; finished ones are kept, so it goes on after a kill.

A study's folder has `study.json` (what it is of), `study.md` (the table), and of each trial
`<model>/<failure>/<with or without>-<number>`: `.trial.json` (it is finished), `.jsonl` (what was said), and a folder
with its report.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from aipc import asked as asking
from aipc import home, materials, sweep, workspace
from aipc.agent import evidence, study_plan, study_table
from aipc.agent.session import AGENT
from aipc.agent.study_plan import Plan, Slot, Subject
from aipc.agent.study_table import Head, Trial
from aipc.asked import Asked
from aipc.cell import Cell
from aipc.environment import Environment
from aipc.errors import EngineError, UsageError
from aipc.fetch import hash_file
from aipc.model import Model
from aipc.pipeline import REFERENCE
from aipc.reports.publish import held
from aipc.reports.report import Report
from aipc.reports.summary import reasons
from aipc.runtime import find
from aipc.store import digest
from aipc.sweep import Place
from aipc.tables import one_line, show
from runtimes import contract
from runtimes.contract import encode

STUDY = "study.json"
TABLE = "study.md"
DONE = ".trial.json"
TRANSCRIPT = ".jsonl"
GENERAL = "aipc"
"""The skill that is about every runtime."""


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """study.json: what all trials of the folder have in common.

    Attributes:
        made: when it began.
        pieces: what the trials depend on, by name.
    """

    made: str
    pieces: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study on its way.

    Attributes:
        place: what all its deploys share.
        plan: what is to be done.
        path: of its file.
        folder: where its trials are kept.
        base_image: as the command line names it.
        matrix_path: as the command line names it.
    """

    place: Place
    plan: Plan
    path: Path
    folder: Path
    base_image: str
    matrix_path: Path | None

    def check(self) -> None:
        """Find out before any work what cannot be done.

        Raises:
            UsageError: a failure's model, runtime or rule is not there, answers are missing, or the folder holds
                another study.
        """
        pieces = dict(self.plan.digests())
        used = {AGENT, REFERENCE}
        for slot in self.plan.slots:
            self.plan.replay(slot)
        for name, failure in self.plan.failures.items():
            where = f"{show(self.path)}: failures.{name}"
            model, cell = self._found(next(slot for slot in self.plan.slots if slot.failure == name))
            if asking.is_quantized(cell):
                raise UsageError(f"{where}.precision: {cell.precision} is quantised; an agent works in floating point")
            asking.check_withheld(failure.withheld, cell, f"{where}.withheld")
            pieces[f"the files of {name}"] = _files_of(model, self.folder)
            used.add(cell.runtime)
        skills = [home.skills_folder() / name for name in sorted(used | {GENERAL})]
        pieces |= {
            **{f"the toolchain of {name}": _toolchain(name) for name in sorted(used)},
            "the skills": digest([evidence.digest_of(folder) for folder in skills]),
            "the matrix": hash_file(self.matrix_path or home.matrix_file()),
            "the engine": self.place.engine.name,
        }
        self._begin(pieces)

    def _begin(self, pieces: Mapping[str, str]) -> None:
        """Write down what the trials of the folder have in common, or see that it is so still.

        Raises:
            UsageError: it is not.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / STUDY
        if not file.exists():
            contract.write(_Begun(made=_now(), pieces=pieces), file)
            return
        changed = ", ".join(study_plan.difference(contract.read(_Begun, file).pieces, pieces))
        if changed:
            raise UsageError(
                one_line(
                    f"{show(self.folder)}: holds a study with another state of {changed}; "
                    "what is not the same cannot be counted together: name another folder by --runs"
                )
            )

    def run(self) -> tuple[Trial, ...]:
        """Make the trials that are not made yet, and return all.

        Raises:
            AipcError: something failed that is no agent's fault; what was done is kept.
        """
        console = self.place.console
        with held(self.folder / "trials"):
            slots = self.plan.slots
            for number, slot in enumerate(slots, 1):
                if (self.folder / f"{slot.path}{DONE}").exists():
                    continue
                console.print(f"\n[bold]{slot}[/]  [dim]{number} of {len(slots)}[/]", highlight=False)
                trial = self._try(slot)
                console.print(study_table.line(trial), highlight=False, markup=False)
                self._tell()
            return self._tell()

    def table(self, trials: Sequence[Trial]) -> str:
        """Return the tables in Markdown."""
        bounds = {_bounds(each) for each in self.plan.subjects.values()}
        head = Head(
            name=self.path.stem,
            engine=self.place.engine.name,
            trials=len(self.plan.slots),
            bounds=" ".join(sorted(bounds)),
            withheld={name: failure.withheld for name, failure in self.plan.failures.items()},
        )
        return study_table.markdown(head, trials)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Those that are made."""
        files = (self.folder / f"{slot.path}{DONE}" for slot in self.plan.slots)
        return tuple(contract.read(Trial, file) for file in files if file.exists())

    def _tell(self) -> tuple[Trial, ...]:
        """Write the table of what there is, and return it."""
        trials = self.trials
        beside = self.folder / f".{TABLE}"
        beside.write_text(self.table(trials), encoding="utf-8")
        beside.replace(self.folder / TABLE)
        return trials

    def _try(self, slot: Slot) -> Trial:
        """Make one trial; that it is finished is written down last."""
        asked, (model, cell) = self._asked(slot), self._found(slot)
        matrix = replace(self.place.matrix, agent=self.plan.settings(slot))
        report = sweep.deploy(replace(self.place, matrix=matrix), asked, model, cell).report
        trial = _counted(slot, report)
        made = self.folder / f"{slot.path}{TRANSCRIPT}"
        assert report.agent is not None  # noqa: S101 - it was counted
        shutil.copyfile(asked.runs / sweep.TRANSCRIPTS / report.agent.transcript, made)
        contract.write(trial, self.folder / f"{slot.path}{DONE}")
        return trial

    def _found(self, slot: Slot) -> tuple[Model, Cell]:
        return asking.find(self.place.matrix, self._asked(slot))

    def _asked(self, slot: Slot) -> Asked:
        failure = self.plan.failures[slot.failure]
        return Asked(
            model=failure.model,
            runtime=failure.runtime,
            precision=failure.precision,
            target=failure.target,
            shape=failure.shape,
            source=Path(failure.source) if failure.source else None,
            trusted=False,
            runs=self.folder / slot.path,
            matrix_path=self.matrix_path,
            engine=self.place.engine.name,
            base_image=self.base_image,
            agent=self.plan.settings(slot).mode.value,
            replay=self.plan.replay(slot),
            without_skills=not slot.skills,
            withheld=failure.withheld,
        )


def _counted(slot: Slot, report: Report) -> Trial:
    """Return what came of a trial.

    Raises:
        UsageError: it was none, since no agent was asked.
        EngineError: it was none, since the model or the agent's job was gone before it was over.
    """
    work = report.agent
    if work is None:
        why = "; ".join(reasons(report)) or "the cell agrees by its rules"
        raise UsageError(
            one_line(
                f"failures.{slot.failure}: ends '{report.verdict.value}' without an agent ({why}); "
                "withhold the rule that mends it, or take another"
            )
        )
    if work.broken_off:
        raise EngineError(
            one_line(f"{slot}: {work.ended}; this trial does not count: see to it, and run the same command again")
        )
    return Trial(
        model=slot.model,
        failure=slot.failure,
        skills=slot.skills,
        number=slot.number,
        cell=report.cell,
        verdict=report.verdict,
        taken=work.taken,
        language_model=work.model,
        model_sha256=work.model_sha256,
        synthetic=work.synthetic,
        ended=work.ended,
        claim=work.claim,
        steps=work.steps,
        tokens=work.tokens,
        estimated=work.estimated,
        seconds=work.seconds,
        deviations=work.deviations,
        sampling_seed=work.sampling_seed,
        judge_seed=work.seed,
        commit=sweep.commit(),
        made=_now(),
    )


def _files_of(model: Model, runs: Path) -> str:
    """Return a digest of a model's own files."""
    source = materials.of_source_folder(model, runs)
    return digest([encode(model), source.digest if source else ""])


def _toolchain(name: str) -> str:
    """Return a digest of a runtime's code and of its pinned environment."""
    found = find(name)
    environment = Environment.load(found.environment, found.python)
    return digest([workspace.code(home.runtimes_folder(), name).digest, environment.digest])


def _bounds(subject: Subject) -> str:
    """Return the bounds of a session in a sentence."""
    of = subject.settings
    sampled = "" if subject.replay else f", temperature {of.temperature:g}"
    return f"Mode {of.mode.value}, at most {of.steps} steps, {of.tokens} tokens and {of.seconds} s a trial{sampled}."


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
