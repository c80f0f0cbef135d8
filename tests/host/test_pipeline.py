"""What the pipeline decides by itself: how an output that nobody declared is judged."""

from __future__ import annotations

import pytest

from aipc import pipeline
from aipc.model import Model, Origin, OutputContent, Source, Tolerance

MODEL = Model(name="net", source=Origin.ONNX, weights=(Source(path="net.onnx"),))
USUAL = Tolerance(cosine=0.999, snr_db=30.0)


@pytest.mark.parametrize(
    ("dtype", "shape", "content"),
    [
        ("float32", [1, 3, 16, 20], OutputContent.PICTURE),
        ("int64", [1, 1, 16, 20], OutputContent.TENSOR),
        ("bool", [1, 1, 16, 20], OutputContent.TENSOR),
        ("float32", [1, 4, 16, 20], OutputContent.TENSOR),
        ("float32", [1, 3, 8, 20], OutputContent.TENSOR),
    ],
)
def test_only_a_floating_output_with_the_form_of_a_picture_is_judged_as_one(
    dtype: str, shape: list[int], content: OutputContent
) -> None:
    facts = {
        "inputs": [{"name": "x", "content": "picture"}],
        "outputs": [{"name": "y", "dtype": dtype, "shape": shape}],
    }
    (group,) = pipeline._groups(MODEL, facts, USUAL)
    assert group.content is content
    assert (group.cosine, group.snr_db) == (0.999, 30.0)
