"""Calibration data: enough of it, and of the scale that the model takes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from runtimes import contract
from runtimes.contract import Job, Json, Layout, Step
from runtimes.kit import tensors
from runtimes.kit.tensors import Array
from runtimes.kit.work import Refused, Work
from runtimes.reference import inputs
from runtimes.reference.calibrate import calibrate
from runtimes.reference.options import Input

PICTURE = {"name": "image", "shape": [1, 3, 24, 32], "content": "picture", "mean": [0.5] * 3, "std": [0.25] * 3}
TOKENS = {"name": "tokens", "shape": [2, 7], "dtype": "int64", "content": "integers", "low": 0, "high": 99}


class Bench:
    """One job in a workspace, done in this process."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root)
        self.layout.inputs.mkdir(parents=True)
        self.pictures = self.layout.inputs / "pictures"
        self.pictures.mkdir()
        self.folder = self.layout.inputs / "folder"
        pixels = np.random.default_rng(3).integers(0, 255, (60, 90, 3), np.uint8)
        Image.fromarray(pixels).save(self.pictures / "photo.png")

    def __call__(self, *ports: Json, count: int = 6) -> tuple[dict[str, dict[str, Array]], dict[str, Json]]:
        names = tuple(path.name for path in (self.pictures, self.folder) if path.is_dir())
        options = {"inputs": list(ports), "count": count, "seed": 5}
        work = Work(self.layout, Job(step=Step.CALIBRATE, runtime="reference", inputs=names, options=options))
        facts = calibrate(work)
        json.dumps(contract.encode(facts))
        return tensors.load_samples(self.layout.outputs / "calibration"), facts


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_cuts_of_a_photograph_differ_and_have_the_models_scale(bench: Bench) -> None:
    samples, facts = bench(PICTURE, TOKENS)
    assert facts["samples"] == len(samples) == 6
    images = [sample["image"] for sample in samples.values()]
    assert all(image.shape == (1, 3, 24, 32) and image.dtype == np.float32 for image in images)
    assert len({image.tobytes() for image in images}) == 6
    low, high = facts["ranges"]["image"]
    assert -2.0 <= low < -1.0 < 1.0 < high <= 2.0
    assert len({sample["tokens"].tobytes() for sample in samples.values()}) == 6
    assert facts["ranges"]["tokens"][1] <= 99


def test_one_sample_in_four_is_drawn_from_the_whole_range_and_is_none_of_the_judges(bench: Bench) -> None:
    samples, _ = bench(PICTURE, count=8)
    port = contract.decode(Input, PICTURE, "")
    drawn = [name for name, sample in samples.items() if (sample["image"] == inputs.draw(port, name, 5)).all()]
    assert drawn == ["calibration-003", "calibration-007"]
    low, high = samples["calibration-003"]["image"].min(), samples["calibration-003"]["image"].max()
    assert low < -1.99
    assert high > 1.99
    judged = inputs.make([port], [bench.pictures / "photo.png"], seed=5, magnitudes=[1.0, 0.1]).values()
    assert not {each["image"].tobytes() for each in samples.values()} & {each["image"].tobytes() for each in judged}


def test_without_pictures_all_is_drawn_where_no_input_is_one(bench: Bench) -> None:
    shutil.rmtree(bench.pictures)
    samples, _ = bench(TOKENS)
    assert len({sample["tokens"].tobytes() for sample in samples.values()}) == 6


def test_a_picture_without_pictures_is_refused(bench: Bench) -> None:
    shutil.rmtree(bench.pictures)
    with pytest.raises(Refused, match="'image' is a picture, and there is none to calibrate with"):
        bench(PICTURE)


def test_equal_options_give_equal_samples(tmp_path: Path) -> None:
    first, second = (Bench(tmp_path / name)(PICTURE)[0] for name in ("one", "two"))
    assert all((first[name]["image"] == second[name]["image"]).all() for name in first)


def test_a_folder_of_pictures_is_taken_whole_up_to_the_count(bench: Bench) -> None:
    bench.folder.mkdir()
    for number in range(4):
        Image.new("RGB", (40, 30), (60 * number, 99, 200)).save(bench.folder / f"{number}.jpg")
    assert list(bench(PICTURE, count=3)[0]) == ["0.jpg", "1.jpg", "2.jpg"]


@pytest.mark.parametrize("shape", [(1, 3, 24, 32), (3, 24, 32)])
def test_an_array_may_leave_out_the_first_dimension(bench: Bench, shape: tuple[int, ...]) -> None:
    bench.folder.mkdir()
    np.save(bench.folder / "a.npy", np.full(shape, 1.5, np.float32))
    samples, facts = bench(PICTURE)
    assert samples["a.npy"]["image"].shape == (1, 3, 24, 32)
    assert facts["ranges"] == {"image": [1.5, 1.5]}


