"""transcript.jsonl: what was asked and answered in a session, a line each, written before the answer goes out.

The first line says whose answers they are, so the file can stand in for the model later (see `aipc.agent.replay`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from aipc.errors import EngineError
from runtimes.contract import SCHEMA, Json, dumps

SESSION = "session"
CHAT = "chat"
JOB = "job"


@dataclass(frozen=True, kw_only=True)
class Head:
    """The first line.

    Attributes:
        kind: `session`.
        model: its name.
        model_sha256: of its weights, or "".
        synthetic: a person wrote the answers.
        base_url: of its server, or "".
        mode: of the session.
        cell: what was worked on.
        schema: the contract's number.
    """

    kind: str
    model: str
    model_sha256: str
    synthetic: bool
    base_url: str
    mode: str
    cell: str
    schema: int = SCHEMA


class Transcript:
    """Writes a transcript. As a context it is closed at the end."""

    def __init__(self, path: Path) -> None:
        """Make the file at `path`.

        Raises:
            EngineError: it is there already, or cannot be written.
        """
        self._path = path
        try:
            # Half a character, as in a file name that is not UTF-8, becomes the escape that JSON has for it.
            self._file = path.open("x", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise self._unwritable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Each line was flushed, so what is left is a line whose loss has been told.
        with contextlib.suppress(OSError):
            self._file.close()

    def write(self, line: Mapping[str, Json]) -> None:
        """Add `line`.

        Raises:
            EngineError: the disk does not take it.
        """
        try:
            self._file.write(f"{dumps(line)}\n")
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> EngineError:
        return EngineError(f"{self._path}: cannot be written: {error.strerror}; name another file, or make room")
