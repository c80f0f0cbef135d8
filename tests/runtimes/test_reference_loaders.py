"""Every way to load a model, in the real reference environment: one process loads them all."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import runtimes
from tests.runtimes import ncnn_files
from tests.runtimes.reference_attacks import ATTACKS

pytestmark = pytest.mark.toolchain

HERE = Path(__file__).parent
CODE = Path(next(iter(runtimes.__path__))).parent
Outcomes = dict[str, Any]

SMALL = [1, 4, 6, 8]
HARMLESS = {"unpickled_sample_inputs", "evaluated_guard"}
CHECKPOINTS = ("compact.pth", "compact.safetensors", "esrgan.pth", "old.pth", "module.pth", "spy.pth", "script.pt")


@pytest.fixture(scope="module")
def outcomes(reference_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    root = tmp_path_factory.mktemp("probe")
    for name in ("work", "source", "tmp"):
        (root / name).mkdir()
    ncnn_files.compact().write(root / "nets" / "compact")
    ncnn_files.esrgan().write(root / "nets" / "esrgan")
    (root / "source" / "reference_models.py").write_bytes((HERE / "reference_models.py").read_bytes())
    (root / "source" / "reference_exits.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    text = "class Odd(Exception): ...\nraise Odd('not today')\n"
    (root / "source" / "reference_raises.py").write_text(text, encoding="utf-8")
    (root / "source" / "reference_damaged.py").write_text("def make(:\n", encoding="utf-8")
    done = subprocess.run(
        [reference_python, "-P", HERE / "reference_probe.py", root / "work", root / "source", root / "nets"],
        check=False,
        capture_output=True,
        text=True,
        cwd=root / "work",
        env={
            "PATH": os.defpath,
            "HOME": str(root / "tmp"),
            "PYTHONPATH": str(CODE),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    found: Outcomes = json.loads((root / "work" / "outcomes.json").read_text(encoding="utf-8"))
    return found


def refused(outcome: Outcomes, kind: str, *words: str, status: str = "Refused") -> None:
    assert (outcome["status"], outcome["kind"]) == (status, kind), outcome
    for word in words:
        assert word in f"{outcome['message']} | {outcome['hint']}"


@pytest.mark.parametrize(("name", "parameters", "scale"), [("compact", 510, 2), ("esrgan", 226099, 4)])
def test_ncnn_files_are_a_model(name: str, parameters: int, scale: int, outcomes: Outcomes) -> None:
    found = outcomes[f"ncnn {name}"]
    assert (found["status"], found["kind"], found["parameters"]) == ("done", "pytorch", parameters)
    assert found["outputs"] == {"output": ["float32", [1, 3, 6 * scale, 8 * scale]]}


@pytest.mark.parametrize("name", ["compact", "esrgan"])
def test_an_architecture_loaded_alone_answers_as_all_of_spandrel_does(name: str, outcomes: Outcomes) -> None:
    assert outcomes[f"spandrel {name}"] is True


def test_ncnn_files_do_not_wait_for_torchvision(outcomes: Outcomes) -> None:
    assert outcomes["torchvision after ncnn"] is False


@pytest.mark.parametrize("name", ["ncnn by shape", "by shape"])
def test_weights_without_declared_inputs_take_one_picture_of_the_shape_given(name: str, outcomes: Outcomes) -> None:
    (each,) = outcomes[name]["inputs"]
    assert (each["name"], each["shape"], each["content"]) == ("input", [1, 3, 6, 8], "picture")


@pytest.mark.parametrize(("name", "file"), [("ncnn without shape", "net.param"), ("no shape", "net.pth")])
def test_weights_without_inputs_and_shape_are_refused(name: str, file: str, outcomes: Outcomes) -> None:
    refused(outcomes[name], "dynamic_shape", "[1, 3, H, W]", f"add a shape after the name, e.g. {file}#1x3x64x64")


def test_ncnn_files_that_do_not_fit_are_refused(outcomes: Outcomes) -> None:
    refused(outcomes["ncnn mixed up"], "invalid_weights", "architecture esrgan: 3 convolutions are not 15 a block")
    refused(outcomes["ncnn unknown"], "option", "'esrgann'", "did you mean 'esrgan'?")
    refused(outcomes["ncnn without bin"], "option", "holds net.param", "exactly one file .bin")


@pytest.mark.parametrize("name", ["compact.pth", "old.pth", "compact.safetensors", "esrgan.pth"])
def test_a_checkpoint_that_spandrel_knows_is_a_model(name: str, outcomes: Outcomes) -> None:
    assert outcomes[name]["status"] == "done", outcomes[name]
    assert outcomes[name]["parameters"] == outcomes[f"ncnn {'esrgan' if 'esrgan' in name else 'compact'}"]["parameters"]


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("cut", ["cut", "short", "empty"])
def test_a_checkpoint_cut_short_is_refused_with_the_vendors_words(name: str, cut: str, outcomes: Outcomes) -> None:
    found = outcomes[f"{name} {cut}"]
    refused(found, "invalid_weights", name, "bytes): cannot be read: ", "get the file anew")
    assert not found["message"].endswith(": ")


@pytest.mark.parametrize("name", ["module.pth", "spy.pth"])
def test_a_checkpoint_that_would_run_code_is_refused(name: str, outcomes: Outcomes) -> None:
    words = ("would run code", "Unsupported", "trusted = true", "torch.save(model.state_dict()")
    refused(outcomes[name], "untrusted_weights", name, *words)
    assert "\x1b" not in outcomes[name]["message"]


def test_code_in_an_untrusted_checkpoint_does_not_run(outcomes: Outcomes) -> None:
    assert outcomes["spy ran"] is False


def test_a_trusted_file_may_hold_a_whole_module(outcomes: Outcomes) -> None:
    assert outcomes["trusted module"]["outputs"] == {"output": ["float32", [1, 2, 6, 8]]}
    assert "ran its code while it was read" in outcomes["trusted module"]["notes"][0]
    refused(outcomes["trusted module without inputs"], "option", "does not tell its inputs")
    refused(outcomes["trusted module cut"], "invalid_weights", "module.pth", "bytes): cannot be read: ")


def test_files_that_are_no_weights_are_refused(outcomes: Outcomes) -> None:
    refused(outcomes["text.pth"], "invalid_weights", "text.pth (20 bytes): cannot be read")
    refused(outcomes["list.pth"], "invalid_weights", "holds a list, not weights by name")
    for name in ("script.pt", "trusted script"):
        refused(
            outcomes[name], "invalid_weights", "script.pt: is a TorchScript archive (torch.jit.save)", "state_dict()"
        )
    refused(outcomes["misfit.pth"], "invalid_weights", "size mismatch for body.2.weight")


def test_weights_of_no_known_architecture_say_how_to_bring_the_code(outcomes: Outcomes) -> None:
    refused(outcomes["unknown.pth"], "invalid_model", "spandrel knows no architecture", "module:function")


def test_a_function_builds_a_model_for_inference_in_float32(outcomes: Outcomes) -> None:
    assert outcomes["small"]["outputs"] == {"output": ["float32", SMALL]}
    assert outcomes["small"]["notes"] == []
    assert outcomes["half"]["outputs"] == {"output": ["float32", SMALL]}
    assert outcomes["half"]["notes"] == ["weights of float16 are computed with in float32"]


@pytest.mark.parametrize("name", ["one file", "two files"])
def test_a_function_is_given_its_weights(name: str, outcomes: Outcomes) -> None:
    assert outcomes[name]["outputs"] == {"output": ["float32", SMALL]}


def test_outputs_in_dicts_and_tuples_are_named_in_order(outcomes: Outcomes) -> None:
    assert outcomes["detector"]["outputs"] == {
        "output": ["float32", SMALL],
        "output_1": ["float32", [1, 6, 8]],
        "output_2": ["int64", [1]],
    }


def test_a_model_that_works_in_place_leaves_the_sample_alone(outcomes: Outcomes) -> None:
    assert outcomes["detector"]["untouched"] is True


def test_a_missing_package_is_named_with_what_to_do(outcomes: Outcomes) -> None:
    for name in ("picky", "Late"):
        refused(outcomes[name], "missing_package", "needs the package a_package_of_nobody:", "the model's environment")


def test_a_function_that_is_not_there_is_refused(outcomes: Outcomes) -> None:
    refused(outcomes["smal"], "option", "no smal in reference_models; did you mean 'small'?")
    refused(outcomes["another module"], "option", "no module reference_model", "did you mean 'reference_models'?")
    refused(outcomes["Small.forward.nothing"], "option", "no nothing in reference_models")
    refused(outcomes["no colon"], "option", "is not module:function")
    refused(outcomes["no inputs"], "option", "a function does not tell them")


def test_what_is_no_model_is_refused(outcomes: Outcomes) -> None:
    refused(outcomes["text"], "invalid_model", "returns a str, not a torch.nn.Module")
    refused(outcomes["NUMBER"], "option", "is a int, not a function")
    refused(outcomes["Nested"], "invalid_model", "the model returns a str, not tensors")


def test_an_error_in_the_users_code_is_told_in_its_own_words(outcomes: Outcomes) -> None:
    refused(outcomes["broken"], "invalid_model", "KeyError: 'no such layer'", status="Failed")
    words = ("x float32 [1, 2, 6, 8]", "RuntimeError: Given groups=1", "got 2 channels instead")
    refused(outcomes["wrong shape"], "invalid_model", *words, status="Failed")


def test_an_error_of_the_users_own_kind_is_told_in_its_own_words(outcomes: Outcomes) -> None:
    words = ("function reference_models:odd: ", "reference_models.Odd: nothing to build")
    refused(outcomes["odd"], "invalid_model", *words, status="Failed")
    refused(outcomes["Raising"], "invalid_model", "on x float32", "reference_models.Odd: no 4 dim", status="Failed")
    assert "\x1b" not in outcomes["Raising"]["message"]
    refused(outcomes["Unready"], "invalid_model", "made ready for inference", "Odd: not ready", status="Failed")
    refused(outcomes["silent"], "invalid_model", "Silent: <exception str() failed>", status="Failed")
    words = ("importing reference_raises: ", "reference_raises.Odd: not today")
    refused(outcomes["reference_raises"], "invalid_model", *words, status="Failed")
    refused(outcomes["reference_damaged"], "invalid_model", "def make(:", "SyntaxError: invalid", status="Failed")


def test_code_that_wants_to_end_the_process_is_an_error(outcomes: Outcomes) -> None:
    refused(outcomes["leaving"], "invalid_model", "SystemExit: no licence", status="Failed")
    refused(outcomes["Leaving"], "invalid_model", "SystemExit: 4", status="Failed")
    refused(outcomes["reference_exits"], "invalid_model", "importing reference_exits: SystemExit: 3", status="Failed")


def test_a_model_that_there_is_no_memory_for_is_told_as_such(outcomes: Outcomes) -> None:
    words = ("the model does not run on", "can't allocate memory", "memory_bytes in runtime.toml")
    refused(outcomes["Greedy"], "memory", *words, status="Failed")


def test_another_number_of_outputs_than_names_is_refused(outcomes: Outcomes) -> None:
    refused(outcomes["wrong names"], "option", "2 names (a, b), the model returns 1 tensors")


def test_an_exported_program_tells_its_inputs(outcomes: Outcomes) -> None:
    found = outcomes["static.pt2"]
    (each,) = found["inputs"]
    assert (each["name"], each["shape"], each["content"]) == ("x", [1, 3, 6, 8], "picture")
    assert found["outputs"] == {"output": ["float32", SMALL]}
    assert "is taken for a picture" in found["notes"][0]


def test_a_program_that_is_not_trusted_answers_as_the_model_does(outcomes: Outcomes) -> None:
    assert outcomes["broad.pt2 answers"] is True
    assert outcomes["broad.pt2"]["outputs"] == outcomes["broad.pt2 trusted"]["outputs"]
    described = outcomes["broad.pt2 described"]
    assert (described["parameters"], described["outputs"]) == (outcomes["broad.pt2"]["parameters"], 3)
    assert described["nodes"]["torch.ops.aten.einsum.default"] == 1
    assert (described["inputs"][0]["shape"][:2], described["inputs"][0]["dtype"]) == ([1, 3], "float32")


def test_an_exported_program_with_an_open_size_needs_a_shape(outcomes: Outcomes) -> None:
    refused(outcomes["open.pt2"], "dynamic_shape", "input x is [1, 3, s", "open.pt2#1x3x64x8")
    assert outcomes["open.pt2 by shape"]["outputs"] == {"output": ["float32", [1, 4, 10, 8]]}
    refused(outcomes["static.pt2 of another shape"], "dynamic_shape", "the shape given is 1x3x7x8")
    refused(outcomes["open.pt2 too large"], "invalid_model", "shape[2]", "<= 64", status="Failed")


def test_an_exported_program_cut_short_is_refused(outcomes: Outcomes) -> None:
    refused(outcomes["cut.pt2"], "invalid_model", "cut.pt2", "cannot be read")
    refused(outcomes["less.pt2"], "invalid_model", "less.pt2", "its graph is of another form: KeyError: 'graph_module'")
    refused(outcomes["old.pt2"], "invalid_model", "it holds no models/model.json", "PyTorch 2.8 or a later one")


@pytest.mark.parametrize("name", ATTACKS)
def test_code_in_an_untrusted_program_does_not_run(name: str, outcomes: Outcomes) -> None:
    # The same file does run it where it is trusted; but PyTorch itself refuses the operator.
    assert outcomes[f"{name} ran"] is False
    assert outcomes[f"{name} trusted ran"] is (name != "called_operator")


@pytest.mark.parametrize("name", sorted(set(ATTACKS) - HARMLESS))
def test_a_program_that_cannot_be_had_without_its_code_is_refused(name: str, outcomes: Outcomes) -> None:
    refused(
        outcomes[name], "untrusted_weights", "net.pt2: may run code while it is read: it holds the ", "trusted = true"
    )


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_code_that_no_answer_depends_on_is_left_out(name: str, outcomes: Outcomes) -> None:
    assert outcomes[name]["outputs"] == {"output": ["float32", SMALL]}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_program_is_described_without_running_it(name: str, outcomes: Outcomes) -> None:
    found = outcomes[f"{name} described"]
    assert (found["status"], found["parameters"], found["outputs"]) == ("done", 120, 1)


def test_a_trusted_program_says_that_it_ran_its_code(outcomes: Outcomes) -> None:
    assert "net.pt2 ran its code while it was read" in outcomes["evaluated_guard trusted"]["notes"][0]
