from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aipc import cell as cells
from aipc.cell import Cell, parse, parse_shape, resolve_shape
from aipc.config import Content, Input, Matrix, Model, Origin, Source, Wanted
from aipc.errors import NothingSelected, UsageError

pytestmark = pytest.mark.usefixtures("checkout")

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
SHAPES = st.lists(st.integers(1, 2**31 - 1), max_size=6).map(tuple)
CELLS = st.builds(
    Cell,
    model=st.lists(NAMES, min_size=1, max_size=3).map("-".join),
    shape=SHAPES,
    runtime=st.just("alpha"),
    precision=st.sampled_from(["fp16", "fp32", "w8a16"]),
    target=st.sampled_from(["cpu", "npu"]),
)
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

CELL = Cell(model="net", shape=(64, 96), runtime="alpha", precision="fp16", target="cpu")
IMAGE = Input(name="image", shape=(1, 3, 96, 128), content=Content.PICTURE)
TOKENS = Input(name="tokens", shape=(4, 77), dtype="int64", content=Content.INTEGERS, high=100)


def model(*inputs: Input) -> Model:
    return Model(name="net", source=Origin.FUNCTION, function="net:build", folder="net", inputs=inputs)


@SHARED
@given(cell=CELLS)
def test_a_cell_is_the_one_that_its_text_names(cell: Cell) -> None:
    assert parse(str(cell)) == cell


@SHARED
@given(one=CELLS, other=CELLS)
def test_cells_have_folders_of_their_own(one: Cell, other: Cell) -> None:
    assert (one.folder == other.folder) == (one == other)
    assert not one.folder.is_absolute()
    assert re.fullmatch(r"[a-z0-9_-]+/[a-z0-9]+/[a-z0-9]+@[a-z0-9]+", one.folder.as_posix())


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("net/alpha", "net/alpha/fp16@cpu"),
        ("net/alpha/fp32", "net/alpha/fp32@cpu"),
        ("net/alpha@npu", "net/alpha/fp16@npu"),
        ("net#64x96/alpha/w8a16@npu", "net#64x96/alpha/w8a16@npu"),
        ("my-net#1x3x64x96/alpha", "my-net#1x3x64x96/alpha/fp16@cpu"),
    ],
)
def test_what_a_cell_leaves_out_is_the_default_of_its_runtime(text: str, whole: str) -> None:
    assert str(parse(text)) == whole


def test_the_parts_of_a_cell_are_named() -> None:
    assert CELL.folder == Path("net_64x96/alpha/fp16@cpu")
    assert str(replace(CELL, shape=())) == "net/alpha/fp16@cpu"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a part is missing; write model[#shape]/runtime"),
        ("net", "cell 'net': a part is missing"),
        ("net/", "a part is missing"),
        ("/alpha", "a part is missing"),
        ("net/alpha/", "a part is missing"),
        ("net/alpha/fp16@", "a part is missing"),
        ("net/alhpa/fp16", "runtime 'alhpa': not in checkout/runtimes; did you mean 'alpha'?"),
        ("net/reference", "runtime 'reference': builds no artefacts; known are alpha"),
        ("net/alpha/fp61", "runtime 'alpha': has no precision 'fp61'; did you mean 'fp16'? (known are "),
        ("net/alpha/fp16@cqu", "runtime 'alpha': has no target 'cqu'; did you mean 'cpu'? (known are "),
        ("net/alpha/fp16@cpu@cpu", "has no target 'cpu@cpu'"),
        ("net/alpha/fp16/cpu", "has no precision 'fp16/cpu'"),
        ("../alpha/fp16", "cell: '..' is no model's name"),
        ("My Net/alpha/fp16", "cell: 'My Net' is no model's name"),
        ("net-/alpha", "cell: 'net-' is no model's name"),
        ("net#/alpha", "shape '': is no shape; write height and width like 64x96"),
        ("net#64×96/alpha", "shape '64×96': is no shape"),
        ("net#64x/alpha", "shape '64x': is no shape"),
        ("net#0x64/alpha", "shape '0x64': 0 is no dimension; give whole numbers from 1"),
        ("net#9999999999/alpha", "9999999999 is no dimension"),
        ("net#٣x٣/alpha", "is no shape"),
        ("net\n/alpha/fp16", "is no model's name"),
    ],
)
def test_a_text_that_names_no_cell_is_answered_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@SHARED
@given(text=st.text(alphabet="ab/#@x1-.\n", max_size=12) | st.text(max_size=12))
def test_any_text_is_a_cell_or_is_refused(text: str) -> None:
    try:
        cell = parse(text)
    except UsageError as error:
        said = str(error)
    else:
        said = str(cell)
        assert parse(said) == cell
    assert "\n" not in said


@pytest.mark.parametrize("part", ["model", "runtime", "precision", "target"])
def test_no_cell_has_a_part_that_leads_out_of_its_folder(part: str) -> None:
    changes: dict[str, Any] = {part: "../x"}
    with pytest.raises(UsageError, match=r"'\.\./x' is no"):
        replace(CELL, **changes)
    with pytest.raises(UsageError, match="cell net: shape: 0 is no dimension"):
        replace(CELL, shape=(0,))


