"""onnxsim, for a person who asks for it: its constant folding and its fusions in place of ours.

onnxsim takes no graph whose nodes are out of order, and writes out a ConstantOfShape of any size unless it is told not
to. What it says of its own check is not looked at: the step compares the answers.
"""

from __future__ import annotations

import onnx

from runtimes.reference import differences
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always

MOST = "1MB"
"""No constant that onnxsim calculates becomes larger."""


def _simplify(model: onnx.ModelProto) -> list[str]:
    """Put what onnxsim makes in place of `model`; return what differs.

    Raises:
        Unsuitable: onnxsim does not take it.
    """
    import onnxsim

    try:
        made, _checked = onnxsim.simplify(model, check_n=0, tensor_size_threshold=MOST, perform_optimization=True)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise Unsuitable(f"onnxsim: {error}") from error
    changed = differences.between(model, made)
    if changed:
        model.CopyFrom(made)
    return changed


def _mended(_model: object, _given: Given) -> list[str]:
    return []  # `mend` did it


REWRITES = (
    Rewrite(
        name="onnxsim",
        summary="what onnxsim folds and fuses",
        requires=always,
        rewrite=_mended,
        ensures=always,
        mend=_simplify,
    ),
)
