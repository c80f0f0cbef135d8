from __future__ import annotations

from pathlib import Path

import pytest

from aipc import home, runtime
from aipc.errors import UsageError
from runtimes.contract import Step

pytestmark = pytest.mark.usefixtures("checkout")

ROOT = Path(__file__).parent.parent.parent


def write(checkout: Path, old: str, new: str) -> None:
    file = checkout / "runtimes" / "alpha" / "runtime.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_a_runtime_is_what_its_folder_says(checkout: Path) -> None:
    alpha = runtime.load(checkout / "runtimes" / "alpha")
    assert (alpha.name, alpha.title, alpha.environment, alpha.python) == ("alpha", "Alpha", "alpha", "3.11")
    assert alpha.steps == (Step.CONVERT, Step.RUN)
    assert alpha.builds
    assert alpha.targets["npu"].accelerator
    assert alpha.targets["cpu"].devices == ("CPU",)
    assert alpha.targets["cpu"].description == "the CPU of this machine"


def test_a_default_is_the_first_one_unless_the_runtime_says_otherwise(checkout: Path) -> None:
    assert (runtime.find("alpha").default_precision, runtime.find("alpha").default_target) == ("fp16", "cpu")
    write(checkout, 'default_target = "cpu"', 'default_precision = "fp32"')
    assert (runtime.find("alpha").default_precision, runtime.find("alpha").default_target) == ("fp32", "npu")


def test_the_reference_builds_nothing() -> None:
    reference = runtime.find("reference")
    assert not reference.builds
    assert (reference.default_precision, reference.default_target) == ("", "")


def test_a_folder_is_all_it_takes_to_be_a_runtime(checkout: Path) -> None:
    assert [each.name for each in runtime.all_runtimes()] == ["alpha", "reference"]
    for kind in ("runtimes", "images"):
        (checkout / kind / "sixth").mkdir()
    (checkout / "images" / "sixth" / "requirements.in").touch()
    text = (checkout / "runtimes" / "alpha" / "runtime.toml").read_text()
    (checkout / "runtimes" / "sixth" / "runtime.toml").write_text(text)
    assert runtime.names() == ("alpha", "reference", "sixth")
    assert runtime.find("sixth").environment == "sixth"


def test_a_runtime_may_use_the_environment_of_another(checkout: Path) -> None:
    write(checkout, 'title = "Alpha"', 'title = "Alpha"\nenvironment = "reference"')
    assert runtime.find("alpha").environment == "reference"


