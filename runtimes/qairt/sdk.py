"""Qualcomm's SDK, the user's own: where it is, and starting its tools.

A tool's exit code is not believed in either direction. Some versions end with a code other than 0 though all is well,
some end with 0 and leave an empty file. What counts are the files that it should have made and its words: see `ran`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from runtimes import contract
from runtimes.contract import Failure, Kind
from runtimes.kit.work import Failed, fail, refuse
from runtimes.qairt import failures

VARIABLE = "QAIRT_SDK_ROOT"
HOST = "x86_64-linux-clang"
MODULES = "lib/python/qti/aisw/converters/common"
_VERSION = re.compile(r"^\s*version\s*:\s*['\"]?(?P<version>[^'\"\n]+)", re.MULTILINE)
_ERROR = re.compile(r"^.*(?:\[ *ERROR *\]|\bERROR\b *[-:]|\bERROR_\w+|Traceback \(most recent).*$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sdk:
    """An SDK.

    Attributes:
        root: its folder.
        version: as its sdk.yaml has it.
        scratch: the folder for temporary files of its tools.
    """

    root: Path
    version: str
    scratch: Path

    @property
    def libraries(self) -> Path:
        """The libraries for this machine."""
        return self.root / "lib" / HOST

    def has(self, tool: str) -> bool:
        """Return whether it has a tool."""
        return (self.root / "bin" / HOST / tool).is_file()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ran:
    """How a tool ended; it is true when it did what was asked.

    Attributes:
        tool: its name.
        code: its exit code; −N when signal N killed it, 128 + N when it killed what it had started.
        words: all that it printed.
        missing: the files that it should have made and did not, or left empty.
    """

    tool: str
    code: int
    words: str
    missing: tuple[str, ...]

    @property
    def errors(self) -> tuple[str, ...]:
        """The lines that it calls errors itself."""
        return tuple(line.strip() for line in _ERROR.findall(self.words))

    @property
    def killed(self) -> bool:
        """Whether a signal ended it, or what it had started: then its files need not be whole."""
        return self.code < 0 or 128 < self.code < 128 + signal.NSIG

    def __bool__(self) -> bool:
        return not self.missing and not self.killed and (self.code == 0 or not self.errors)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of a tool that did what was asked."""
        if self.code != 0:
            return (f"{self.tool} ended with exit code {self.code}, but its files are whole and it names no error",)
        return tuple(f"{self.tool} made its files, and printed: {line}" for line in self.errors)

    def failure(self, source: Path) -> Failure:
        """Return why it did not do what was asked."""
        said = self.words.strip() or "it printed nothing"
        end = f"{self.tool} {contract.describe_exit(self.code)}"
        left = f", without {', '.join(self.missing)}" if self.missing else ""
        if self.killed:
            return Failure(kind=Kind.CRASH, message=f"{end}{left}\n{said}")
        found = failures.describe(said, source)
        kind = Kind.MISSING_RESULT if found.kind is Kind.TOOLCHAIN and self.code == 0 else found.kind
        return dataclasses.replace(found, kind=kind, message=f"{end}{left}\n{said}")


def find(scratch: Path) -> Sdk | None:
    """Return the SDK that the host has mounted, None where the user has none."""
    named = os.environ.get(VARIABLE, "")
    if not named:
        return None
    root = Path(named)
    if not (root / "bin" / HOST).is_dir():
        refuse(
            Kind.MISSING_PACKAGE,
            f"{VARIABLE}: the folder holds no bin/{HOST}",
            hint="name the folder of an unpacked SDK for Linux on x86_64: the one with sdk.yaml, bin and lib",
        )
    described = root / "sdk.yaml"
    found = _VERSION.search(described.read_text(encoding="utf-8") if described.is_file() else "")
    return Sdk(root=root, version=found["version"].strip() if found else "of an unknown version", scratch=scratch)


def check_space(sdk: Sdk, needed_bytes: int) -> None:
    """Fail where QAIRT_TMP_DIR has no room: a tool that fills it dies in ways that do not speak of it."""
    free = shutil.disk_usage(sdk.scratch).free
    if free < needed_bytes:
        fail(
            Kind.DISK,
            f"QAIRT_TMP_DIR has {free >> 20} MiB free, and this conversion needs about {needed_bytes >> 20} MiB",
            hint="free some space where aipc keeps its store",
        )


def run(sdk: Sdk, tool: str, arguments: Sequence[str | Path], made: Sequence[Path], cwd: Path) -> Ran:
    """Run a tool to its end.

    Args:
        sdk: whose.
        tool: its name.
        arguments: its command line.
        made: the files that it must leave, none of them empty; what is there before is removed.
        cwd: where it runs.
    """
    for path in made:
        path.unlink(missing_ok=True)
    script = sdk.root / "bin" / HOST / tool
    argv = [*_interpreter(sdk, script), str(script), *map(str, arguments)]
    _log(" ".join(("$", *argv)))
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=_variables(sdk),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except OSError as error:
        failure = Failure(kind=Kind.MISSING_PACKAGE, message=f"{tool} cannot be started: {error}")
        raise Failed(failure) from error
    words = done.stdout.decode("utf-8", "replace")
    _log(words)
    missing = tuple(path.name for path in made if not path.is_file() or path.stat().st_size == 0)
    return Ran(tool=tool, code=done.returncode, words=words, missing=missing)


def _interpreter(sdk: Sdk, script: Path) -> tuple[str, ...]:
    """Return the Python for a tool that is a script of it, nothing for one that is a program."""
    if not script.is_file():
        refuse(Kind.MISSING_PACKAGE, f"the SDK has no {script.name}", hint="use an SDK that has it, 2.24 or newer")
    with script.open("rb") as file:
        first = file.readline(200)
    if not (first.startswith(b"#!") and b"python" in first):
        return ()
    own = sdk.root / "python" / "bin" / "python3"
    if own.is_file():
        return (str(own),)
    here = f"{sys.version_info.major}{sys.version_info.minor}"
    built = {path.name for path in (sdk.root / MODULES).rglob("libPyIrGraph*.so")}
    if built and not any(name.startswith(f"libPyIrGraph{here}") for name in built):
        refuse(
            Kind.MISSING_PACKAGE,
            f"{script.name} is a Python program whose own libraries are {', '.join(sorted(built))}, and the Python "
            f"of this environment is {sys.version_info.major}.{sys.version_info.minor}",
            hint="put a Python that fits into the SDK, as python/bin/python3: see docs/runtimes/qairt.md",
        )
    return (sys.executable,)


def _log(text: str) -> None:
    """Keep what happens in the job's own log."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _variables(sdk: Sdk) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        VARIABLE: str(sdk.root),
        "QNN_SDK_ROOT": str(sdk.root),
        "SNPE_ROOT": str(sdk.root),
        "QAIRT_TMP_DIR": str(sdk.scratch),
        "TMPDIR": str(sdk.scratch),
        "PATH": f"{sdk.root / 'bin' / HOST}:{os.environ.get('PATH', os.defpath)}",
        "LD_LIBRARY_PATH": str(sdk.libraries),
        "PYTHONPATH": str(sdk.root / "lib" / "python"),
    }
