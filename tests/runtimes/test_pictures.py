from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from runtimes.reference import pictures
from runtimes.reference.judge_case import Case
from runtimes.reference.pictures import LONG_SIDE, MAGENTA, PIECE, View, draw
from tests.runtimes.judge_cases import asked, group

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
Pixels = NDArray[Any]


def case_of(golden: Pixels, made: Pixels | None, given: Pixels | None = None, **samples: tuple[Pixels, Pixels]) -> Case:
    """Return a case of one picture `y` made of an input `x`, in the sample `photo` and maybe in others."""
    golden_set = {"photo": {"y": golden}} | {name: {"y": pair[0]} for name, pair in samples.items()}
    outputs = {"photo": {} if made is None else {"y": made}} | {name: {"y": pair[1]} for name, pair in samples.items()}
    inputs = {name: {} if given is None else {"x": given} for name in golden_set}
    options = asked(golden_set, (group("image", "y", content="picture"),))
    return Case(options=options, samples=inputs, golden=golden_set, outputs=outputs, cpu={})


def seen(folder: Path, path: str) -> Pixels:
    """Return the pixels [H, W, 3] of a drawn picture."""
    with Image.open(folder.parent / path) as image:
        assert image.mode == "RGB"
        return np.asarray(image)


def noise(*shape: int, seed: int = 1) -> Pixels:
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def test_a_small_picture_is_drawn_pixel_by_pixel(tmp_path: Path) -> None:
    golden = noise(1, 3, 40, 56)
    (view,) = draw(case_of(golden, golden, noise(1, 3, 10, 14)), tmp_path / "pictures")
    assert view.sample == "photo"
    assert (seen(tmp_path / "p", view.golden) == np.rint(np.moveaxis(golden[0], 0, -1) * 255)).all()
    assert seen(tmp_path / "p", view.input).shape == (10, 14, 3)
    assert (seen(tmp_path / "p", view.output_picture) == seen(tmp_path / "p", view.golden)).all()
    assert (seen(tmp_path / "p", view.error).max(), view.scale) == (0, 0.0)


def test_one_channel_is_drawn_grey(tmp_path: Path) -> None:
    golden = noise(1, 1, 20, 30)
    (view, *_) = draw(case_of(golden, golden * 0.5), tmp_path / "pictures")
    picture = seen(tmp_path / "p", view.golden)
    assert picture.shape == (20, 30, 3)
    assert (picture[..., 0] == picture[..., 2]).all()


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((1, 3, 512, 512), (512, 512)),
        ((1, 3, 513, 20), (257, 10)),
        ((1, 1, 100, 1600), (25, 400)),
        ((2, 3, 8, 8), (8, 8)),
    ],
)
def test_a_large_picture_is_shrunk_by_a_whole_factor(
    tmp_path: Path, shape: tuple[int, int, int, int], size: tuple[int, int]
) -> None:
    golden = noise(*shape)
    (view, *_) = draw(case_of(golden, golden + np.float32(0.1)), tmp_path / "pictures")
    for path in (view.golden, view.output_picture, view.error):
        assert seen(tmp_path / "p", path).shape[:2] == size
    assert max(size) <= LONG_SIDE


def test_the_edge_of_a_shrunk_picture_is_not_darkened(tmp_path: Path) -> None:
    white = np.ones((1, 3, 513, 600))
    (view,) = draw(case_of(white, white), tmp_path / "pictures")
    assert (seen(tmp_path / "p", view.golden) == 255).all()


