"""One job: the key of all that goes into it, the store asked first, the engine asked only when it must be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aipc import home, workspace
from aipc.engines import Engine, Identity, Limits
from aipc.environment import Environment
from aipc.runtime import Runtime
from aipc.store import Entry, Material, Store, digest
from runtimes.contract import Job, Json, Kind, Result, Status, Step, encode


class Listener(Protocol):
    """Is told what a deploy does."""

    def started(self, step: Step) -> None:
        """A step begins."""

    def progress(self, text: str, fraction: float | None) -> None:
        """The step that runs says how far it is; the fraction is of 1."""

    def ended(self, run: StepRun) -> None:
        """A step is over."""


@dataclass(frozen=True, kw_only=True)
class StepRun:
    """How one step of a cell went. It is true when the step is done.

    Attributes:
        step: which one.
        runtime: whose adapter did it.
        key: its key in the store.
        cached: it was found in the store, no job was started.
        result: what came of it.
        identity: where it ran.
        uncaged: what the engine could not cage.
        entry: what it made, None unless the store keeps it.
        log_tail: the last lines of its log.
    """

    step: Step
    runtime: str
    key: str
    cached: bool
    result: Result
    identity: Identity
    uncaged: tuple[str, ...]
    entry: Entry | None
    log_tail: str

    def __bool__(self) -> bool:
        return bool(self.result)


@dataclass(frozen=True, kw_only=True)
class Session:
    """What all jobs of one command share."""

    engine: Engine
    store: Store
    cache: Path
    listener: Listener

    def step(
        self, step: Step, runtime: Runtime, inputs: Mapping[str, Material], options: Mapping[str, Json]
    ) -> StepRun:
        """Do one step, or find it done.

        Raises:
            AipcError: the engine, the disk or the network failed; nothing is lost, the same command goes on.
        """
        self.listener.started(step)
        environment = Environment.load(runtime.environment, runtime.python)
        code = workspace.code(home.runtimes_folder(), runtime.name)
        identity = self.engine.identity(environment)
        parts = encode(
            {
                "step": step,
                "runtime": runtime.name,
                "inputs": {name: material.digest for name, material in inputs.items()},
                "options": options,
                "code": code.digest,
                "identity": identity,
            }
        )
        key = digest(parts)
        with self.store.locked(key):
            entry = self.store.get(key)
            if entry is not None:
                run = _found(step, runtime, entry, identity)
            else:
                job = Job(step=step, runtime=runtime.name, inputs=tuple(sorted(inputs)), options=options)
                self.engine.ensure(environment, lambda text: self.listener.progress(text, None))
                run = self._start(job, runtime, environment, identity, inputs, code, parts, key)
        self.listener.ended(run)
        return run

    def _start(
        self,
        job: Job,
        runtime: Runtime,
        environment: Environment,
        identity: Identity,
        inputs: Mapping[str, Material],
        code: Material,
        parts: Mapping[str, Json],
        key: str,
    ) -> StepRun:
        limits = Limits(seconds=runtime.timeout_seconds, memory_bytes=runtime.memory_bytes)
        with self.store.workspace() as folder:
            layout = workspace.lay(folder / "attempt", job, inputs)
            workspace.copy(code, folder / "code" / "runtimes")
            events = workspace.Events(layout, self.listener.progress)
            ended = self.engine.run(environment, layout.root, folder / "code", limits, events.poll)
            result = workspace.believe(layout, ended, limits)
            tail = workspace.log_tail(layout.log)
            entry = self.store.put(key, layout.root, parts, result, ended.uncaged) if _is_kept(result) else None
        return StepRun(
            step=job.step,
            runtime=runtime.name,
            key=key,
            cached=False,
            result=result,
            identity=identity,
            uncaged=ended.uncaged,
            entry=entry,
            log_tail=tail,
        )


def _is_kept(result: Result) -> bool:
    """Return whether the job would end the same way the next time: not when it failed, nor when a device may appear."""
    failure = result.failure
    return failure is None or (result.status is Status.REFUSED and failure.kind is not Kind.NO_DEVICE)


def _found(step: Step, runtime: Runtime, entry: Entry, identity: Identity) -> StepRun:
    return StepRun(
        step=step,
        runtime=runtime.name,
        key=entry.key,
        cached=True,
        result=entry.result,
        identity=identity,
        uncaged=entry.record.uncaged,
        entry=entry,
        log_tail=workspace.log_tail(entry.log),
    )
