"""What of the OpenVINO adapter needs no OpenVINO."""

from __future__ import annotations

import tomllib

import pytest

from runtimes.kit import tensors
from runtimes.kit.work import Failed
from runtimes.openvino import adapter
from runtimes.openvino.adapter import DTYPES, Calculation, Precision, Target
from tests.runtimes.openvino_bench import ROOT


def test_the_targets_and_precisions_are_those_that_the_runtime_declares() -> None:
    declared = tomllib.loads((ROOT / "openvino" / "runtime.toml").read_text(encoding="utf-8"))
    assert list(declared["targets"]) == [target.value for target in Target]
    assert [target["devices"] for target in declared["targets"].values()] == [[target.device] for target in Target]
    assert declared["precisions"] == [precision.value for precision in Precision]


def test_every_element_type_that_travels_has_a_name_in_openvino() -> None:
    assert sorted(DTYPES.values()) == sorted(tensors.DTYPES)


def test_another_device_than_the_one_asked_for_is_a_failure() -> None:
    class Compiled:
        def get_property(self, name: str) -> list[str]:
            assert name == "EXECUTION_DEVICES"
            return ["CPU"]

    with pytest.raises(Failed, match="GPU was asked for, but OpenVINO runs the model on CPU"):
        adapter._execution(None, Compiled(), Target.GPU, Calculation.F32)
