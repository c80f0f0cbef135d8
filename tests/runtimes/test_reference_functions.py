"""What a function of the user's is called with, and what its module may say in the report."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtimes.contract import Kind
from runtimes.kit.work import Refused
from runtimes.reference import functions


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    (tmp_path / "a.pt").touch()
    return tmp_path


def plain() -> None: ...


def weighted(weights: Path) -> Path:
    return weights


def careful(weights: Path, *, trusted: bool = False) -> tuple[Path, bool]:
    return weights, trusted


def open_to_all(**options: Any) -> Any:
    return options


def test_a_function_is_given_what_it_has_parameters_for(weights: Path) -> None:
    assert functions._keywords(plain, "m:f", None, trusted=True) == {}
    assert functions._keywords(weighted, "m:f", weights, trusted=True) == {"weights": weights / "a.pt"}
    assert functions._keywords(careful, "m:f", weights, trusted=True) == {"weights": weights / "a.pt", "trusted": True}
    assert functions._keywords(open_to_all, "m:f", weights, trusted=False) == {"weights": weights / "a.pt"}
    (weights / "b.png").touch()
    assert functions._keywords(weighted, "m:f", weights, trusted=False) == {"weights": weights}


def test_weights_that_a_function_does_not_take_are_refused(weights: Path) -> None:
    with pytest.raises(Refused, match="function m:f: takes no weights, and there are some") as caught:
        functions._keywords(plain, "m:f", weights, trusted=False)
    assert caught.value.failure.kind is Kind.OPTION


@pytest.mark.parametrize(
    ("held", "notes"),
    [(("seeded",), ("seeded",)), ((), ()), ("seeded", ()), ((1,), ()), (["seeded"], ()), (None, ())],
)
def test_only_a_tuple_of_words_is_a_note(held: object, notes: tuple[str, ...]) -> None:
    assert functions.notes_of(SimpleNamespace(notes=held)) == notes
    assert functions.notes_of(SimpleNamespace()) == ()