def test_a_single_wrong_pixel_is_still_seen_in_a_shrunk_error_picture(tmp_path: Path) -> None:
    golden = noise(1, 3, 1024, 1536)
    made = golden.copy()
    made[0, 1, 700, 1100] += np.float32(0.003)
    whole, piece = draw(case_of(golden, made), tmp_path / "pictures")
    error = seen(tmp_path / "p", whole.error)
    assert np.count_nonzero(error) == 1
    assert whole.scale == piece.scale == 0.005
    assert error[700 // 3, 1100 // 3, 1] == round(255 * 0.003 / 0.005)


def test_the_piece_shows_the_pixels_around_the_largest_error(tmp_path: Path) -> None:
    golden = noise(1, 3, 200, 300)
    made = golden.copy()
    made[0, :, 120, 210] = 0.0
    whole, piece = draw(case_of(golden, made, noise(1, 3, 50, 75, seed=2)), tmp_path / "pictures")
    assert piece.sample == "photo: x 178…241, y 88…151"
    expected = seen(tmp_path / "p", whole.golden)[88:152, 178:242]
    assert (seen(tmp_path / "p", piece.golden) == expected).all()
    assert seen(tmp_path / "p", piece.error)[32, 32].max() > 0
    # What went in is a quarter as large; its piece shows the same scene at the size of the others.
    small, given = seen(tmp_path / "p", whole.input), seen(tmp_path / "p", piece.input)
    assert (given[32, 32] == small[120 // 4, 210 // 4]).all()
    assert (given[0, 0] == small[88 // 4, 178 // 4]).all()
    assert (given[63, 63] == small[151 // 4, 241 // 4]).all()
    assert seen(tmp_path / "p", piece.input).shape == (64, 64, 3)


@PATIENT
@given(y=st.integers(0, 79), x=st.integers(0, 149))
def test_a_piece_lies_within_the_picture_and_holds_the_worst_pixel(y: int, x: int) -> None:
    golden = np.zeros((1, 3, 80, 150))
    made = golden.copy()
    made[0, 2, y, x] = 1.0
    piece = pictures._around_the_worst(case_of(golden, made).pairs[0])
    assert piece is not None
    assert 0 <= piece.top <= y < piece.top + piece.height <= 80
    assert 0 <= piece.left <= x < piece.left + piece.width <= 150
    assert piece.height == piece.width == PIECE


def test_a_sample_that_is_worse_than_the_photo_shows_its_worst_piece(tmp_path: Path) -> None:
    golden = noise(1, 3, 40, 56)
    views = draw(case_of(golden, golden + np.float32(1e-4), other=(golden, golden * 0.5)), tmp_path / "pictures")
    assert [view.sample for view in views] == ["photo", "other: x 0…55, y 0…39"]
    assert views[1].scale == 0.5


def test_the_first_sample_stands_in_where_there_is_no_photo(tmp_path: Path) -> None:
    golden = noise(1, 3, 8, 9)
    case = case_of(golden, golden, other=(golden, golden))
    golden_set = {"other": case.golden["other"]}
    views = draw(Case(options=case.options, samples={}, golden=golden_set, outputs={}, cpu={}), tmp_path / "pictures")
    assert [(view.sample, view.input, view.output_picture) for view in views] == [("other", "", "")]
    backwards = {sample: case.golden[sample] for sample in ("other", "photo")}
    sets = Case(options=case.options, samples={}, golden=backwards, outputs=backwards, cpu={})
    assert [view.sample for view in draw(sets, tmp_path / "again")] == ["photo"]


@pytest.mark.parametrize(
    ("low", "high", "dtype", "black_and_white"),
    [
        (0.0, 1.0, "float32", (0.0, 1.0)),
        (0.2, 0.4, "float32", (0.0, 1.0)),
        (-0.1, 1.2, "float32", (0.0, 1.0)),
        (0.0, 255.0, "float32", (0.0, 255.0)),
        (-2.1, 2.6, "float32", (-2.1, 2.6)),
        (10, 20, "uint8", (0.0, 255.0)),
        (-5.0, -5.0, "float32", (-5.0, -5.0)),
    ],
)
def test_black_and_white_fit_the_values(
    low: float, high: float, dtype: str, black_and_white: tuple[float, float]
) -> None:
    picture = np.linspace(low, high, 3 * 4 * 5).reshape(1, 3, 4, 5).astype(dtype)
    assert pictures._extent(picture) == pytest.approx(black_and_white)


def test_what_lies_outside_is_clipped(tmp_path: Path) -> None:
    golden = np.full((1, 3, 2, 2), 0.5)
    made = np.array([-3.0, 0.0, 1.0, 7.0]).reshape(1, 1, 2, 2).repeat(3, axis=1)
    (view, *_) = draw(case_of(golden, made), tmp_path / "pictures")
    assert seen(tmp_path / "p", view.output_picture)[..., 0].tolist() == [[0, 0], [255, 255]]
    assert view.scale == 10.0


def test_what_is_not_finite_is_magenta(tmp_path: Path) -> None:
    golden = noise(1, 3, 600, 700)
    made = golden.copy()
    made[0, 0, 100, 200] = np.nan
    made[0, 2, 400, 500] = np.inf
    whole, piece = draw(case_of(golden, made), tmp_path / "pictures")
    for path in (whole.output_picture, whole.error):
        picture = seen(tmp_path / "p", path)
        assert (picture[50, 100] == MAGENTA).all()
        assert (picture[200, 250] == MAGENTA).all()
    assert (seen(tmp_path / "p", piece.output_picture)[32, 32] == MAGENTA).all()


def test_an_answer_of_another_shape_is_drawn_without_an_error_picture(tmp_path: Path) -> None:
    golden = noise(1, 3, 20, 30)
    (view,) = draw(case_of(golden, np.swapaxes(golden, 2, 3)), tmp_path / "pictures")
    assert seen(tmp_path / "p", view.output_picture).shape == (30, 20, 3)
    assert (view.error, view.scale) == ("", 0.0)


@pytest.mark.parametrize(
    "shape", [(3, 20, 30), (1, 4, 20, 30), (1, 20, 30, 3), (1, 3, 0, 30), (0, 3, 20, 30), (60,), ()]
)
def test_what_is_no_picture_is_not_drawn(tmp_path: Path, shape: tuple[int, ...]) -> None:
    golden = np.zeros(shape)
    assert draw(case_of(golden, golden), tmp_path / "pictures") == ()


@pytest.mark.parametrize("name", ["../../out", "/etc/passwd", "a b/c:0", "résultat", "", "x" * 300, "\n"])
def test_the_name_of_an_output_does_not_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    golden = noise(1, 3, 8, 9)
    sets = {"photo": {name: golden}}
    options = asked(sets, (group("image", name, content="picture"),))
    (view,) = draw(Case(options=options, samples={}, golden=sets, outputs=sets, cpu={}), tmp_path / "pictures")
    assert view.golden.isascii()
    assert (tmp_path / view.golden).parent == tmp_path / "pictures"
    assert (tmp_path / view.golden).is_file()


def test_two_outputs_whose_names_differ_in_odd_signs_only_get_files_of_their_own(tmp_path: Path) -> None:
    sets = {"photo": {"y:0": noise(1, 3, 8, 9), "y/0": noise(1, 3, 8, 9, seed=2)}}
    options = asked(sets, (group("image", "y:0", "y/0", content="picture"),))
    views = draw(Case(options=options, samples=sets, golden=sets, outputs=sets, cpu={}), tmp_path / "pictures")
    paths = [path for view in views for path in (view.input, view.golden, view.output_picture, view.error)]
    assert len(set(paths)) == len(paths) == 8


@PATIENT
@given(st.floats(1e-30, 1e30))
def test_the_scale_is_a_round_number_just_above_the_largest_difference(largest: float) -> None:
    scale = pictures._rounded_up(np.array([[[largest, 0.0, np.inf]]]))
    assert largest <= scale <= 2.5 * largest * (1 + 1e-9)
    assert f"{scale:.0e}"[0] in "125"
    assert scale == float(f"{scale:.0e}")


def test_the_same_tensors_give_the_same_bytes(tmp_path: Path) -> None:
    golden = noise(1, 3, 90, 120)
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        views = draw(case_of(golden, golden * 0.9, golden), tmp_path / name / "pictures")
        found.append({path: (tmp_path / name / path).read_bytes() for path in _paths(views)})
    assert found[0] == found[1]


def _paths(views: tuple[View, ...]) -> list[str]:
    return [path for view in views for path in (view.input, view.golden, view.output_picture, view.error) if path]
