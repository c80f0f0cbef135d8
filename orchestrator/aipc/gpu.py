"""The NVIDIA GPUs of this machine: what the venv engine shows of them to a job that needs one, and what they are.

A runtime asks for them by the table `gpu` of its runtime.toml. Where there is none, nothing of it applies: the job is
done without, and its adapter says that there is no GPU.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from runtimes import contract

DEVICES = Path("/dev")
DRIVER = Path("/proc/driver/nvidia")
_CARD = re.compile(r"nvidia\d+")
_LIBRARY = re.compile(r"^\s*libcuda\.so\.1 \(.*x86-64.*\) => (?P<path>/.*)$", re.MULTILINE)
_IN_EVERY_CAGE = Path("/usr")
_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """All NVIDIA GPUs of this machine.

    Attributes:
        nodes: the driver's device files and folders.
        folders: where the driver's libraries are, by the names that the loader knows and without links; those below
            /usr are left out, every cage has them.
        words: what the driver says of itself and of each card; a result depends on it.
    """

    nodes: tuple[Path, ...]
    folders: tuple[Path, ...]
    words: tuple[str, ...]

    @property
    def digest(self) -> str:
        """What they are, as 64 hex digits: what the key of a job holds of them."""
        return hashlib.sha256(contract.dumps(self.words).encode()).hexdigest()


def find(devices: Path = DEVICES, driver: Path = DRIVER) -> Gpu | None:
    """Return the GPUs of this machine, None where there is none.

    Args:
        devices: the folder of device files.
        driver: where the driver tells of itself.
    """
    nodes = tuple(sorted(devices.glob("nvidia*")))
    if not any(_CARD.fullmatch(node.name) for node in nodes):
        return None
    told = (driver / "version", *sorted(driver.glob("gpus/*/information")))
    words = tuple(path.read_text(encoding="utf-8", errors="replace") for path in told if path.is_file())
    return Gpu(nodes=nodes, folders=folders_in(_loader_cache()), words=words)


def folders_in(listing: str) -> tuple[Path, ...]:
    """Return the folders of the driver's library in what `ldconfig -p` prints, but for those below /usr."""
    paths = [Path(match["path"]) for match in _LIBRARY.finditer(listing)]
    folders = dict.fromkeys(folder for path in paths for folder in (path.parent, path.resolve().parent))
    return tuple(folder for folder in folders if not folder.resolve().is_relative_to(_IN_EVERY_CAGE))


def _loader_cache() -> str:
    """Return what the loader knows, "" where it cannot be asked: the driver is then what is missing for the job."""
    program = shutil.which("ldconfig", path=_SYSTEM_PATH)
    if not program:
        return ""
    done = subprocess.run((program, "-p"), env={}, capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace")
