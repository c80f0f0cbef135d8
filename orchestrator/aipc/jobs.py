"""One job: the key of all that goes into it, the store asked first, the engine asked only when it must be done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from aipc import gpu, home, sdk, workspace
from aipc.engines import Engine, Given, Guest, Identity, Limits
from aipc.environment import Environment
from aipc.runtime import Runtime
from aipc.store import Entry, Material, Record, Store, digest
from runtimes.contract import Job, Json, Kind, Result, Status, Step, encode

GRACE_SECONDS = 60.0
"""An agent ends by itself when its time is over; so much later it is killed."""


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
        log: the end of what it printed, empty for one that was found in the store and was done.
    """

    step: Step
    runtime: str
    key: str
    cached: bool
    result: Result
    identity: Identity
    uncaged: tuple[str, ...]
    entry: Entry | None
    log: bytes

    def __bool__(self) -> bool:
        return bool(self.result)


@dataclass(frozen=True, kw_only=True)
class Session:
    """What all jobs of one command share."""

    engine: Engine
    store: Store
    cache: Path
    listener: Listener
    watch: Callable[[], None] = lambda: None
    """Called a few times a second while a job runs; what it raises ends the job."""

    def step(
        self,
        step: Step,
        runtime: Runtime,
        inputs: Mapping[str, Material],
        options: Mapping[str, Json],
        needed: tuple[str, ...] = (),
    ) -> StepRun:
        """Do one step, or find it done.

        Args:
            step: what.
            runtime: whose adapter does it.
            inputs: name to what lies there.
            options: as the step decodes them.
            needed: the outputs without which it is not done.

        Raises:
            AipcError: the engine, the disk or the network failed; nothing is lost, the same command goes on.
        """
        self.listener.started(step)
        order = self._order(step, runtime, inputs, options)
        waiting = "waiting for another deploy that does the same"
        with self.store.locked(order.key, lambda: self.listener.progress(waiting, None)):
            entry = self.store.get(order.key)
            if entry is None:
                self.engine.ensure(order.environment, lambda text: self.listener.progress(text, None))
                run = self._start(order, runtime, inputs, needed)
            else:
                log = b"" if entry.result else entry.log.read_bytes()
                run = _ran(order, entry.result, entry.record.uncaged, log, entry, cached=True)
        self.listener.ended(run)
        return run

    def visit(
        self, toolchain: Runtime, agent: Runtime, options: Mapping[str, Json], broker: Path, skills: Path | None
    ) -> StepRun:
        """Let an agent work in a toolchain's environment; what it says is no fact, so it is not kept.

        Args:
            toolchain: whose environment.
            agent: whose adapter does it, with an environment of its own beside that one.
            options: as the step decodes them; `seconds` is its own bound.
            broker: the folder with the socket by which it reaches the host.
            skills: the folder of the skills, None for none.

        Raises:
            AipcError: the engine or the disk failed.
        """

        def report(text: str) -> None:
            self.listener.progress(text, None)

        self.listener.started(Step.AGENT)
        environment = Environment.load(toolchain.environment, toolchain.python)
        self.engine.ensure(environment, report)
        venv, prefixes = self.engine.beside(Environment.load(agent.environment, agent.python), report)
        order = _Order(
            job=Job(step=Step.AGENT, runtime=agent.name, inputs=(), options=options),
            environment=environment,
            identity=self.engine.identity(environment),
            code=workspace.code(home.runtimes_folder(), agent.name),
            given=Given(
                sdk=sdk.find(toolchain.sdk),
                guest=Guest(venv=venv, prefixes=prefixes, broker=broker, skills=skills),
            ),
            parts={},
        )
        bound = replace(agent, timeout_seconds=options["seconds"] + GRACE_SECONDS)
        run = self._start(order, bound, {}, (), keep=False)
        self.listener.ended(run)
        return run

    def _order(
        self, step: Step, runtime: Runtime, inputs: Mapping[str, Material], options: Mapping[str, Json]
    ) -> _Order:
        code = workspace.code(home.runtimes_folder(), runtime.name)
        found = sdk.find(runtime.sdk)
        card = gpu.find() if runtime.wants_gpu(step, with_sdk=found is not None) else None
        environment = Environment.load(runtime.environment_with(gpu=card is not None), runtime.python)
        identity = self.engine.identity(environment)
        parts = encode(
            {
                "step": step,
                "runtime": runtime.name,
                "inputs": {name: material.digest for name, material in inputs.items()},
                "options": options,
                "code": code.digest,
                "identity": identity,
                **({"sdk": found.digest} if found else {}),
                **({"gpu": card.digest} if card else {}),
            }
        )
        job = Job(step=step, runtime=runtime.name, inputs=tuple(sorted(inputs)), options=options)
        return _Order(
            job=job,
            environment=environment,
            identity=identity,
            code=code,
            given=Given(sdk=found, gpu=card),
            parts=parts,
        )

    def _start(
        self,
        order: _Order,
        runtime: Runtime,
        inputs: Mapping[str, Material],
        needed: tuple[str, ...],
        *,
        keep: bool = True,
    ) -> StepRun:
        limits = Limits(seconds=runtime.timeout_seconds, memory_bytes=runtime.memory_bytes)
        with self.store.workspace() as folder:
            layout = workspace.lay(folder / "attempt", order.job, inputs)
            workspace.copy(order.code, folder / "code" / "runtimes")
            events = workspace.Events(layout, self.listener.progress)

            def poll() -> None:
                events.poll()
                self.watch()

            ended = self.engine.run(order.environment, layout.root, folder / "code", limits, poll, order.given)
            found = workspace.believe(layout, order.job, ended, limits, needed)
            entry = None
            if keep and _is_kept(found.result):
                record = Record(parts=order.parts, result=found.result, files=found.files, uncaged=ended.uncaged)
                entry = self.store.put(record, order.key, layout.outputs if found.result else None, found.log)
        return _ran(order, found.result, ended.uncaged, found.log, entry, cached=False)


@dataclass(frozen=True, kw_only=True)
class _Order:
    """A job and all that its result depends on."""

    job: Job
    environment: Environment
    identity: Identity
    code: Material
    given: Given
    parts: Mapping[str, Json]

    @cached_property
    def key(self) -> str:
        return digest(self.parts)


def _ran(
    order: _Order, result: Result, uncaged: tuple[str, ...], log: bytes, entry: Entry | None, *, cached: bool
) -> StepRun:
    return StepRun(
        step=order.job.step,
        runtime=order.job.runtime,
        key=order.key,
        cached=cached,
        result=result,
        identity=order.identity,
        uncaged=uncaged,
        entry=entry,
        log=log,
    )


def _is_kept(result: Result) -> bool:
    """Return whether the job would end the same way the next time.

    Not so when it failed, nor when a device may appear. But a rewrite that fails is no accident of a toolchain: it is
    calculated, and compared, and comes out again.
    """
    failure = result.failure
    if failure is None or failure.kind is Kind.REWRITE:
        return True
    return result.status is Status.REFUSED and failure.kind is not Kind.NO_DEVICE
