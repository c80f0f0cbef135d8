"""What ends a command early, and with which exit code; `aipc.cli` catches these in one place.

A text reads `<where>: <what is wrong, with the value>; <what to do>`, on one line.
"""

from __future__ import annotations

from typing import ClassVar


class AipcError(Exception):
    """What a person is told in one line instead of a traceback. Raise one of its subclasses."""

    exit_code: ClassVar[int] = 1


class CellNotGreen(AipcError):
    """Some cell did not end as expected."""

    exit_code = 1


class UsageError(AipcError):
    """A command line or a file of the user's does not say what can be done."""

    exit_code = 2


class NothingSelected(AipcError):
    """A selection matches nothing; doing nothing must not look like success."""

    exit_code = 3


class EngineError(AipcError):
    """The engine, the disk, the network or a connection failed; the model is not at fault."""

    exit_code = 4


class EngineGone(EngineError):
    """What runs the jobs does not answer any more: nothing that comes after can be done either."""
