"""Engines: where jobs run. `docker` runs them in containers, `venv` (the embedded default) on the host itself.

Both install the same lock, and both give a job nothing but its workspace, its code and its environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aipc.environment import Environment
from aipc.errors import UsageError
from aipc.gpu import Gpu
from aipc.sdk import Sdk
from runtimes.contract import suggest

NAMES = ("auto", "docker", "venv")
SOCKET = "s"
"""The name of the socket in the folder by which an agent reaches the host."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a job may use.

    Attributes:
        seconds: wall time; then everything that it started is killed.
        memory_bytes: memory.
        processes: how many at once, threads counted.
    """

    seconds: float
    memory_bytes: int
    processes: int = 4096


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Where a job runs, as far as its result can depend on it.

    Attributes:
        engine: "docker" or "venv".
        environment: the environment's name.
        digest: the environment's content.
        interpreter: such as "cpython-3.11.7".
        base_image: the id of the image below a container, "" for none.
    """

    engine: str
    environment: str
    digest: str
    interpreter: str
    base_image: str


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job's process ended.

    Attributes:
        code: the worker's exit code, 128+N when signal N killed it.
        seconds: wall time from start to end.
        out_of_memory: the kernel killed it for memory; true only when that is known.
        timed_out: it was killed because its time was over.
        uncaged: what was not kept from it, in words; empty when all was.
    """

    code: int
    seconds: float
    out_of_memory: bool
    timed_out: bool
    uncaged: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Guest:
    """An agent in a toolchain's environment: the job is done by an environment of its own, beside that one.

    Attributes:
        venv: its environment, as `Engine.beside` gives it.
        prefixes: the folders that the interpreter of that needs.
        broker: the folder with the socket by which it reaches the host.
        skills: the folder of the skills, None for an agent without.
    """

    venv: Path
    prefixes: tuple[Path, ...]
    broker: Path
    skills: Path | None = None

    def variables(self, broker: Path, skills: Path) -> Mapping[str, str]:
        """Return the variables that tell it where it sees these folders."""
        told = {"AIPC_SKILLS": str(skills)} if self.skills else {}
        return {"AIPC_BROKER": str(broker / SOCKET), **told}


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a job gets of this machine, beside its own files.

    Attributes:
        sdk: what it also sees, read-only; its variable says where.
        gpu: the GPUs that it may use.
        guest: who does the job in place of the environment's own interpreter.
    """

    sdk: Sdk | None = None
    gpu: Gpu | None = None
    guest: Guest | None = None


NOTHING = Given()


class Engine(Protocol):
    """Runs jobs in environments."""

    name: str
    reason: str
    """Why this engine was taken."""
    report: Callable[[str], None]
    """Is told what takes long outside of `ensure`."""

    def identity(self, environment: Environment) -> Identity:
        """Return where a job of `environment` runs; fast, builds nothing."""

    def ensure(self, environment: Environment, report: Callable[[str], None]) -> None:
        """Build `environment` where it is missing; `report` is told how far it is, in lines.

        Raises:
            EngineError: no network, no disk, no Python, no daemon.
        """

    def run(
        self,
        environment: Environment,
        workspace: Path,
        code: Path,
        limits: Limits,
        poll: Callable[[], None],
        given: Given = NOTHING,
    ) -> Ended:
        """Run the job of `workspace` to its end, with all output in its `log.txt`.

        Args:
            environment: an environment that `ensure` has built.
            workspace: the host's path of the workspace.
            code: a folder that holds the package `runtimes`.
            limits: what the job may use.
            poll: called about five times a second while the job runs.
            given: what the job also gets of this machine.

        Raises:
            EngineError: the job could not be started.
            KeyboardInterrupt: passed on, after the whole job has been ended.
        """

    def beside(self, environment: Environment, report: Callable[[str], None]) -> tuple[Path, tuple[Path, ...]]:
        """Return the folder of `environment`, to be seen by a job in another one, and the folders its Python needs.

        Raises:
            EngineError: it cannot be built.
        """

    def close(self) -> None:
        """Let go of what the engine holds."""


def open_engine(name: str, cache: Path, base_image: str = "") -> Engine:
    """Return the engine called `name`; "auto" is docker where a daemon of this machine answers, else venv.

    Args:
        name: "auto", "docker" or "venv".
        cache: the folder for what is built.
        base_image: the id or the name of the image that docker builds on, "" for its default.

    Raises:
        UsageError: there is no such engine.
        EngineError: the engine that was asked for cannot be had.
    """
    if name not in NAMES:
        raise UsageError(f"--engine: there is no engine {name!r}{suggest(name, NAMES)}")
    address, reason = "", "it was asked for"
    if name == "auto":
        address, reason = ask_daemon()
        name = "docker" if address else "venv"
    if name == "docker":
        from aipc.engines.docker import DockerEngine

        return DockerEngine(cache, base_image, reason, address)
    from aipc.engines.venv import VenvEngine

    return VenvEngine(cache, reason)


def ask_daemon() -> tuple[str, str]:
    """Return the address of the Docker or Podman daemon that can be used ("" for none), and why that is so in words."""
    from aipc.engines.ping import ping

    problems = []
    for address in daemon_addresses():
        problem = ping(address)
        if not problem:
            return address, f"a daemon answers on {address}"
        problems.append(f"{address}: {problem}")
    return "", "no Docker or Podman daemon can be used (" + "; ".join(problems) + ")"


def daemon_addresses() -> tuple[str, ...]:
    """Return where a Docker or Podman daemon may listen: $DOCKER_HOST alone where it is set."""
    chosen = os.environ.get("DOCKER_HOST")
    if chosen:
        return (chosen,)
    run = os.environ.get("XDG_RUNTIME_DIR")
    own = (f"unix://{run}/docker.sock", f"unix://{run}/podman/podman.sock") if run else ()
    return ("unix:///var/run/docker.sock", *own)
