"""Full TensorRT, which no environment of ours has, in a folder that the user names: looked for, taken, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runtimes.contract import Kind, Status
from tests.runtimes.openvino_jobs import conv_net, outputs, picture
from tests.runtimes.tensorrt_jobs import Jobs, is_failure
from tests.runtimes.test_tensorrt_run import gpu, relu

STAND_IN = """
import sys
import tensorrt_rtx_bindings as rtx
globals().update({name: value for name, value in vars(rtx).items() if name != "ComputeCapability" and name[:2] != "__"})
__version__ = "11.4.0.106"
"""
"""The API of full TensorRT, as far as it is that of TensorRT for RTX: it builds for no GPU that is not here."""


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Jobs:
    return Jobs(tmp_path, environment_python("tensorrt"))


def full(folder: Path, source: str = STAND_IN, package: str = "tensorrt_bindings") -> str:
    """Make a folder with full TensorRT, as far as a job can tell, and return Python that names it to one."""
    (folder / "full" / package).mkdir(parents=True)
    (folder / "full" / package / "__init__.py").write_text(source, encoding="utf-8")
    return f"import os\nos.environ['TENSORRT_ROOT'] = {str(folder / 'full')!r}\n"


@pytest.mark.parametrize("package", ["tensorrt", "tensorrt_bindings"])
def test_full_tensorrt_in_a_folder_of_the_users_is_taken_in_place_of_the_environments(jobs: Jobs, package: str) -> None:
    ended = jobs.convert(conv_net(), spoil=full(jobs.root, package=package))
    # It builds for the GPU that is here only, and there is none.
    assert is_failure(ended, Status.REFUSED, Kind.NO_DEVICE, "no NVIDIA GPU here")
    assert ended.result.versions["TensorRT"] == "11.4.0.106"


def test_full_tensorrt_builds_and_runs_on_a_stand_in_for_a_gpu_by_the_same_adapter(
    tmp_path: Path, environment_python: Callable[[str], Path]
) -> None:
    jobs = Jobs(tmp_path, environment_python("tensorrtgpu"))
    spoil = gpu() + full(jobs.root)
    built = jobs.convert(relu(), spoil=spoil)
    assert built.result.facts["execution"]["product"] == "TensorRT", built.log
    ended = jobs.run(built.artifact, {"a": {"x": picture() - 0.5}}, spoil=spoil)
    np.testing.assert_array_equal(outputs(ended)["a"]["y"], np.maximum(picture() - 0.5, 0))
    assert ended.result.facts["execution"]["product"] == "TensorRT"


@pytest.mark.parametrize(
    ("source", "package", "words"),
    [
        ("", "tensorrt_lean", "TENSORRT_ROOT: its folder has none of the packages tensorrt, tensorrt_bindings"),
        (
            "import ctypes\nctypes.CDLL('libnvinfer.so.11')",
            "tensorrt",
            "cannot be loaded: libnvinfer.so.11: cannot open",
        ),
        ("import tensorrt_libs", "tensorrt_bindings", "cannot be loaded: No module named 'tensorrt_libs'"),
    ],
)
def test_a_folder_without_a_tensorrt_that_loads_is_refused_and_not_passed_over(
    jobs: Jobs, source: str, package: str, words: str
) -> None:
    ended = jobs.convert(conv_net(), spoil=full(jobs.root, source, package))
    assert is_failure(ended, Status.REFUSED, Kind.MISSING_PACKAGE, words)
    assert "unset TENSORRT_ROOT" in ended.failure.hint
