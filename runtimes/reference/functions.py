"""A model that a function of the user's own code builds: `module:function`."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

from runtimes.contract import Failure, Kind, suggest
from runtimes.kit.work import Refused, refuse
from runtimes.reference import foreign


def build(name: str, weights: Path | None, source: Path | None, *, trusted: bool = False) -> Any:
    """Return the torch.nn.Module that a function returns.

    The function is called with those of the keywords `weights` and `trusted` that it takes. Where the module has an
    attribute `notes`, a tuple of strings, the report says them; see `notes_of`.

    Args:
        name: `module:function`; the function may be an attribute of an attribute.
        weights: the folder of its weights, or None. To the function it is the path of the file where the folder holds
            one, of the folder where it holds more.
        source: the folder that `module` lies in, put first on sys.path.
        trusted: whether its weights may run code while they are read.

    Raises:
        Refused: there is no such module or function, a package is missing, or what it returns is no module.
        Failed: its code raised an error.
    """
    import torch

    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        refuse(Kind.OPTION, f"function {name!r}: is not module:function", hint="write it like package.module:build")
    if source is not None:
        sys.path.insert(0, str(source))
    with foreign.wall(f"function {name}: importing {module_name}"):
        function = _find(module_name, attribute, name, source)
    with foreign.wall(f"function {name}"):
        made = function(**_keywords(function, name, weights, trusted=trusted))
    if not isinstance(made, torch.nn.Module):
        refuse(
            Kind.INVALID_MODEL,
            f"function {name}: returns a {type(made).__name__}, not a torch.nn.Module",
            hint="let it return the module, ready for inference",
        )
    return made


def notes_of(module: Any) -> tuple[str, ...]:
    """Return what a module says about itself for the report, in its attribute `notes`."""
    notes = getattr(module, "notes", ())
    return notes if isinstance(notes, tuple) and all(isinstance(note, str) for note in notes) else ()


def _keywords(function: Any, name: str, weights: Path | None, *, trusted: bool) -> dict[str, Any]:
    """Return the keywords to call `function` with."""
    parameters = inspect.signature(function).parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    given: dict[str, Any] = {"trusted": trusted} if "trusted" in parameters else {}
    if weights is None:
        return given
    if "weights" not in parameters and not takes_all:
        refuse(
            Kind.OPTION,
            f"function {name}: takes no weights, and there are some",
            hint="give it a parameter called weights, a pathlib.Path, or name no weights",
        )
    return {**given, "weights": _one_or_all(weights)}


def _find(module_name: str, attribute: str, name: str, source: Path | None) -> Any:
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        own = error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}."))
        if not own:
            raise
        held = sorted(path.stem for path in source.iterdir() if path.suffix == ".py" or path.is_dir()) if source else []
        message = f"function {name}: no module {error.name} in the source folder{suggest(module_name, held)}"
        hint = "name the folder that holds it, and the module inside that folder"
        raise Refused(Failure(kind=Kind.OPTION, message=message, hint=hint)) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [word for word in vars(found) if not word.startswith("_")] if hasattr(found, "__dict__") else []
            refuse(Kind.OPTION, f"function {name}: no {part} in {module_name}{suggest(part, names)}")
        found = getattr(found, part)
    if not callable(found):
        refuse(Kind.OPTION, f"function {name}: is a {type(found).__name__}, not a function")
    return found


def _one_or_all(weights: Path) -> Path:
    held = sorted(weights.iterdir())
    return held[0] if len(held) == 1 else weights