def test_a_sample_of_several_inputs_is_one_file(bench: Bench) -> None:
    bench.folder.mkdir()
    np.savez(bench.folder / "a.npz", image=np.ones((3, 24, 32), np.float32), tokens=np.full((2, 7), 98))
    samples, _ = bench(PICTURE, TOKENS)
    assert set(samples["a.npz"]) == {"image", "tokens"}


@pytest.mark.parametrize(
    ("array", "said"),
    [
        pytest.param(np.full((3, 24, 32), 255.0, np.float32), "goes from 255 to 255, .* -2 to 2", id="pixels"),
        pytest.param(
            np.full((3, 24, 32), 0.001, np.float32),
            "from 0.001 to 0.001 only",
            id="far too small",
        ),
        pytest.param(np.full((3, 24, 32), np.nan, np.float32), "goes from nan to nan", id="no number"),
        pytest.param(np.ones((24, 32, 3), np.float32), r"float32 \[24, 32, 3\], the model takes float32", id="NHWC"),
        pytest.param(np.ones((3, 24, 32)), r"is float64 \[1, 3, 24, 32\]", id="another type"),
        pytest.param(np.array([{}]), "allow_pickle=False", id="a pickle"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(bench: Bench, array: Array, said: str) -> None:
    bench.folder.mkdir()
    np.save(bench.folder / "a.npy", array, allow_pickle=True)
    with pytest.raises(Refused, match=said):
        bench(PICTURE)


def test_a_folder_without_data_is_refused(bench: Bench) -> None:
    bench.folder.mkdir()
    (bench.folder / "notes.txt").write_text("none")
    with pytest.raises(Refused, match="holds no file that ends in .png"):
        bench(PICTURE)


def test_an_array_for_one_of_two_inputs_is_refused(bench: Bench) -> None:
    bench.folder.mkdir()
    np.save(bench.folder / "a.npy", np.ones((3, 24, 32), np.float32))
    with pytest.raises(Refused, match=r"holds \['image'\], the model takes 'image', 'tokens'"):
        bench(PICTURE, TOKENS)


UNIT = {"name": "image", "shape": [1, 3, 24, 32], "content": "picture"}
NORMAL = {"name": "noise", "shape": [2, 3], "content": "normal", "high": 2.0}
MASK = {"name": "mask", "shape": [2, 4], "dtype": "int64", "content": "mask"}


def one(bench: Bench, port: Json, array: Array) -> None:
    bench.folder.mkdir()
    np.save(bench.folder / "a.npy", array)
    bench(port)


@pytest.mark.parametrize(
    ("port", "low", "high"),
    [
        pytest.param(UNIT, 0.0, 1.0, id="a picture"),
        pytest.param(UNIT, 0.3, 0.4, id="a dull picture"),
        pytest.param(UNIT, -0.015, 1.015, id="a resized picture"),
        pytest.param(PICTURE, -2.0, 2.0, id="a normalised picture"),
        pytest.param(TOKENS, 3, 8, id="tokens that are all below a quarter of the vocabulary"),
        pytest.param(TOKENS, 0, 0, id="padding"),
        pytest.param(TOKENS, 0, 99, id="the whole vocabulary"),
        pytest.param(NORMAL, -9.0, 9.0, id="noise"),
        pytest.param(MASK, 0, 1, id="a mask"),
    ],
)
def test_data_inside_the_declared_range_are_taken(bench: Bench, port: dict[str, Json], low: float, high: float) -> None:
    one(bench, port, np.resize([low, high], port["shape"]).astype(port.get("dtype", "float32")))


@pytest.mark.parametrize(
    ("port", "low", "high", "said"),
    [
        pytest.param(UNIT, -2.1, 2.6, "goes from -2.1 to 2.6, the model takes 0 to 1", id="mean and std for 0 to 1"),
        pytest.param(UNIT, -1.0, 1.0, "goes from -1 to 1, the model takes 0 to 1", id="-1 to 1 for 0 to 1"),
        pytest.param(PICTURE, 0.0, 255.0, "goes from 0 to 255, the model takes -2 to 2", id="pixels"),
        pytest.param(TOKENS, 0, 100, "goes from 0 to 100, the model takes 0 to 99", id="a token too many"),
        pytest.param(TOKENS, -1, 5, "goes from -1 to 5", id="no token"),
        pytest.param(MASK, 0, 2, "goes from 0 to 2, the model takes 0 to 1", id="no mask"),
        pytest.param(NORMAL, -40.0, 40.0, "the model takes -16 to 16", id="another deviation"),
        pytest.param({**UNIT, "high": 255.0}, 0.0, 1.0, "only, the model takes 0 to 255", id="0 to 1 for pixels"),
    ],
)
def test_data_outside_the_declared_range_are_refused(
    bench: Bench, port: dict[str, Json], low: float, high: float, said: str
) -> None:
    with pytest.raises(Refused, match=said) as refused:
        one(bench, port, np.resize([low, high], port["shape"]).astype(port.get("dtype", "float32")))
    assert "scale it as the model's own preprocessing does" in refused.value.failure.hint
