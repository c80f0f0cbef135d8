"""The tools of `aipc mcp` are the commands: what a client gives arrives there as it is, whatever it looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aipc.cli import main
from aipc.serving.answers import USUAL, Problem, answer
from aipc.serving.child import Ended
from aipc.serving.tools import COMMANDS, SHARED, Tool

TEXT = st.one_of(
    st.sampled_from(["--help", "-h", "--", "--trusted", "--json", "-", "", "a b", "--runs=x"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
)
START = {"--runs": "elsewhere", "--matrix": "some.toml", "--engine": "venv", "--base-image": "image"}


@st.composite
def calls(draw: st.DrawFn) -> tuple[Tool, dict[str, Any]]:
    """A tool, and arguments that fit its schema."""
    tool = draw(st.sampled_from(COMMANDS))
    properties, required = tool.schema["properties"], tool.schema["required"]
    # click looks whether a folder is there; nothing of that is ours.
    names = [name for name in properties if name != "source" and (name in required or draw(st.booleans()))]
    kinds = {"string": TEXT, "array": st.lists(TEXT, max_size=3)}
    return tool, {name: draw(kinds[properties[name]["type"]]) for name in names}


@given(calls())
def test_what_a_client_gives_arrives_as_it_is(call: tuple[Tool, dict[str, Any]]) -> None:
    tool, given_ = call
    name, *rest = tool.command(given_, START)
    assert isinstance(main, click.Group)
    command = main.commands[name]
    params = command.make_context(name, rest).params
    assert params["as_json"] is True
    assert not params.get("trusted")
    options = {word: parameter.name for parameter in command.params for word in parameter.opts}
    for key, value in given_.items():
        if key not in tool.ours:
            arrived = params[options.get(f"--{key}", key) or key]
            assert arrived == type(arrived)(value)
    shared = [option for each in tool.shared for option in SHARED[each]]
    for option, value in START.items():
        if options.get(option):
            assert (option in shared) is (str(params[str(options[option])]) == value)


def test_every_option_of_the_server_reaches_the_commands_that_know_it() -> None:
    assert isinstance(main, click.Group)
    for tool in COMMANDS:
        known = {word for parameter in main.commands[tool.name].params for word in parameter.opts}
        assert {option for each in tool.shared for option in SHARED[each]} == known & set(START)


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Ended(code=4, out="", last="aipc: docker: is gone; start it"), "docker: is gone; start it"),
        (Ended(code=2, out="", last="Error: No such option: --x"), "No such option: --x"),
        (Ended(code=1, out="{half of", last="aipc: interrupted"), "interrupted"),
        (Ended(code=-9, out="", last=""), "aipc deploy ended with exit code -9, without a word"),
    ],
)
def test_a_command_without_an_answer_is_a_problem_in_its_own_words(ended: Ended, words: str) -> None:
    with pytest.raises(Problem) as caught:
        answer("deploy", ended, Path("runs"), ())
    assert str(caught.value) == words


def test_the_usual_parts_of_a_report_are_parts_of_a_report() -> None:
    from aipc.reports.report import Report

    assert set(USUAL) <= set(Report.__dataclass_fields__)
