"""The sizes of a file's inputs: what a shape closes, what names share, and what stays open and is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.contract import Kind
from runtimes.kit.work import Refused
from runtimes.reference.sizes import Dims, settle, settle_all

BERT: list[tuple[str, Dims]] = [
    (name, ["batch", "sequence"]) for name in ("input_ids", "attention_mask", "token_type_ids")
]


@pytest.mark.parametrize(
    ("dims", "shape", "settled"),
    [
        ([1, 3, 4, 5], (), (1, 3, 4, 5)),
        ([], (), ()),
        (["n", 3, "h", "w"], (1, 3, 6, 8), (1, 3, 6, 8)),
        (["n", 3, "h", "w"], (6, 8), (1, 3, 6, 8)),
        ([2, 3, "h", "w"], (6, 8), (2, 3, 6, 8)),
        (["n", 7], (4, 7), (4, 7)),
        (["n", 3, 6, 8], (), (1, 3, 6, 8)),
        (["?", 3, 6, 8], (), (1, 3, 6, 8)),
        (["n", 3, "n", 8], (), (1, 3, 1, 8)),
    ],
)
def test_a_shape_closes_open_sizes(dims: Dims, shape: tuple[int, ...], settled: tuple[int, ...]) -> None:
    assert settle("x", dims, shape, "net.onnx") == settled


@pytest.mark.parametrize(
    ("dims", "shape", "words", "example"),
    [
        (["n", 3, "h", "w"], (), "input x is [n, 3, h, w]: h, w are open", "net.onnx#1x3x64x64"),
        ([1, 3, 64, "w"], (), "w is open", "net.onnx#1x3x64x64"),
        ([1, "?"], (), "? (the file has no name for it) is open", "net.onnx#1x64"),
        ([1, 3, "h", "w"], (1, 4, 6, 8), "the shape given is 1x4x6x8", "net.onnx#1x3x64x64"),
        (["n", 7], (6, 8, 9), "the shape given is 6x8x9", "net.onnx#1x7"),
        (["n", "n"], (6, 8), "n is both 6 and 8", "net.onnx#1x64"),
    ],
)
def test_a_size_that_stays_open_is_refused_with_an_example(
    dims: Dims, shape: tuple[int, ...], words: str, example: str
) -> None:
    with pytest.raises(Refused) as caught:
        settle("x", dims, shape, "net.onnx")
    assert caught.value.failure.kind is Kind.DYNAMIC_SHAPE
    assert words in caught.value.failure.message
    assert caught.value.failure.hint == f"add a shape after the name, e.g. {example}"


def test_a_free_batch_becomes_one_and_is_told() -> None:
    shapes, notes = settle_all([("x", ["batch", 3, 6, 8]), ("y", [2, "batch"])], (), "net.onnx")
    assert shapes == [(1, 3, 6, 8), (2, 1)]
    assert notes == ("input x: its first size, batch, is open: it is 1",)


def test_one_shape_goes_to_every_input_that_takes_it() -> None:
    assert settle_all(BERT, (1, 128), "net.onnx")[0] == [(1, 128)] * 3


def test_a_name_has_the_same_size_in_every_input() -> None:
    inputs: list[tuple[str, Dims]] = [("x", ["batch", "length", 7]), ("mask", ["batch", "length"])]
    assert settle_all(inputs, (2, 9, 7), "net.onnx")[0] == [(2, 9, 7), (2, 9)]


def test_height_and_width_go_to_pictures_alone() -> None:
    inputs: list[tuple[str, Dims]] = [("image", ["n", 3, "h", "w"]), ("words", ["n", "t"]), ("size", [2])]
    with pytest.raises(Refused, match="input words is \\[n, t\\]: t is open") as caught:
        settle_all(inputs, (6, 8), "net.onnx")
    assert "list them in matrix.toml, words too" in caught.value.failure.hint
    assert settle_all([inputs[0], ("words", ["n", 5])], (6, 8), "net.onnx")[0] == [(1, 3, 6, 8), (1, 5)]


def test_sizes_without_a_name_share_nothing() -> None:
    with pytest.raises(Refused, match="input y is \\[2, \\?\\]"):
        settle_all([("x", ["?", 3]), ("y", [2, "?"])], (), "net.onnx")


@given(
    st.lists(st.lists(st.one_of(st.integers(1, 9), st.sampled_from("abc?")), max_size=5), min_size=1, max_size=4),
    st.lists(st.integers(1, 9), max_size=5).map(tuple),
)
def test_what_is_settled_keeps_every_size_of_the_file(dims: list[Dims], shape: tuple[int, ...]) -> None:
    inputs = [(f"x{index}", each) for index, each in enumerate(dims)]
    try:
        shapes, _notes = settle_all(inputs, shape, "net.onnx")
    except Refused:
        return
    known: dict[str, int] = {}
    for each, sizes in zip(dims, shapes, strict=True):
        assert len(each) == len(sizes)
        for dim, size in zip(each, sizes, strict=True):
            assert size >= 1
            assert dim in (size, "?") or known.setdefault(str(dim), size) == size
