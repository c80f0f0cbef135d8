"""A docker engine with a tiny environment, and jobs for it: small programs in place of the kit's worker."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aipc import home
from aipc.engines import Ended, Limits
from aipc.engines.docker import DockerEngine
from aipc.environment import Environment
from tests.engines import wheelhouse
from tests.engines.conftest import offline

LIMITS = Limits(seconds=60.0, memory_bytes=256_000_000, processes=64)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A job that has ended: how, and the workspace that it left."""

    ended: Ended
    workspace: Path

    @property
    def log(self) -> str:
        return (self.workspace / "log.txt").read_text()


Try = Callable[..., Attempt]
Make = Callable[..., Environment]
Lay = Callable[[str], tuple[Path, Path]]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one small wheel: `tinything` 1.0."""
    folder = tmp_path_factory.mktemp("wheels")
    wheelhouse.make_wheel(folder, "tinything", "1.0")
    return folder


@pytest.fixture(scope="session")
def made() -> list[Environment]:
    """All environments that the tests have made."""
    return []


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory: pytest.TempPathFactory, wheels: Path, made: list[Environment]) -> Make:
    """A function that makes an environment of one small package, unlike any before: `make_environment(name)`."""
    real = (home.images_folder() / "reference" / "Dockerfile").read_text()

    def make(name: str, *, dockerfile: str = "") -> Environment:
        folder = tmp_path_factory.mktemp(name) / name
        environment = wheelhouse.make_environment(folder, sorted(wheels.iterdir()), name=name)
        # Else the image of an earlier run of the tests could be taken for the one that is to be built.
        (folder / "Dockerfile").write_text(f"# {uuid.uuid4()}\n{dockerfile or real}")
        made.append(environment)
        return environment

    return make


@pytest.fixture(scope="session")
def tiny(make_environment: Make) -> Environment:
    """An environment that is built in seconds."""
    return make_environment("tiny")


@pytest.fixture(scope="session")
def docker_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the tests' own; the images themselves lie in the daemon."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def docker_engine(
    docker_daemon: str, docker_cache: Path, wheels: Path, tiny: Environment, made: list[Environment]
) -> Iterator[DockerEngine]:
    """A docker engine that has built the tiny environment; the images of all environments are removed in the end."""
    assert docker_daemon
    engine = DockerEngine(docker_cache)
    engine.report = print
    with pytest.MonkeyPatch.context() as monkeypatch:
        offline(monkeypatch, wheels)
        engine.ensure(tiny, print)
    yield engine
    for name in map(engine.tag, made):
        if (found := engine.daemon.find_image(name)) and name in found["RepoTags"]:
            engine.daemon.remove_image(name)
    engine.close()


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """A function that makes a workspace and a code folder whose worker is the program it is told."""

    def make(program: str) -> tuple[Path, Path]:
        workspace, code = tmp_path / "attempt", tmp_path / "code"
        for folder in (workspace, code):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (workspace / "in", workspace / "out", workspace / "tmp", code / "runtimes" / "kit"):
            folder.mkdir(parents=True)
        (workspace / "in" / "model").write_text("an input")
        (workspace / "log.txt").touch()
        for package in ("runtimes", "runtimes/kit"):
            (code / package / "__init__.py").touch()
        (code / "runtimes" / "kit" / "__main__.py").write_text(program)
        return workspace, code

    return make


@pytest.fixture
def attempt(docker_engine: DockerEngine, tiny: Environment, lay: Lay) -> Try:
    """A function that runs a program as a job in a container: `attempt(program, limits=..., poll=...)`."""

    def run(program: str, *, limits: Limits = LIMITS, poll: Callable[[], None] = lambda: None) -> Attempt:
        workspace, code = lay(program)
        ended = docker_engine.run(tiny, workspace, code, limits, poll)
        return Attempt(ended=ended, workspace=workspace)

    return run
