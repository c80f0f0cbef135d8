"""What counts as an adapter."""

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
