"""The agent's adapter: a session of a language model, which the host's broker serves through one Unix socket.

Nothing that comes of it is believed: the host builds what was submitted anew, and the judge measures that.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from runtimes.agent import actions, broker, loop, prompt, skills
from runtimes.agent.actions import Mode
from runtimes.agent.course import Course
from runtimes.contract import Json, Misused
from runtimes.kit.work import Work

BROKER = "AIPC_BROKER"
"""The variable that names the broker's socket."""
SKILLS = "AIPC_SKILLS"
"""The variable that names the folder of the skills, where they may be read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What a session is told.

    Attributes:
        mode: what the agent is for.
        cell: what is converted.
        runtime: whose skill may be read.
        steps: most decisions.
        seconds: most wall time.
        skills: whether skills may be read.
    """

    mode: Mode
    cell: str
    runtime: str
    steps: int
    seconds: int
    skills: bool

    def __post_init__(self) -> None:
        for name in ("steps", "seconds"):
            if getattr(self, name) < 1:
                raise Misused(f"{name}: {getattr(self, name)} is not above 0; give a whole number from 1")


def versions() -> Mapping[str, str]:
    """Return what does the work."""
    return {"smolagents": metadata.version("smolagents")}


def agent(work: Work) -> Mapping[str, Json]:
    """Let the model decide, one action a turn, until it submits, gives up, or a bound is reached."""
    options = work.options(Options)
    course = Course(steps=options.steps, seconds=options.seconds)
    library = skills.load(_folder(), options.runtime) if options.skills else skills.Library(sections={})
    session = prompt.Session(
        mode=options.mode,
        cell=options.cell,
        actions=actions.of_mode(options.mode, skills=bool(library)),
        library=library,
    )
    return loop.run(work, session, course, functools.partial(broker.post, _socket()))


def _socket() -> Path:
    path = os.environ.get(BROKER, "")
    if not path:
        raise Misused(f"{BROKER}: is not set; the host names the broker's socket in it")
    return Path(path)


def _folder() -> Path:
    path = os.environ.get(SKILLS, "")
    if not path:
        raise Misused(f"{SKILLS}: is not set; name the folder of the skills in it, or set the option skills to false")
    return Path(path)