def test_a_shape_is_height_and_width_or_all_of_it() -> None:
    assert parse_shape("64x96") == (64, 96)
    assert parse_shape("1x3x64x96") == (1, 3, 64, 96)
    assert parse_shape("16") == (16,)


def test_height_and_width_go_to_every_picture() -> None:
    resolved = resolve_shape(model(IMAGE, TOKENS, replace(IMAGE, name="mask", shape=(1, 1, 96, 128))), (64, 96))
    assert [each.shape for each in resolved.inputs] == [(1, 3, 64, 96), (4, 77), (1, 1, 64, 96)]


def test_a_full_shape_goes_to_the_input_of_its_rank() -> None:
    assert [each.shape for each in resolve_shape(model(IMAGE, TOKENS), (2, 3, 64, 96)).inputs] == [
        (2, 3, 64, 96),
        (4, 77),
    ]
    assert [each.shape for each in resolve_shape(model(TOKENS), (8, 77)).inputs] == [(8, 77)]


def test_no_shape_changes_nothing_and_a_file_takes_any() -> None:
    assert resolve_shape(model(IMAGE), ()) == model(IMAGE)
    file = Model(name="net", source=Origin.ONNX, weights=(Source(path="net.onnx"),))
    assert resolve_shape(file, (64, 96)) == replace(file, shape=(64, 96))


@pytest.mark.parametrize(
    ("inputs", "shape", "words"),
    [
        ((TOKENS,), (1, 3, 64, 96), "shape 1x3x64x96: 0 inputs of net have 4 dimensions; its inputs are tokens 4x77"),
        (
            (IMAGE, replace(IMAGE, name="second")),
            (1, 3, 64, 96),
            "2 inputs of net have 4 dimensions; its inputs are image",
        ),
        ((IMAGE,), (3, 64, 96), "0 inputs of net have 3 dimensions"),
        ((IMAGE,), (1, 5, 64, 96), "model net: shape: [1, 5, 64, 96] is not [N, C, H, W]"),
    ],
)
def test_a_shape_that_fits_no_input_is_refused(inputs: tuple[Input, ...], shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        resolve_shape(model(*inputs), shape)


def test_a_matrix_asks_for_each_model_on_each_runtime() -> None:
    matrix = Matrix(
        models={"a": model(IMAGE), "b": model(IMAGE)},
        pictures=(),
        precisions={},
        runtimes={
            "alpha": Wanted(precisions=("fp16", "fp32"), targets=("cpu",)),
            "beta": Wanted(precisions=("int8",), targets=("x", "y")),
        },
        seed=0,
        magnitudes=(1.0, 0.1),
    )
    assert [str(each) for each in cells.cells(matrix)] == [
        f"{name}/{rest}" for name in "ab" for rest in ("alpha/fp16@cpu", "alpha/fp32@cpu", "beta/int8@x", "beta/int8@y")
    ]


def test_a_model_has_its_own_precisions_on_the_runtimes_that_have_them_and_none_twice() -> None:
    matrix = Matrix(
        models={"a": replace(model(IMAGE), precisions=("int8", "fp32")), "b": model(IMAGE)},
        pictures=(),
        precisions={},
        runtimes={
            "alpha": Wanted(precisions=("fp16", "fp32"), targets=("cpu",), others=("int8",)),
            "beta": Wanted(precisions=("fp16",), targets=("x", "y")),
        },
        seed=0,
        magnitudes=(1.0, 0.1),
    )
    assert [str(each) for each in cells.cells(matrix)] == [
        *(f"a/{rest}" for rest in ("alpha/fp16@cpu", "alpha/fp32@cpu", "alpha/int8@cpu", "beta/fp16@x", "beta/fp16@y")),
        *(f"b/{rest}" for rest in ("alpha/fp16@cpu", "alpha/fp32@cpu", "beta/fp16@x", "beta/fp16@y")),
    ]


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        ((), [0, 1, 2, 3]),
        (("net/alpha/fp16@cpu",), [0]),
        (("net/alpha/fp16",), [0, 1]),
        (("net/alpha",), [0, 1, 2]),
        (("net",), [0, 1, 2]),
        (("net*",), [0, 1, 2, 3]),
        (("*/alpha/*@npu",), [1]),
        (("net-?",), [3]),
        (("net-x", "net/alpha/fp32"), [2, 3]),
    ],
)
def test_patterns_select_cells_in_the_order_of_the_matrix(patterns: tuple[str, ...], chosen: list[int]) -> None:
    among = [parse(f"net{rest}") for rest in ("/alpha/fp16@cpu", "/alpha/fp16@npu", "/alpha/fp32", "-x/alpha/fp32")]
    assert cells.select(among, patterns) == tuple(among[index] for index in chosen)


@pytest.mark.parametrize("patterns", [("nte/alpha",), ("net", "nte/alpha")])
def test_a_pattern_that_fits_nothing_is_answered_with_the_nearest(patterns: tuple[str, ...]) -> None:
    with pytest.raises(NothingSelected, match="'nte/alpha': no cell of the matrix; did you mean 'net/alpha'"):
        cells.select([replace(CELL, shape=())], patterns)
