"""Do the job of one workspace: the wall where whatever goes wrong becomes a result and an exit code."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import faulthandler
import json
import platform
import re
import resource
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from runtimes import contract
from runtimes.contract import EXIT_CODES, Failure, Job, Json, Kind, Layout, Misused, Result, Status
from runtimes.kit import adapter as adapters
from runtimes.kit.work import Failed, Refused, Work, is_plain

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
"""Colours, links and whatever else is meant for a terminal (ECMA-48)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Outcome:
    """How the step ended."""

    status: Status
    facts: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    failure: Failure | None = None


def do(root: Path) -> int:
    """Do the job in the workspace `root`, write its result and return the code to end with."""
    if not root.is_dir():
        sys.stderr.write(f"{root}: no such workspace; give the folder that holds job.json\n")
        return EXIT_CODES[Status.MISUSED]
    # A crash inside vendor code then leaves the Python lines that led to it in the log.
    faulthandler.enable()
    started = time.monotonic()
    layout = Layout(root)
    versions = {"python": platform.python_version()}
    outcome = _attempt(layout, versions)
    # What vendors print from C waits in a buffer; the host must find it in the log when the result is there.
    flush()
    result = Result(
        status=outcome.status,
        outputs=outcome.outputs,
        facts=outcome.facts,
        versions=versions,
        failure=outcome.failure,
        seconds=round(time.monotonic() - started, 3),
        peak_memory_bytes=peak_memory(),
    )
    contract.write(result, layout.result)
    return EXIT_CODES[outcome.status]


def flush() -> None:
    """Write out what Python and C still hold back of stdout and stderr."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)


def peak_memory() -> int:
    """Return the peak resident memory in bytes: this process's or that of its biggest child, whichever is larger.

    `ru_maxrss` of a new process starts with its parent's peak, so its own peak comes from /proc where there is one.
    """
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = Path("/proc/self/status")
    if status.is_file():
        lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":" in line)
        kibibytes = int(lines.get("VmHWM", f"{kibibytes} kB").split()[0])
    return 1024 * max(kibibytes, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def _attempt(layout: Layout, versions: dict[str, str]) -> _Outcome:
    """Do the job, whatever happens; add to `versions` what does the work."""
    try:
        return _do(layout, versions)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the wall: nothing may pass without a result
        traceback.print_exc()
        status, failure = _classify(error)
        return _Outcome(status=status, failure=_plain(failure))


def _classify(error: Exception | SystemExit) -> tuple[Status, Failure]:
    """Return what an exception that ended the step stands for."""
    named = f"{type(error).__name__}: {error}"
    match error:
        case Refused():
            return Status.REFUSED, _whole(error, error.failure)
        case Failed():
            return Status.FAILED, _whole(error, error.failure)
        case Misused():
            return Status.MISUSED, Failure(kind=Kind.OPTION, message=str(error))
        case MemoryError():
            return Status.FAILED, Failure(
                kind=Kind.MEMORY, message=named, hint="it may use more where memory_bytes in runtime.toml says so"
            )
        case OSError() if error.errno in NO_SPACE:
            return Status.FAILED, Failure(kind=Kind.DISK, message=named, hint="free some space")
        case _:
            return Status.BROKEN, Failure(kind=Kind.ADAPTER, message=named)


def _do(layout: Layout, versions: dict[str, str]) -> _Outcome:
    job = _read_job(layout)
    adapter = adapters.load(job.runtime)
    steps = adapters.steps(adapter)
    if job.step not in steps:
        known = ", ".join(steps) or "no step at all"
        raise Misused(f"job.json: step: {job.runtime} has no step {job.step.value!r}; it has {known}")
    layout.outputs.mkdir(exist_ok=True)
    if hasattr(adapter, "versions"):
        versions.update({str(name): str(version) for name, version in adapter.versions().items()})
    facts = steps[job.step](Work(layout, job))
    if not isinstance(facts, Mapping):
        raise TypeError(f"{job.runtime}: {job.step.value} returned {facts!r}; a step returns a mapping of facts")
    outputs = tuple(sorted(path.name for path in layout.outputs.iterdir()))
    # Facts that are no JSON (a numpy number, a NaN, half a character) must show here, not when the result is written.
    return _Outcome(status=Status.DONE, facts=json.loads(contract.dumps(facts).encode()), outputs=outputs)


def _read_job(layout: Layout) -> Job:
    try:
        job = contract.read(Job, layout.job)
    except OSError as error:
        raise Misused(f"job.json: cannot be read: {error}; the host writes it before the job starts") from error
    for name in job.inputs:
        if not is_plain(name) or not (layout.inputs / name).exists():
            raise Misused(f"job.json: inputs: {name!r} is not in in/; put it there before the job starts")
    return job


def _whole(error: Refused | Failed, failure: Failure) -> Failure:
    """Return `failure` with the words of the vendor's exception that it was raised from, where it left them out."""
    words = str(error.__cause__ or "").strip()
    if _plain_text(words) in _plain_text(failure.message):
        return failure
    return dataclasses.replace(failure, message=f"{failure.message}\n{words}")


def _plain(failure: Failure) -> Failure:
    """Return `failure` in plain text, whatever the vendor's words hold."""
    return Failure(
        kind=failure.kind,
        message=_plain_text(failure.message),
        hint=_plain_text(failure.hint),
        op=_plain_text(failure.op),
        node=_plain_text(failure.node),
    )


def _plain_text(text: str) -> str:
    """Return `text` without what is meant for a terminal, and with what is no Unicode spelt out."""
    return _TERMINAL.sub("", text).encode("utf-8", "backslashreplace").decode("utf-8")