def test_an_unknown_runtime_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="runtime 'alhpa': not in checkout/runtimes; did you mean 'alpha'"):
        runtime.find("alhpa")
    with pytest.raises(UsageError, match="known are alpha, reference"):
        runtime.find("../runtimes/alpha")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "Alpha"', "", "the key 'title' is missing; add it"),
        (
            'title = "Alpha"',
            'title = "Alpha"\nname = "alpha"',
            "name: 'alpha'; remove it, the folder's name is the name",
        ),
        ('title = "Alpha"', 'titel = "Alpha"', "unknown key 'titel'; did you mean 'title'?"),
        ('title = "Alpha"', 'title = "Alpha"\npython = "3"', "python: '3' is no version; write it like 3.11"),
        ('title = "Alpha"', 'title = "Alpha"\npython = "2.7"', "python: '2.7' is no version"),
        ('title = "Alpha"', 'title = "Alpha"\ntimeout_seconds = 0', "timeout_seconds: 0.0 is no time"),
        ('title = "Alpha"', 'title = "Alpha"\ntimeout_seconds = inf', "timeout_seconds: inf is no time"),
        ('title = "Alpha"', 'title = "Alpha"\ntimeout_seconds = nan', "timeout_seconds: nan is no time"),
        ('title = "Alpha"', 'title = "Alpha"\nmemory_bytes = -1', "memory_bytes: -1 is no size"),
        (
            'title = "Alpha"',
            'title = "Alpha"\nenvironment = "refrence"',
            "is not in checkout/images; did you mean 'reference'?",
        ),
        ('title = "Alpha"', 'title = "Alpha"\nenvironment = "base"', "environment: 'base' is not in checkout/images"),
        (
            'title = "Alpha"',
            'title = "Alpha"\nrun = "in_convert"',
            "'artifact' needs the step 'run', 'in_convert' has none",
        ),
        (
            'title = "Alpha"',
            'title = "Alpha"\nrun = "in_covert"',
            "'in_covert' is not allowed; did you mean 'in_convert'?",
        ),
        ('["convert", "run"]', '["convert"]', "run: 'artifact' with steps ['convert']"),
        ('["convert", "run"]', '["convert", "runn"]', "steps[1]: 'runn' is not allowed; did you mean 'run'?"),
        ('["convert", "run"]', '["convert", "run", "run"]', "steps: 'run' is there 2 times"),
        ('["convert", "run"]', "[]", "steps: []; name what the adapter does"),
        ('["convert", "run"]', '["run"]', "precisions, targets: only for the step 'convert'"),
        ('["fp16", "fp32", "w8a16"]', '["fp16", "fp16"]', "precisions: 'fp16' is there 2 times; keep one"),
        ('["fp16", "fp32", "w8a16"]', '["FP16"]', "precisions: 'FP16' is no name; use small letters and digits"),
        ('["fp16", "fp32", "w8a16"]', "[]", "precisions: none, but it does the step 'convert'"),
        (
            'default_target = "cpu"',
            'default_target = "gpu"',
            "default_target: 'gpu' is not in the list; did you mean",
        ),
        (
            'default_target = "cpu"',
            'default_precision = "fp61"',
            "default_precision: 'fp61' is not in the list; did you mean",
        ),
        (
            'title = "Alpha"',
            'title = "Alpha"\nencodings = true',
            "encodings: true, but nothing is quantised",
        ),
        ('title = "Alpha"', 'title = "Alpha"\ngpu = {steps = []}', "gpu: steps: []; name the steps that need a GPU"),
        ('title = "Alpha"', 'title = "Alpha"\ngpu = {steps = ["judge"]}', "gpu: 'judge' is not in steps"),
        (
            'title = "Alpha"',
            'title = "Alpha"\ngpu = {steps = ["run"], with_sdk = ["convert"]}',
            "gpu.with_sdk: there is no 'sdk'",
        ),
        (
            'title = "Alpha"',
            'title = "Alpha"\nsdk = "A"\ngpu = {steps = ["run"], with_sdk = ["run"]}',
            "gpu: steps: 'run' is there 2 times",
        ),
        (
            'title = "Alpha"',
            'title = "Alpha"\ngpu = {steps = ["run"], environment = "refrence"}',
            "gpu.environment: 'refrence' is not in checkout/images; did you mean 'reference'?",
        ),
        ('title = "Alpha"', 'title = "Alpha"\nrewrites = ["a"]', "rewrites: only for the step 'rewrite' or 'patch'"),
        (
            '["convert", "run"]',
            '["convert", "run", "patch"]\nrewrites = ["join", "join"]',
            "rewrites: 'join' is there 2 times",
        ),
        (
            '["convert", "run"]',
            '["convert", "run", "patch"]\nrewrites = ["quantize"]\nquantizers = ["quantise"]',
            "quantizers: 'quantise' is not in rewrites; did you mean 'quantize'?",
        ),
        ("[targets.cpu]", "[targets.my-cpu]", "targets: 'my-cpu' is no name"),
        ('devices = ["NPU"]', "devices = []", "targets.npu: devices: []; name at least one"),
        ('devices = ["NPU"]', 'devices = "NPU"', "targets.npu.devices: 'NPU' is not a list"),
        ("accelerator = true", "accelerator = 1", "targets.npu.accelerator: 1 is not true or false"),
        ('title = "Alpha"', 'title = "Alpha', "runtime.toml:2: not TOML: Illegal character"),
    ],
)
def test_what_is_wrong_in_a_runtime_toml_is_said_in_one_line(checkout: Path, old: str, new: str, words: str) -> None:
    write(checkout, old, new)
    with pytest.raises(UsageError) as caught:
        runtime.find("alpha")
    text = str(caught.value)
    assert words in text
    assert text.startswith("checkout/runtimes/alpha/runtime.toml:")
    assert "\n" not in text


def test_a_runtime_without_targets_builds_nothing(checkout: Path) -> None:
    file = checkout / "runtimes" / "alpha" / "runtime.toml"
    file.write_text('title = "Alpha"\nsteps = ["convert", "run"]\nprecisions = ["fp16"]\n')
    with pytest.raises(UsageError, match="targets: none, but it does the step 'convert'; name at least one"):
        runtime.find("alpha")


def test_a_folder_whose_name_cannot_be_in_a_cell_is_refused(checkout: Path) -> None:
    folder = checkout / "runtimes" / "Alpha-2"
    (checkout / "runtimes" / "alpha").rename(folder)
    with pytest.raises(UsageError, match="'Alpha-2' is no name"):
        runtime.load(folder)


def test_a_folder_without_its_file_says_so(checkout: Path) -> None:
    with pytest.raises(UsageError, match=r"beta/runtime.toml: no such file"):
        runtime.load(checkout / "runtimes" / "beta")


def test_the_real_runtimes_are_what_the_house_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "HOME", ROOT)
    found = {each.name: each for each in runtime.all_runtimes()}
    assert {Step.PREPARE, Step.EXPORT, Step.REWRITE, Step.JUDGE, Step.INSPECT} <= set(found["reference"].steps)
    assert [each.name for each in found.values() if each.builds] == ["openvino", "ortqnn", "qairt", "rknn", "tensorrt"]
    assert {"fp32", "fp16"} <= set(found["openvino"].precisions)
    assert not found["openvino"].targets["cpu"].accelerator
