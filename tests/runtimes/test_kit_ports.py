"""The comparison of what was asked for with what an artefact has."""

from __future__ import annotations

import pytest

from runtimes.kit.ports import Port, differences


def port(name: str = "x", shape: tuple[int, ...] = (1, 3), dtype: str = "float32") -> Port:
    return Port(name=name, shape=shape, dtype=dtype)


def test_what_is_as_asked_has_no_differences() -> None:
    asked = [port("a"), port("b")]
    assert differences("input", asked, [port("b"), port("a")]) == []


def test_a_size_that_shows_only_when_it_runs_is_no_difference() -> None:
    assert differences("output", [port(shape=(2, 5))], [port(shape=(2, -1))]) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "input 'x' is missing"),
        ([port(), port("y")], "input 'y' was never asked for"),
        ([port(), port()], "inputs share a name: ['x', 'x']"),
        ([port(shape=(3, 1))], "input 'x' has the shape [3, 1] instead of [1, 3]"),
        ([port(shape=(1, 3, 1))], "input 'x' has the shape [1, 3, 1] instead of [1, 3]"),
        ([port(dtype="float16")], "input 'x' is float16 instead of float32"),
    ],
)
def test_a_difference_is_named(found: list[Port], words: str) -> None:
    assert differences("input", [port()], found) == [words]
