"""What an agent submits: a source, never an artefact. The host builds it, as often as it likes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aipc.fetch import hash_file
from aipc.repairs import Wish
from aipc.store import Material, StoredFile, digest
from runtimes.contract import Misused, encode, suggest


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A change of a file of the model's PyTorch source: `old`, which it holds exactly once, becomes `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Opset:
    """The opset to export to."""

    number: int


Edit = Wish | Replacement | Opset


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What is tried in place of the rules.

    Attributes:
        edits: in order; those of the source and the opset come before the export, the others behind it.
    """

    edits: tuple[Edit, ...] = ()

    @property
    def wishes(self) -> tuple[Wish, ...]:
        """The rewrites of the graph."""
        return tuple(each for each in self.edits if isinstance(each, Wish))

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """The changes of the PyTorch source."""
        return tuple(each for each in self.edits if isinstance(each, Replacement))

    @property
    def opset(self) -> int:
        """The opset to export to, 0 for the model's own."""
        return next((each.number for each in reversed(self.edits) if isinstance(each, Opset)), 0)


def patched(source: Material, replacements: tuple[Replacement, ...], folder: Path) -> Material:
    """Return the model's source with `replacements` made, in order.

    Args:
        source: the files of the model's source folder.
        replacements: what to change.
        folder: where changed files are written, each state to a place of its own.

    Raises:
        Misused: there is no such file, it is no text, or does not hold the text exactly once.
    """
    texts: dict[str, str] = {}
    for each in replacements:
        path = str(PurePosixPath(each.path))
        text = texts[path] if path in texts else text_of(source, path)
        if (times := text.count(each.old)) != 1:
            raise Misused(
                f"old: {each.path} holds it {times} times; give a text that it holds exactly once, with its spaces"
            )
        texts[path] = text.replace(each.old, each.new)
    root = folder / digest(encode(texts))
    files, places = {file.path: file for file in source.files}, dict(source.places)
    for path, text in texts.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        files[path] = StoredFile(path=path, sha256=hash_file(place), size_bytes=place.stat().st_size)
        places[path] = place
    return Material(files=tuple(files[name] for name in sorted(files)), places=places)


def text_of(source: Material, path: str) -> str:
    """Return a file of the model's source.

    Raises:
        Misused: there is none, or it is no text.
    """
    name = str(PurePosixPath(path))
    if name not in source.places:
        raise Misused(f"path: the model's source has no {path!r}{suggest(name, source.places)}")
    try:
        return source.places[name].read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Misused(f"path: {path!r} is no text") from error
