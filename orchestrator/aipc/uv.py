"""Where uv is: it makes the locks, and gets a Python that this machine lacks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from aipc.errors import EngineError


def find() -> str:
    """Return the path of uv: the one installed with aipc, else one on the PATH.

    Raises:
        EngineError: there is none.
    """
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")
    if not found:
        raise EngineError(f"{beside}: uv is not installed; install it beside aipc: {sys.executable} -m pip install uv")
    return found
