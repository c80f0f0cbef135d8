"""A new project for coding agents: instructions, a plan, the configuration, and the skills."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from aipc import home
from aipc.cell import Cell
from aipc.errors import UsageError
from aipc.scaffold.configuration import Wanted, configure
from aipc.scaffold.files import File, Link, There, add, check_places
from aipc.tables import show

__all__ = ["Made", "Wanted", "make"]

AGENTS, CLAUDE = "AGENTS.md", "CLAUDE.md"
SKILLS = Path(".agents", "skills")
"""Where coding agents look for skills."""
CLAUDE_SKILLS = Path(".claude", "skills")
"""Where Claude Code looks."""
_HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Made:
    """What came of it.

    Attributes:
        added: what was put there; a skill's folder stands for its files.
        kept: what was there already and differs.
        cells: those of the project.
    """

    added: tuple[Path, ...]
    kept: tuple[Path, ...]
    cells: tuple[Cell, ...]


def make(folder: Path, wanted: Wanted) -> Made:
    """Start a project in `folder`, which may be there already; nothing in it is overwritten.

    Raises:
        UsageError: what is asked for is not known, or something there is in the way; then nothing was made.
        OSError: the disk does not take it; then nothing was made either.
    """
    root = _root(folder)
    found = configure(wanted, root.resolve())
    skills = tuple(_skills(wanted, found.cells))
    pieces = tuple(_pieces(root, found.text, found.cells, skills))
    check_places(root, pieces)
    _check_one(root, next(each for each in pieces if isinstance(each, File)).content)
    there = {piece: piece.look() for piece in pieces}
    add([piece for piece in pieces if there[piece] is There.NOTHING])
    return Made(
        added=_shown(root, [piece.path for piece in pieces if there[piece] is There.NOTHING]),
        kept=tuple(piece.path for piece in pieces if there[piece] is There.ANOTHER),
        cells=found.cells,
    )


def _root(folder: Path) -> Path:
    """Return the absolute path of the project's folder.

    Raises:
        UsageError: it cannot be one.
        OSError: nothing can be written there.
    """
    root = folder.expanduser().absolute()
    if root.is_symlink() and not root.exists():
        raise UsageError(f"{show(root)}: is a link that leads nowhere; name another folder")
    nearest = next(place for place in (root, *root.parents) if place.exists())
    if not nearest.is_dir():
        raise UsageError(f"{show(nearest)}: is no folder; name another one")
    if home.HOME.is_dir() and nearest.samefile(home.HOME) and nearest == root:
        raise UsageError(f"{show(root)}: is where aipc itself is; name a folder of your own")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(13, "nothing can be written there", str(nearest))
    return root


def _skills(wanted: Wanted, cells: Sequence[Cell]) -> Iterator[Path]:
    """Return the folders of the skills: aipc's, and those of the runtimes that were asked for, or all."""
    asked = {"aipc", *(cell.runtime for cell in cells)} if wanted.runtimes else None
    for path in sorted(home.skills_folder().glob("*/SKILL.md")):
        if asked is None or path.parent.name in asked:
            yield path.parent


def _pieces(root: Path, matrix: str, cells: Sequence[Cell], skills: Sequence[Path]) -> Iterator[File | Link]:
    """Return all that belongs into the project, AGENTS.md first; a link comes after what it leads to."""
    yield File(path=root / AGENTS, content=(_HERE / "agents.md").read_bytes())
    yield Link(path=root / CLAUDE, target=AGENTS)
    plan = Template((_HERE / "plan.md").read_text(encoding="utf-8"))
    yield File(path=root / "PLAN.md", content=plan.substitute(cells="".join(map(_section, cells))).encode())
    yield File(path=root / "matrix.toml", content=matrix.encode())
    for skill in skills:
        for path in sorted(skill.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                place = root / SKILLS / path.relative_to(skill.parent)
                yield File(path=place, content=path.read_bytes(), runs=os.access(path, os.X_OK))
        yield Link(path=root / CLAUDE_SKILLS / skill.name, target=str(Path("..", "..", SKILLS, skill.name)))


def _section(cell: Cell) -> str:
    """Return the part of the plan about one cell."""
    stages = ("prepare", "export", "convert", "verify", "optimize", "report")
    boxes = "\n".join(f"- [ ] {stage}" for stage in stages)
    return f"\n## `{cell}`\n\n`aipc deploy {cell}`\n\n{boxes}\n"


def _check_one(root: Path, content: bytes) -> None:
    """Refuse AGENTS.md and CLAUDE.md that say different things: agents would follow one or the other.

    Raises:
        UsageError: they do, or would.
    """
    agents, claude = root / AGENTS, root / CLAUDE
    if not claude.is_file() or (agents.exists() and agents.samefile(claude)):
        return
    if claude.read_bytes() == (agents.read_bytes() if agents.is_file() else content):
        return
    if agents.exists():
        raise UsageError(
            f"{show(agents)} and {show(claude)}: are two files that say different things; put all of it into {AGENTS}, "
            f"remove {CLAUDE} (it becomes a link), and run the same command again"
        )
    raise UsageError(
        f"{show(claude)}: is there without {AGENTS}; rename it to {AGENTS} ({CLAUDE} becomes a link to it), "
        "and run the same command again"
    )


def _shown(root: Path, paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return `paths`, a skill's folder for its files, and one folder for all links to skills."""

    def shorter(path: Path) -> Path:
        if path.is_relative_to(root / CLAUDE_SKILLS):
            return root / CLAUDE_SKILLS
        skills = root / SKILLS
        return skills / path.relative_to(skills).parts[0] if path.is_relative_to(skills) else path

    return tuple(dict.fromkeys(map(shorter, paths)))
