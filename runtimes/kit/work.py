"""What an adapter's step is given, and how it says that it cannot go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn, TypeVar

from runtimes import contract
from runtimes.contract import Failure, Job, Kind, Layout, Misused

T = TypeVar("T")


class Refused(Exception):
    """The toolchain cannot do what is asked, and says so before or without trying.

    Attributes:
        failure: why; its message is the vendor's own words where there are any.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Failed(Exception):
    """The toolchain tried and gave up, or its success is not certain.

    Raise it `from` the vendor's exception: the worker sees to it that the vendor's words reach the result whole.

    Attributes:
        failure: why; its message is the vendor's own words where there are any.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def refuse(kind: Kind, message: str, *, hint: str = "", op: str = "", node: str = "") -> NoReturn:
    """Raise `Refused`.

    It raises by itself, so that a forgotten `raise` cannot let a step go on.
    """
    raise Refused(Failure(kind=kind, message=message, hint=hint, op=op, node=node))


def fail(kind: Kind, message: str, *, hint: str = "", op: str = "", node: str = "") -> NoReturn:
    """Raise `Failed`; where a vendor's exception is at hand, write `raise Failed(Failure(...)) from error` instead."""
    raise Failed(Failure(kind=kind, message=message, hint=hint, op=op, node=node))


class Work:
    """One job in its workspace.

    Attributes:
        layout: the workspace.
        job: what to do. `name in work.job.inputs` tells whether an optional input was given.
    """

    def __init__(self, layout: Layout, job: Job) -> None:
        self.layout = layout
        self.job = job

    def input(self, name: str) -> Path:
        """Return the path of the input called `name`, a file or a folder.

        Raises:
            Misused: the job does not list it, or it is not there.
        """
        if name not in self.job.inputs:
            raise Misused(f"job.json: inputs: {name!r} is missing, {self.job.step} needs it; add it to the job")
        path = self.layout.inputs / name
        if not path.exists():
            raise Misused(f"in/{name}: no such file or folder, though the job lists it; put it there first")
        return path

    def output(self, name: str) -> Path:
        """Return the path for the output called `name`; the step makes a file or a folder of it.

        Raises:
            ValueError: `name` is not a plain file name.
        """
        if not is_plain(name):
            raise ValueError(f"output: {name!r} is not a plain file name; outputs lie directly under out/")
        self.layout.outputs.mkdir(exist_ok=True)
        return self.layout.outputs / name

    def options(self, cls: type[T]) -> T:
        """Return the job's options as a `cls`, a dataclass.

        Raises:
            Misused: an unknown or missing key, or a value of the wrong type.
        """
        return contract.decode(cls, self.job.options, "job.json: options")

    def progress(self, text: str, fraction: float | None = None) -> None:
        """Tell the host what is being done.

        Args:
            text: one line for people.
            fraction: how much of the step is done, 0 to 1; None where nobody knows.
        """
        line = json.dumps({"text": text, "fraction": fraction}, ensure_ascii=False, allow_nan=False)
        with self.layout.events.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def is_plain(name: str) -> bool:
    """Tell whether `name` names something directly inside a folder."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
