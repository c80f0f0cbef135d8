"""What a container may use and see, in the words of Docker's API."""

from __future__ import annotations

import resource
from pathlib import Path

from aipc.engines import Given
from aipc.engines.cage import BROKER, CODE, SKILLS, WORK
from aipc.engines.container import AGENT
from aipc.sdk import PLACE
from runtimes.contract import Json

OPEN_FILES = 65_536
USER_PROCESSES = 32_768
"""Of all jobs of a user together; each has a limit of its own."""


def limits() -> list[Json]:
    """Return resource limits that are not above aipc's own: a daemon may not be allowed to exceed those either."""
    found: list[Json] = [{"Name": "core", "Soft": 0, "Hard": 0}]  # the kernel would write it into the workspace
    for name, number, most in (
        ("nofile", resource.RLIMIT_NOFILE, OPEN_FILES),
        ("nproc", resource.RLIMIT_NPROC, USER_PROCESSES),
    ):
        hard = resource.getrlimit(number)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(hard, most)
        found.append({"Name": name, "Soft": bound, "Hard": bound})
    return found


def mounts(workspace: Path, code: Path, given: Given) -> list[Json]:
    """Return what a job sees of the host; all but its workspace is read-only, and so is `in` there.

    Args:
        workspace: becomes /work.
        code: becomes /aipc.
        given: an SDK becomes /opt/sdk; of an agent, its environment /opt/agent, its socket's folder /broker, and the
            skills /skills.
    """
    shown = [(CODE, code), *([(PLACE, given.sdk.folder)] if given.sdk else [])]
    if guest := given.guest:
        shown += [(AGENT, guest.venv), (BROKER, guest.broker), *([(SKILLS, guest.skills)] if guest.skills else [])]
    return [
        _bind(WORK, workspace, read_only=False),
        *(_bind(target, source, read_only=True) for target, source in [(WORK / "in", workspace / "in"), *shown]),
    ]


def _bind(target: Path, source: Path, *, read_only: bool) -> Json:
    return {"Target": str(target), "Source": str(source), "Type": "bind", "ReadOnly": read_only}
