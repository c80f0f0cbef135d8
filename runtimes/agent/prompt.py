"""What the model is told each turn, in at most 1,500 tokens whatever happened: a token is about four characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtimes.agent.actions import READ_SKILL, Action, Mode
from runtimes.agent.course import Course, Entry, clip, outcome
from runtimes.agent.skills import PAGE_CHARACTERS, Library, Page
from runtimes.contract import dumps

MOST_CHARACTERS = 6000
CATALOGUE_CHARACTERS = 900
CELL_CHARACTERS = 160
CANDIDATE_CHARACTERS = 240
FAILURE_CHARACTERS = 900
FITTING_CHARACTERS = 240
NEWEST_CHARACTERS = 1200
OLDER_CHARACTERS = 160
TELLS_FAILURE = frozenset({"failure", "convert", "compare", "export"})
"""The actions whose newest observation is what is known to be wrong now."""

_TASK: Mapping[Mode, str] = {
    Mode.REPAIR: "A neural network does not convert for an accelerator, or gives wrong answers there. Repair it.",
    Mode.DRIVE: "Bring a neural network to an accelerator: export it, mend what goes wrong, convert, compare, submit.",
}
_RULES = """\
You choose one action a turn and see what came of it. Answer with one JSON object and nothing else:
{"thought": "one short sentence", "action": "name", ...its arguments}
1. Look at what is wrong. 2. %s 3. Apply the repair. 4. convert. 5. compare.
6. submit only after compare says agrees. A judge measures again with other inputs; words count nothing.
Never repeat an action that failed with the same arguments. Use only names that you have read. \
give_up when nothing is left to try.
"""
_READ = "read_skill the page that names what failed, before you try anything."
_LIST = "rewrites lists what may help."


@dataclass(frozen=True, kw_only=True)
class Session:
    """What stays the same all session.

    Attributes:
        mode: what the agent is for.
        cell: what is converted.
        actions: by name.
        library: what can be read.
    """

    mode: Mode
    cell: str
    actions: Mapping[str, Action]
    library: Library


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """What stays in the prompt until something newer takes its place.

    Attributes:
        failure: what was wrong when the session began.
        page: what was read last.
    """

    failure: str = ""
    page: Page | None = None


def build(session: Session, course: Course, pinned: Pinned) -> tuple[str, str]:
    """Return the system's and the user's message; together they are at most `MOST_CHARACTERS` long."""
    system = _system(session)
    failure, teller = _failure(course.trace, pinned.failure)
    head = (
        f"Cell: {clip(session.cell, CELL_CHARACTERS)}. Step {len(course.trace) + 1} of {course.steps}.\n"
        f"Candidate: {clip(', '.join(course.candidate) or 'no edits yet', CANDIDATE_CHARACTERS)}\n"
        f"Last result:\n{clip(failure, FAILURE_CHARACTERS)}\n"
    )
    fitting = _fitting(session, failure, pinned.page)
    left = MOST_CHARACTERS - len(system) - len(head) - len(fitting) - len(_DECIDE)
    newest = _newest(course.trace, teller)
    left -= len(newest)
    page = _page(pinned.page, left)
    left -= len(page)
    return system, head + page + _older(course.trace, left) + newest + fitting + _DECIDE


_DECIDE = "Decide the next action."


def _fitting(session: Session, failure: str, read: Page | None) -> str:
    """Return the call that reads a page which names an operator of what is wrong, before one of these was read.

    A model of 1.5B parameters copies a call, where it only looks at a list of names.
    """
    names = session.library.naming(failure) if READ_SKILL in session.actions else ()
    if not names or (read and any(name.partition("/")[0] == read.name for name in names)):
        return ""
    call = dumps({"action": READ_SKILL, "section": names[0]})
    also = f"; then {', '.join(names[1:3])}" if names[1:] else ""
    return clip(f"Read first what is known of it: {call}{also}", FITTING_CHARACTERS) + "\n"


def _system(session: Session) -> str:
    reading = _READ if READ_SKILL in session.actions else _LIST
    usage = "".join(f"{action.usage}\n" for action in session.actions.values())
    catalogue = f"Skill sections:\n{_catalogue(session.library)}\n" if READ_SKILL in session.actions else ""
    return f"{_TASK[session.mode]}\n{_RULES % reading}Actions (? may be left out):\n{usage}{catalogue}"


def _catalogue(library: Library) -> str:
    """Return the names of all sections, where there is no room for all the first ones of each skill."""
    share = CATALOGUE_CHARACTERS // max(len(library.skills), 1)
    lines = []
    for skill, slugs in library.skills.items():
        line = f"{skill}#: {', '.join(slugs)}"
        if len(line) > share:
            more = f", … (read_skill {clip(skill, 40)} lists all)"
            line = line[: share - len(more) - 1].rpartition(",")[0] + more
        lines.append(line)
    return clip("\n".join(lines), CATALOGUE_CHARACTERS)


def _failure(trace: Sequence[Entry], first: str) -> tuple[str, int]:
    """Return what is wrong by the newest action that tells it, and which that was; −1 for none of them."""
    for number in range(len(trace) - 1, -1, -1):
        if trace[number].action in TELLS_FAILURE:
            return f"{trace[number].action}: {trace[number].observation}", number
    return first, -1


def _newest(trace: Sequence[Entry], teller: int) -> str:
    if not trace:
        return ""
    entry, number = trace[-1], len(trace)
    if entry.ok and entry.action == READ_SKILL:
        told = "ok: see the page above"
    elif teller == number - 1:
        told = f"{'ok' if entry.ok else 'FAILED'}: see the last result, above"
    else:
        told = outcome(entry)
    return clip(f"{number}. {entry.call} {told}", NEWEST_CHARACTERS) + "\n"


def _page(page: Page | None, left: int) -> str:
    if page is None:
        return ""
    title = f"Skill page {clip(page.title, 200)}:\n"
    text = clip(page.text.rstrip("\n"), min(PAGE_CHARACTERS, left - len(title) - len(_HEADING) - 1))
    return f"{title}{text}\n"


_HEADING = "What you did:\n"


def _older(trace: Sequence[Entry], left: int) -> str:
    """Return the actions before the newest, as many of the last ones as there is room for."""
    lines: list[str] = []
    left -= len(_HEADING)
    for number in range(len(trace) - 1, 0, -1):
        entry = trace[number - 1]
        told = "ok" if entry.ok and entry.action == READ_SKILL else outcome(entry)
        line = clip(f"{number}. {entry.call} {told}".replace("\n", " "), OLDER_CHARACTERS) + "\n"
        if len(line) > left:
            break
        left -= len(line)
        lines.insert(0, line)
    return _HEADING + "".join(lines) if trace and left >= 0 else ""
