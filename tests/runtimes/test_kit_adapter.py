"""What counts as an adapter, and the comparison of what was asked for with what an artefact has."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import runtimes
from runtimes.contract import Json, Misused, Step
from runtimes.kit import adapter
from runtimes.kit.adapter import Tensor, differences
from runtimes.kit.work import Work

FOLDERS = sorted(path.parent for folder in runtimes.__path__ for path in Path(folder).glob("*/runtime.toml"))


def module(**members: Any) -> ModuleType:
    made = ModuleType("runtimes.probe.adapter")
    for name, member in members.items():
        setattr(made, name, member)
    return made


def own(function: Any, where: str = "runtimes.probe.adapter") -> Any:
    function.__module__ = where
    return function


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_adapter_imports_without_its_toolchain_and_has_the_steps_that_it_declares(folder: Path) -> None:
    declared = tomllib.loads((folder / "runtime.toml").read_text(encoding="utf-8"))["steps"]
    assert sorted(adapter.steps(adapter.load(folder.name))) == sorted(declared)


def test_a_step_may_lie_in_another_file_of_the_runtime() -> None:
    def convert(work: Work) -> dict[str, Json]:
        return {"step": work.job.step}

    assert list(adapter.steps(module(convert=own(convert, "runtimes.probe.builder")))) == [Step.CONVERT]


def test_an_imported_function_is_no_step() -> None:
    def judge(work: Work) -> dict[str, Json]:
        return {"step": work.job.step}

    foreign = module(run=subprocess.run, judge=own(judge, "runtimes.probetwo.adapter"), export="text")
    assert adapter.steps(foreign) == {}


def test_a_step_of_another_shape_is_an_error() -> None:
    def convert(work: Work, options: Json) -> dict[str, Json]:
        return {"step": work.job.step, "options": options}

    with pytest.raises(TypeError, match="runtimes.probe.adapter.convert: must take one argument"):
        adapter.steps(module(convert=own(convert)))


@pytest.mark.parametrize("name", ["openvin", "kit", "../openvino", "open.vino", ""])
def test_a_runtime_without_an_adapter_is_misuse(name: str) -> None:
    with pytest.raises(Misused, match=f"job.json: runtime: {name!r} has no adapter"):
        adapter.load(name)


def test_a_misspelt_runtime_gets_a_suggestion() -> None:
    with pytest.raises(Misused, match="did you mean 'openvino'"):
        adapter.load("openvin")


def tensor(name: str = "x", shape: tuple[int, ...] = (1, 3), dtype: str = "float32") -> Tensor:
    return Tensor(name=name, shape=shape, dtype=dtype)


def test_what_is_as_asked_has_no_differences() -> None:
    asked = [tensor("a"), tensor("b")]
    assert differences("input", asked, [tensor("b"), tensor("a")]) == []


def test_a_size_that_shows_only_when_it_runs_is_no_difference() -> None:
    assert differences("output", [tensor(shape=(2, 5))], [tensor(shape=(2, -1))]) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "input 'x' is missing"),
        ([tensor(), tensor("y")], "input 'y' was never asked for"),
        ([tensor(), tensor()], "inputs share a name: ['x', 'x']"),
        ([tensor(shape=(3, 1))], "input 'x' has the shape [3, 1] instead of [1, 3]"),
        ([tensor(shape=(1, 3, 1))], "input 'x' has the shape [1, 3, 1] instead of [1, 3]"),
        ([tensor(dtype="float16")], "input 'x' is float16 instead of float32"),
    ],
)
def test_a_difference_is_named(found: list[Tensor], words: str) -> None:
    assert differences("input", [tensor()], found) == [words]
