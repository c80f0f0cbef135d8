"""Makes what the tests of the venv engine need: wheels, indexes, environments, jobs; no network takes part."""

from __future__ import annotations

import base64
import hashlib
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aipc.engines import Ended, Limits
from aipc.engines.venv import VenvEngine
from aipc.environment import Environment

WORKER = """
import pathlib, sys
work = pathlib.Path(sys.argv[1])
exec(compile((work / "in" / "job.py").read_text(), "job.py", "exec"), {"work": work})
"""


def make_wheel(folder: Path, name: str, version: str, requires: Sequence[str] = (), content: str = "") -> Path:
    """Write a wheel of one module into `folder`; equal arguments give equal bytes."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n{content}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        hashed = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={hashed},{len(text.encode())}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return wheel


def make_index(folder: Path, wheels: Sequence[Path]) -> str:
    """Write an index of `wheels` into `folder`, and return its URL."""
    for wheel in wheels:
        page = folder / wheel.name.split("-")[0]
        page.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(wheel, page / wheel.name)
        links = "".join(f'<a href="{path.name}">{path.name}</a>\n' for path in sorted(page.glob("*.whl")))
        (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    return folder.as_uri()


def make_environment(
    folder: Path, wheels: Sequence[Path], *, name: str = "tiny", indexes: str = "", python: str = "3.11"
) -> Environment:
    """Write the files of an environment whose lock pins `wheels`, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    pins = {path: path.name.split("-")[:2] for path in wheels}
    hashes = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels}
    lock = "".join(f"{pins[path][0]}=={pins[path][1]} \\\n    --hash=sha256:{hashes[path]}\n" for path in wheels)
    (folder / "requirements.lock").write_text(lock)
    (folder / "requirements.in").write_text("".join(f"{package}=={version}\n" for package, version in pins.values()))
    if indexes:
        (folder / "indexes.toml").write_text(indexes)
    return Environment(name=name, folder=folder, python=python)


def make_code(folder: Path) -> Path:
    """Write a folder of code whose worker runs `in/job.py`, and return it."""
    package = folder / "runtimes" / "kit"
    package.mkdir(parents=True)
    (folder / "runtimes" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(WORKER)
    return folder


def make_workspace(folder: Path, source: str) -> Path:
    """Write a workspace whose job is the Python program `source`, and return it."""
    for name in ("in", "out", "tmp"):
        (folder / name).mkdir(parents=True)
    (folder / "in" / "job.py").write_text(source)
    return folder


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended, and what it left."""

    ended: Ended
    log: str
    workspace: Path


@dataclass(frozen=True, kw_only=True)
class Bench:
    """An environment that is built, and a place to run jobs in it."""

    cache: Path
    environment: Environment
    folder: Path

    def run(
        self,
        source: str,
        *,
        engine: VenvEngine | None = None,
        seconds: float = 30,
        memory_bytes: int = 2_000_000_000,
        processes: int = 4096,
        poll: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Run the Python program `source` as a job; `work` in it is its workspace."""
        number = len(list(self.folder.iterdir()))
        workspace = make_workspace(self.folder / f"job{number}", source)
        code = make_code(self.folder / f"code{number}")
        limits = Limits(seconds=seconds, memory_bytes=memory_bytes, processes=processes)
        engine = engine or VenvEngine(self.cache, "test")
        ended = engine.run(self.environment, workspace, code, limits, poll)
        return Outcome(
            ended=ended, log=(workspace / "log.txt").read_text(encoding="utf-8", errors="replace"), workspace=workspace
        )
