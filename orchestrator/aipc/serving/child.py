"""A command of aipc as a process: what it tells on the way, what it gives in the end, and its end before its time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from aipc.reports import words

GRACE_SECONDS = 20.0
"""A command that is to end ends its jobs and containers first; after so long it is killed, and they with it."""
ERROR = "aipc: "
"""The line that says why a command failed begins so."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code.
        out: what it wrote to stdout.
        last: the last line that it told a person, "" for none.
    """

    code: int
    out: str
    last: str


async def run(arguments: Sequence[str], tell: Callable[[str], Awaitable[None]]) -> Ended:
    """Run `aipc` with `arguments`; when the task is cancelled it is gone before this returns.

    Args:
        arguments: of the command.
        tell: gets each line that it writes for people while it runs, but for the one of an error.
    """
    argv = (*_guard(), sys.executable, "-P", "-m", "aipc", *arguments)
    # Its process group is ours: what kills us and all that we started meets it too.
    process = await anyio.open_process(argv, stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    try:
        return await _follow(process, tell)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


def _guard() -> tuple[str, ...]:
    """Return what makes a command end when this process is gone, however it went."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "TERM", "--") if setpriv else ()


async def _follow(process: Process, tell: Callable[[str], Awaitable[None]]) -> Ended:
    out: list[str] = []
    last = rest = ""
    assert process.stdout is not None  # noqa: S101 - it is piped
    assert process.stderr is not None  # noqa: S101 - it is piped
    stdout, stderr = (TextReceiveStream(each, errors="replace") for each in (process.stdout, process.stderr))

    async def collect() -> None:
        out.extend([piece async for piece in stdout])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect)
        async for piece in stderr:
            *lines, rest = (rest + piece).split("\n")
            for line in filter(None, (words.plain(each).strip() for each in lines)):
                last = line
                if not line.startswith(ERROR):
                    await tell(line)
    return Ended(code=await process.wait(), out="".join(out), last=words.plain(rest).strip() or last)


async def _end(process: Process) -> None:
    """End a process that still runs, politely first."""
    if process.returncode is None:
        process.terminate()
        with anyio.move_on_after(GRACE_SECONDS):
            await process.wait()
    if process.returncode is None:
        process.kill()
    await process.aclose()
