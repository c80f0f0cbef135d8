"""What an agent is told of what the rules have left wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from aipc.agent import session
from aipc.bisection import Bisection, Found
from aipc.facts import NodeName

if TYPE_CHECKING:
    from aipc.deployment import Deployment

SEARCHED = Bisection(sample="photo", total=9, runs=4)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            Found(bisection=Bisection(sample="photo", total=9, runs=4, first=NodeName(node="/n/l1", op="ReduceL1"))),
            "the first node with wrong numbers is ReduceL1 '/n/l1'; the cosine is 0.9",
        ),
        (Found(bisection=SEARCHED), "the cosine is 0.9"),
        (None, "the cosine is 0.9"),
    ],
)
def test_an_agent_is_told_at_which_node_wrong_numbers_begin_where_that_is_known(
    found: Found | None, words: str
) -> None:
    first = SimpleNamespace(found=found, reasons=("the cosine is 0.9",))
    assert session._problem(cast("Deployment", first)) == words
