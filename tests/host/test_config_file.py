from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import onnx
import onnx.external_data_helper
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from aipc import modelfile
from aipc.config import Content, Input, Origin, Source, model_from_file
from aipc.errors import UsageError
from aipc.model import MODEL_NAME
from aipc.modelfile import external_data


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(path: str | Path, shape: tuple[int, ...] = ()) -> str:
    with pytest.raises(UsageError) as caught:
        model_from_file(path, shape)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def save_onnx(path: Path, locations: dict[str, str]) -> None:
    """Save a model with one tensor in each of the files that `locations` names, relative to its folder."""
    tensors = []
    for name, location in locations.items():
        tensor = numpy_helper.from_array(np.ones((4, 4), np.float32), name)
        onnx.external_data_helper.set_external_data(tensor, location, offset=0, length=64)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensors.append(tensor)
        if not Path(location).is_absolute():
            data = path.parent / location
            data.parent.mkdir(parents=True, exist_ok=True)
            data.write_bytes(bytes(64))
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])
    graph = helper.make_graph([helper.make_node("Add", list(locations), ["y"])], "g", [], [value], tensors)
    path.write_bytes(helper.make_model(graph).SerializeToString())


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("net.onnx", Origin.ONNX),
        ("net.pt2", Origin.EXPORTED),
        ("net.pth", Origin.CHECKPOINT),
        ("net.pt", Origin.CHECKPOINT),
        ("net.ckpt", Origin.CHECKPOINT),
        ("net.safetensors", Origin.CHECKPOINT),
        ("net.ONNX", Origin.ONNX),
    ],
)
def test_a_file_is_a_model_called_by_its_stem_and_its_content(here: Path, name: str, source: Origin) -> None:
    (here / name).write_bytes(b"content")
    sha256 = hashlib.sha256(b"content").hexdigest()
    model = model_from_file(name, (64, 96))
    assert model.name == f"net-{sha256[:8]}"
    assert model.source == source
    assert model.weights == (Source(path=str(here / name), sha256=sha256),)
    assert (model.inputs, model.outputs, model.shape, model.trusted) == ((), (), (64, 96), False)
    assert model_from_file(here / name, trusted=True).trusted


def test_another_content_is_another_model(here: Path) -> None:
    (here / "net.onnx").write_bytes(b"one")
    one = model_from_file("net.onnx").name
    (here / "net.onnx").write_bytes(b"two")
    assert model_from_file("net.onnx").name != one


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("My Net (v2)", "my-net-v2"),
        ("4x_UltraSharp", "model-4x-ultrasharp"),
        ("--", "model"),
        ("сеть", "model"),
        ("a" * 200, "a" * 48),
    ],
)
def test_any_file_name_makes_a_name_for_a_cell(here: Path, stem: str, name: str) -> None:
    (here / f"{stem}.onnx").write_bytes(b"content")
    assert model_from_file(f"{stem}.onnx").name == f"{name}-{hashlib.sha256(b'content').hexdigest()[:8]}"


@given(stem=st.text())
def test_any_text_makes_a_name_for_a_cell(stem: str) -> None:
    assert MODEL_NAME.fullmatch(modelfile._name(stem, "0" * 64))


def test_the_files_that_an_onnx_file_needs_are_found(here: Path) -> None:
    long = "d" * 100 + "/" + "n" * 100 + ".bin"
    save_onnx(here / "net.onnx", {"a": "net.onnx.data", "b": "sub/weights.bin", "c": "net.onnx.data", "d": long})
    (here / "other.bin").write_bytes(b"nobody names it")
    assert external_data(here / "net.onnx") == {
        name: here / name for name in (long, "net.onnx.data", "sub/weights.bin")
    }


def test_the_data_of_an_onnx_file_is_part_of_its_name(here: Path) -> None:
    save_onnx(here / "net.onnx", {"a": "net.onnx.data"})
    one = model_from_file("net.onnx")
    (here / "net.onnx.data").write_bytes(bytes(63) + b"!")
    other = model_from_file("net.onnx")
    assert one.name != other.name
    assert one.weights == other.weights


