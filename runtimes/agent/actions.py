"""What the model may decide: a closed set of actions, as a JSON schema and as it is read out of an answer."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runtimes.agent.broker import plain
from runtimes.contract import Json, suggest

THOUGHT_CHARACTERS = 200


class Mode(enum.StrEnum):
    """What the agent is for."""

    REPAIR = "repair"
    """The rules are exhausted: the model is exported, something is wrong with it."""
    DRIVE = "drive"
    """The agent conducts everything from the export on."""


class Undecided(ValueError):
    """An answer holds no decision that can be carried out.

    Attributes:
        action: the action that it names, or "".
        arguments: what it gives for it.
    """

    def __init__(self, message: str, action: str = "", arguments: Mapping[str, Json] | None = None) -> None:
        super().__init__(message)
        self.action, self.arguments = action, arguments or {}


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of an action.

    Attributes:
        type: of JSON: string, integer or object.
        optional: it may be left out.
        empty: it may be an empty text.
    """

    type: str = "string"
    optional: bool = False
    empty: bool = False


@dataclass(frozen=True, kw_only=True)
class Action:
    """One thing that the model may do.

    Attributes:
        name: as the model writes it.
        summary: what it does, for the model.
        arguments: by name.
    """

    name: str
    summary: str
    arguments: Mapping[str, Argument]

    @property
    def usage(self) -> str:
        """One line for the prompt."""
        given = ", ".join(f"{name}{'?' if each.optional else ''}" for name, each in self.arguments.items())
        return f"{self.name}({given}): {self.summary}"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the model wants done now."""

    thought: str
    action: str
    arguments: Mapping[str, Json]


READ_SKILL = "read_skill"
GIVE_UP = "give_up"
SUBMIT = "submit"
_TEXT, _MAYBE = Argument(), Argument(optional=True)
_ALL: tuple[tuple[str, str, Mapping[str, Argument]], ...] = (
    (READ_SKILL, "read a section of the skills", {"section": _TEXT}),
    ("failure", "what is wrong now", {}),
    ("graph", "count the operators, or list those of an op, or show a node", {"op": _MAYBE, "node": _MAYBE}),
    ("rewrites", "list the graph rewrites that there are", {}),
    (
        "rewrite",
        "add a graph rewrite to the candidate",
        {"name": _TEXT, "options": Argument(type="object", optional=True)},
    ),
    (
        "patch_graph",
        "add your own Python that holds: def patch(model: onnx_ir.Model) -> onnx_ir.Model",
        {"code": _TEXT},
    ),
    ("source", "list the PyTorch files, or show one", {"path": _MAYBE}),
    ("patch_source", "replace text of the PyTorch source", {"path": _TEXT, "old": _TEXT, "new": Argument(empty=True)}),
    ("export", "export to ONNX", {"opset": Argument(type="integer", optional=True)}),
    ("undo", "take the last edit back", {}),
    ("convert", "build the artefact from the candidate", {}),
    ("compare", "run it and measure how far its answers are off", {}),
    (SUBMIT, "finish: compare said agrees", {"summary": _TEXT}),
    (GIVE_UP, "finish without success; say why", {"summary": _TEXT}),
)


def of_mode(mode: Mode, *, skills: bool) -> Mapping[str, Action]:
    """Return the actions of a session by name, in the order of the prompt.

    Args:
        mode: in `repair` the model is exported already.
        skills: there is something to read.
    """
    hidden = {"export"} if mode is Mode.REPAIR else set[str]()
    hidden |= set() if skills else {READ_SKILL}
    return {
        name: Action(name=name, summary=summary, arguments=arguments)
        for name, summary, arguments in _ALL
        if name not in hidden
    }


def schema(actions: Mapping[str, Action]) -> Json:
    """Return the JSON schema of a decision: an object for each action, with exactly its own arguments.

    One flat object with all arguments is obeyed too, but a 1.5B model then leaves out those that an action needs.
    """
    return {"anyOf": [_form(action) for action in actions.values()]}


def _form(action: Action) -> Json:
    needed = [name for name, each in action.arguments.items() if not each.optional]
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string", "maxLength": THOUGHT_CHARACTERS},
            "action": {"const": action.name},
            **{name: {"type": each.type} for name, each in action.arguments.items()},
        },
        "required": ["thought", "action", *needed],
        "additionalProperties": False,
    }


def decide(text: str, actions: Mapping[str, Action]) -> Decision:
    """Return the decision in an answer: in the first JSON object of it that names an action.

    Arguments of other actions are passed over, and so are empty ones that may be left out.

    Raises:
        Undecided: there is none, or it cannot be carried out; the message says it to the model.
    """
    data = _find(text)
    nested = data.get("arguments")
    given = {**data, **nested} if isinstance(nested, dict) else data
    named = data.get("action", "")
    if not isinstance(named, str) or not named:
        raise Undecided(f'the JSON names no "action"; it is one of {", ".join(actions)}')
    action = actions.get(named.strip())
    if action is None:
        shown = {key: value for key, value in given.items() if key not in {"action", "thought", "arguments"}}
        raise Undecided(f"there is no action {named!r}{suggest(named, actions)}", named, shown)
    thought = data.get("thought")
    return Decision(
        thought=thought if isinstance(thought, str) else "", action=action.name, arguments=_arguments(action, given)
    )


def _find(text: str) -> dict[str, Json]:
    """Return the first JSON object in `text` that names an action, else the first one."""
    if not text.strip():
        raise Undecided("the answer is empty; answer with one JSON object")
    first: dict[str, Json] | None = None
    for data in _objects(text):
        if "action" in data:
            return data
        first = data if first is None else first
    if first is None:
        cut = "; it began one, but did not end it: write less" if "{" in text else ""
        raise Undecided(f"the answer holds no JSON object{cut}")
    return first


def _objects(text: str) -> Iterable[dict[str, Json]]:
    decoder = json.JSONDecoder(strict=False)  # small models write line ends into strings as they are
    start = text.find("{")
    while start >= 0:
        try:
            data, end = decoder.raw_decode(text, start)
            data = plain(data)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield data
        start = text.find("{", end)


def _arguments(action: Action, given: Mapping[str, Json]) -> Mapping[str, Json]:
    taken: dict[str, Json] = {}
    for name, argument in action.arguments.items():
        value = _value(given.get(name), argument)
        if value is None and not argument.optional:
            others = sorted(set(given) - {"action", "thought", "arguments"} - set(action.arguments))
            instead = f"; you gave {', '.join(others)}" if others else ""
            raise Undecided(f"{action.name} needs the {argument.type} {name!r}{instead}", action.name, taken)
        if value is not None:
            taken[name] = value
    return taken


def _value(value: Json, argument: Argument) -> Json:
    """Return an argument as its type asks for it; None for one that is empty or of another type."""
    if argument.type == "string":
        text = value if isinstance(value, str) else json.dumps(value) if isinstance(value, int | float) else ""
        return text if text.strip() or (argument.empty and isinstance(value, str)) else None
    if isinstance(value, str):
        try:
            value = plain(json.loads(value))
        except (ValueError, RecursionError):
            return None
    if argument.type == "integer":
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    return value if isinstance(value, dict) and value else None
