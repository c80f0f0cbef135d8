"""Rules that are taken out of a deploy on purpose: which lines go, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from aipc import asked as asking
from aipc import repairs
from aipc.asked import Asked
from aipc.cell import Cell
from aipc.errors import UsageError
from aipc.repairs import Always, Repairs, Rule
from aipc.runtime import find
from tests.command import Aipc

CELL = Cell(model="net", shape=(), runtime="ortqnn", precision="fp16", target="sm8650")
BOOK = Repairs(
    always=(Always(rewrite="lower_opset"), Always(rewrite="drop_layout")),
    repairs=(Rule(rewrite="fix_shapes"), Rule(rewrite="drop_layout"), Rule(rewrite="fix_shapes", ops=("If",))),
)


def test_every_line_that_tries_it_goes_and_the_others_stay_in_order() -> None:
    left = BOOK.without(("drop_layout", "lower_opset"))
    assert (left.always, left.repairs) == ((), (BOOK.repairs[0], BOOK.repairs[2]))
    assert BOOK.without(("fix_shapes",)).repairs == (BOOK.repairs[1],)
    assert BOOK.without(()) == BOOK


def test_a_book_names_what_its_lines_try() -> None:
    assert BOOK.names == {"lower_opset", "drop_layout", "fix_shapes"}


def test_rules_of_the_runtime_and_of_the_reference_can_be_withheld_and_no_others() -> None:
    asking.check_withheld(("einsum_to_matmul", "sort_nodes"), CELL, "--withhold")
    assert "antialias_to_matmul" in repairs.load(find("openvino")).names
    with pytest.raises(UsageError, match="--withhold: no rule for ortqnn tries 'antialias_to_matmul'"):
        asking.check_withheld(("antialias_to_matmul",), CELL, "--withhold")


def test_the_command_that_does_it_again_withholds_it_too() -> None:
    asked = Asked(
        model="net",
        runtime="ortqnn",
        precision="",
        target="",
        shape="",
        source=None,
        trusted=False,
        runs=Path("runs"),
        matrix_path=None,
        engine="venv",
        base_image="",
        withheld=("einsum_to_matmul", "fix_shapes"),
    )
    again = asking.reproduce(asked, CELL, "venv")
    assert again[-4:] == ("--withhold", "einsum_to_matmul", "--withhold", "fix_shapes")


def test_withholding_what_no_rule_tries_is_one_line_before_any_work(tmp_path: Path) -> None:
    done = Aipc(tmp_path).deploy("esrgan/openvino/fp16", "--engine", "venv", "--withhold", "det_to_arithmetik")
    assert (done.code, done.error.count("\n")) == (2, 1)
    assert "no rule for openvino tries 'det_to_arithmetik'; did you mean 'det_to_arithmetic'?" in done.error
