"""What tests share: the real environments, built by aipc in its usual cache and used again, and a Docker daemon."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aipc import engines, home
from aipc.engines import install
from aipc.environment import Environment

MARKS = {"environment_python": "toolchain", "docker_daemon": "container"}
"""What a test needs by its fixtures, and the mark that it gets for that."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by what it needs, so that `-m 'not toolchain and not container'` leaves out all that need it."""
    if not isinstance(item, pytest.Function):
        return
    needed = {MARKS[name] for name in item.fixturenames if name in MARKS}
    # Such a case asks for the daemon only when it runs.
    if hasattr(item, "callspec") and item.callspec.params.get("engine") == "docker":
        needed.add("container")
    for mark in sorted(needed):
        item.add_marker(mark)


@pytest.fixture(scope="session")
def aipc_cache() -> Path:
    """The cache that aipc itself uses: what is built once stays."""
    return home.cache_folder()


@pytest.fixture(scope="session")
def environment_python(aipc_cache: Path) -> Callable[[str], Path]:
    """A function that returns the interpreter of the environment it is told, built where it is missing."""
    return lambda name: install.ensure(aipc_cache, Environment.load(name), print) / "bin" / "python"


@pytest.fixture(scope="session")
def reference_python(environment_python: Callable[[str], Path]) -> Path:
    """The interpreter of the reference environment: PyTorch on the CPU."""
    return environment_python("reference")


@pytest.fixture(scope="session")
def openvino_python(environment_python: Callable[[str], Path]) -> Path:
    """The interpreter of OpenVINO's environment."""
    return environment_python("openvino")


@pytest.fixture(scope="session")
def qairt_python(environment_python: Callable[[str], Path]) -> Path:
    """The interpreter of QAIRT's environment: what it has without an SDK."""
    return environment_python("qairt")


@pytest.fixture(scope="session")
def docker_daemon() -> str:
    """The address of a Docker or Podman daemon; in CI its absence is a failure, elsewhere a skip."""
    address, why = engines.ask_daemon()
    if not address:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    return address
