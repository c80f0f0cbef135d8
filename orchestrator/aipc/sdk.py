"""A vendor's SDK that only the user can get: a folder of the host, read-only at one place inside each job.

A runtime asks for it by the key `sdk` of its runtime.toml: the name of the variable that holds the folder. Where that
variable is not set, there is no SDK, and the runtime does what it can do without.
"""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from aipc.errors import UsageError
from runtimes import contract

PLACE = Path("/opt/sdk")
"""Where a caged job finds it."""
VERSION_FILE = "sdk.yaml"


@dataclass(frozen=True, kw_only=True)
class Sdk:
    """An SDK of this machine.

    Attributes:
        variable: the variable that names its folder, on the host and inside a job.
        folder: where it is on the host, without links.
    """

    variable: str
    folder: Path

    @property
    def digest(self) -> str:
        """What it is, as 64 hex digits: what the key of a job holds of it.

        It is made of the bytes of its version file, and of a listing of everything in it: path, size, time of the last
        change, and where a link leads. The bytes of its gigabytes of libraries are not read.
        """
        return _digest(self.folder)


def find(variable: str) -> Sdk | None:
    """Return the SDK that `variable` names, None where `variable` is "" or is not set.

    Raises:
        UsageError: it names no folder.
    """
    named = os.environ.get(variable, "") if variable else ""
    if not named:
        return None
    folder = Path(named)
    if not folder.is_dir():
        raise UsageError(f"{variable}: {named!r} is no folder; name the folder of the SDK, or unset the variable")
    return Sdk(variable=variable, folder=folder.resolve())


@functools.cache
def _digest(folder: Path) -> str:
    listing = []
    for root, folders, names in os.walk(folder):
        for path in (Path(root) / name for name in (*folders, *names)):
            state = path.lstat()
            size = 0 if path.is_dir() else state.st_size
            leads = str(path.readlink()) if path.is_symlink() else ""
            listing.append([path.relative_to(folder).as_posix(), size, state.st_mtime_ns, leads])
    version = folder / VERSION_FILE
    content = hashlib.sha256(version.read_bytes() if version.is_file() else b"").hexdigest()
    return hashlib.sha256(contract.dumps({"version": content, "listing": sorted(listing)}).encode()).hexdigest()
