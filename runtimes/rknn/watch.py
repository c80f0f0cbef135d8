"""Ends a build whose graph optimiser does not end.

Some of its rules follow every path through a graph. Others take a node away that something else still needs, and the
toolkit then sorts the graph for ever.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

SEARCHING = ("reduce_tp_in_mesh", "reduce_tp_in_mesh_backward", "reduce_tp_in_mesh_forward")
"""The rules that do; on a spectrogram made by many convolutions beside each other they did not end in four minutes."""

QUIET_SECONDS = 20.0
"""CPU seconds without a line of the optimiser; so many at least."""

PATIENCE = 2.0
"""So many times as long as all that came before: what is slow on a large graph is slow from its first rule on."""

INTERVAL_SECONDS = 1.0
_RULE = re.compile(r"^D +(?P<rule>\w+): remove node")
_TOLD = re.compile(r"^[DI] ")
"""What tells how far it came; between such lines stand warnings, some of many lines."""


def last_rule(lines: Sequence[str]) -> str:
    """Return the rule that the optimiser followed last; "" where it is not, or no longer, at work."""
    told = next((line for line in reversed(lines) if _TOLD.match(line)), "")
    match = _RULE.match(told)
    return match["rule"] if match else ""


class Watch:
    """Looks at a build in a thread of its own, from `with` on.

    Attributes:
        stalled: the rule that the optimiser followed before it got nowhere and was ended here, else "".
    """

    def __init__(self, process: subprocess.Popen[bytes], lines: Sequence[str], *, quiet_seconds: float) -> None:
        self.process = process
        self.lines = lines
        self.quiet_seconds = quiet_seconds
        self.stalled = ""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        count, since = -1, 0.0
        while not self._done.wait(INTERVAL_SECONDS):
            used = cpu_seconds(self.process.pid)
            if len(self.lines) != count:
                count, since = len(self.lines), used
            elif used - since > max(self.quiet_seconds, PATIENCE * since) and (rule := last_rule(self.lines)):
                self.stalled = rule
                self.process.kill()
                return


def cpu_seconds(pid: int) -> float:
    """Return how long a process has calculated; 0 where it is gone."""
    try:
        # Its name, in brackets, may hold anything; user and system time are the 14th and 15th field.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
