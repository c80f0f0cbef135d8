"""A tiny environment that is built once, jobs in it, with the cage and without."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from aipc.engines import cage, install
from tests.engines.wheelhouse import Bench, make_environment, make_wheel


def offline(monkeypatch: pytest.MonkeyPatch, find_links: Path | None = None) -> None:
    """Leave of pip's configuration only `find_links`, or else an index that does not answer."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    if find_links is None:
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    else:
        monkeypatch.setenv("PIP_INDEX_URL", (find_links / "no-index").as_uri())
        monkeypatch.setenv("PIP_FIND_LINKS", str(find_links))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    environment = make_environment(folder / "tiny", [make_wheel(folder / "wheels", "tinything", "1.0")])
    with pytest.MonkeyPatch.context() as monkeypatch:
        offline(monkeypatch, folder / "wheels")
        install.ensure(folder / "cache", environment, print)
    return Bench(cache=folder / "cache", environment=environment, folder=folder)


@pytest.fixture
def bench(built: Bench, tmp_path: Path) -> Bench:
    """A tiny environment that is built, with a fresh place for jobs."""
    (tmp_path / "jobs").mkdir()
    return Bench(cache=built.cache, environment=built.environment, folder=tmp_path / "jobs")


@pytest.fixture
def with_cage() -> None:
    """The cage works here: in CI it must, elsewhere the case is left out."""
    if why := cage.why_not():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)


@pytest.fixture
def without_cage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which bubblewrap is not installed."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("prlimit", "setpriv"):
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tools))


@pytest.fixture(params=["with_cage", "without_cage"])
def either(request: pytest.FixtureRequest) -> bool:
    """The case runs twice: with the cage (true) and without."""
    request.getfixturevalue(request.param)
    return bool(request.param == "with_cage")
