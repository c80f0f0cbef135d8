"""Running an engine: the refusal without a GPU for real, and the way to the numbers on a stand-in for one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from runtimes.contract import Json, Kind, Status, Step
from tests.runtimes.openvino_jobs import FLOAT, Ended, Made, make, outputs, picture
from tests.runtimes.tensorrt_jobs import Jobs, is_failure

SHAPE = (1, 3, 16, 20)
PHOTO = {"photo": {"x": picture() - 0.5}, "random": {"x": picture(3) - 0.5}}
GPU = Path(__file__).with_name("tensorrt_gpu.py").read_text(encoding="utf-8")


def relu() -> Made:
    ports: Any = [("x", FLOAT, SHAPE)], [("y", FLOAT, SHAPE)]
    return make([helper.make_node("Relu", ["x"], ["y"], "/relu")], *ports)


def gpu(*faults: str, more: str = "", install: str = "install") -> str:
    """Return Python that puts the stand-in in its place."""
    return f"{GPU}\nFAULTS |= set({sorted(faults)})\n{more}\n{install}()\n"


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Jobs:
    return Jobs(tmp_path, environment_python("tensorrt"))


@pytest.fixture
def on_gpu(tmp_path: Path, environment_python: Callable[[str], Path]) -> Jobs:
    return Jobs(tmp_path, environment_python("tensorrtgpu"))


def run(
    jobs: Jobs,
    spoil: str = "",
    samples: Mapping[str, Mapping[str, Any]] = PHOTO,
    *,
    target: str = "sm89",
    name: str = "run",
) -> Ended:
    """Run an engine; the stand-in takes anything for one."""
    artifact = jobs.root / "artifact"
    artifact.mkdir()
    (artifact / "model.engine").write_bytes(b"an engine")
    return jobs.run(artifact, samples, spoil=spoil, target=target, name=name)


@pytest.mark.parametrize("environment", ["tensorrt", "tensorrtgpu"])
def test_without_a_gpu_running_is_refused_with_what_was_looked_at(
    tmp_path: Path, environment_python: Callable[[str], Path], environment: str
) -> None:
    if list(Path("/dev").glob("nvidia*")):
        pytest.skip("this machine has an NVIDIA GPU")
    jobs = Jobs(tmp_path, environment_python(environment))
    ended = jobs.run(jobs.convert(relu()).artifact, PHOTO)
    assert is_failure(ended, Status.REFUSED, Kind.NO_DEVICE, "no NVIDIA GPU here: the CUDA driver cannot be loaded")
    assert "libcuda.so.1" in ended.failure.message
    assert ended.failure.message.endswith("/dev has no nvidia*")
    assert ended.failure.hint.startswith("the engine is built; run it where the GPU and its driver are")
    assert not (ended.layout.outputs / "outputs").exists()


def test_tensorrt_itself_gives_a_runtime_where_there_is_no_driver(jobs: Jobs) -> None:
    program = "import tensorrt_rtx_bindings as trt; print(trt.Runtime(trt.Logger()) is not None)"
    assert jobs.program(program)[-1] == "True"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("no device", "no NVIDIA GPU here: cuInit of libcuda.so.1 ended with CUDA error 100, and /dev has no nvidia*"),
        ("no count", "no NVIDIA GPU here: the CUDA driver sees no GPU, and /dev has no nvidia*"),
    ],
)
def test_a_driver_without_a_gpu_is_no_gpu(on_gpu: Jobs, fault: str, words: str) -> None:
    assert is_failure(run(on_gpu, gpu(fault)), Status.REFUSED, Kind.NO_DEVICE, words)


def test_a_gpu_that_the_environment_cannot_use_names_the_environment_that_can(jobs: Jobs) -> None:
    ended = run(jobs, gpu(install="install_library"))
    assert is_failure(
        ended, Status.FAILED, Kind.MISSING_PACKAGE, "this environment cannot use it: No module named 'cuda'"
    )
    assert "by which aipc takes the environment with cuda-bindings" in ended.failure.hint


def test_every_sample_goes_to_the_gpu_and_comes_back_by_name(on_gpu: Jobs) -> None:
    ended = run(on_gpu, gpu())
    found = outputs(ended)
    for sample, feeds in PHOTO.items():
        np.testing.assert_array_equal(found[sample]["y"], np.maximum(feeds["x"], 0))
    assert ended.result.facts["device"] == "GPU"
    assert ended.result.facts["execution"] == {
        "product": "TensorRT for RTX",
        "version": "1.7.1.116",
        "compute_capabilities": ["SM89"],
        "gpu": "Stand-in",
        "compute_capability": "SM89",
        "cuda_driver": "13.2",
        "layers": 1,
    }


def test_a_dynamic_input_is_told_its_shape(on_gpu: Jobs) -> None:
    found = outputs(run(on_gpu, gpu(more="DYNAMIC = True")))
    np.testing.assert_array_equal(found["photo"]["y"], np.maximum(PHOTO["photo"]["x"], 0))


def test_memory_is_given_back_after_every_sample(on_gpu: Jobs) -> None:
    closing = "import atexit\natexit.register(lambda: print('blocks left:', len(Memory.last.blocks)))\n"
    keep = "really = Memory.__init__\ndef keep(memory, driver):\n    really(memory, driver)\n    Memory.last = memory\n"
    ended = run(on_gpu, gpu(more=f"{keep}Memory.__init__ = keep\n{closing}"))
    assert "blocks left: 0" in ended.log


def test_an_engine_for_all_capabilities_runs_on_any_of_them(on_gpu: Jobs) -> None:
    assert outputs(run(on_gpu, gpu(more="MAJOR, MINOR = 12, 0"), target="all"))


def test_another_gpu_than_the_engine_is_for_is_no_device_for_it(on_gpu: Jobs) -> None:
    ended = run(on_gpu, gpu(more="MAJOR, MINOR = 8, 6"))
    words = "target sm89: the GPU here is Stand-in, SM86, not SM89"
    assert is_failure(ended, Status.REFUSED, Kind.NO_DEVICE, words)
    assert ended.failure.hint == "ask for the target sm86, or run it on the GPU that it is for"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("engine", "does not take the engine\nIRuntime::deserializeCudaEngine: Error Code 6: too old"),
        ("context", "makes no execution context"),
        ("location", "wants 'x' in the CPU's memory"),
        ("shape", "gives 'y' a shape that depends on the data, [-1, 3, 16, 20]"),
        ("address", "does not take the memory of 'x'"),
        ("start", "did not start"),
        ("late error", "ran, and reported errors\nIExecutionContext::enqueueV3: Error Code 1: Cuda Runtime"),
        ("cuMemAlloc", "cuMemAlloc of the CUDA driver failed: CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuStreamSynchronize", "cuStreamSynchronize of the CUDA driver failed: CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuInit", "cuInit of the CUDA driver failed"),
    ],
)
def test_what_tensorrt_or_the_driver_does_not_do_is_a_failure(on_gpu: Jobs, fault: str, words: str) -> None:
    assert is_failure(run(on_gpu, gpu(fault)), Status.FAILED, Kind.TOOLCHAIN, words)


OTHER = gpu(more="MAJOR, MINOR = 8, 6")
WRONG_NAME = {"a": {"x": picture(), "z": picture()}}


@pytest.mark.parametrize(
    ("spoil", "samples", "off"),
    [
        (OTHER, PHOTO, "from runtimes.tensorrt import device\ndevice.check_target = lambda *_: None\n"),
        (gpu("late error"), PHOTO, "from runtimes.tensorrt import inference\ninference.ERRORS = ()\n"),
        (gpu(), WRONG_NAME, "from runtimes.tensorrt import adapter\nadapter._check_feeds = lambda *_: None\n"),
    ],
    ids=["check_target", "ERRORS", "_check_feeds"],
)
def test_a_defect_of_running_passes_only_without_its_guard(
    on_gpu: Jobs, spoil: str, samples: Mapping[str, Mapping[str, Any]], off: str
) -> None:
    assert not run(on_gpu, spoil, samples).result
    shutil.rmtree(on_gpu.root / "artifact")
    passed = run(on_gpu, spoil + off, samples, name="without")
    assert passed.result, passed.log


def test_an_output_that_nothing_was_written_to_is_not_a_number(on_gpu: Jobs) -> None:
    found = outputs(run(on_gpu, gpu("silent")))
    assert all(np.isnan(found[sample]["y"]).all() for sample in PHOTO)


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({}, "input 'x' is missing"),
        ({"x": picture(), "z": picture()}, "input 'z' was never asked for"),
        ({"x": picture().transpose(0, 1, 3, 2)}, "input 'x' has the shape [1, 3, 20, 16] instead of [1, 3, 16, 20]"),
        ({"x": picture().astype(np.float16)}, "input 'x' is float16 instead of float32"),
    ],
)
@pytest.mark.parametrize("shape", ["SHAPE", "DYNAMIC = True"])
def test_a_sample_that_does_not_fit_is_misuse(on_gpu: Jobs, feeds: Mapping[str, Any], words: str, shape: str) -> None:
    ended = run(on_gpu, gpu(more=shape), {"a": {"x": picture()}, "b": feeds})
    assert is_failure(ended, Status.MISUSED, Kind.OPTION, f"in/samples: 'b' does not fit the engine: {words}")


def test_an_artefact_without_an_engine_is_misuse(jobs: Jobs) -> None:
    jobs.root.joinpath("nothing").mkdir()
    ended = jobs.run(jobs.root / "nothing", PHOTO)
    assert is_failure(ended, Status.MISUSED, Kind.OPTION, "in/artifact: holds no model.engine; convert writes it")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "int9"}, "options.precision: 'int9' is not allowed"),
        ({"target": "sm889"}, "options.target: 'sm889' is not allowed; did you mean 'sm89'"),
        ({"precison": "fp32"}, "options: unknown key 'precison'; did you mean 'precision'"),
    ],
)
def test_options_that_do_not_fit_are_misuse(jobs: Jobs, options: Mapping[str, Json], words: str) -> None:
    jobs.root.joinpath("nothing").mkdir()
    told = {"precision": "fp32", "target": "sm89", **options}
    ended = jobs.job(Step.RUN, {"artifact": jobs.root / "nothing"}, told, "run")
    assert is_failure(ended, Status.MISUSED, Kind.OPTION, words)
