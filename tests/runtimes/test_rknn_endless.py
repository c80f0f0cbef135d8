"""A graph on which the toolkit's own optimiser does not end: the rule is found out, disabled and told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from runtimes.contract import Status
from tests.runtimes.openvino_jobs import FLOAT, INT64, Made, make, outputs, picture, reference
from tests.runtimes.rknn_jobs import Jobs

RULE = "cvt_and_to_fp_mul"
SHAPE = [1, 4, 24, 24]
SOON = """
from runtimes.rknn import watch
watch.QUIET_SECONDS, watch.PATIENCE = 3.0, 0.5
"""


def masks(count: int) -> Made:
    """A mask as text encoders have it, in so many layers: a Cast to bool, And with a constant, and Where."""
    bands = {f"band{index}": np.tril(np.ones((1, 1, 24, 24), bool), index) for index in range(count)}
    nodes = [
        helper.make_node("Cast", ["mask"], ["flat"], "/cast", to=9),
        helper.make_node("Reshape", ["flat", "shape"], ["seen"], "/reshape"),
    ]
    for index in range(count):
        nodes += [
            helper.make_node("And", [f"band{index}", "seen"], [f"and{index}"], f"/and{index}"),
            helper.make_node("Where", [f"and{index}", "zero", "low"], [f"where{index}"], f"/where{index}"),
            helper.make_node("Add", ["x", f"where{index}"], [f"y{index}"], f"/add{index}"),
        ]
    constants = {"shape": np.array([1, 1, 1, 24]), "zero": np.float32(0), "low": np.float32(-10), **bands}
    return make(
        nodes,
        [("x", FLOAT, SHAPE), ("mask", INT64, [1, 24])],
        [(f"y{index}", FLOAT, SHAPE) for index in range(count)],
        constants,
    )


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Jobs:
    return Jobs(tmp_path, environment_python("rknn"))


@pytest.mark.parametrize(("count", "disabled"), [(1, []), (2, [RULE])])
def test_a_rule_after_which_the_optimiser_does_not_end_is_disabled_and_noted(
    jobs: Jobs, count: int, disabled: list[str]
) -> None:
    made = masks(count)
    feeds = {"x": picture(shape=SHAPE), "mask": (np.arange(24) < 20).astype(np.int64)[None]}
    jobs.first = SOON
    ended = jobs.convert(made, {"a": feeds})
    assert ended.result.status is Status.DONE, ended.log
    assert ended.result.facts["execution"]["disable_rules"] == disabled
    assert ended.result.facts["notes"] == [
        f"the rule {rule} of the toolkit's graph optimiser did not end on this model and was disabled"
        for rule in disabled
    ]
    for name, wanted in reference(made, feeds).items():
        np.testing.assert_allclose(outputs(ended)["a"][name], wanted, rtol=1e-2, atol=1e-2)
