"""The file of a study: which models are asked about which failures, how often, and what makes it another study.

A failure is made by taking the rule away that mends it. Each is tried with the skills and without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aipc.agent import settings
from aipc.agent.settings import Mode, Settings
from aipc.errors import UsageError
from aipc.model import MODEL_NAME
from aipc.tables import decode, one_line, read_table, show
from runtimes.contract import Json, Misused, dumps, encode

ARMS: Mapping[bool, str] = {True: "with", False: "without"}
"""Whether the skills may be read, and what files are called where they may, and where not."""
SUFFIXES = (".json", ".jsonl")
"""Of a file of answers, or a transcript."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Something that does not convert, or gives wrong answers, once its rule is taken away.

    Attributes:
        model: as `aipc deploy` takes it: of the matrix, a file, or `module:function`.
        runtime: the toolchain.
        withheld: the rewrites that no rule may try.
        precision: in floating point; "" for the runtime's default.
        target: "" for the runtime's default.
        shape: of the input, `HxW` or whole; "" for the model's own.
        source: the folder of a `module:function`, relative to the study's file; "" for none.
    """

    model: str
    runtime: str
    withheld: tuple[str, ...]
    precision: str = ""
    target: str = ""
    shape: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not self.withheld:
            raise Misused("withheld: []; name the rewrites whose rules are taken away, or nothing fails")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A language model that is studied.

    Attributes:
        settings: where it is, and its bounds.
        replay: a folder of answers that stand in for it, `<failure>/<with or without>-<trial>.json`; None for none.
    """

    settings: Settings
    replay: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One trial that is to be made.

    Attributes:
        model: the subject's name.
        failure: the failure's name.
        skills: whether they may be read.
        number: from 1.
    """

    model: str
    failure: str
    skills: bool
    number: int

    @property
    def path(self) -> str:
        """Where its files lie below the study's folder, but for their endings."""
        return f"{self.model}/{self.file}"

    @property
    def file(self) -> str:
        """The same below the folder of its model."""
        return f"{self.failure}/{ARMS[self.skills]}-{self.number}"

    @property
    def seed(self) -> int:
        """The seed of the model's sampling: another for each trial, and the same whenever this one is made."""
        return int.from_bytes(hashlib.sha256(self.path.encode()).digest()[:4], "big") % (2**31 - 1) + 1

    def __str__(self) -> str:
        return f"{self.model}, {self.failure}, {ARMS[self.skills]} skills, trial {self.number}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study.

    Attributes:
        trials: of each model, failure and arm.
        subjects: the models, by name.
        failures: by name.
    """

    trials: int
    subjects: Mapping[str, Subject]
    failures: Mapping[str, Failure]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All trials, those with and without skills taking turns: a study that is cut short is even."""
        return tuple(
            Slot(model=model, failure=failure, skills=skills, number=number)
            for number in range(1, self.trials + 1)
            for failure in self.failures
            for model in self.subjects
            for skills in ARMS
        )

    def settings(self, slot: Slot) -> Settings:
        """Return those of one trial."""
        return replace(self.subjects[slot.model].settings, seed=slot.seed)

    def replay(self, slot: Slot) -> Path | None:
        """Return the file of answers that stands in for the model; None where the model itself is asked.

        Raises:
            UsageError: it is not there.
        """
        folder = self.subjects[slot.model].replay
        if folder is None:
            return None
        for suffix in SUFFIXES:
            path = folder / f"{slot.file}{suffix}"
            if path.is_file():
                return path
        raise UsageError(f"{show(folder / slot.file)}{SUFFIXES[0]}: no such file; it answers for {slot}")

    def digests(self) -> Mapping[str, str]:
        """Return what a trial depends on that the file says, piece by piece, each as a text that is compared."""
        answers = [path for slot in self.slots if (path := self.replay(slot))]
        return {
            "trials": str(self.trials),
            **{f"models.{name}": _digest(encode(each.settings)) for name, each in self.subjects.items()},
            **{f"failures.{name}": _digest(encode(each)) for name, each in self.failures.items()},
            "the replayed answers": _digest([hashlib.sha256(path.read_bytes()).hexdigest() for path in answers]),
        }


@dataclass(frozen=True, kw_only=True)
class _File:
    """A study's file as it is written."""

    trials: int
    models: Mapping[str, object] = field(default_factory=dict)
    failures: Mapping[str, object] = field(default_factory=dict)
    agent: object = None

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise Misused(f"trials: {self.trials} is not above 0; give a whole number from 1")
        if not isinstance(self.agent, (Mapping, type(None))):
            raise Misused(f"agent: {self.agent!r} is not a table; write key = value pairs")
        for key, tables in (("models", self.models), ("failures", self.failures)):
            if not tables:
                raise Misused(f"{key}: none; add a table [{key}.NAME]")
            for name in tables:
                if not MODEL_NAME.fullmatch(name):
                    raise Misused(f"{key}: {name!r} is no name; use small letters, digits and hyphens, a letter first")


def load(path: Path) -> Plan:
    """Return the study in the TOML file at `path`; paths in it are relative to its own folder.

    Raises:
        UsageError: it cannot be read, or something in it does not fit: one line with the file and the key.
    """
    where = show(path)
    file = decode(_File, read_table(path), where)
    folder = path.absolute().parent
    failures = {
        name: _placed(decode(Failure, table, where, f"failures.{name}"), folder, f"{where}: failures.{name}")
        for name, table in file.failures.items()
    }
    subjects = {name: _subject(name, table, file, where, folder) for name, table in file.models.items()}
    return Plan(trials=file.trials, subjects=subjects, failures=failures)


def _placed(failure: Failure, folder: Path, where: str) -> Failure:
    """Return a failure whose paths are no longer relative."""
    file = folder / failure.model
    if file.is_file():
        failure = replace(failure, model=str(file))
    if not failure.source:
        return failure
    source = folder / failure.source
    if not source.is_dir():
        raise UsageError(f"{where}.source: {show(source)} is no folder; name the one that holds {failure.model!r}")
    return replace(failure, source=str(source))


def _subject(name: str, table: Json, file: _File, where: str, folder: Path) -> Subject:
    key = f"{where}: models.{name}"
    if not isinstance(table, Mapping):
        raise UsageError(one_line(f"{key}: {table!r} is not a table; write key = value pairs"))
    usual = file.agent if isinstance(file.agent, Mapping) else {}
    merged = {"mode": Mode.REPAIR.value, **usual, **{name: value for name, value in table.items() if name != "replay"}}
    if "seed" in merged:
        raise UsageError(f"{key}: seed: each trial has its own; remove it")
    found = settings.from_table(merged, key)
    if found.mode is Mode.OFF:
        raise UsageError(f"{key}: mode: 'off' asks nobody; write 'repair' or 'drive'")
    replay = table.get("replay")
    if replay is None and not found.base_url:
        raise UsageError(f"{key}: neither base_url nor replay; say where the model is")
    if replay is not None:
        if not isinstance(replay, str) or found.base_url:
            raise UsageError(f"{key}: replay: a folder, and no base_url beside it; leave one of them out")
        return Subject(settings=found, replay=folder / replay)
    if file.trials > 1 and not found.temperature:
        raise UsageError(
            f"{key}: temperature: 0 makes one trial out of {file.trials}; give one such as 0.7, or trials = 1"
        )
    return Subject(settings=found)


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Give the names of the pieces that are not what they were."""
    return (name for name in {**before, **now} if before.get(name) != now.get(name))


def _digest(data: Json | Sequence[str]) -> str:
    return hashlib.sha256(dumps(data).encode()).hexdigest()
