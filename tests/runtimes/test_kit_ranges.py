"""The range of a tensor that loses least: never beyond its numbers, never worse than all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import helper

from runtimes.kit import ranges
from runtimes.kit.tensors import Array
from tests.runtimes.openvino_jobs import FLOAT, make, outputs, reference
from tests.runtimes.ortqnn_jobs import QnnJobs, snr

NUMBERS = arrays.arrays(
    np.float32,
    st.integers(0, 40),
    elements=st.floats(-(2.0**40), 2.0**40, width=32, allow_subnormal=False)
    | st.sampled_from([np.inf, -np.inf, np.nan]),
)


def error(values: Array, within: ranges.Range, steps: int) -> float:
    """Return the mean square error of what QuantizeLinear and DequantizeLinear give back."""
    low, high = within
    step = (high - low) / steps or 1.0
    zero = round(-low / step)
    return float(np.square((np.clip(np.rint(values / step) + zero, 0, steps) - zero) * step - values).mean())


@given(NUMBERS, st.sampled_from([255, 65535]))
@settings(max_examples=200)
def test_a_range_holds_zero_ends_within_the_numbers_and_is_no_worse_than_all_of_them(values: Array, steps: int) -> None:
    low, high = ranges.best(values, values, values.size, steps)
    finite = values[np.isfinite(values)].astype(np.float64)
    assert min(0.0, finite.min(initial=0.0)) <= low <= 0.0 <= high <= max(0.0, finite.max(initial=0.0))
    if finite.size:
        whole = error(finite, (min(0.0, finite.min()), max(0.0, finite.max())), steps)
        assert error(finite, (low, high), steps) <= whole * (1 + 1e-9) + 1e-60


def test_a_far_number_that_is_among_no_values_counts_as_one_of_so_many() -> None:
    values = np.random.default_rng(1).normal(0, 1, 20000).astype(np.float32)
    assert ranges.best(values, np.array([-4, 8], np.float32), 1000, 255)[1] == 8.0


def test_one_far_number_among_many_is_cut_off() -> None:
    values = np.random.default_rng(1).normal(0, 1, 20000).astype(np.float32)
    low, high = ranges.best(values, np.array([-4, 40], np.float32), 10**8, 255)
    assert -4.0 <= low < -3.0
    assert high < 10.0


@pytest.mark.parametrize("shape", [(1, 64, 96, 128), (1, 48, 120, 200), (7,), (), (0,), (1, 2048, 3)])
def test_what_is_kept_of_a_tensor_is_of_every_row_and_column(shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape, dtype=int))
    places = np.arange(size)[:: ranges._step(size)]
    assert len(places) <= 2 * ranges.PICKED
    if len(shape) > 1:
        assert {*(places % shape[-1])} == set(range(shape[-1]))


def test_a_model_with_few_large_numbers_comes_nearer_by_ranges_that_cut_them_off(
    tmp_path: Path, environment_python: Callable[[str], Path]
) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "/conv")]
    shape = [1, 2, 400, 480]
    made = make(
        nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], {"w": np.eye(2, dtype=np.float32)[..., None, None]}
    )

    def sample(seed: int, far: float) -> dict[str, Array]:
        x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
        x[0, 0, seed, 7] = far
        return {"x": x}

    jobs = QnnJobs(tmp_path, environment_python("ortqnn"))
    new, ratios = sample(9, 0.0), []
    for name, spoil in (("cut", ""), ("whole", "from runtimes.kit import ranges\nranges.SHARES = (1.0,)")):
        built = jobs.quantize(made, {str(seed): sample(seed, 20.0) for seed in range(4)}, name=name, spoil=spoil)
        found = outputs(jobs.run(built.artifact, {"a": new}, precision="int8", name=f"run-{name}"))["a"]["y"]
        ratios.append(snr(found, reference(made, new)["y"]))
    assert ratios[0] > ratios[1] + 3
