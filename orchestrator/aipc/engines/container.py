"""A container from start to end: its workspace handed over and taken back, its time kept, nothing left behind."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from aipc.engines import NOTHING, Ended, Given, Limits
from aipc.engines.handover import handed_over
from aipc.engines.machine import memory_kills
from aipc.errors import EngineError
from runtimes.contract import Json

POLL_SECONDS = 0.2
DEATH_SECONDS = 60.0
"""How long a killed container may take to be gone."""
UNPRIVILEGED = 65_532
"""The user and group of a job when aipc itself runs as root; no system gives this number to anybody."""

VENV = Path("/opt/venv")
AGENT = Path("/opt/agent")
# The job's own shell opens the log, so every byte of it is on the host's disk at once, whatever dies after.
SHELL = ("/bin/sh", "-c", 'exec "$@" >>log.txt 2>&1', "sh")


class Containers(Protocol):
    """What runs containers; each method raises EngineError when it does not answer."""

    address: str
    hands_over: bool
    uncaged: tuple[str, ...]

    def create(self, name: str, argv: Sequence[str], workspace: Path, code: Path, limits: Limits, given: Given) -> str:
        """Make the container of a job, and return its id."""

    def start(self, identifier: str) -> None:
        """Start a container."""

    def wait(self, identifier: str, answer: Callable[[int | EngineError], None]) -> None:
        """Wait as long as it takes for a container's end; give `answer` its exit code, or what went wrong."""

    def was_out_of_memory(self, identifier: str) -> bool:
        """Return whether the kernel killed something of a container for memory."""

    def kill(self, identifier: str) -> None:
        """Kill a container with all that it started."""

    def remove(self, identifier: str) -> None:
        """Remove a container; one that runs is killed."""


def run_container(
    daemon: Containers,
    name: str,
    argv: Sequence[str],
    workspace: Path,
    code: Path,
    limits: Limits,
    poll: Callable[[], None],
    given: Given = NOTHING,
) -> Ended:
    """Run `argv` in a new container of the image `name` to its end, with its output in the workspace's log.

    Args:
        daemon: who runs it.
        name: an image.
        argv: the command, as the container sees it.
        workspace: becomes /work, with its folder `in` read-only.
        code: becomes /aipc, read-only.
        limits: what it may use.
        poll: called about five times a second.
        given: an SDK becomes /opt/sdk, read-only; GPUs are handed over by the daemon, with their driver.

    Raises:
        EngineError: it could not be started, or the daemon stopped answering.
        KeyboardInterrupt: passed on, after the container is gone.
    """
    begun = time.monotonic()
    kills = memory_kills()
    with handed_over(workspace, code, UNPRIVILEGED if daemon.hands_over else None):
        identifier = daemon.create(name, argv, workspace, code, limits, given)
        try:
            daemon.start(identifier)
            exit_code, timed_out = _follow(daemon, identifier, limits.seconds, poll)
            out_of_memory = daemon.was_out_of_memory(identifier)
            if exit_code == 128 + signal.SIGKILL and not timed_out:
                # Podman does not always tell what the kernel did; the kernel itself counts it.
                out_of_memory = out_of_memory or memory_kills() > kills
        finally:
            # What cannot be removed now is removed as an orphan; the job's own end must not be lost for it.
            with contextlib.suppress(EngineError):
                daemon.remove(identifier)
    return Ended(
        code=exit_code,
        seconds=time.monotonic() - begun,
        out_of_memory=out_of_memory,
        timed_out=timed_out,
        uncaged=daemon.uncaged,
    )


def _follow(daemon: Containers, identifier: str, seconds: float, poll: Callable[[], None]) -> tuple[int, bool]:
    """Wait for the end of a container; return its exit code, and whether it was killed because its time was over."""
    answers: queue.SimpleQueue[int | EngineError] = queue.SimpleQueue()
    threading.Thread(target=daemon.wait, args=(identifier, answers.put), daemon=True).start()
    deadline = time.monotonic() + seconds
    timed_out = False
    while True:
        left = deadline - time.monotonic()
        try:
            answer = answers.get(timeout=max(0.0, min(POLL_SECONDS, left)) if left > 0 else POLL_SECONDS)
        except queue.Empty:
            poll()
        else:
            poll()
            if isinstance(answer, EngineError):
                raise answer
            return answer, timed_out
        if time.monotonic() >= deadline:
            if timed_out:
                raise EngineError(
                    f"docker: {daemon.address}: the killed container {identifier[:12]} does not end; see docker inspect"
                )
            daemon.kill(identifier)
            timed_out = True
            deadline = time.monotonic() + DEATH_SECONDS


def advise(words: str) -> str:
    """Return what can be done about what a daemon answers."""
    if "device driver" in words:  # `could not select device driver "nvidia" with capabilities: [[gpu]]`
        return "install the NVIDIA Container Toolkit, by which it hands GPUs to containers, or use --engine venv"
    return "see what it says"


def has_option(info: Mapping[str, Json], name: str) -> bool:
    """Return whether a daemon that tells `info` about itself has the security option `name`."""
    return any(f"name={name}" in option.split(",") for option in info.get("SecurityOptions") or ())


def uncaged(info: Mapping[str, Json]) -> tuple[str, ...]:
    """Return what a daemon that tells `info` about itself cannot keep from a job."""
    # The first version of cgroups belongs to root alone, and Podman without root passes over its limits.
    limits = not (info.get("Rootless") and info.get("CgroupVersion") == "1")
    kept = {
        "memory": limits and info.get("MemoryLimit", True),
        "swap": limits and info.get("SwapLimit", True),
        "processes": limits and info.get("PidsLimit", True),
        "system calls": has_option(info, "seccomp")
        and not any("profile=unconfined" in option for option in info.get("SecurityOptions") or ()),
        "selinux": not has_option(info, "selinux"),  # its labels on the user's own files are left as they are
    }
    return tuple(what for what, is_kept in kept.items() if not is_kept)
