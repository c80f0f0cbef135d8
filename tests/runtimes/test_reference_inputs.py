"""The inputs that a model is tried on: the same on every machine, varied, and within what was asked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from runtimes.contract import Kind, Misused, decode
from runtimes.kit.tensors import Array
from runtimes.kit.work import Refused
from runtimes.reference import inputs
from runtimes.reference.options import Content, Input, PrepareOptions
from runtimes.reference.prepare import sensitivity

PICTURE = Input(name="x", shape=(1, 3, 6, 8), content=Content.PICTURE)
TOKENS = Input(name="t", shape=(2, 7), dtype="int64", content=Content.INTEGERS, low=5.0, high=90.0)


def digest(array: Array) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def paint(folder: Path, name: str, pixels: Any) -> Path:
    path = folder / name
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path)
    return path


def ramp(folder: Path, name: str = "ramp.png") -> Path:
    """A picture of 20×10 whose red grows to the right, green downwards, blue nowhere."""
    pixels = np.zeros((10, 20, 3), np.uint8)
    pixels[..., 0] = np.arange(20) * 10
    pixels[..., 1] = np.arange(10)[:, None] * 20
    return paint(folder, name, pixels)


def test_draws_are_the_same_bytes_on_every_machine() -> None:
    normal = Input(name="n", shape=(4, 5), content=Content.NORMAL)
    uniform = Input(name="u", shape=(4, 5), low=-2.0, high=3.0)
    assert [digest(inputs.draw(each, "photo", 7)) for each in (PICTURE, TOKENS, normal, uniform)] == [
        "3d614cd78f6324d9",
        "88db7ab2cc612276",
        "b7cfaa435179a918",
        "b0bcc762b1eec3cf",
    ]


def test_a_draw_depends_on_seed_sample_and_input() -> None:
    other = Input(name="z", shape=PICTURE.shape, content=Content.PICTURE)
    draws = [
        inputs.draw(PICTURE, "photo", 1),
        inputs.draw(PICTURE, "photo", 2),
        inputs.draw(PICTURE, "random-1", 1),
        inputs.draw(other, "photo", 1),
    ]
    assert len({digest(draw) for draw in draws}) == 4


def test_samples_come_in_several_magnitudes(tmp_path: Path) -> None:
    samples = inputs.make([PICTURE], [ramp(tmp_path)], seed=1, magnitudes=[0.1, 1.0, 3.0])
    assert list(samples) == ["photo", "random-0.1", "random-1", "random-3"]
    for name, magnitude in (("random-0.1", 0.1), ("random-1", 1.0), ("random-3", 3.0)):
        drawn = samples[name]["x"]
        assert drawn.dtype == np.float32
        assert drawn.shape == (1, 3, 6, 8)
        assert 0.9 * magnitude < drawn.max() <= magnitude
        assert 0.0 <= drawn.min() < 0.1 * magnitude


def test_integers_stay_in_their_range_whatever_the_magnitude() -> None:
    for magnitude in (0.001, 0.1, 1.0, 1000.0):
        drawn = inputs.draw(TOKENS, "random", 1, magnitude)
        assert drawn.dtype == np.int64
        assert drawn.min() >= 5
        assert drawn.max() <= 90
        assert len(np.unique(drawn)) > 1


def test_the_largest_integer_is_drawn_too() -> None:
    bits = Input(name="b", shape=(100,), dtype="bool", content=Content.INTEGERS)
    assert set(inputs.draw(bits, "photo", 1).tolist()) == {False, True}


def test_with_two_inputs_there_is_a_sample_in_which_only_one_differs(tmp_path: Path) -> None:
    samples = inputs.make([PICTURE, TOKENS], [ramp(tmp_path)], seed=1, magnitudes=[1.0])
    assert set(samples) == {"photo", "random-1", "other-x", "other-t"}
    for name, same, different in (("other-x", "t", "x"), ("other-t", "x", "t")):
        np.testing.assert_array_equal(samples[name][same], samples["photo"][same])
        assert not np.array_equal(samples[name][different], samples["photo"][different])


def test_another_photograph_stands_for_a_picture_where_there_is_one(tmp_path: Path) -> None:
    black = paint(tmp_path, "black.png", np.zeros((10, 10, 3)))
    samples = inputs.make([PICTURE, TOKENS], [ramp(tmp_path), black], seed=1, magnitudes=[])
    assert samples["photo"]["x"].max() > 0
    assert samples["other-x"]["x"].max() == 0


def test_a_photograph_is_cut_in_the_middle_and_resized(tmp_path: Path) -> None:
    pixels = np.zeros((4, 12, 3))
    pixels[:, 4:8] = 255
    path = paint(tmp_path, "middle.png", pixels)
    square = Input(name="x", shape=(1, 3, 4, 4), content=Content.PICTURE)
    np.testing.assert_array_equal(inputs.picture(path, square), np.ones((3, 4, 4), np.float32))


def test_a_photograph_keeps_its_axes_and_channels(tmp_path: Path) -> None:
    red, green, blue = inputs.picture(ramp(tmp_path), Input(name="x", shape=(3, 10, 20), content=Content.PICTURE))
    np.testing.assert_allclose(red[0], np.arange(20) * 10 / 255, atol=1e-6)
    np.testing.assert_allclose(green[:, 0], np.arange(10) * 20 / 255, atol=1e-6)
    assert blue.max() == 0


def test_a_photograph_is_scaled_then_normalised(tmp_path: Path) -> None:
    white = paint(tmp_path, "white.png", np.full((4, 4, 3), 255))
    each = Input(
        name="x",
        shape=(1, 3, 4, 4),
        content=Content.PICTURE,
        low=-1.0,
        high=3.0,
        mean=(1.0, 2.0, 3.0),
        std=(2.0, 4.0, 8.0),
    )
    np.testing.assert_allclose(inputs.picture(white, each)[:, 0, 0], [1.0, 0.25, 0.0])


def test_random_pictures_are_normalised_as_photographs_are() -> None:
    plain, normalised = PICTURE, Input(name="x", shape=PICTURE.shape, content=Content.PICTURE, mean=(0.5,), std=(0.25,))
    expected = (inputs.draw(plain, "random-1", 1) - 0.5) / 0.25
    np.testing.assert_allclose(inputs.draw(normalised, "random-1", 1), expected, rtol=1e-5, atol=1e-6)


def test_a_picture_of_bytes_keeps_whole_numbers(tmp_path: Path) -> None:
    each = Input(name="x", shape=(1, 1, 4, 4), dtype="uint8", content=Content.PICTURE, high=255.0)
    white = paint(tmp_path, "white.png", np.full((4, 4, 3), 255))
    np.testing.assert_array_equal(inputs.picture(white, each), np.full((1, 4, 4), 255, np.uint8))
    assert inputs.draw(each, "random-9", 1, 9.0).max() == 255


def test_a_batch_takes_the_photographs_in_turn(tmp_path: Path) -> None:
    black, white = paint(tmp_path, "b.png", np.zeros((4, 4, 3))), paint(tmp_path, "w.png", np.full((4, 4, 3), 255))
    each = Input(name="x", shape=(3, 3, 4, 4), content=Content.PICTURE)
    photo = inputs.make([each], [black, white], seed=1, magnitudes=[])["photo"]["x"]
    assert [float(one.mean()) for one in photo] == [0.0, 1.0, 0.0]


def test_a_photograph_on_its_side_is_put_upright(tmp_path: Path) -> None:
    pixels = np.zeros((8, 4, 3), np.uint8)
    pixels[:4] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "side.png", exif=exif)
    each = Input(name="x", shape=(1, 1, 4, 8), content=Content.PICTURE)
    np.testing.assert_allclose(inputs.picture(tmp_path / "side.png", each)[0, :, 0], 0.0, atol=1e-6)


def test_a_picture_without_photographs_is_refused() -> None:
    with pytest.raises(Refused, match="input x: is a picture, and there is none") as caught:
        inputs.make([PICTURE], [], seed=1, magnitudes=[])
    assert caught.value.failure.kind is Kind.OPTION


@pytest.mark.parametrize("content", [b"", b"no image at all", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"])
def test_a_file_that_is_no_image_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(content)
    with pytest.raises(Refused, match="picture photo.png: "):
        inputs.picture(path, PICTURE)


def test_a_picture_too_large_to_be_trusted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 150)
    with pytest.raises(Refused, match="picture ramp.png: Image size"):
        inputs.picture(ramp(tmp_path), PICTURE)


OPTIONS = {"source": "function", "seed": 1, "magnitudes": [0.1, 1.0]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": -1}, "seed: -1 is negative"),
        ({"magnitudes": [1.0, 1.0]}, "magnitudes: \\[1.0, 1.0\\]"),
        ({"magnitudes": [0.0]}, "magnitudes: \\[0.0\\]"),
        ({"shape": [1, 0]}, "shape: \\[1, 0\\]"),
        ({"shape": [4, 4], "inputs": [{"name": "x", "shape": [1]}]}, "beside inputs"),
        ({"source": "keras"}, "'keras' is not allowed"),
        ({"outputs": ["y", "y"]}, "y is named twice"),
        ({"inputs": [{"name": "x", "shape": [1]}, {"name": "x", "shape": [1]}]}, "x is named twice"),
        ({"inputs": [{"name": "y", "shape": [1]}], "outputs": ["y"]}, "y is named twice"),
        ({"inputs": [{"name": "", "shape": [1]}]}, "without a name"),
        ({"inputs": [{"name": "x", "shape": [0]}]}, "shape \\[0\\] has a size below 1"),
        ({"inputs": [{"name": "x", "shape": [1], "dtype": "float8"}]}, "dtype 'float8' does not travel"),
        ({"inputs": [{"name": "x", "shape": [1], "low": 1.0}]}, "low 1.0 is not below high 1.0"),
        ({"inputs": [{"name": "x", "shape": [1], "mean": [1.0]}]}, "they belong to a picture"),
        ({"inputs": [{"name": "x", "shape": [1, 2, 3, 4], "content": "picture"}]}, "1, 3 or 4 channels"),
        ({"inputs": [{"name": "x", "shape": [1, 3, 4, 4], "content": "picture", "mean": [1, 2]}]}, "2 numbers in mean"),
        (
            {"inputs": [{"name": "x", "shape": [1, 3, 4, 4], "content": "picture", "std": [0]}]},
            "std \\[0.0\\] holds a zero",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(change: dict[str, Any], words: str) -> None:
    decode(PrepareOptions, OPTIONS, "options")
    with pytest.raises(Misused, match=words):
        decode(PrepareOptions, {**OPTIONS, **change}, "options")


def numbers(*values: float) -> dict[str, Array]:
    return {"y": np.array(values, np.float32)}


def test_a_constant_output_depends_on_nothing() -> None:
    golden = {"photo": numbers(3.0, 4.0), "random-1": numbers(3.0, 4.0)}
    assert sensitivity(golden, ("x",)) == {"y": {"x": 0.0}}


def test_an_output_of_zeros_depends_on_nothing() -> None:
    assert sensitivity({"photo": numbers(0.0), "random-1": numbers(0.0)}, ("x",)) == {"y": {"x": 0.0}}


def test_rounding_on_a_large_offset_is_no_dependence() -> None:
    golden = {"photo": numbers(1000.0, 1000.1), "random-1": numbers(1000.00006, 1000.1)}
    assert sensitivity(golden, ("x",))["y"]["x"] < 1e-6


def test_sensitivity_is_the_relative_error_of_an_artefact_that_ignores_the_input() -> None:
    golden = {"photo": numbers(3.0, 4.0), "random-0.1": numbers(3.0, 4.1), "random-1": numbers(3.0, 3.0)}
    assert sensitivity(golden, ("x",))["y"]["x"] == pytest.approx(1.0 / 5.0)


def test_each_input_is_told_apart() -> None:
    golden = {
        "photo": numbers(1.0),
        "random-1": numbers(9.0),
        "other-a": numbers(2.0),
        "other-b": numbers(1.0),
    }
    assert sensitivity(golden, ("a", "b")) == {"y": {"a": pytest.approx(0.5), "b": 0.0}}


def test_numbers_at_the_end_of_their_range_do_not_overflow() -> None:
    golden = {"photo": {"y": np.array([1e300])}, "random-1": {"y": np.array([-1e300])}}
    assert sensitivity(golden, ("x",)) == {"y": {"x": pytest.approx(2.0)}}
