"""What a job of the venv engine sees: by bubblewrap only its own files and no network, without it as little as is left.

Both ways give it the same variables and nothing of the user's: no keys, no settings, no home. Settings of numerical
libraries are not passed either, or a result would depend on more than its key; a runtime that needs one sets it itself.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aipc.engines import NOTHING, Given, Limits
from aipc.errors import EngineError
from aipc.gpu import Gpu
from aipc.sdk import PLACE

USER = 65532
"""The user and group that a job sees itself as."""
TRY_SECONDS = 20.0
WORK = Path("/work")
CODE = Path("/aipc")
BROKER = Path("/broker")
SKILLS = Path("/skills")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ALSO = ("/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system/cpu", "/sys/devices/system/node")
"""Where shared libraries are, and how many processors there are."""

PER_PROCESS = "memory (each process is limited, not all together)"
NO_PROCESS_LIMIT = "number of processes"
UNCAGED = ("network", "file system", "other processes", PER_PROCESS, NO_PROCESS_LIMIT)
"""What is not kept from a job without bubblewrap."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a job's own files are on the host.

    Attributes:
        workspace: its workspace.
        code: the folder that holds the package `runtimes`.
        venv: its environment.
        prefixes: the folders that the environment's interpreter needs.
        given: what the job gets beside them.
    """

    workspace: Path
    code: Path
    venv: Path
    prefixes: tuple[Path, ...]
    given: Given = NOTHING


def caged(place: Place, limits: Limits, status: int) -> tuple[str, ...]:
    """Return the command of a job in bubblewrap.

    Args:
        place: the job's files.
        limits: what it may use; the time is not watched here.
        status: the file descriptor that bubblewrap writes its own messages to, as lines of JSON.
    """
    return (
        *_bubblewrap(place),
        *("--json-status-fd", str(status), "--"),
        *_limited(limits, processes=True),
        *worker(_doer(place), WORK),
    )


def uncaged(place: Place, limits: Limits) -> tuple[str, ...]:
    """Return the command of a job without bubblewrap; it is killed when this process ends."""
    return (
        *(tool("setpriv"), "--pdeathsig", "KILL", "--no-new-privs", "--"),
        *_limited(limits, processes=False),
        *worker(_doer(place), place.workspace),
    )


def not_kept() -> tuple[str, ...]:
    """Return what is not kept from a job in bubblewrap."""
    # The kernel does not count root's processes; a job of root's is root to it, whatever the job sees.
    return (PER_PROCESS, NO_PROCESS_LIMIT) if os.getuid() == 0 else (PER_PROCESS,)


def worker(venv: Path, workspace: Path) -> tuple[str, ...]:
    """Return the command that does a job; `-P` keeps the workspace off the path of imports."""
    return (str(venv / "bin" / "python"), "-P", "-m", "runtimes.kit", str(workspace))


def _doer(place: Place) -> Path:
    """Return the environment whose interpreter does the job."""
    return place.given.guest.venv if place.given.guest else place.venv


def variables(venv: Path, workspace: Path, code: Path) -> Mapping[str, str]:
    """Return all variables of a job but that of its SDK; the paths are those that it sees."""
    tmp = str(workspace / "tmp")
    return {
        "PATH": f"{venv / 'bin'}:/usr/bin:/bin",
        "PYTHONPATH": str(code),
        "HOME": tmp,
        "TMPDIR": tmp,
        "XDG_CACHE_HOME": f"{tmp}/cache",
        "USER": "aipc",
        "LOGNAME": "aipc",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # A crash keeps what was printed before it, and says where it happened.
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }


def mounted(given: Given) -> Mapping[str, str]:
    """Return the variables that tell a job where its SDK is mounted, and its guest where the host is reached."""
    guest = given.guest.variables(BROKER, SKILLS) if given.guest else {}
    return {**({given.sdk.variable: str(PLACE)} if given.sdk else {}), **guest}


def uncaged_variables(place: Place) -> dict[str, str]:
    """Return all variables of a job without a cage: nothing is mounted for it, so all is where the host has it."""
    sdk, guest = place.given.sdk, place.given.guest
    seen = {sdk.variable: str(sdk.folder)} if sdk else {}
    seen |= guest.variables(guest.broker, guest.skills or guest.broker) if guest else {}
    return {**variables(place.venv, place.workspace, place.code), **seen}


def why_not(venv: Path | None = None, prefixes: tuple[Path, ...] = ()) -> str:
    """Return why bubblewrap cannot cage a job here, "" when it can; it is tried, which takes some milliseconds.

    Args:
        venv: the environment whose interpreter is started in the cage; without, only the system's `true` is.
        prefixes: the folders that this interpreter needs.
    """
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed (apt-get install bubblewrap)"
    with tempfile.TemporaryDirectory(prefix="aipc-cage-") as folder:
        workspace = Path(folder) / "work"
        for path in (workspace / "in", workspace / "tmp", Path(folder) / "code", Path(folder) / "venv"):
            path.mkdir(parents=True)
        place = Place(
            workspace=workspace,
            code=Path(folder) / "code",
            venv=venv or Path(folder) / "venv",
            prefixes=prefixes,
        )
        command = (str(venv / "bin" / "python"), "-I", "-S", "-c", "") if venv else ("true",)
        argv = (*_bubblewrap(place), "--", tool("prlimit"), "--core=0", "--", *command)
        try:
            done = subprocess.run(
                argv, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap does not work here: {error}"
    words = " ".join(done.stderr.decode("utf-8", "replace").split())
    return "" if done.returncode == 0 else f"bubblewrap does not work here: {words or done.returncode}"


def _bubblewrap(place: Place) -> tuple[str, ...]:
    """Return bubblewrap with all that a job sees; the order matters, a later mount lies over an earlier one."""
    seen = {**variables(place.venv, WORK, CODE), **mounted(place.given)}
    argv = [tool("bwrap"), "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    argv += ["--uid", str(USER), "--gid", str(USER), "--hostname", "aipc", "--clearenv"]
    argv += [part for name, value in seen.items() for part in ("--setenv", name, value)]
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            argv += ["--ro-bind", name, name]
    argv += [part for name in _ALSO for part in ("--ro-bind-try", name, name)]
    argv += ["--proc", "/proc", "--dev", "/dev"]
    argv += ["--bind", str(place.workspace), str(WORK), "--ro-bind", str(place.workspace / "in"), str(WORK / "in")]
    argv += ["--bind", str(place.workspace / "tmp"), "/tmp"]  # noqa: S108 - some tools know no other
    guest = place.given.guest
    for folder in (*place.prefixes, place.venv, *((*guest.prefixes, guest.venv) if guest else ())):
        if not folder.is_relative_to("/usr"):
            argv += ["--ro-bind", str(folder), str(folder)]
    argv += _shown(place.given.gpu)
    argv += ["--ro-bind", str(place.given.sdk.folder), str(PLACE)] if place.given.sdk else []
    if guest:
        argv += ["--ro-bind", str(guest.broker), str(BROKER)]
        argv += ["--ro-bind", str(guest.skills), str(SKILLS)] if guest.skills else []
    argv += ["--ro-bind", str(place.code), str(CODE), "--remount-ro", "/", "--chdir", str(WORK)]
    return tuple(argv)


def _shown(gpu: Gpu | None) -> list[str]:
    """Return the mounts by which a job sees the GPUs: their device files, and their driver's libraries."""
    if gpu is None:
        return []
    nodes = [part for node in gpu.nodes for part in ("--dev-bind", str(node), f"/dev/{node.name}")]
    return [*nodes, *(part for folder in gpu.folders for part in ("--ro-bind", str(folder), str(folder)))]


def _limited(limits: Limits, *, processes: bool) -> tuple[str, ...]:
    """Return the command that sets the limits for what follows it."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    memory = limits.memory_bytes if most == resource.RLIM_INFINITY else min(limits.memory_bytes, most)
    argv = [tool("prlimit"), f"--data={memory}", "--core=0"]
    if processes:
        _, most = resource.getrlimit(resource.RLIMIT_NPROC)
        argv.append(f"--nproc={limits.processes if most == resource.RLIM_INFINITY else min(limits.processes, most)}")
    return (*argv, "--")


def tool(name: str) -> str:
    """Return the path of a program of the system's.

    Raises:
        EngineError: it is not installed.
    """
    found = shutil.which(name)
    if not found:
        package = {"bwrap": "bubblewrap"}.get(name, "util-linux")
        raise EngineError(f"venv engine: {name} is not installed; install it: apt-get install {package}")
    return found
