"""What is put into a folder of the user's: first looked at as a whole, then added; nothing that is there is changed."""

from __future__ import annotations

import enum
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aipc.errors import UsageError
from aipc.tables import show


class There(enum.Enum):
    """What is where something is to be put."""

    NOTHING = enum.auto()
    THE_SAME = enum.auto()
    ANOTHER = enum.auto()


@dataclass(frozen=True, kw_only=True)
class File:
    """A file to be put at `path`; `runs` is for a script."""

    path: Path
    content: bytes
    runs: bool = False

    def look(self) -> There:
        """Return what is there.

        Raises:
            UsageError: no file can be there.
        """
        if self.path.is_symlink() and not self.path.exists():
            raise UsageError(f"{show(self.path)}: is a link that leads nowhere; remove it, or mend it")
        if not self.path.exists():
            return There.NOTHING
        if not self.path.is_file():
            raise UsageError(f"{show(self.path)}: is no file, and one has to be there; move it away")
        return There.THE_SAME if self.path.read_bytes() == self.content else There.ANOTHER

    def put(self) -> None:
        """Write it.

        Raises:
            OSError: it cannot be, or something is there by now.
        """
        try:
            with self.path.open("xb") as file:
                file.write(self.content)
            if self.runs:
                self.path.chmod(self.path.stat().st_mode | 0o111)
        except FileExistsError:
            raise
        except OSError:
            self.path.unlink(missing_ok=True)
            raise


@dataclass(frozen=True, kw_only=True)
class Link:
    """A relative link to be put at `path`; where the disk knows no links it is a copy of what it leads to."""

    path: Path
    target: str

    def look(self) -> There:
        """Return what is there.

        Raises:
            UsageError: a link that leads nowhere.
        """
        if self.path.is_symlink() and str(self.path.readlink()) == self.target:
            return There.THE_SAME
        if self.path.is_symlink() and not self.path.exists():
            raise UsageError(f"{show(self.path)}: is a link that leads nowhere; remove it, or mend it")
        if not self.path.exists():
            return There.NOTHING
        leads = self.path.parent / self.target
        return There.THE_SAME if leads.exists() and _content(self.path) == _content(leads) else There.ANOTHER

    def put(self) -> None:
        """Make it.

        Raises:
            OSError: it cannot be made, or something is there by now.
        """
        try:
            self.path.symlink_to(self.target)
        except FileExistsError:
            raise
        except (OSError, NotImplementedError):
            leads = self.path.parent / self.target
            if leads.is_dir():
                shutil.copytree(leads, self.path)
            else:
                File(path=self.path, content=leads.read_bytes()).put()


def _content(place: Path) -> dict[str, bytes]:
    """Return the files of a folder, or one file, by their relative paths."""
    if place.is_file():
        return {"": place.read_bytes()}
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def check_places(root: Path, pieces: Sequence[File | Link]) -> None:
    """Refuse folders on the way to `pieces` that are none, or lead out of `root`.

    Raises:
        UsageError: one is.
    """
    for folder in sorted({parent for piece in pieces for parent in piece.path.parents if parent.is_relative_to(root)}):
        if folder.is_symlink() and not folder.exists():
            raise UsageError(f"{show(folder)}: is a link that leads nowhere; remove it, or mend it")
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{show(folder)}: is no folder, and one has to be there; move it away")
        if not folder.resolve().is_relative_to(root.resolve()):
            raise UsageError(f"{show(folder)}: leads to {folder.resolve()}, outside the project; remove that link")


def add(pieces: Sequence[File | Link]) -> None:
    """Put all of `pieces`, each where nothing is, or none of them.

    Raises:
        OSError: one cannot be put; those before it are gone again.
    """
    made: list[Path] = []
    try:
        for piece in pieces:
            for folder in reversed([each for each in piece.path.parents if not each.exists()]):
                folder.mkdir()
                made.append(folder)
            piece.put()
            made.append(piece.path)
    except BaseException:
        for path in reversed(made):
            _remove(path)
        raise


def _remove(path: Path) -> None:
    """Remove what was just made: a file, a link, a copied folder, or a folder that is empty again."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
