"""What jobs are given of the user's own files: weights, pictures, source and calibration folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from aipc.errors import UsageError
from aipc.fetch import fetch, hash_file
from aipc.model import Model, Source
from aipc.modelfile import external_data
from aipc.store import Material, StoredFile, describe

ONNX_FILE = "model.onnx"
"""What an ONNX model is called in the jobs that rewrite and convert it."""


def of_sources(sources: Sequence[Source], cache: Path, tell: Callable[[str], None]) -> Material:
    """Return files from anywhere as one material; an ONNX file brings the files of its large tensors along.

    Raises:
        AipcError: one of them cannot be had.
    """
    places: dict[str, Path] = {}
    for source in sources:
        path = fetch(source, cache, tell)
        places[source.name] = path
        if source.name.lower().endswith(".onnx"):
            places |= external_data(path)
    files = tuple(
        StoredFile(path=name, sha256=hash_file(path), size_bytes=path.stat().st_size)
        for name, path in sorted(places.items())
    )
    return Material(files=files, places=places)


def renamed(material: Material, old: str, new: str) -> Material:
    """Return `material` with its file `old` under the name `new`."""
    files = [replace(file, path=new) if file.path == old else file for file in material.files]
    places = {new if name == old else name: path for name, path in material.places.items()}
    return Material(files=tuple(sorted(files, key=lambda file: file.path)), places=places)


def of_source_folder(model: Model, runs: Path) -> Material | None:
    """Return the declared source folder of a `module:function` model, whole but for what no source is.

    Args:
        model: None comes of one that has no such folder.
        runs: the folder of our own reports: where it lies inside, it is no part of it.

    Raises:
        UsageError: a link or a pipe is in it; what lies behind it would change unnoticed, or have no end.
    """
    return of_folder(Path(model.folder), runs, "--source") if model.folder else None


def of_folder(folder: Path, runs: Path, option: str) -> Material:
    """Return a folder of the user's, but for hidden files, caches, virtual environments and our own reports.

    Args:
        folder: which.
        runs: the folder of our own reports.
        option: what named it, for the error.

    Raises:
        UsageError: a pipe is in it, or a link to anything but a file beside it, as CLAUDE.md may be: what lies behind
            it would change unnoticed, or have no end.
    """
    names = []
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = [name for name in folders if not _is_left_behind(here / name, runs)]
        names += [(here / name).relative_to(folder).as_posix() for name in files if not name.startswith(".")]
        for path in (here / name for name in (*folders, *files) if not name.startswith(".")):
            if (path.is_symlink() and not _is_beside(path)) or not (path.is_file() or path.is_dir()):
                raise UsageError(f"{path}: is a link or a pipe; put the file itself there, or name another {option}")
    found = describe(folder, sorted(names))
    return Material(files=found, places={file.path: folder / file.path for file in found})


def of_file(file: Path, name: str) -> Material:
    """Return one file of the user's as the input `name` of a job.

    Raises:
        OSError: it cannot be read.
    """
    found = StoredFile(path=name, sha256=hash_file(file), size_bytes=file.stat().st_size)
    return Material(files=(found,), places={name: file}, single=True)


def _is_beside(link: Path) -> bool:
    """Return whether a link leads to a plain file beside it, which is no link itself."""
    target = str(link.readlink())
    beside = link.parent / target
    return "/" not in target and beside.is_file() and not beside.is_symlink()


def _is_left_behind(folder: Path, runs: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name == "__pycache__"
    return hidden or (folder / "pyvenv.cfg").exists() or folder.absolute() == runs.absolute()
