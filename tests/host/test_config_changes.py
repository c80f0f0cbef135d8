from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aipc import runtime
from aipc.config import load
from aipc.errors import UsageError
from tests.host.conftest import ALPHA
from tests.host.matrices import VALID, quoted, to_toml, write

pytestmark = pytest.mark.usefixtures("checkout")

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to every value inside `value`."""
    items = (
        list(value.items()) if isinstance(value, Mapping) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [found for key, item in items for found in ((*path, key), *places(item, (*path, key)))]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SINGLE = st.integers() | st.floats() | TEXT | st.sampled_from([True, "fp16", 0, -1, 2**70, date(2020, 2, 20)])
ODD = SINGLE | st.lists(SINGLE, max_size=3) | st.sampled_from([{}, [[]], [{}], {"a": {}}])
KEYS = TEXT | st.sampled_from(["a b", "a\nb", "name", "models", "shape"])


@st.composite
def mutations(draw: st.DrawFn, valid: Mapping[str, Any]) -> dict[str, Any]:
    """Return `valid` with some keys dropped, renamed, or given another value."""
    data: dict[str, Any] = copy.deepcopy(dict(valid))
    for _ in range(draw(st.integers(1, 3))):
        known = places(data)
        if not known:
            break
        *parents, last = draw(st.sampled_from(known))
        at: Any = data
        for key in parents:
            at = at[key]
        kind = draw(st.sampled_from(["drop", "rename", "set"]))
        value = at.pop(last) if kind != "set" else None
        if kind == "set":
            at[last] = copy.deepcopy(draw(ODD))
        elif kind == "rename" and isinstance(at, dict):
            at[draw(KEYS)] = value
    return data


@SHARED
@given(data=mutations(VALID))
def test_any_change_to_a_matrix_loads_or_is_refused_in_one_line(tmp_path: Path, data: dict[str, Any]) -> None:
    path = write(tmp_path, data)
    try:
        said = str(load(path).seed)
    except UsageError as error:
        said = str(error)
        assert said.startswith("matrix.toml:")
    assert len(said.splitlines()) == 1


@SHARED
@given(start=st.integers(0, 2000), length=st.integers(0, 40), new=TEXT)
def test_any_text_is_a_matrix_or_is_refused_in_one_line(tmp_path: Path, start: int, length: int, new: str) -> None:
    path = write(tmp_path, VALID)
    text = path.read_text("utf-8")
    path.write_text(text[:start] + new + text[start + length :], encoding="utf-8")
    try:
        said = str(load(path).seed)
    except UsageError as error:
        said = str(error)
        assert said.startswith("matrix.toml:")
    assert len(said.splitlines()) == 1


@SHARED
@given(data=mutations(tomllib.loads(ALPHA)))
def test_any_change_to_a_runtime_loads_or_is_refused_in_one_line(checkout: Path, data: dict[str, Any]) -> None:
    folder = checkout / "runtimes" / "alpha"
    text = "".join(f"{quoted(key)} = {to_toml(value)}\n" for key, value in data.items())
    (folder / "runtime.toml").write_text(text, "utf-8")
    try:
        said = runtime.load(folder).name
    except UsageError as error:
        said = str(error)
        assert said.startswith("checkout/runtimes/alpha/runtime.toml:")
    assert len(said.splitlines()) == 1
