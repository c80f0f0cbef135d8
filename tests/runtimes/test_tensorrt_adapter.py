"""What of the TensorRT adapter needs no TensorRT."""

from __future__ import annotations

import tomllib

from aipc.environment import Environment
from runtimes.kit import tensors
from runtimes.tensorrt.building import Target
from runtimes.tensorrt.network import DEVICE, DTYPES, Precision
from tests.runtimes.openvino_jobs import ROOT


def test_the_targets_and_precisions_are_those_that_the_runtime_declares() -> None:
    declared = tomllib.loads((ROOT / "tensorrt" / "runtime.toml").read_text(encoding="utf-8"))
    assert list(declared["targets"]) == [target.value for target in Target]
    assert {(*target["devices"], target["accelerator"]) for target in declared["targets"].values()} == {(DEVICE, True)}
    assert declared["precisions"] == [precision.value for precision in Precision]


def test_a_target_is_one_compute_capability_and_all_is_every_other() -> None:
    assert Target.SM89.capabilities == ("SM89",)
    assert Target.ALL.capabilities == ("SM75", "SM80", "SM86", "SM89", "SM120", "SM121")


def test_every_element_type_has_a_name_that_travels() -> None:
    assert set(DTYPES.values()) < set(tensors.DTYPES)


def test_the_environment_of_a_gpu_host_has_the_same_tensorrt_and_the_cuda_bindings() -> None:
    plain, gpu = ({pin.name: pin.text for pin in Environment.load(name).pins()} for name in ("tensorrt", "tensorrtgpu"))
    assert {name: text for name, text in gpu.items() if name in plain} == plain
    assert set(gpu) - set(plain) == {"cuda-bindings", "cuda-pathfinder"}
