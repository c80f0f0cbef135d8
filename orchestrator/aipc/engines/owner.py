"""Owners: the process that a container or a half-made image belongs to, and whether it still lives.

A process id alone is not enough: it is given again to another process, and means something else on another machine,
after a boot, or inside a container. Only an owner that can be seen from here is ever said to be dead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "aipc."
_DEAD_STATES = frozenset("ZXx")


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process on some machine.

    Attributes:
        pid: its id.
        started: when it started, in clock ticks since the machine's boot.
        boot: the id of that boot: it tells machines and boots apart.
        namespace: the space that the pid counts in; a container has its own.
    """

    pid: int
    started: int
    boot: str
    namespace: str

    def labels(self) -> dict[str, str]:
        """Return it as labels of a container or an image."""
        return {
            f"{PREFIX}owner": str(self.pid),
            f"{PREFIX}started": str(self.started),
            f"{PREFIX}boot": self.boot,
            f"{PREFIX}namespace": self.namespace,
        }

    def __str__(self) -> str:
        return " ".join(self.labels().values())

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Return what `str` wrote, or None where `text` is something else."""
        words = text.split()
        names = [name.removeprefix(PREFIX) for name in ("owner", "started", "boot", "namespace")]
        return cls.from_labels({PREFIX + name: word for name, word in zip(names, words, strict=False)})

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Owner | None:
        """Return the owner that `labels` name, or None where they name none."""
        try:
            return cls(
                pid=int(labels[f"{PREFIX}owner"]),
                started=int(labels[f"{PREFIX}started"]),
                boot=labels[f"{PREFIX}boot"],
                namespace=labels[f"{PREFIX}namespace"],
            )
        except (KeyError, ValueError):
            return None

    def is_dead(self) -> bool:
        """Return whether it is known to be gone; another machine's owner never is."""
        here = current()
        if (self.boot, self.namespace) != (here.boot, here.namespace):
            return False
        started = start_of(self.pid)
        return not _is_hidden(self.pid) if started is None else started != self.started


def current() -> Owner:
    """Return this process."""
    pid = os.getpid()
    started = start_of(pid)
    assert started is not None  # noqa: S101 - this process is alive
    return Owner(
        pid=pid,
        started=started,
        boot=Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
        namespace=str(Path("/proc/self/ns/pid").readlink()),
    )


def start_of(pid: int) -> int | None:
    """Return when the process `pid` started, in clock ticks since boot; None when it is dead or was never there."""
    try:
        # The command's name stands in brackets and may itself hold brackets and spaces.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in _DEAD_STATES else int(fields[19])


def _is_hidden(pid: int) -> bool:
    """Return whether the process `pid` of another user lives, although /proc may not show it (its option hidepid)."""
    try:
        os.kill(pid, 0)  # signal 0 is only a question
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return False
