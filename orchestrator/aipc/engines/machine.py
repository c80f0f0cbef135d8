"""What this machine tells about itself: its memory's victims, and the room on its disks."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from aipc.errors import EngineError

OTHER_CACHE = "set AIPC_CACHE to a folder on another disk"
OTHER_DAEMON_DATA = "let the daemon keep its data on another disk (its option data-root)"
"""What else can be done where a disk is full."""


def memory_kills() -> int:
    """Return how many processes this kernel has killed for memory so far; always 0 where it does not tell."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def check_space(folder: Path, needed_bytes: int, what: str, otherwise: str) -> None:
    """Refuse to begin what the disk of `folder` cannot hold; a folder that cannot be looked at is taken as good.

    Args:
        folder: where it is to be made; it exists.
        needed_bytes: what it takes at most.
        what: what is to be made, for the message.
        otherwise: what can be done instead of freeing some.

    Raises:
        EngineError: fewer than `needed_bytes` are free.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return
    if free < needed_bytes:
        raise EngineError(
            f"{what}: about {needed_bytes / 1e9:.2f} GB are needed in {folder}, and {free / 1e9:.2f} GB are free; "
            f"free some (aipc clean removes old environments and images), or {otherwise}"
        )


def size_bytes(folder: Path) -> int:
    """Return how many bytes the files below `folder` hold; links are not followed."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(parent) / name).lstat().st_size
    return total
