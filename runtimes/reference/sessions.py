"""ONNX Runtime on the CPU, in the precision that the file has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runtimes.kit.tensors import Array


def errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that ONNX Runtime raises; they have no common base of their own."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = [kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    return (*own, RuntimeError, ValueError)


def start(model: Path, *, optimised: bool = True) -> Any:
    """Return a session of the ONNX file `model`.

    Args:
        model: the file; data outside it lies beside it.
        optimised: whether the graph may be rewritten, as ONNX Runtime does by default.

    Raises:
        Exception: one of `errors()`.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # What goes wrong is raised; the log would only say it twice.
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def run(session: Any, inputs: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
    """Return the outputs called `outputs` by name.

    Raises:
        Exception: one of `errors()`.
    """
    taken = {each.name: inputs[each.name] for each in session.get_inputs()}
    return dict(zip(outputs, session.run(list(outputs), taken), strict=True))
