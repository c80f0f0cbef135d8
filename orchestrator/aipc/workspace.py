"""The workspace of one attempt: what the host lays into it, and what it believes of what comes back."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from aipc.engines import Ended, Limits
from aipc.errors import EngineError
from aipc.fetch import hash_file
from aipc.store import Material, UnsafeOutput, describe, list_files
from runtimes import contract
from runtimes.contract import EXIT_CODES, Failure, Job, Kind, Layout, Result, Status

LOG_TAIL_LINES = 30
LOG_TAIL_BYTES = 16_384
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


def believe(layout: Layout, ended: Ended, limits: Limits) -> Result:
    """Return what came of a job: the worker's own result where it fits the way the worker ended, else a crash."""
    if ended.timed_out:
        return _crash(layout, Kind.TIMEOUT, f"did not end within {limits.seconds:g} s and was killed")
    if ended.out_of_memory:
        return _crash(layout, Kind.MEMORY, f"was killed for memory; its limit is {limits.memory_bytes / 2**30:.1f} GiB")
    manner = contract.describe_exit(ended.code)
    try:
        open_unlinked(layout.result).close()
        result = contract.read(Result, layout.result)
    except FileNotFoundError:
        return _crash(layout, Kind.MISSING_RESULT if ended.code == 0 else Kind.CRASH, f"{manner}, without a result")
    except (contract.Misused, OSError) as error:
        return _crash(layout, Kind.CRASH, f"{manner}, and its result cannot be read: {error}")
    if EXIT_CODES.get(result.status) != ended.code:
        return _crash(layout, Kind.CRASH, f"{manner}, but its result says {result.status.value!r}")
    return _check_outputs(layout, result)


def _check_outputs(layout: Layout, result: Result) -> Result:
    """Return `result`, or a crash where the outputs that it names are not those that are there."""
    try:
        list_files(layout.outputs)
        there = {path.name for path in layout.outputs.iterdir()}
    except UnsafeOutput as error:
        return _crash(layout, Kind.CRASH, f"left an output that is not taken: {error}")
    if result and set(result.outputs) != there:
        return _crash(
            layout, Kind.MISSING_RESULT, f"says it made {sorted(result.outputs)}, but out/ holds {sorted(there)}"
        )
    return result


def _crash(layout: Layout, kind: Kind, manner: str) -> Result:
    tail = log_tail(layout.log)
    message = f"the job {manner}" + (f"; the end of its log:\n{tail}" if tail else "; its log is empty")
    return Result(status=Status.CRASHED, failure=Failure(kind=kind, message=message))


def log_tail(log: Path) -> str:
    """Return the last lines of a log, or "" when there is none."""
    try:
        with open_unlinked(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])


def open_unlinked(path: Path) -> BinaryIO:
    """Open a file that a job may have replaced: a link, which could lead out of the workspace, is an OSError."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


class Events:
    """Reads the progress of a running job; each call gives what is new."""

    def __init__(self, layout: Layout, tell: Callable[[str, float | None], None]) -> None:
        self._path = layout.events
        self._tell = tell
        self._offset = 0

    def poll(self) -> None:
        """Tell the last whole line that was written since the last call; what is not an event is passed over."""
        try:
            with open_unlinked(self._path) as file:
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return
        if not newline:
            return
        self._offset += len(whole) + 1
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            event = json.loads(whole.splitlines()[-1])
            fraction = event.get("fraction")
            self._tell(str(event["text"]), None if fraction is None else min(1.0, max(0.0, float(fraction))))
