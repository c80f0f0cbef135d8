"""The actions as smolagents' tools: the skills are read here, everything else is the host's to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from runtimes.agent.actions import GIVE_UP, READ_SKILL, SUBMIT, Action
from runtimes.agent.broker import JOBS, Gone, Late, Rejected
from runtimes.agent.course import Course, Ended, Entry
from runtimes.agent.model import Post, end
from runtimes.agent.skills import Library, Page, UnknownSection
from runtimes.contract import Json

CLAIMS: Mapping[str, tuple[str, Ended]] = {
    SUBMIT: ("agrees", Ended.SUBMITTED),
    GIVE_UP: ("gave_up", Ended.GAVE_UP),
}
"""The actions that end a session: what they claim of the candidate, and how it is over then."""
MOST_OBSERVATION = 2000
_MENDABLE = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})
"""The errors that another action may avoid."""


class Hands:
    """Does what the model decides.

    Attributes:
        page: what it read last, None before it has read anything.
    """

    def __init__(self, post: Post, course: Course, library: Library) -> None:
        self.page: Page | None = None
        self._post = post
        self._course = course
        self._library = library

    def do(self, action: str, arguments: Mapping[str, Json]) -> str:
        """Carry a decision out, note it in the course, and return what is observed."""
        ok, observation = self._read(arguments) if action == READ_SKILL else self._ask(action, arguments)
        self._course.add(Entry(action=action, arguments=arguments, ok=ok, observation=observation))
        if ok and action in CLAIMS:
            claim, why = CLAIMS[action]
            self._course.claim = claim
            self._course.end(why, str(arguments["summary"]))
        return observation

    def ask(self, verb: str, arguments: Mapping[str, Json]) -> tuple[bool, str]:
        """Return whether the host did it, and what is observed.

        It ends the course where the host's answer says that there will be none any more.
        """
        try:
            answer = self._post(JOBS, {"verb": verb, **arguments}, self._course.seconds_left)
            return _observed(verb, answer)
        except Rejected as error:
            if error.status not in _MENDABLE:
                end(self._course, error)
            return False, error.message[:MOST_OBSERVATION]
        except (Late, Gone) as error:
            end(self._course, error)
            return False, str(error)

    def _ask(self, action: str, arguments: Mapping[str, Json]) -> tuple[bool, str]:
        if action in CLAIMS:
            return self.ask("submit", {"claim": CLAIMS[action][0], **arguments})
        return self.ask(action, arguments)

    def _read(self, arguments: Mapping[str, Json]) -> tuple[bool, str]:
        try:
            page = self._library.read(str(arguments["section"]))
        except UnknownSection as error:
            return False, str(error)[:MOST_OBSERVATION]
        if page == self.page:
            return False, f"{page.name} is the page that you see; do what it says, or read another"
        self.page = page
        return True, page.text


def _observed(verb: str, answer: Mapping[str, Json]) -> tuple[bool, str]:
    ok, observation = answer.get("ok"), answer.get("observation")
    if not isinstance(ok, bool) or not isinstance(observation, str):
        raise Gone(f"the broker's answer to {verb!r} holds no ok and observation")
    return ok, observation[:MOST_OBSERVATION].strip()


def make(actions: Mapping[str, Action], do: Callable[[str, Mapping[str, Json]], str]) -> list[Any]:
    """Return a smolagents Tool for each action."""
    from smolagents import Tool

    class ActionTool(Tool):  # type: ignore[misc]  # smolagents is not where mypy runs
        """One action."""

        skip_forward_signature_validation = True
        output_type = "string"

        def __init__(self, action: Action) -> None:
            self.name, self.description = action.name, action.summary
            self.inputs = {
                name: {"type": each.type, "description": name, **({"nullable": True} if each.optional else {})}
                for name, each in action.arguments.items()
            }
            super().__init__()

        def forward(self, **arguments: Json) -> str:
            return do(self.name, arguments)

    return [ActionTool(action) for action in actions.values()]
