"""TOML files as dataclasses: whatever is wrong with one is a UsageError of one line that names file, key and value."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

from aipc.errors import UsageError
from runtimes import contract
from runtimes.contract import Json, Misused

T = TypeVar("T")

_FEW = 12
_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


def read_table(path: Path) -> dict[str, Json]:
    """Return what the TOML file at `path` says.

    Raises:
        UsageError: it cannot be read, or is not TOML; the line is named.
    """
    where = show(path)
    if path.exists() and not path.is_file():  # anything else could be read without an end
        raise UsageError(f"{where}: not a file; name a TOML file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise UsageError(one_line(f"{where}: no such file{near(path.name, beside(path))}")) from error
    except OSError as error:
        raise UsageError(f"{where}: cannot be read: {error.strerror}; check what it is and who may read it") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except ValueError as error:  # tomllib lets the ValueError of a number of too many digits through
        text = str(error)
        line = _LINE.search(text)
        place, said = (f"{where}:{line[1]}", text[: line.start()]) if line else (where, text)
        raise UsageError(one_line(f"{place}: not TOML: {said}; mend this line")) from error
    except RecursionError as error:
        raise UsageError(f"{where}: not TOML: brackets nested too deep; mend them") from error


def decode(cls: type[T], data: Json, where: str, key: str = "") -> T:
    """Return `data` as a `cls`, like `contract.decode`.

    Args:
        cls: a dataclass.
        data: what TOML gave.
        where: the file.
        key: the key in it, for instance `models.esrgan`; "" for the whole file.

    Raises:
        UsageError: it does not fit.
    """
    try:
        return contract.decode(cls, data, key)
    except Misused as error:
        # Without a key the contract's own places begin with the dot or the colon that follows it.
        raise UsageError(one_line(f"{where}: {str(error).lstrip('.: ')}")) from error


def one_line(text: str) -> str:
    """Return `text` without line breaks; a quoted TOML key or a file's name may hold some."""
    return " ".join(text.splitlines())


def show(path: Path) -> str:
    """Return `path` as a person would type it here: relative when it lies below the current folder."""
    here = Path.cwd()
    return one_line(str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path))


def beside(path: Path) -> list[str]:
    """Return the names in the folder of `path` but for hidden ones; none when there is no such folder."""
    try:
        return [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return []


def near(name: str, names: Collection[str]) -> str:
    """Return `contract.suggest(name, names)`, but no long list where nothing is near."""
    said = contract.suggest(name, names)
    return one_line(said) if len(names) <= _FEW or "did you mean" in said else "; check the spelling"
