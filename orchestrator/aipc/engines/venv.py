"""The embedded engine: environments are virtual environments on the host, jobs are processes in a cage of bubblewrap.

Where bubblewrap does not work a job runs all the same, and `Ended.uncaged` says what was not kept from it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from aipc.engines import NOTHING, Ended, Given, Identity, Limits, cage, install, interpreter, process
from aipc.engines.machine import memory_kills
from aipc.environment import Environment
from aipc.errors import EngineError

LOG_TAIL_CHARACTERS = 2000


class VenvEngine:
    """Runs jobs on this machine."""

    name = "venv"

    def __init__(self, cache: Path, reason: str) -> None:
        self.reason = reason
        self.report: Callable[[str], None] = lambda _: None
        self._cache = cache
        self._uncaged: dict[Path, str] = {}

    def identity(self, environment: Environment) -> Identity:
        """Return where a job of `environment` runs. It builds nothing; a Python that this machine lacks it must get.

        Raises:
            EngineError: there is no Python that fits.
        """
        folder = install.place(self._cache, environment)
        done = install.complete(folder)
        if done is None:
            name = interpreter.find(environment.python, self.report).name
        elif interpreter.stamp(Path(done.executable)) == done.stamp:
            name = done.interpreter
        else:
            found = interpreter.probe(folder / "bin" / "python")
            if found is None:
                raise EngineError(f"{folder}: its Python does not run any more; remove that folder and start again")
            name = found.name
        return Identity(
            engine=self.name,
            environment=environment.name,
            digest=environment.digest,
            interpreter=name,
            base_image="",
        )

    def ensure(self, environment: Environment, report: Callable[[str], None]) -> None:
        """Build `environment` where it is missing.

        Raises:
            EngineError: no network, no disk, no Python.
        """
        folder = install.ensure(self._cache, environment, report)
        done = install.complete(folder)
        if folder not in self._uncaged and done and (why := self._why_uncaged(folder, done)):
            report(f"jobs of {environment.name} run without a cage: {why}")

    def run(
        self,
        environment: Environment,
        workspace: Path,
        code: Path,
        limits: Limits,
        poll: Callable[[], None],
        given: Given = NOTHING,
    ) -> Ended:
        """Run the job of `workspace`; see `Engine.run`."""
        folder = install.place(self._cache, environment)
        # While a job uses it, nobody cleans the environment away.
        with install.locked(folder, exclusive=False):
            done = install.complete(folder)
            if done is None:
                raise EngineError(f"environment {environment.name}: it is not built (any more); start again")
            place = cage.Place(
                workspace=workspace.absolute(),
                code=code.absolute(),
                venv=folder.absolute(),
                prefixes=tuple(Path(prefix) for prefix in done.prefixes),
                given=given,
            )
            return _run(place, limits, poll, caged=not self._why_uncaged(folder, done))

    def _why_uncaged(self, folder: Path, done: install.Complete) -> str:
        """Return why the jobs of an environment cannot be caged, "" when they can; it is tried once."""
        if folder not in self._uncaged:
            self._uncaged[folder] = cage.why_not(folder.absolute(), tuple(Path(prefix) for prefix in done.prefixes))
        return self._uncaged[folder]

    def beside(self, environment: Environment, report: Callable[[str], None]) -> tuple[Path, tuple[Path, ...]]:
        """Return the folder of `environment`; see `Engine.beside`."""
        folder = install.ensure(self._cache, environment, report)
        done = install.complete(folder)
        if done is None:
            raise EngineError(f"environment {environment.name}: it is not built (any more); start again")
        return folder.absolute(), tuple(Path(prefix) for prefix in done.prefixes)

    def close(self) -> None:
        """Nothing is held between jobs."""


def _run(place: cage.Place, limits: Limits, poll: Callable[[], None], *, caged: bool) -> Ended:
    began = time.monotonic()
    kills = memory_kills()
    with process.started(place, limits, caged=caged) as running:
        running.wait(limits.seconds, poll)
        code = running.end()
        seconds = time.monotonic() - began
        if not running.timed_out and running.cage_failed():
            raise EngineError(
                f"venv engine: bubblewrap could not make the cage; see its words\n"
                f"{(place.workspace / 'log.txt').read_text(encoding='utf-8', errors='replace')[-LOG_TAIL_CHARACTERS:]}"
            )
    killed = code == 128 + signal.SIGKILL and not running.timed_out
    return Ended(
        code=code,
        seconds=seconds,
        out_of_memory=killed and memory_kills() > kills,
        timed_out=running.timed_out,
        uncaged=cage.not_kept() if caged else cage.UNCAGED,
    )
