"""What the adapter makes of the vendor's words, names and numbers; no toolchain is needed."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.contract import Kind, Misused
from runtimes.kit.ports import Port
from runtimes.kit.socs import SOCS
from runtimes.kit.work import Failed
from runtimes.qairt import failures, interface, raw
from runtimes.qairt.interface import Interface, Stored, Tensor
from runtimes.qairt.sdk import Ran
from runtimes.qairt.targets import Precision, Target
from tests.runtimes.openvino_jobs import ROOT, one


def test_the_targets_are_those_of_runtime_toml_and_of_the_kit() -> None:
    told = tomllib.loads((ROOT / "qairt" / "runtime.toml").read_text())
    assert set(told["targets"]) == set(Target) == {*SOCS, "htp", "cpu"}
    assert set(told["precisions"]) == set(Precision)
    assert set(told["quantized"]) == {each for each in Precision if each.quantized}
    assert all(told["targets"][each]["devices"] == [Target(each).device] for each in told["targets"])


# The words.
@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("OSError: [Errno 28] No space left on device", Kind.DISK),
        ("ImportError: libc++.so.1: cannot open shared object file: No such file", Kind.MISSING_PACKAGE),
        ("ModuleNotFoundError: No module named 'pandas'", Kind.MISSING_PACKAGE),
        ("terminate called after throwing an instance of 'std::bad_alloc'", Kind.MEMORY),
        ("ERROR - ONNX opset 22 is not supported", Kind.UNSUPPORTED_OPSET),
        ("ERROR: Dynamic shapes are not allowed for input x", Kind.DYNAMIC_SHAPE),
        ("Segmentation of the graph failed", Kind.TOOLCHAIN),
        ("usage: qairt-converter: error: unrecognized arguments: -s", Kind.TOOLCHAIN),
    ],
)
def test_the_kind_of_a_failure_is_read_from_its_words(words: str, kind: Kind, tmp_path: Path) -> None:
    failure = failures.describe(words, tmp_path / "model.onnx")
    assert (failure.kind, failure.message) == (kind, words)
    assert bool(failure.hint) == (kind not in (Kind.MEMORY, Kind.TOOLCHAIN) or "usage" in words)


@pytest.mark.parametrize(
    "words",
    [
        "No translation registered for op type onnx_trilu. Op version: 14",
        "Unsupported ops: Trilu",
        "WARNING: Unsupported Operation type: 'Trilu'",
        "ERROR: Op type Trilu is not supported on this backend",
    ],
)
def test_an_operator_is_found_in_each_of_the_vendors_phrases(words: str, tmp_path: Path) -> None:
    onnx.save(one("Trilu").model, tmp_path / "model.onnx")
    failure = failures.describe(words, tmp_path / "model.onnx")
    assert (failure.kind, failure.op, failure.node) == (Kind.UNSUPPORTED_OP, "Trilu", "/odd")
    assert failures.describe(words, tmp_path / "gone.onnx").op.lower() == "trilu"


# What a tool has done.
@pytest.mark.parametrize(
    ("code", "words", "missing", "good"),
    [
        (0, "", (), True),
        (0, "[ ERROR ] something", (), True),
        (1, "all well", (), True),
        (1, "[ ERROR ] something", (), False),
        (1, "Traceback (most recent call last):", (), False),
        (1, "2026-01-01 ERROR - something", (), False),
        (0, "", ("model.dlc",), False),
        (-11, "", (), False),
        # A script whose program was killed leaves what it had written so far.
        (139, "Segmentation fault", (), False),
        # What exit(-1) becomes is no signal.
        (255, "all well", (), True),
    ],
)
def test_a_tool_is_judged_by_its_files_and_its_words(
    code: int, words: str, missing: tuple[str, ...], good: bool
) -> None:
    ran = Ran(tool="t", code=code, words=words, missing=missing)
    assert bool(ran) is good
    assert bool(ran.notes) == (bool(code) or "ERROR" in words)
    if not good:
        assert ran.failure(Path("none")).message.startswith("t ")


# Inputs and outputs.
NUMBER = Port(name="/ids", shape=(1, 3), dtype="int64")
PICTURE = Port(name="x", shape=(1, 3, 4, 5), dtype="float32")


@pytest.mark.parametrize(
    ("stored", "wrong"),
    [
        ([("_ids", (1, 3), "int64"), ("x", (1, 3, 4, 5), "float32")], []),
        ([("/ids", (1, 3), "int32"), ("x", (1, 3, 4, 5), "fixed point")], []),
        ([("_ids", (1, 3), "float32"), ("x", (1, 3, 4, 5), "float16")], ["input '/ids' is float32 instead of int64"]),
        ([("x", (1, 3, 4, 5), "float32")], ["input '/ids' is missing"]),
        (
            [("_ids", (1, 3), "int64"), ("x", (1, 4, 5, 3), "float32"), ("z", (1,), "float32")],
            ["input 'x' has the shape [1, 4, 5, 3] instead of [1, 3, 4, 5]", "input 'z' was never asked for"],
        ),
    ],
)
def test_a_graphs_inputs_are_compared_in_both_directions(
    stored: Sequence[tuple[str, tuple[int, ...], str]], wrong: list[str]
) -> None:
    told = [Stored(name=name, shape=shape, dtype=dtype) for name, shape, dtype in stored]
    found, complaints = interface.match("input", (NUMBER, PICTURE), told)
    assert complaints == wrong
    if not wrong:
        assert [each.name for each in found] == ["/ids", "x"]


def test_a_type_that_nobody_knows_is_kept_in_the_vendors_words() -> None:
    info = {"name": "x", "dimensions": [1], "dataType": "QNN_DATATYPE_BFLOAT_16"}
    assert Stored.told(info).dtype == "BFLOAT_16"


@pytest.mark.parametrize(("name", "spelt"), [("/a/b.c", "_a_b_c"), ("0x", "_0x"), ("fine_1", "fine_1"), ("é", "_")])
def test_names_are_spelt_as_the_vendor_does(name: str, spelt: str) -> None:
    assert interface.plain(name) == spelt


# The files of bare numbers.
def tensor(dtype: str, stored: str) -> Tensor:
    return Tensor(name="/t", shape=(2, 3), dtype=dtype, stored_name="_t", stored_dtype=stored)


@given(
    kinds=st.sampled_from(
        [("float32", "float32"), ("float32", "float16"), ("int64", "int32"), ("uint8", "uint8"), ("bool", "bool")]
    ),
    values=st.lists(st.integers(0, 1), min_size=6, max_size=6),
    native=st.booleans(),
)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, kinds: tuple[str, str], values: list[int], native: bool
) -> None:
    folder = tmp_path_factory.mktemp("raw")
    array = np.array(values).reshape(2, 3).astype(kinds[0])
    listing = raw.write({"a": {"/t": array}}, [tensor(*kinds)], folder, native=native)
    assert listing.read_text() == "_t:=0/0.raw\n"
    (folder / "0" / "0.raw").rename(folder / f"_t{'_native' if native else ''}.raw")
    found = raw.read(folder, [tensor(*kinds)], native=native)["/t"]
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_a_number_that_the_graphs_type_does_not_hold_is_not_written(tmp_path: Path) -> None:
    array = np.full((2, 3), 2**40)
    with pytest.raises(Misused, match="holds values that int32 does not"):
        raw.write({"a": {"/t": array}}, [tensor("int64", "int32")], tmp_path, native=True)


@pytest.mark.parametrize(
    "feeds",
    [
        {},
        {"/t": np.zeros((2, 4), np.float32)},
        {"/t": np.zeros((2, 3))},
        {"/t": np.zeros((2, 3), np.float32), "u": np.zeros(1)},
    ],
)
def test_a_sample_that_does_not_fit_is_misused(feeds: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Misused, match="the artefact takes"):
        raw.write({"a": feeds}, [tensor("float32", "float32")], tmp_path, native=False)


def test_fixed_point_beside_whole_numbers_is_no_form_that_files_have(tmp_path: Path) -> None:
    mixed = Interface(
        sdk="", route="container", inputs=(tensor("int64", "int32"),), outputs=(tensor("float32", interface.FIXED),)
    )
    assert raw.is_native(mixed)
    (tmp_path / "_t_native.raw").write_bytes(bytes(6))
    with pytest.raises(Failed, match="fixed point beside whole numbers"):
        raw.read(tmp_path, mixed.outputs, native=True)
