"""What of the OpenVINO adapter needs no OpenVINO."""

from __future__ import annotations

import tomllib

from runtimes.kit import tensors
from runtimes.openvino.adapter import DTYPES, Precision, Target
from tests.runtimes.openvino_jobs import ROOT


def test_the_targets_and_precisions_are_those_that_the_runtime_declares() -> None:
    declared = tomllib.loads((ROOT / "openvino" / "runtime.toml").read_text(encoding="utf-8"))
    assert list(declared["targets"]) == [target.value for target in Target]
    assert [target["devices"] for target in declared["targets"].values()] == [[target.device] for target in Target]
    assert declared["precisions"] == [precision.value for precision in Precision]


def test_every_element_type_that_travels_has_a_name_in_openvino() -> None:
    assert sorted(DTYPES.values()) == sorted(tensors.DTYPES)
