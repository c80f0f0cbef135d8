"""Every command of a skill is one that the program takes: aipc's own, and the vendor's in the stand-in of its SDK."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from aipc import asked as asking
from aipc import config, home
from aipc.cli import main
from aipc.errors import AipcError
from runtimes.contract import Misused
from tests.qairt import standin_tools
from tests.skills.mutations import Mutation, Rule, mutated
from tests.skills.skill import ROOT, RUNTIMES, Files, codes, fenced, load, of

ONE_RUNTIME = re.compile(r"--runtime (\w+)")


def said(files: Files) -> Iterator[tuple[str, str]]:
    """Return the commands of aipc: those in fenced blocks, and those in backticks."""
    yield from fenced(files, "console")
    for path, text in files.items():
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        yield from ((path, code) for code in codes(prose) if re.match(r"aipc [a-z]", code))


def aipc_takes_its_commands(files: Files) -> Iterable[str]:
    for path, line in said(files):
        if problem := _parse(line):
            yield f"{path}: {line}: {problem}"


def _parse(line: str) -> str:
    """Return what is wrong with a command line of aipc, or ""."""
    program, *arguments = shlex.split(line.replace("CELL", "esrgan/openvino/fp16@cpu").replace("NAME", "plain_gemm"))
    if program != "aipc" or not arguments:
        return "it is no command of aipc"
    assert isinstance(main, click.Group)
    verb = main.commands.get(arguments[0])
    if verb is None:
        return f"there is no verb {arguments[0]}"
    if not arguments[1:]:
        return ""  # its name alone
    try:
        context = verb.make_context(arguments[0], list(arguments[1:]))
    except click.ClickException as error:
        return error.format_message()
    return _find(context.params) if arguments[0] == "deploy" else ""


def _find(options: dict[str, Any]) -> str:
    """Return why aipc would not know the cell, or ""; files of the reader's own are not looked for."""
    model = str(options["model"])
    if re.match(r"[\w.-]+\.onnx|nets:", model):
        options = {**options, "model": "esrgan", "source": None, "shape": ""}
    options = {**options, "calibration": None, "encodings": None}
    del options["as_json"]
    try:
        asking.find(config.load(home.matrix_file()), asking.Asked(**options))
    except (AipcError, Misused) as error:
        return str(error)
    return ""


def commands_of_a_runtime_name_it(files: Files) -> Iterable[str]:
    for skill in RUNTIMES:
        main_file = {f"{skill}/SKILL.md": files[f"{skill}/SKILL.md"]}
        lines = [line for _, line in said(main_file) if line.startswith("aipc deploy")]
        for line in lines:
            if (found := ONE_RUNTIME.search(line)) and found[1] != skill:
                yield f"{skill}: {line}"
        yield from (
            f"{skill}: no command with {part}"
            for part in ("--rewrite NAME",)
            if not any(part in line for line in lines)
        )


def vendors_tools_are_called_as_the_stand_in_takes_them(files: Files) -> Iterable[str]:
    lines = list(fenced(of(files, "qairt"), "qairt"))
    for path, line in lines:
        with tempfile.TemporaryDirectory() as folder:
            if problem := _start(line, Path(folder)):
                yield f"{path}: {line}: {problem}"
    lacking = set(standin_tools.TOOLS) - {line.split()[0] for _, line in lines}
    yield from (f"no command for {tool}" for tool in sorted(lacking))


class _Parsed(Exception):
    """The arguments fit."""


def _start(line: str, folder: Path) -> str:
    """Return why the stand-in does not take a command line, or ""; its files are there."""
    tool, *arguments = shlex.split(line)
    if tool not in standin_tools.TOOLS:
        return f"there is no tool {tool}"

    class Parser(argparse.ArgumentParser):
        def parse_args(self, *_: object, **__: object) -> argparse.Namespace:  # type: ignore[override]
            super().parse_args(arguments)
            raise _Parsed

        def error(self, message: str) -> None:  # type: ignore[override]
            raise ValueError(message)

    for word in arguments:
        name = word.rpartition("=")[2]
        if re.fullmatch(r"[\w/]+\.(onnx|dlc|txt|so|json|cpp|bin)", name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    before = Path.cwd()
    os.chdir(folder)
    try:
        standin_tools.TOOLS[tool](Parser(allow_abbrev=False))
    except _Parsed:
        return ""
    except ValueError as error:
        return str(error)
    finally:
        os.chdir(before)
    return "it parsed nothing"


MUTATIONS = (
    Mutation(aipc_takes_its_commands, "aipc", "aipc list\n", "aipc lists\n"),
    Mutation(aipc_takes_its_commands, "aipc", "--target rk3588", "--target rk9999"),
    Mutation(aipc_takes_its_commands, "openvino", "--precision fp32", "--precision fp23"),
    Mutation(aipc_takes_its_commands, "rknn", "--calibration pictures", "--calibrate pictures"),
    Mutation(
        aipc_takes_its_commands,
        "aipc",
        "aipc deploy esrgan --runtime openvino",
        "aipc deploy esrgam --runtime openvino",
    ),
    Mutation(aipc_takes_its_commands, "aipc", "`aipc report CELL --json`", "`aipc report CELL --jsn`"),
    Mutation(
        commands_of_a_runtime_name_it, "tensorrt", "--runtime tensorrt --target sm120", "--runtime rknn --target sm120"
    ),
    Mutation(commands_of_a_runtime_name_it, "tensorrt", "--rewrite NAME", "--repair NAME"),
    Mutation(
        vendors_tools_are_called_as_the_stand_in_takes_them,
        "qairt/references/conversion.md",
        "--out_tensor_node",
        "--out_node",
    ),
    Mutation(
        vendors_tools_are_called_as_the_stand_in_takes_them, "qairt/references/inference.md", "--perf_profile", "--perf"
    ),
)
RULES = tuple(dict.fromkeys(each.rule for each in MUTATIONS))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_skills_obey(rule: Rule) -> None:
    assert list(rule(load())) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_lie_is_seen(mutation: Mutation) -> None:
    assert list(mutation.rule(mutated(load(), mutation)))


def test_skills_travel_in_the_wheel() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    assert "skills" in built["only-include"]
    assert built["sources"]["skills"] == "aipc/_home/skills"
