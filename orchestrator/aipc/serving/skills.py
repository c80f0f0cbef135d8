"""The skills as a client reads them: what there is, and one file of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aipc import home
from aipc.errors import NothingSelected
from runtimes.contract import suggest

MAIN = "SKILL.md"
SCHEME = "skill://"
_TYPES = {".md": "text/markdown", ".py": "text/x-python"}
_DESCRIPTION = re.compile(r"^description: (.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Skill:
    """One skill.

    Attributes:
        name: its folder's name.
        folder: where it is.
    """

    name: str
    folder: Path

    @property
    def description(self) -> str:
        """When to use it."""
        found = _DESCRIPTION.search((self.folder / MAIN).read_text(encoding="utf-8"))
        return found[1] if found else ""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that can be read, SKILL.md first."""
        there = {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.suffix in _TYPES}
        return (MAIN, *sorted(there - {MAIN}))


def all_skills() -> Iterator[Skill]:
    """Give the skills, by name."""
    for path in sorted(home.skills_folder().glob(f"*/{MAIN}")):
        yield Skill(name=path.parent.name, folder=path.parent)


def read(name: str, file: str = MAIN) -> str:
    """Return the text of one file of a skill.

    Raises:
        NothingSelected: there is no such skill or file.
    """
    known = {each.name: each for each in all_skills()}
    if name not in known:
        raise NothingSelected(f"skill {name!r}: there is none{suggest(name, known)}")
    files = known[name].files
    if file not in files:
        raise NothingSelected(f"skill {name}: has no file {file!r}{suggest(file, files)}")
    return (known[name].folder / file).read_text(encoding="utf-8")


def type_of(file: str) -> str:
    """Return the MIME type of a skill's file."""
    return _TYPES[Path(file).suffix]
