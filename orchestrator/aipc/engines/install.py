"""Environments on the disk: built in place from their lock, and whole only when the file `complete.json` says so.

They lie in `<cache>/environments/<name>-<12 hex of the digest>`; beside each are its lock and the log of its making.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dt
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aipc import home
from aipc.engines import interpreter, packages
from aipc.engines.machine import OTHER_CACHE, check_space, size_bytes
from aipc.environment import Environment, normalise
from aipc.errors import EngineError
from runtimes import contract

MARKER = "complete.json"
EMPTY_BYTES = 100_000_000
PACKAGE_BYTES = 50_000_000
"""Measured: 24 packages with torch take 1.1 GB, 20 with OpenVINO 0.64 GB."""
_OWN_PACKAGES = frozenset({"pip", "setuptools"})
"""What `python -m venv` brings."""
_LIST = """
import importlib.metadata, json
print(json.dumps({found.metadata["Name"]: found.version for found in importlib.metadata.distributions()}))
"""


@dataclass(frozen=True, kw_only=True)
class Complete:
    """What is written last into an environment, when all of it is there.

    Attributes:
        name: the environment's name.
        digest: its content.
        checkout: the folder of the checkout that made it.
        interpreter: such as "cpython-3.11.7".
        executable: the interpreter's file.
        stamp: changes when another Python is installed over that file.
        prefixes: the folders that the interpreter needs.
        versions: package to version, as installed.
        date: when it was made, in UTC.
        size_bytes: what it takes on the disk.
    """

    name: str
    digest: str
    checkout: str = ""
    interpreter: str
    executable: str
    stamp: str
    prefixes: tuple[str, ...]
    versions: Mapping[str, str]
    date: str
    size_bytes: int
    schema: int = contract.SCHEMA


def shelf(cache: Path) -> Path:
    """Return the folder that holds all environments."""
    return cache / "environments"


def place(cache: Path, environment: Environment) -> Path:
    """Return the folder of `environment`; it may not exist yet."""
    return shelf(cache) / f"{environment.name}-{environment.digest[:12]}"


def complete(folder: Path) -> Complete | None:
    """Return what is known of the environment in `folder`, None unless it is whole and its interpreter is there."""
    try:
        found = contract.read(Complete, folder / MARKER)
    except (OSError, contract.Misused):
        return None
    return found if os.access(folder / "bin" / "python", os.X_OK) else None


@contextlib.contextmanager
def locked(folder: Path, *, exclusive: bool, report: Callable[[str], None] | None = None) -> Iterator[int]:
    """Hold the lock of the environment in `folder`: exclusive to change it, shared to use it; wait for it where needed.

    Args:
        folder: the environment.
        exclusive: nobody else may hold it.
        report: is told when somebody else has it.

    Yields:
        The open lock file: as long as a copy of it is open somewhere, it is locked.
    """
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    with _lock_file(folder) as descriptor:
        if not _take(descriptor, kind):
            if report:
                report(f"waiting for another aipc that has {folder.name}")
            fcntl.flock(descriptor, kind)
        yield descriptor


@contextlib.contextmanager
def locked_if_free(folder: Path) -> Iterator[bool]:
    """Hold the lock of the environment in `folder` to change it, if nobody has it; yields whether it is held."""
    with _lock_file(folder) as descriptor:
        yield _take(descriptor, fcntl.LOCK_EX)


@contextlib.contextmanager
def _lock_file(folder: Path) -> Iterator[int]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def ensure(cache: Path, environment: Environment, report: Callable[[str], None]) -> Path:
    """Return the folder of `environment`, built first where it is missing or was left half-made.

    Raises:
        EngineError: no Python that fits, no network, no disk.
        UsageError: it has no lock.
    """
    folder = place(cache, environment)
    if complete(folder):
        return folder
    try:
        with locked(folder, exclusive=True, report=report) as lock:
            if complete(folder):
                return folder
            remove(folder)
            _build(folder, environment, report, lock)
    except OSError as error:
        raise EngineError(
            f"environment {environment.name}: {error}; the cache must be a folder that can be written "
            "(AIPC_CACHE names another one)"
        ) from error
    return folder


def remove(folder: Path) -> None:
    """Remove an environment; its lock must be held. What a kill leaves of it counts as half-made."""
    (folder / MARKER).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def needed_bytes(environment: Environment) -> int:
    """Return about how much disk the environment takes."""
    return EMPTY_BYTES + PACKAGE_BYTES * len(environment.pins())


def _build(folder: Path, environment: Environment, report: Callable[[str], None], lock: int) -> None:
    """Make the environment in `folder`, which does not exist; the marker is the last thing written."""
    check_space(folder.parent, needed_bytes(environment), f"environment {environment.name}", OTHER_CACHE)
    python = interpreter.find(environment.python, report)
    log = Path(f"{folder}.log")
    log.write_text(f"{environment.name} {environment.digest} with {python.executable}\n", encoding="utf-8")
    scratch = folder / ".scratch"
    try:
        report(f"{environment.name}: making a virtual environment with {python.name}")
        _make_venv(folder, python, log, lock)
        pip = (str(folder / "bin" / "python"), "-I", "-m", "pip", "install")
        packages.get(environment, packages.Call(argv=pip, scratch=scratch, log=log, report=report, lock=lock))
        versions = _check_versions(folder, environment)
        shutil.rmtree(scratch, ignore_errors=True)
        _flush(folder)
        done = Complete(
            name=environment.name,
            digest=environment.digest,
            checkout=str(home.HOME),
            interpreter=python.name,
            executable=str(python.executable),
            stamp=interpreter.stamp(python.executable),
            prefixes=tuple(str(prefix) for prefix in python.prefixes),
            versions=versions,
            date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            size_bytes=size_bytes(folder),
        )
        contract.write(done, folder / MARKER)
        _flush(folder)
        report(f"{environment.name}: ready, {done.size_bytes / 1e6:.0f} MB")
    finally:
        if not complete(folder):
            remove(folder)


def _make_venv(folder: Path, python: interpreter.Interpreter, log: Path, lock: int) -> None:
    words: list[str] = []
    argv = (str(python.executable), "-I", "-m", "venv", str(folder))
    if packages.run_heard(argv, log, words.append, variables=os.environ, lock=lock) != 0:
        raise EngineError(
            f"{python.executable}: it cannot make a virtual environment in {folder}; see its words\n" + "\n".join(words)
        )


def _check_versions(folder: Path, environment: Environment) -> Mapping[str, str]:
    """Return what is installed in `folder`, after checking that it is what the lock says."""
    argv = (str(folder / "bin" / "python"), "-I", "-c", _LIST)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EngineError(
            f"environment {environment.name}: its Python does not run; see its words\n{done.stderr.strip()}"
        )
    installed = {normalise(name): version for name, version in json.loads(done.stdout).items()}
    wanted = {pin.name: pin.version for pin in environment.pins()}
    wrong = [
        f"{name} is {installed.get(name, 'missing')}, not {wanted.get(name, 'in the lock')}"
        for name in sorted({*installed, *wanted})
        if installed.get(name) != wanted.get(name) and not (name in _OWN_PACKAGES and name not in wanted)
    ]
    if wrong:
        raise EngineError(
            f"environment {environment.name}: pip installed something else than the lock says: {'; '.join(wrong)}; "
            "see whether pip's configuration sends it elsewhere (pip config list)"
        )
    return installed


def _flush(folder: Path) -> None:
    """Bring all of the disk of `folder` onto the disk, so that no marker outlives the files it speaks of."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        ctypes.CDLL(None).syncfs(descriptor)
    finally:
        os.close(descriptor)
