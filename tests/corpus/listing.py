"""What corpus.toml lists, and where its files lie."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aipc import home
from aipc.model import Source

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One model of the corpus.

    Attributes:
        name: its file's stem.
        kind: what it is for the mix.
        shape: what to give after `#`, or "".
        file: where others ship it; None for one that export.py exports.
    """

    name: str
    kind: str
    shape: str = ""
    file: Source | None = None

    def argument(self, folder: Path) -> str:
        """Return what `aipc deploy` is given for it."""
        path = folder / f"{self.name}.onnx"
        return f"{path}#{self.shape}" if self.shape else str(path)


def entries() -> tuple[Entry, ...]:
    """Return every model, in the order of the list."""
    table = _table()
    exported = [Entry(name=name, kind=group["kind"]) for group in table["exported"] for name in group["names"]]
    shipped = [Entry(**{**each, "file": Source(**each["file"])}) for each in table["shipped"]]
    return (*exported, *shipped)


def photographs() -> tuple[Source, ...]:
    """Return the photographs that calibrate."""
    return tuple(Source(**each) for each in _table()["photographs"])


def folder() -> Path:
    """Return where the files lie unless another place is named: outside the tree, beside what aipc keeps."""
    return home.cache_folder() / "corpus"


def _table() -> dict[str, Any]:
    return tomllib.loads((HERE / "corpus.toml").read_text(encoding="utf-8"))
