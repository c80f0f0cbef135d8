"""`einsum_to_matmul`: any equation becomes a MatMul, and gives what ONNX Runtime's Einsum gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.reference.rewrites import Unsuitable
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, operators, rewritten, with_which

EQUATIONS = {
    "YOLO-World's": ("bmchw,bnmc->bmhwn", [(2, 3, 4, 5, 6), (2, 7, 3, 4)]),
    "QNN refuses it": ("bchw,bdhw->bcd", [(2, 3, 4, 5), (2, 6, 4, 5)]),
    "a matrix product": ("ij,jk->ik", [(2, 3), (3, 4)]),
    "no arrow": ("ij,jk", [(2, 3), (3, 4)]),
    "no arrow, capitals": ("bA,Ac", [(2, 3), (3, 4)]),
    "blanks": (" i j , j k -> k i ", [(2, 3), (3, 4)]),
    "outer": ("i,j->ij", [(3,), (4,)]),
    "inner": ("i,i->", [(3,), (3,)]),
    "element by element": ("ij,ij->ji", [(2, 3), (2, 3)]),
    "sums of one alone": ("ijx,jky->ik", [(2, 3, 5), (3, 4, 2)]),
    "dots": ("...ij,...jk->...ik", [(2, 1, 3, 4), (1, 5, 4, 6)]),
    "dots, no arrow": ("...ij,...jk", [(2, 3, 4), (2, 4, 6)]),
    "dots behind": ("i...,i...->...", [(2, 3, 4), (2, 3, 4)]),
    "a diagonal": ("iij,jk->ik", [(3, 3, 4), (4, 5)]),
    "two diagonals": ("iijj,jk->ik", [(3, 3, 4, 4), (4, 5)]),
    "one": ("ij->ji", [(2, 3)]),
    "one, summed": ("ij->", [(2, 3)]),
    "a trace": ("ii->", [(3, 3)]),
    "three": ("ij,jk,kl->li", [(2, 3), (3, 4), (4, 5)]),
    "a size of 1": ("ij,jk->ik", [(2, 1), (1, 4)]),
}


@pytest.mark.parametrize("opset", [12, 13, 17, 23])
@pytest.mark.parametrize("equation", EQUATIONS.values(), ids=EQUATIONS.keys())
def test_the_equation_gives_the_same(equation: tuple[str, list[tuple[int, ...]]], opset: int) -> None:
    text, shapes = equation
    check(text, shapes, opset=opset)


@pytest.mark.parametrize("place", PLACES)
def test_it_may_stand_anywhere(place: str) -> None:
    check("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)], place=place)


def test_an_operand_may_be_a_constant() -> None:
    x, w = np.ones((2, 3), np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    before = build([node("Einsum", ["x", "w"], ["y"], equation="ij,jk->ik")], {"x": x}, ["y"], constants={"w": w})
    after, changed = rewritten(before, "einsum_to_matmul")
    assert changed == ["node_y"]
    assert_same(before, after, {"x": x})


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """Two operands of up to four axes, any output that they allow, with or without dots."""
    sizes = dict(zip("abcde", draw(st.permutations([1, 2, 3, 4, 5])), strict=True))
    terms = [draw(st.lists(st.sampled_from("abcde"), max_size=4, unique=True)) for _ in range(2)]
    letters = sorted({*terms[0], *terms[1]})
    output = draw(st.permutations(draw(st.lists(st.sampled_from(letters), unique=True)))) if letters else []
    shapes = [tuple(sizes[label] for label in term) for term in terms]
    dots = draw(st.sampled_from([(), (2,), (2, 3)]))
    if not dots:
        arrow = draw(st.sampled_from(["->" + "".join(output), None]))
        return ",".join("".join(term) for term in terms) + (arrow or ""), shapes
    first, second = dots, tuple(1 if draw(st.booleans()) else size for size in dots)
    text = ",".join("..." + "".join(term) for term in terms) + "->..." + "".join(output)
    return text, [(*first, *shapes[0]), (*second, *shapes[1])]


@settings(max_examples=150, deadline=None)
@given(equation=equations(), place=st.sampled_from(PLACES))
def test_any_equation_of_two_operands_gives_the_same(equation: tuple[str, list[tuple[int, ...]]], place: str) -> None:
    check(*equation, place=place)


def test_an_operand_of_an_open_size_is_not_suitable() -> None:
    before = build([node("Einsum", ["x"], ["y"], equation="ij->ji")], {"x": np.ones((2, 3), np.float32)}, ["y"])
    for value in (before.graph.input[0], before.graph.output[0]):
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_param = "n"
    with pytest.raises(Unsuitable, match="node node_y \\(Einsum\\): the sizes of x are not known"):
        rewritten(before, "einsum_to_matmul")


def check(text: str, shapes: list[tuple[int, ...]], **how: Any) -> None:
    rng = np.random.default_rng(1)
    feeds = {f"x{index}": rng.normal(size=shape).astype(np.float32) for index, shape in enumerate(shapes)}
    before = build([node("Einsum", list(feeds), ["y"], equation=text)], feeds, ["y"], **how)
    after, changed = rewritten(before, "einsum_to_matmul")
    assert changed
    assert operators(after) <= {*("MatMul", "Transpose", "Reshape", "Constant", "ReduceSum", "Slice", "Identity", "If")}
    assert_same(before, after, with_which(feeds, how.get("place", "")))
