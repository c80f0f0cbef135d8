"""A job as a process: started, watched, and at its end gone with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import IO

from aipc.engines import Limits, cage
from aipc.errors import EngineError

POLL_SECONDS = 0.2
GONE_SECONDS = 20.0
"""How long a killed cage may take to be gone; it takes milliseconds, unless a disk hangs."""


class Process:
    """A running job.

    Attributes:
        timed_out: it was still running when its time was over.
    """

    def __init__(self, process: subprocess.Popen[bytes], status: IO[bytes], *, caged: bool) -> None:
        self.timed_out = False
        self._process = process
        self._status = status.fileno()
        self._said = b""
        self._caged = caged
        self._inner: int | None = None
        os.set_blocking(self._status, False)

    def wait(self, seconds: float, poll: Callable[[], None]) -> None:
        """Wait for the end of the worker, at most for `seconds`; `poll` is called about five times a second."""
        deadline = time.monotonic() + seconds
        watch = os.pidfd_open(self._process.pid)
        try:
            ready = select.poll()
            ready.register(watch, select.POLLIN)
            if self._caged:
                ready.register(self._status, select.POLLIN)
            while True:
                events = dict(ready.poll(1000 * min(POLL_SECONDS, max(0.0, deadline - time.monotonic()))))
                if self._status in events and self._meet_cage():
                    ready.unregister(self._status)
                if watch in events:
                    return
                if time.monotonic() >= deadline:
                    self.timed_out = True
                    return
                if not events:
                    poll()
        finally:
            os.close(watch)

    def end(self) -> int:
        """Kill what is left of the job, wait until all of it is gone, and return how the worker ended: 0…255."""
        # Before the first process is reaped its group's number cannot be anybody else's.
        if self._process.returncode is None:
            self._meet_cage()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._inner is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._inner, signal.SIGKILL)
            gone = select.poll()
            gone.register(self._inner, select.POLLIN)
            gone.poll(1000 * GONE_SECONDS)
            os.close(self._inner)
            self._inner = None
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def cage_failed(self) -> bool:
        """Whether bubblewrap gave up before it started the worker; ask it after the end."""
        # A kill from outside leaves no word either, but it is no exit code of bubblewrap's own.
        self._hear()
        return self._caged and self._process.returncode == 1 and b'"exit-code"' not in self._said

    def _meet_cage(self) -> bool:
        """Get hold of the first process inside the cage: when that is gone, the kernel has ended all others in it.

        Returns:
            Whether there is nothing more to wait for: bubblewrap has named it, or is gone.
        """
        gone = self._hear()
        line, ended, _ = self._said.partition(b"\n")
        if self._caged and self._inner is None and ended:
            with contextlib.suppress(ValueError, KeyError, ProcessLookupError):
                self._inner = os.pidfd_open(json.loads(line)["child-pid"])
        return bool(ended) or gone

    def _hear(self) -> bool:
        """Take what bubblewrap has said since, in pieces of a line, and return whether that was its last word."""
        with contextlib.suppress(BlockingIOError):
            while words := os.read(self._status, 4096):
                self._said += words
            return True
        return False


@contextlib.contextmanager
def started(place: cage.Place, limits: Limits, *, caged: bool) -> Iterator[Process]:
    """Start the job of `place`; when the block is left, however, all of it is gone.

    Raises:
        EngineError: a program that starting it needs is not installed.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as status, (place.workspace / "log.txt").open("ab") as output:
        try:
            process = subprocess.Popen(
                cage.caged(place, limits, writing) if caged else cage.uncaged(place, limits),
                cwd=place.workspace,
                env={} if caged else cage.uncaged_variables(place),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(writing,) if caged else (),
            )
        except OSError as error:
            raise EngineError(
                f"venv engine: the job could not be started: {error}; see whether that program runs"
            ) from error
        finally:
            os.close(writing)
        running = Process(process, status, caged=caged)
        try:
            yield running
        finally:
            running.end()
