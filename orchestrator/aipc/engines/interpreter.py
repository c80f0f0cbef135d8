"""Finds the Python that an environment states, or gets it through uv where that can be reached."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aipc import uv
from aipc.errors import EngineError

PROBE_SECONDS = 20.0
DOWNLOAD_SECONDS = 600.0
_PROBE = """
import importlib.util, json, os, platform, sys, sysconfig
print(json.dumps({
    "name": f"{sys.implementation.name}-{platform.python_version()}",
    "minor": "%d.%d" % sys.version_info[:2],
    "executable": os.path.realpath(sys._base_executable),
    "prefixes": sorted({sys.base_prefix, sys.base_exec_prefix, os.path.realpath(sys.base_prefix)}),
    "platform": sysconfig.get_platform(),
    "libc": platform.libc_ver()[0],
    "threads": "free" if sysconfig.get_config_var("Py_GIL_DISABLED") else "locked",
    "makes_venvs": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
}))
"""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python on this machine, as it describes itself.

    Attributes:
        name: such as "cpython-3.11.7".
        minor: such as "3.11".
        executable: the real file, no link, of no venv.
        prefixes: the folders that it needs to run.
        platform: such as "linux-x86_64".
        libc: "glibc", or something else that wheels do not fit.
        threads: "locked" for the usual build, "free" for one without the global lock.
        makes_venvs: it has the modules `venv` and `ensurepip`.
    """

    name: str
    minor: str
    executable: Path
    prefixes: tuple[Path, ...]
    platform: str
    libc: str
    threads: str
    makes_venvs: bool


def find(version: str, report: Callable[[str], None], *, download: bool = True) -> Interpreter:
    """Return a CPython of `version` that can make virtual environments.

    Args:
        version: such as "3.11".
        report: is told when one has to be downloaded.
        download: whether uv may be asked for one.

    Raises:
        EngineError: this machine is no x86_64 Linux, or has no such Python and cannot get one.
    """
    check_platform()
    unfit = []
    for candidate in _candidates(version):
        found = probe(candidate)
        if found is not None:
            problem = _problem(found, version)
            if not problem:
                return found
            unfit.append(f"{candidate} {problem}")
    downloaded, words = _download(version, report) if download else (None, "")
    if downloaded is not None and not _problem(downloaded, version):
        return downloaded
    why = f" ({'; '.join(unfit)})" if unfit else ""
    tried = f"\nuv was asked for it, and said: {words}" if words else ""
    raise EngineError(
        f"Python {version}: none was found on this machine that fits{why}; install one: "
        f"apt-get install python{version} python{version}-venv, pyenv install {version}, "
        f"or uv python install {version}{tried}"
    )


def check_platform() -> None:
    """Refuse a machine that the locks are not made for.

    Raises:
        EngineError: this is no x86_64 Linux.
    """
    here = f"{platform.system().lower()}-{platform.machine().lower()}"
    if here != "linux-x86_64":
        raise EngineError(
            f"venv engine: this machine is {here}, but the locks are made for linux-x86_64; use an x86_64 Linux machine"
        )


def probe(executable: Path) -> Interpreter | None:
    """Return what `executable` says about itself, None when it is no Python that runs."""
    argv = (str(executable), "-I", "-c", _PROBE)
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
        data = json.loads(done.stdout)
        paths = {"executable": Path(data["executable"]), "prefixes": tuple(Path(path) for path in data["prefixes"])}
        return Interpreter(**{**data, **paths})
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        return None


def stamp(executable: Path) -> str:
    """Return what changes when another Python is installed over `executable`; "" when it is gone."""
    try:
        status = executable.stat()
    except OSError:
        return ""
    return f"{executable.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _problem(found: Interpreter, version: str) -> str:
    """Return why `found` cannot be used, "" when it can."""
    if found.minor != version:
        return f"is Python {found.minor}"
    if not found.name.startswith("cpython-") or found.threads != "locked":
        return f"is {found.name} ({found.threads} threads); the usual CPython is needed"
    if found.platform != "linux-x86_64" or found.libc != "glibc":
        return f"is for {found.platform} with the C library {found.libc or 'unknown'}; glibc is needed"
    if not found.makes_venvs:
        return f"has no venv and ensurepip; apt-get install python{version}-venv"
    return ""


def _candidates(version: str) -> Iterator[Path]:
    """Yield where a Python of `version` may be: this one, the PATH, pyenv's folders, uv's folders."""
    name = f"python{version}"
    seen: set[Path] = set()
    own = [Path(sys.base_prefix) / "bin" / name] if "{}.{}".format(*sys.version_info) == version else []
    searched = [Path(folder) / name for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises for a user without a home
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    managed = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    kept = [*_newest(pyenv, f"{version}.*"), *_newest(managed, f"cpython-{version}.*-linux-x86_64-gnu")]
    for path in (*own, *searched, *(folder / "bin" / name for folder in kept)):
        if os.access(path, os.X_OK) and path.resolve() not in seen:
            # pyenv's launchers are one script, which answers by its name: they must not hide each other.
            seen.add(path if path.parent.name == "shims" else path.resolve())
            yield path


def _newest(folder: Path, pattern: str) -> list[Path]:
    """Return the folders that match, the newest version first."""

    def order(path: Path) -> tuple[int, ...]:
        return tuple(int(part) for part in path.name.replace("-", ".").split(".") if part.isdigit())

    return sorted((path for path in folder.glob(pattern) if path.is_dir()), key=order, reverse=True)


def _download(version: str, report: Callable[[str], None]) -> tuple[Interpreter | None, str]:
    """Let uv install a Python of `version`; return it, or why there is none in uv's words."""
    try:
        program = uv.find()
    except EngineError:
        return None, ""
    report(f"getting Python {version} through uv")
    variables = {**os.environ, "UV_NO_PROGRESS": "1", "UV_HTTP_RETRIES": "1"}
    words = ""
    for argv in (
        (program, "python", "install", "--no-config", "--no-bin", version),
        (program, "python", "find", "--no-config", "--managed-python", "--no-project", version),
    ):
        try:
            done = subprocess.run(
                argv, env=variables, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return None, f"nothing in {DOWNLOAD_SECONDS:.0f} s"
        words = " ".join(done.stderr.split())
        if done.returncode != 0:
            return None, words
    return probe(Path(done.stdout.strip())), words
