"""The store: what every job made, kept under the key of everything that went into it.

An entry is a folder `<root>/<key>/` with `entry.json`, `log.txt` and `out/`. It is made beside, flushed to disk and
renamed into place, so it is whole or it is not there; its hashes are checked each time it is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aipc.fetch import hash_file
from runtimes import contract
from runtimes.contract import Json, Result

NEW_SECONDS = 60.0
"""A workspace without its lock is left alone for so long: its owner may be about to make it."""


class UnsafeOutput(ValueError):
    """A job left something in its outputs that is neither a file nor a folder."""


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """One file: its path relative to the folder it belongs to, its sha256 and its size."""

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Material:
    """What one input of a job is made of: files on the host, and the names they get.

    A `single` material is one file and becomes `in/<name>` itself; any other becomes a folder.
    """

    files: tuple[StoredFile, ...]
    places: Mapping[str, Path]
    single: bool = False

    @property
    def digest(self) -> str:
        """The sha256 over the names and hashes of the files."""
        if self.single:
            return self.files[0].sha256
        return digest([[file.path, file.sha256] for file in self.files])


@dataclass(frozen=True, kw_only=True)
class Record:
    """`entry.json`: what the key was made of, what came of the job, and what it left."""

    parts: Mapping[str, Json]
    result: Result
    files: tuple[StoredFile, ...]
    uncaged: tuple[str, ...]
    schema: int = contract.SCHEMA


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A whole entry of the store."""

    key: str
    folder: Path
    record: Record

    @property
    def result(self) -> Result:
        """What came of the job."""
        return self.record.result

    @property
    def log(self) -> Path:
        """Everything that the job printed."""
        return self.folder / "log.txt"

    def output(self, name: str) -> Material:
        """Return the output `name` (a file or a folder) as the input of another job.

        Raises:
            KeyError: the job made no such output.
        """
        out = self.folder / "out"
        for file in self.record.files:
            if file.path == name:
                return Material(files=(file,), places={name: out / name}, single=True)
        inside = tuple(
            StoredFile(path=file.path[len(name) + 1 :], sha256=file.sha256, size_bytes=file.size_bytes)
            for file in self.record.files
            if file.path.startswith(f"{name}/")
        )
        if not inside:
            raise KeyError(name)
        return Material(files=inside, places={file.path: out / name / file.path for file in inside})


def digest(value: Json) -> str:
    """Return the sha256 of `value` as canonical JSON."""
    return hashlib.sha256(contract.dumps(value).encode()).hexdigest()


def list_files(folder: Path) -> tuple[str, ...]:
    """Return the files below `folder` as sorted relative paths.

    Raises:
        UnsafeOutput: something there is a link, a socket or a device, which could lead out of the folder.
    """
    found = []
    for root, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(root, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                found.append(path.relative_to(folder).as_posix())
            elif not stat.S_ISDIR(mode):
                raise UnsafeOutput(f"{path.relative_to(folder)}: neither a file nor a folder; it is not taken")
    return tuple(sorted(found))


def describe(folder: Path, names: Iterable[str]) -> tuple[StoredFile, ...]:
    """Return the files `names` of `folder` with their hashes and sizes, in the given order."""

    def one(name: str) -> StoredFile:
        path = folder / name
        return StoredFile(path=name, sha256=hash_file(path), size_bytes=path.lstat().st_size)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return tuple(pool.map(one, names))


def scan(folder: Path) -> tuple[StoredFile, ...]:
    """Return all files below `folder` with their hashes and sizes, sorted by path.

    Raises:
        UnsafeOutput: see `list_files`.
    """
    return describe(folder, list_files(folder))


class Store:
    """A folder of entries, safe for several orchestrators at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._locks = root / "locks"
        self._tmp = root / "tmp"
        for folder in (self._locks, self._tmp):
            folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Hold the one lock of `key`; another deploy that wants the same job waits, then finds it done."""
        with (self._locks / key).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give a new folder on the store's own disk; it is removed in the end.

        The folder is held by a lock, so that `sweep` can tell one that a killed orchestrator left behind.
        """
        folder = Path(tempfile.mkdtemp(prefix="work-", dir=self._tmp))
        with (folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def sweep(self) -> int:
        """Remove the workspaces of orchestrators that are gone, never one in use; return how many bytes that freed."""
        freed = 0
        for folder in self._tmp.iterdir():
            try:
                with (folder / "lock").open("r+") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    freed += _size_bytes(folder)
                    shutil.rmtree(folder, ignore_errors=True)
            except BlockingIOError:
                continue
            except FileNotFoundError:
                with contextlib.suppress(OSError):
                    if time.time() - folder.stat().st_mtime > NEW_SECONDS:
                        folder.rmdir()
        return freed

    def get(self, key: str) -> Entry | None:
        """Return the entry of `key` when it is there and every byte of it is as it was; drop it otherwise."""
        folder = self.root / key
        try:
            record = contract.read(Record, folder / "entry.json")
        except FileNotFoundError:
            return None
        except contract.Misused:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        try:
            whole = scan(folder / "out") == record.files
        except (OSError, UnsafeOutput):
            whole = False
        if not whole:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        return Entry(key=key, folder=folder, record=record)

    def put(self, key: str, made: Path, parts: Mapping[str, Json], result: Result, uncaged: tuple[str, ...]) -> Entry:
        """Take what a job left under `made` (`out/` and `log.txt`) as the entry of `key`.

        The caller holds the lock of `key`, and nobody writes to `made` any more: the files are moved.

        Raises:
            UnsafeOutput: see `list_files`.
            OSError: no space, or the disk failed; nothing of the entry is left then.
        """
        if (made / "log.txt").is_symlink():
            raise UnsafeOutput("log.txt: a link; it is not taken")
        record = Record(parts=parts, result=result, files=scan(made / "out"), uncaged=uncaged)
        beside = Path(tempfile.mkdtemp(prefix="entry-", dir=made))
        (made / "out").rename(beside / "out")
        (made / "log.txt").rename(beside / "log.txt")
        for file in record.files:
            _flush(beside / "out" / file.path)
        contract.write(record, beside / "entry.json")
        _flush(beside)
        folder = self.root / key
        if folder.exists():
            shutil.rmtree(folder)
        beside.rename(folder)
        _flush(self.root)
        return Entry(key=key, folder=folder, record=record)

    def list_keys(self) -> tuple[str, ...]:
        """Return the keys of all entries."""
        return tuple(sorted(path.parent.name for path in self.root.glob("*/entry.json")))

    def size_bytes(self) -> int:
        """Return what all entries take."""
        return sum(_size_bytes(self.root / key) for key in self.list_keys())

    def forget(self) -> int:
        """Remove every entry; return how many bytes that freed."""
        freed = 0
        for key in self.list_keys():
            with self.locked(key):
                freed += _size_bytes(self.root / key)
                shutil.rmtree(self.root / key, ignore_errors=True)
        return freed


def _size_bytes(folder: Path) -> int:
    """Return what the files below `folder` take, as far as they are still there."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


def _flush(path: Path) -> None:
    """Have the disk keep what `path`, a file or a folder, holds."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
