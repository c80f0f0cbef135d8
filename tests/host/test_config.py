from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from aipc import config, home, runtime
from aipc.config import DEFAULT_TOLERANCES, Content, Group, Matrix, Tolerance, find_model, load
from aipc.errors import UsageError
from tests.host.matrices import VALID, changed, write

pytestmark = pytest.mark.usefixtures("checkout")

ROOT = Path(__file__).parent.parent.parent


def test_a_matrix_is_what_its_file_says(tmp_path: Path) -> None:
    matrix = load(write(tmp_path, VALID))
    assert (matrix.seed, matrix.magnitudes) == (1, (1.0, 0.1))
    assert list(matrix.models) == ["net", "code", "graph", "state"]
    net = matrix.models["net"]
    assert (net.name, net.source, net.architecture, net.exporter, net.environment) == (
        "net",
        "ncnn",
        "esrgan",
        "dynamo",
        "alpha",
    )
    assert net.inputs[0].shape == (1, 3, 8, 16)
    assert net.inputs[0].mean == (0.5, 0.5, 0.5)
    assert net.groups[0].content == "picture"
    assert matrix.models["code"].opset == 17
    assert matrix.models["state"].trusted
    assert matrix.runtimes["alpha"].precisions == ("fp16", "w8a16")


def test_paths_are_relative_to_the_matrix(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, VALID)
    monkeypatch.chdir(checkout)
    matrix = load(Path("../matrix.toml"))
    assert Path(matrix.models["net"].weights[0].path).resolve() == tmp_path / "weights" / "net.param"
    assert Path(matrix.models["code"].folder).resolve() == tmp_path / "code"
    assert matrix.pictures[0].path == ""


def test_an_empty_matrix_has_defaults_and_no_models(tmp_path: Path) -> None:
    matrix = load(write(tmp_path, {}))
    assert matrix == Matrix(
        models={}, pictures=(), precisions=DEFAULT_TOLERANCES, runtimes={}, seed=0, magnitudes=(1.0, 0.1)
    )


def test_a_runtime_that_is_asked_for_nothing_gets_its_defaults(tmp_path: Path) -> None:
    asked = load(write(tmp_path, changed("runtimes/alpha", {}))).runtimes["alpha"]
    assert (asked.precisions, asked.targets) == (("fp16",), ("cpu",))


def test_a_tolerance_keeps_the_defaults_that_it_does_not_name(tmp_path: Path) -> None:
    matrix = load(write(tmp_path, changed("precisions/fp16", {"cosine": 0.9})))
    assert matrix.precisions["fp16"] == Tolerance(cosine=0.9, snr_db=30.0)
    assert matrix.precisions["fp32"] == DEFAULT_TOLERANCES["fp32"]


def test_a_group_replaces_only_the_limits_that_it_names() -> None:
    usual = Tolerance(cosine=0.99, snr_db=30.0, max_abs=0.5)
    assert Group(name="g", outputs=("y",)).tolerance(usual) == usual
    assert Group(name="g", outputs=("y",), cosine=0.0).tolerance(usual) == replace(usual, cosine=0.0)
    assert Group(name="g", outputs=("y",), snr_db=0.0).tolerance(usual) == replace(usual, snr_db=0.0)
    assert Group(name="g", outputs=("y",), max_abs=0.0).tolerance(usual) == replace(usual, max_abs=0.0)


def test_an_unknown_model_is_answered_with_the_nearest(tmp_path: Path) -> None:
    matrix = load(write(tmp_path, VALID))
    assert find_model(matrix, "net") is matrix.models["net"]
    with pytest.raises(UsageError, match="model 'grahp': not in the matrix; did you mean 'graph'"):
        find_model(matrix, "grahp")
    with pytest.raises(UsageError, match="model 'zz': not in the matrix; known are code, graph, net, state"):
        find_model(matrix, "zz")


def test_a_matrix_that_is_no_toml_is_answered_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "matrix.toml"
    for text, words in (
        (
            "seed = 1\n\nmagnitudes = [1.0, 0.1\nmodels = {}\n",
            "matrix.toml:4: not TOML: Unclosed array; mend",
        ),
        ("seed = 1\nseed = 2\n", "matrix.toml:2: not TOML: Cannot overwrite a value; mend this line"),
        ("seed = ", "matrix.toml: not TOML: Invalid value (at end of document)"),
        ("seed = " + "1" * 5000, "matrix.toml: not TOML: Exceeds the limit"),
        ("seed = " + "[" * 5000, "matrix.toml: not TOML: brackets nested too deep"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=re.escape(words)):
            load(path)
    path.write_bytes(b"licence = '\xff'")
    with pytest.raises(UsageError, match="byte 11 is not UTF-8; save the file as UTF-8"):
        load(path)


def test_a_byte_order_mark_is_no_part_of_a_matrix(tmp_path: Path) -> None:
    path = write(tmp_path, VALID)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load(path).seed == 1


def test_a_matrix_that_is_not_there_is_answered_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, VALID)
    with pytest.raises(UsageError, match=r"^matrx.toml: no such file; did you mean 'matrix.toml'\?$"):
        load(Path("matrx.toml"))
    with pytest.raises(UsageError, match="^code: not a file; name a TOML file$"):
        load(Path("code"))
    with pytest.raises(UsageError, match="^/no/where/matrix.toml: no such file"):
        load(Path("/no/where/matrix.toml"))


def test_the_matrix_of_this_checkout_asks_for_models_that_can_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "HOME", ROOT)
    matrix = load(home.matrix_file())
    assert {"esrgan", "esrgan-anime", "esrgan-compact"} <= set(matrix.models)
    for model in matrix.models.values():
        assert model.licence, model.name
        for weight in model.weights:
            assert weight.package, model.name
        for each in model.inputs:
            if each.content is Content.PICTURE:
                assert len(set(each.shape[1:])) == 3, f"{model.name}: channels, height and width must all differ"
    assert matrix.precisions == {**matrix.precisions, **DEFAULT_TOLERANCES}
    assert set(matrix.runtimes) <= set(runtime.names())


def test_every_name_that_others_rely_on_is_there() -> None:
    assert [name for name in config.__all__ if not hasattr(config, name)] == []
