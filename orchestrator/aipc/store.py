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
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aipc.engines import machine
from aipc.errors import EngineError
from aipc.fetch import hash_file
from runtimes import contract
from runtimes.contract import Json, Result


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
        UnsafeOutput: something there, or the folder itself, is a link, a socket or a device: it could lead elsewhere.
        OSError: something there cannot be read.
    """
    found = []
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise UnsafeOutput(f"{folder.name}: not a folder; it is not taken")
    for root, folders, names in os.walk(folder, onerror=_raise):
        for name in [*folders, *names]:
            path = Path(root, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                found.append(path.relative_to(folder).as_posix())
            elif not stat.S_ISDIR(mode):
                raise UnsafeOutput(f"{path.relative_to(folder)}: neither a file nor a folder; it is not taken")
    return tuple(sorted(found))


def _raise(error: OSError) -> None:
    raise error


def describe(folder: Path, names: Iterable[str]) -> tuple[StoredFile, ...]:
    """Return the files `names` of `folder` with their hashes and sizes, in the given order."""

    def one(name: str) -> StoredFile:
        path = folder / name
        return StoredFile(path=name, sha256=hash_file(path), size_bytes=path.stat().st_size)

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
    def in_use(self) -> Iterator[None]:
        """Keep every entry there while a command works with them: `forget` waits for nobody, it refuses."""
        with _flock(self._locks / "in-use", fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def locked(self, key: str, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold the one lock of `key`; another deploy that wants the same job waits, then finds it done.

        Args:
            key: which.
            waiting: called before it has to wait.
        """
        with (self._locks / key).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give a new folder on the store's own disk; it is removed in the end.

        The folder is held by a lock, so that `sweep` can tell one that a killed orchestrator left behind.
        """
        with _flock(self._locks / "sweep", fcntl.LOCK_SH):
            folder = Path(tempfile.mkdtemp(prefix="work-", dir=self._tmp))
            file = (folder / "lock").open("w")
            fcntl.flock(file, fcntl.LOCK_EX)
        with file:
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def sweep(self) -> int:
        """Remove the workspaces of orchestrators that are gone, never one in use; return how many bytes that freed."""
        freed = 0
        with _flock(self._locks / "sweep", fcntl.LOCK_EX):  # nobody is between making a folder and locking it
            for folder in self._tmp.iterdir():
                with contextlib.suppress(BlockingIOError), contextlib.ExitStack() as held:
                    if (folder / "lock").exists():
                        held.enter_context(_flock(folder / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB))
                    freed += machine.size_bytes(folder)
                    shutil.rmtree(folder, ignore_errors=True)
        return freed

    def get(self, key: str) -> Entry | None:
        """Return the entry of `key` when it is there and every byte of it is as it was; drop it otherwise.

        Raises:
            OSError: the disk does not let it be read; it is kept.
        """
        folder = self.root / key
        try:
            record = contract.read(Record, folder / "entry.json")
        except FileNotFoundError:
            return None
        except contract.Misused:
            record = None
        try:
            whole = record is not None and scan(folder / "out") == record.files
        except (FileNotFoundError, UnsafeOutput):
            whole = False
        if record is None or not whole:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        return Entry(key=key, folder=folder, record=record)

    def put(self, record: Record, key: str, out: Path | None, log: bytes) -> Entry:
        """Take the folder `out`, whose files `record` lists, as the entry of `key`; None for one without outputs.

        The caller holds the lock of `key`, and nobody writes to `out` any more: the folder is moved.

        Raises:
            OSError: no space, or the disk failed; nothing of the entry is left then.
        """
        with self.workspace() as beside:
            made = beside / "entry"
            made.mkdir()
            if out is None:
                (made / "out").mkdir()
            else:
                out.rename(made / "out")
            (made / "log.txt").write_bytes(log)
            for file in record.files:
                _flush(made / "out" / file.path)
            contract.write(record, made / "entry.json")
            _flush(made)
            folder = self.root / key
            if folder.exists():
                shutil.rmtree(folder)
            made.rename(folder)
        _flush(self.root)
        return Entry(key=key, folder=folder, record=record)

    def list_keys(self) -> tuple[str, ...]:
        """Return the keys of all entries."""
        return tuple(sorted(path.parent.name for path in self.root.glob("*/entry.json")))

    def size_bytes(self) -> int:
        """Return what all entries take."""
        return sum(machine.size_bytes(self.root / key) for key in self.list_keys())

    def forget(self) -> int:
        """Remove every entry; return how many bytes that freed.

        Raises:
            EngineError: a running command works with them.
        """
        try:
            with _flock(self._locks / "in-use", fcntl.LOCK_EX | fcntl.LOCK_NB):
                freed = self.size_bytes()
                for key in self.list_keys():
                    shutil.rmtree(self.root / key, ignore_errors=True)
        except BlockingIOError as error:
            raise EngineError(f"{self.root}: a deploy works with these results; wait until it ends") from error
        return freed


@contextlib.contextmanager
def _flock(path: Path, how: int) -> Iterator[None]:
    """Hold the lock at `path`; it ends with the process, so nothing stays locked after a kill."""
    with path.open("a") as file:
        fcntl.flock(file, how)
        yield


def _flush(path: Path) -> None:
    """Have the disk keep what `path`, a file or a folder, holds."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
