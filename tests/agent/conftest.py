"""A model's server on this machine, and a session that asks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.wire import Desk, Model


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach this machine directly, whatever the environment of the tests says."""
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as server:
        yield server


@pytest.fixture
def desk(model: Model, tmp_path: Path) -> Desk:
    return Desk(model=model, folder=tmp_path)
