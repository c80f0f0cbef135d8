"""Tensors as files: equal bytes for equal tensors, and nothing is read that is not exactly as it was written."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from runtimes.kit import tensors
from runtimes.kit.ports import Port
from runtimes.kit.tensors import BadTensors


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    folder = tmp_path / "stored"
    tensors.save(folder, {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.ones(4, dtype=np.int64)})
    return folder


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / tensors.LISTING
    listing = json.loads(path.read_text(encoding="utf-8"))
    change(listing)
    path.write_text(json.dumps(listing), encoding="utf-8")


@given(
    array=arrays.arrays(
        dtype=st.sampled_from(tensors.DTYPES), shape=arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)
    )
)
@settings(deadline=None, max_examples=60)
def test_every_tensor_comes_back_with_its_bits(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray[Any, Any]
) -> None:
    folder = tmp_path_factory.mktemp("tensors")
    tensors.save(folder, {"x": array})
    assert same(tensors.load(folder)["x"], array)


def test_nan_infinity_and_negative_zero_come_back(tmp_path: Path) -> None:
    array = np.array([np.nan, np.inf, -np.inf, -0.0], dtype=np.float16)
    tensors.save(tmp_path / "x", {"x": array})
    assert same(tensors.load(tmp_path / "x")["x"], array)


def test_numpy_reads_the_files_too(stored: Path) -> None:
    assert np.load(stored / "1.npy", allow_pickle=False).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_equal_tensors_give_equal_bytes_whatever_their_order_and_layout(tmp_path: Path, stored: Path) -> None:
    fortran = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    tensors.save(tmp_path / "again", {"a": np.ones(8, dtype=">i8")[::2], "b": fortran})
    assert files(tmp_path / "again") == files(stored)


def test_a_folder_that_holds_something_is_not_written_to(stored: Path) -> None:
    with pytest.raises(BadTensors, match="is not empty"):
        tensors.save(stored, {})


@pytest.mark.parametrize(
    "array", [np.array([object()]), np.array(["text"]), np.array([1j]), np.array(["2020-01-01"], dtype="M8[D]")]
)
def test_a_dtype_that_does_not_travel_is_refused(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(BadTensors, match="does not travel"):
        tensors.save(tmp_path / "x", {"x": array})


def test_a_tensor_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTensors, match="without a name"):
        tensors.save(tmp_path / "x", {"": np.ones(1)})


def test_a_missing_folder_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(BadTensors, match="nowhere: is no folder of tensors"):
        tensors.load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", [tensors.LISTING, "0.npy"])
def test_a_missing_file_is_named(stored: Path, name: str) -> None:
    (stored / name).unlink()
    with pytest.raises(BadTensors, match=f"stored/{name}: no such file"):
        tensors.load(stored)


@pytest.mark.parametrize("name", [tensors.LISTING, "0.npy"])
def test_a_link_is_not_followed(tmp_path: Path, stored: Path, name: str) -> None:
    (stored / name).rename(tmp_path / "elsewhere")
    (stored / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadTensors, match="no such file"):
        tensors.load(stored)


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path, stored: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "photo").symlink_to(stored)
    with pytest.raises(BadTensors, match="photo: is no folder of tensors"):
        tensors.load_samples(tmp_path / "set")


def test_a_file_that_is_not_listed_is_refused(stored: Path) -> None:
    (stored / "2.npy").touch()
    with pytest.raises(BadTensors, match=r"holds \['2.npy'\], which tensors.json does not list"):
        tensors.load(stored)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: data[:0]])
def test_a_file_of_another_size_is_refused(stored: Path, change: Callable[[bytes], bytes]) -> None:
    path = stored / "1.npy"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BadTensors, match=r"1.npy: \d+ bytes, but float32 \[2, 3\] of tensors.json takes 152"):
        tensors.load(stored)


def test_a_header_that_contradicts_the_listing_is_refused(stored: Path) -> None:
    rewrite(stored, lambda listing: listing["tensors"][1].update(shape=[3, 2]))
    with pytest.raises(BadTensors, match="header is not that"):
        tensors.load(stored)


def test_a_forged_shape_asks_for_no_memory(stored: Path) -> None:
    rewrite(stored, lambda listing: listing["tensors"][0].update(shape=[1 << 59]))
    with pytest.raises(BadTensors, match="0.npy: 160 bytes, but"):
        tensors.load(stored)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda listing: listing["tensors"][0].update(name="b"), "stands there twice"),
        (lambda listing: listing["tensors"][0].update(name=""), "without a name"),
        (lambda listing: listing["tensors"][0].update(dtype="object"), "dtype object does not travel"),
        (lambda listing: listing["tensors"][0].update(shape=[-1]), "negative size"),
        (lambda listing: listing["tensors"][0].update(shape=[1] * 65), "'a' has 65 dimensions; 32 is the most"),
        (lambda listing: listing["tensors"][0].update(shape=[1] * 100_000), "'a' has 100000 dimensions; 32 is the"),
        (lambda listing: listing["tensors"][0].update(shape=[2**70]), "takes more than 9223372036854775807 bytes"),
        (lambda listing: listing["tensors"][0].update(shape=[0, 2**70]), "takes more than 9223372036854775807 bytes"),
        (lambda listing: listing["tensors"][0].update(shape=[2**31, 2**31]), "takes more than 9223372036854775807"),
        (lambda listing: listing["tensors"][0].update(shape=[0, 2**60]), "takes more than 9223372036854775807 bytes"),
        (lambda listing: listing["tensors"][0].update(shape="4"), "is not a list"),
        (lambda listing: listing["tensors"][0].update(shap=[4]), "unknown key 'shap'; did you mean 'shape'"),
        (lambda listing: listing.clear(), "'tensors' is missing"),
    ],
)
def test_a_listing_that_does_not_fit_is_refused(
    stored: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    rewrite(stored, change)
    with pytest.raises(BadTensors, match=words):
        tensors.load(stored)


def forge(folder: Path, *, shape: tuple[int, ...]) -> None:
    """Make the tensor `a` claim another shape, in the listing and in its file."""
    rewrite(folder, lambda listing: listing["tensors"][0].update(shape=list(shape)))
    header = tensors._header(Port(name="a", shape=shape, dtype="int64"))
    (folder / "0.npy").write_bytes(header + np.ones(math.prod(shape), dtype=np.int64).tobytes())


@pytest.mark.parametrize("shape", [(1,) * 65, (0, 2**62)])
def test_a_shape_that_numpy_cannot_have_is_refused_by_its_guard_or_else_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch, stored: Path, shape: tuple[int, ...]
) -> None:
    forge(stored, shape=shape)
    with pytest.raises(BadTensors, match=r"stored/tensors.json: "):
        tensors.load(stored)
    monkeypatch.setattr(tensors, "_check_port", lambda *_: None)
    with pytest.raises(BadTensors, match=r"stored/0.npy: cannot be read as int64 \["):
        tensors.load(stored)


def test_a_tensor_of_too_many_dimensions_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BadTensors, match="'x' has 33 dimensions; 32 is the most that travel"):
        tensors.save(tmp_path / "x", {"x": np.ones((1,) * 33)})


@given(position=st.integers(min_value=0), byte=st.integers(0, 255), name=st.sampled_from([tensors.LISTING, "1.npy"]))
@settings(deadline=None, max_examples=80)
def test_a_flipped_byte_is_refused_or_is_data(
    tmp_path_factory: pytest.TempPathFactory, position: int, byte: int, name: str
) -> None:
    folder = tmp_path_factory.mktemp("tensors")
    tensors.save(folder, {"a": np.ones(4, dtype=np.int64), "b": np.arange(6, dtype=np.float32).reshape(2, 3)})
    data = bytearray((folder / name).read_bytes())
    data[position % len(data)] = byte
    (folder / name).write_bytes(data)
    try:
        loaded = tensors.load(folder)
    except BadTensors:
        return
    assert sorted(array.nbytes for array in loaded.values()) == [24, 32]


def test_a_sample_set_comes_back_by_name(tmp_path: Path) -> None:
    samples = {
        name: {"x": np.full((1, 2), index, dtype=np.float32)}
        for index, name in enumerate(["random-0.25", "other-images/0", "photo", "a b:c%é"])
    }
    tensors.save_samples(tmp_path / "set", samples)
    loaded = tensors.load_samples(tmp_path / "set")
    assert list(loaded) == sorted(samples)
    assert all(same(loaded[name]["x"], samples[name]["x"]) for name in samples)
    assert (tmp_path / "set" / "random-0.25" / tensors.LISTING).is_file()


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_sample_that_would_leave_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadTensors, match="cannot name a sample"):
        tensors.save_samples(tmp_path / "set", {name: {}})


def test_an_empty_sample_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    with pytest.raises(BadTensors, match="set: holds no sample"):
        tensors.load_samples(tmp_path / "set")


def test_a_loose_file_in_a_sample_set_is_refused(tmp_path: Path, stored: Path) -> None:
    (tmp_path / "set").mkdir()
    stored.rename(tmp_path / "set" / "photo")
    (tmp_path / "set" / "notes.txt").touch()
    with pytest.raises(BadTensors, match=r"notes.txt: is no folder of tensors"):
        tensors.load_samples(tmp_path / "set")


@pytest.mark.parametrize("name", [b"a%62", b"a\xff", b"%ff", "é".encode()])
def test_a_sample_under_another_spelling_of_its_name_is_refused(tmp_path: Path, name: bytes) -> None:
    tensors.save(tmp_path / "set" / os.fsdecode(name), {"x": np.ones(1)})
    with pytest.raises(BadTensors, match="not the name that it was written with"):
        tensors.load_samples(tmp_path / "set")
