"""The workspace of one attempt: what the host lays into it, and what it believes of what comes back."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aipc.engines import Ended, Limits
from aipc.errors import EngineError
from aipc.facts import FACTS
from aipc.fetch import hash_file
from aipc.store import Material, StoredFile, UnsafeOutput, describe, scan
from runtimes import contract
from runtimes.contract import EXIT_CODES, Failure, Job, Kind, Layout, Result, Status

LOG_TAIL_LINES = 30
LOG_TAIL_BYTES = 16_384
LOG_BYTES = 16 << 20
"""So much of a job's log is kept: the end of it."""
RESULT_BYTES = 64 << 20
EVENT_BYTES = 1 << 16
EVENT_CHARACTERS = 200
UNSHIPPED = frozenset({"runtime.toml", "repairs.toml"})
"""Files of a runtime's folder that only the host reads: they are no part of a job, nor of its key."""


def code(runtimes_folder: Path, runtime: str) -> Material:
    """Return the code of a job: the contract, the kit and that runtime's own files; nothing else reaches it."""
    names = ["__init__.py", "contract.py"]
    for folder in ("kit", runtime):
        names += [
            path.relative_to(runtimes_folder).as_posix()
            for path in (runtimes_folder / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and path.name not in UNSHIPPED
        ]
    files = describe(runtimes_folder, sorted(names))
    return Material(files=files, places={file.path: runtimes_folder / file.path for file in files})


def lay(root: Path, job: Job, inputs: Mapping[str, Material]) -> Layout:
    """Make the workspace of `job` in the new folder `root`.

    Raises:
        EngineError: a file is no longer what its hash says.
    """
    layout = Layout(root)
    for folder in (root, layout.inputs, layout.outputs, layout.tmp):
        folder.mkdir()
    for name, material in inputs.items():
        copy(material, layout.inputs if material.single else layout.inputs / name)
    layout.events.touch()
    layout.log.touch()
    contract.write(job, layout.job)
    return layout


def copy(material: Material, folder: Path) -> None:
    """Copy the files of `material` below `folder`, and check that each is what its hash says.

    Raises:
        EngineError: a file is no longer what its hash says.
    """
    for file in material.files:
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(material.places[file.path], target)
        if (got := hash_file(target)) != file.sha256:
            raise EngineError(
                f"{material.places[file.path]}: its sha256 is {got}, not {file.sha256}: it changed while it was used; "
                "start again"
            )


@dataclass(frozen=True, kw_only=True)
class Believed:
    """What the host believes of a job that has ended: what came of it, its outputs by hash, and what it printed."""

    result: Result
    files: tuple[StoredFile, ...]
    log: bytes

    @property
    def log_tail(self) -> str:
        """The last lines of what it printed."""
        return tail(self.log)


def believe(layout: Layout, job: Job, ended: Ended, limits: Limits, needed: Iterable[str]) -> Believed:
    """Return what to believe of a job: its own result where everything fits it, else a crash.

    The workspace is as the job left it, so nothing in it is followed, waited for or read without an end.

    Args:
        layout: the workspace.
        job: what was to be done.
        ended: how the worker ended.
        limits: what it was allowed.
        needed: the outputs without which the step is not done.
    """
    log = _read(layout.log, LOG_BYTES, last=True) or b""
    try:
        result, files = _check(layout, job, ended, limits, frozenset(needed))
    except _Disbelieved as error:
        said = tail(log)
        end = f"; the end of its log:\n{said}" if said else "; its log is empty"
        failure = Failure(kind=error.kind, message=f"the job {error.manner}{end}")
        result, files = Result(status=Status.CRASHED, failure=failure), ()
    return Believed(result=result, files=files, log=log)


class _Disbelieved(Exception):
    def __init__(self, kind: Kind, manner: str) -> None:
        super().__init__(manner)
        self.kind = kind
        self.manner = manner


def _check(
    layout: Layout, job: Job, ended: Ended, limits: Limits, needed: frozenset[str]
) -> tuple[Result, tuple[StoredFile, ...]]:
    if ended.timed_out:
        raise _Disbelieved(Kind.TIMEOUT, f"did not end within {limits.seconds:g} s and was killed")
    if ended.out_of_memory:
        raise _Disbelieved(Kind.MEMORY, f"was killed for memory; its limit is {limits.memory_bytes / 2**30:.1f} GiB")
    manner = contract.describe_exit(ended.code)
    content = _read(layout.result, RESULT_BYTES)
    if content is None:
        kind = Kind.MISSING_RESULT if ended.code == 0 else Kind.CRASH
        raise _Disbelieved(kind, f"{manner}, without a result that can be read")
    try:
        result = contract.decode(Result, contract.loads(content, layout.result.name), layout.result.name)
    except contract.Misused as error:
        raise _Disbelieved(Kind.CRASH, f"{manner}, and its result cannot be read: {error}") from error
    if EXIT_CODES.get(result.status) != ended.code:
        raise _Disbelieved(Kind.CRASH, f"{manner}, but its result says {result.status.value!r}")
    if not result:
        return result, ()
    return result, _check_done(layout, job, result, needed)


def _check_done(layout: Layout, job: Job, result: Result, needed: frozenset[str]) -> tuple[StoredFile, ...]:
    """Return the outputs of a job that says it is done."""
    try:
        files = scan(layout.outputs)
        there = {path.name for path in layout.outputs.iterdir()}
    except (UnsafeOutput, OSError) as error:
        raise _Disbelieved(Kind.CRASH, f"left an output that is not taken: {error}") from error
    if set(result.outputs) != there:
        raise _Disbelieved(
            Kind.MISSING_RESULT, f"says it made {sorted(result.outputs)}, but out/ holds {sorted(there)}"
        )
    empty = needed - {file.path.partition("/")[0] for file in files}
    if empty:
        raise _Disbelieved(Kind.MISSING_RESULT, f"says it is done, but nothing is in its output {sorted(empty)}")
    if job.step in FACTS:
        try:
            contract.decode(FACTS[job.step], result.facts, f"facts of {job.step} in {job.runtime}")
        except contract.Misused as error:
            raise _Disbelieved(Kind.ADAPTER, f"says it is done, but its facts do not fit: {error}") from error
    return files


def tail(log: bytes) -> str:
    """Return the last lines of what a job printed, or "" when there is nothing."""
    return "\n".join(log[-LOG_TAIL_BYTES:].decode("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:])


def _open(path: Path) -> BinaryIO:
    """Open a file that a job may have replaced.

    Raises:
        OSError: it is none, or a link or a pipe, which could lead out of the workspace or have no end.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a file", str(path))
    return os.fdopen(handle, "rb")


def _read(path: Path, most: int, *, last: bool = False) -> bytes | None:
    """Return the content of a file that a job left, or None when it cannot be had or is larger than `most` bytes.

    With `last`, the last `most` bytes of a larger one.
    """
    try:
        with _open(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                if not last:
                    return None
                file.seek(size - most)
            return file.read(most)
    except OSError:
        return None


class Events:
    """Reads the progress of a running job; each call gives what is new."""

    def __init__(self, layout: Layout, tell: Callable[[str, float | None], None]) -> None:
        self._path = layout.events
        self._tell = tell
        self._offset = 0

    def poll(self) -> None:
        """Tell the last whole line that was written since the last call; what is not an event is passed over."""
        try:
            with _open(self._path) as file:
                file.seek(self._offset)
                whole, newline, _ = file.read(EVENT_BYTES).rpartition(b"\n")
        except OSError:
            return
        if not newline:
            return
        self._offset += len(whole) + 1
        with contextlib.suppress(contract.Misused):
            event = contract.decode(_Event, contract.loads(whole.rpartition(b"\n")[2], "event"), "event")
            self._tell(event.text[:EVENT_CHARACTERS], event.fraction)


@dataclass(frozen=True, kw_only=True)
class _Event:
    text: str
    fraction: float | None = None

    def __post_init__(self) -> None:
        if self.fraction is not None and not 0 <= self.fraction <= 1:
            raise contract.Misused(f"fraction {self.fraction} is not of 1")