@pytest.mark.parametrize("location", ["../net.data", "/etc/hostname", "sub/../../net.data"])
def test_data_outside_the_folder_is_refused(here: Path, location: str) -> None:
    folder = here / "models"
    folder.mkdir()
    save_onnx(folder / "net.onnx", {"a": location})
    assert f"its tensors are in {location!r}, outside its folder; save it again" in refusal("models/net.onnx")


def test_data_that_is_not_there_is_refused(here: Path) -> None:
    save_onnx(here / "net.onnx", {"a": "net.data"})
    (here / "net.data").unlink()
    assert refusal("net.onnx") == "net.onnx: its tensors are in 'net.data', which is not there; put that file beside it"


@given(content=st.binary() | st.binary().map(lambda tail: b"\x0a\x08location\x12" + tail))
def test_any_bytes_are_searched_without_a_fault(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("any") / "net.onnx"
    file.write_bytes(content)
    try:
        said = model_from_file(file).name
    except UsageError as error:
        said = str(error)
    assert len(said.splitlines()) == 1


def test_what_is_no_model_file_is_answered_with_what_is(here: Path) -> None:
    (here / "net.onnx").touch()
    (here / "notes.txt").touch()
    (here / "folder.onnx").mkdir()
    kinds = ".onnx, .pt2, .pth, .pt, .ckpt, .safetensors"
    assert refusal("ent.onnx") == "ent.onnx: no such file; did you mean 'net.onnx'?"
    assert refusal("notes.txt") == (
        f"notes.txt: '.txt' is no kind of model; give a file that ends in {kinds}, or module:function"
    )
    assert refusal("folder.onnx").startswith("folder.onnx: not a file; give a file that ends in .onnx")
    assert refusal("notes.txt/net.onnx").startswith("notes.txt/net.onnx: no such file")
    assert refusal("no/where/net.onnx").startswith("no/where/net.onnx: no such file")
    assert refusal("two\nlines.onnx").startswith("two lines.onnx: no such file")


def test_a_file_that_may_not_be_read_says_so(forbidden_file: Path) -> None:
    assert refusal(forbidden_file).endswith("cannot be read: Permission denied; check who may read it")


def test_a_function_is_a_model_of_its_folder(here: Path) -> None:
    (here / "nets").mkdir()
    (here / "nets" / "small.py").write_text("def build(): ...\n")
    model = model_from_file("nets.small:build", (64, 96))
    assert re.fullmatch("build-[0-9a-f]{8}", model.name)
    assert (model.source, model.function, model.folder) == (Origin.FUNCTION, "nets.small:build", str(here))
    assert model.inputs == (Input(name="input", shape=(1, 3, 64, 96), content=Content.PICTURE),)
    assert model_from_file("small:build", (2, 3, 5), folder=here / "nets").inputs == (
        Input(name="input", shape=(2, 3, 5)),
    )
    (here / "nets" / "small.py").write_text("def build(): return 1\n")
    assert model_from_file("nets.small:build", (64, 96)).name != model.name


def test_a_package_may_hold_the_function(here: Path) -> None:
    (here / "nets").mkdir()
    (here / "nets" / "__init__.py").touch()
    assert model_from_file("nets:build", (1, 8, 64, 96)).inputs[0].content == Content.UNIFORM


def test_a_function_that_cannot_be_found_is_answered_with_the_nearest(here: Path) -> None:
    (here / "small.py").touch()
    assert refusal("smal:build", (64, 96)) == "smal:build: no module 'smal' in .; did you mean 'small'?"
    assert refusal("nets.small:build", (64, 96)).startswith("nets.small:build: no module 'nets.small' in .")
    assert refusal("small:build") == (
        "small:build: a function does not say the shape of its input; add it, for instance #1x3x96x128"
    )
