"""What the stand-in's tools hand on to each other, and how they fail.

A container (`.dlc`), a model library and a context binary are one line of JSON and an ONNX model behind it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

ROOT = Path(os.environ.get("QAIRT_SDK_ROOT", "."))
MAGIC = b"STAND-IN "
FAULTS = {
    "exit_1": "does its work, and ends with 1",
    "complains": "does its work, prints an error, and ends with 0",
    "gives_up": "does its work, prints an error, and ends with 1",
    "empty": "leaves empty files, and ends with 0",
    "nothing": "leaves nothing, and ends with 0",
    "disk": "finds its temporary folder full",
    "crash": "is killed",
    "usage": "knows none of these arguments: another version",
    "silent": "does not say which operator it lacks, but for its dry run",
    "renames": "calls the first output otherwise",
    "cuts": "leaves an output that is cut short",
    "loses": "leaves out the last sample",
}
"""What a tool can be made to do wrong."""


class Container:
    """What the tools hand on: a header and a model."""

    def __init__(self, header: dict[str, Any], model: bytes) -> None:
        self.header = header
        self.model = model

    @classmethod
    def read(cls, path: Path) -> Container:
        head, _, model = path.read_bytes().partition(b"\n")
        if not head.startswith(MAGIC):
            stop(f"[ ERROR ] {path}: not a valid container")
        return cls(json.loads(head.removeprefix(MAGIC)), model)

    def write(self, path: Path) -> None:
        made(path, MAGIC + json.dumps(self.header).encode() + b"\n" + self.model)


def settings() -> dict[str, Any]:
    return dict(json.loads((ROOT / "standin.json").read_text()))


def fault(name: str) -> bool:
    return bool(settings()["faults"].get(TOOL[0]) == name)


TOOL: list[str] = []
"""The one that runs."""


def stop(words: str, code: int = 1) -> NoReturn:
    sys.stdout.write(f"{words}\n")
    sys.exit(code)


def made(path: Path, content: bytes) -> None:
    if not fault("nothing"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if fault("empty") else content)


def feeds(container: Container, listing: Path, *, native: bool) -> Iterator[dict[str, Any]]:
    """Yield the inputs of each line of an input list: `name:=path`, separated by spaces."""
    known = {plain(port["name"]): port for port in container.header["inputs"]}
    for line in listing.read_text().splitlines():
        named = dict(part.split(":=", 1) for part in line.split(" ") if ":=" in part)
        if {plain(name) for name in named} != set(known):
            stop(f"[ ERROR ] The input list names {sorted(named)}, and the graph takes {sorted(known)}")
        yield {known[plain(name)]["name"]: fed(known[plain(name)], Path(path), native) for name, path in named.items()}


def fed(port: Mapping[str, Any], path: Path, native: bool) -> Any:
    if not path.is_file():
        stop(f"[ ERROR ] Could not open the input file {path}")
    dtype = np.dtype(port["dtype"] if native else "float32")
    if path.stat().st_size != int(np.prod(port["shape"])) * dtype.itemsize:
        stop(f"[ ERROR ] {path}: {path.stat().st_size} bytes do not fit {dtype} {port['shape']}")
    return np.fromfile(path, dtype).reshape(port["shape"]).astype(port["dtype"])


def plain(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)
