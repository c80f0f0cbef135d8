"""What several commands have in common: the options for the engine and the matrix, and what they stand for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aipc import home
from aipc.home import RUNS

if TYPE_CHECKING:
    from rich.console import Console

    from aipc.config import Matrix
    from aipc.engines import Engine

ENGINES = ("auto", "venv", "docker")

_ENGINE = (
    click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="auto",
        envvar="AIPC_ENGINE",
        show_default=True,
        help="Where jobs run: docker (or Podman) containers, or caged virtual environments.",
    ),
    click.option(
        "--base-image",
        default="",
        envvar="AIPC_BASE_IMAGE",
        metavar="IMAGE",
        help="What our images are built on; by default a registry's python:3.11-slim-bookworm, else our own.",
    ),
)
matrix_option = click.option(
    "--matrix",
    "matrix_path",
    type=click.Path(path_type=Path),
    default=None,
    help="Another matrix.toml; otherwise that of the current folder, else aipc's own.",
)
runs_option = click.option(
    "--runs", type=click.Path(path_type=Path), default=RUNS, show_default=True, help="For reports."
)
json_option = click.option("--json", "as_json", is_flag=True, help="For machines.")


def with_engine(command: Any) -> Any:
    """Give a command the options of the engine."""
    for option in reversed(_ENGINE):
        command = option(command)
    return command


def console(*, stderr: bool = False) -> Console:
    """Return what tells a person."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, soft_wrap=not stream.isatty(), highlight=False)


def matrix(path: Path | None) -> Matrix:
    """Return the matrix at `path`, or the one that is used where none is named.

    Raises:
        UsageError: it does not fit.
    """
    from aipc import config

    return config.load(path or home.matrix_file())


@contextlib.contextmanager
def opened(name: str, base_image: str) -> Iterator[Engine]:
    """Open the engine of that name, and close it in the end.

    Raises:
        EngineError: it cannot be had.
    """
    from aipc.engines import open_engine

    engine = open_engine(name, home.cache_folder(), base_image)
    try:
        yield engine
    finally:
        engine.close()
