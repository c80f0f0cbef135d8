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


def start(model: Path | bytes, *, optimised: bool = True, lean: bool = False, folder: Path | None = None) -> Any:
    """Return a session of an ONNX file.

    Args:
        model: the file, data outside it beside it; or what it would hold.
        optimised: whether the graph may be rewritten, as ONNX Runtime does by default.
        lean: whether to spare memory rather than time: weights are used where they lie, in no second layout.
        folder: where data outside it lies when `model` is no path.

    Raises:
        Exception: one of `errors()`.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # What goes wrong is raised; the log would only say it twice.
    options.log_severity_level = 4
    if lean:
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.enable_cpu_mem_arena = False
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    if lean or not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run(session: Any, inputs: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
    """Return the outputs called `outputs` by name.

    Raises:
        Exception: one of `errors()`.
    """
    taken = {each.name: inputs[each.name] for each in session.get_inputs()}
    return dict(zip(outputs, session.run(list(outputs), taken), strict=True))
