"""A sixth runtime, as CONTRIBUTING describes one: ONNX Runtime's own format, run on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

from runtimes.contract import Json
from runtimes.kit import tensors
from runtimes.kit.work import Work

OFFSET = 0.0
"""Added to every output; the test's deliberately wrong variant has another number here."""


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """What convert is told."""

    precision: str
    target: str
    inputs: tuple[Mapping[str, Json], ...]
    outputs: tuple[Mapping[str, Json], ...]


def versions() -> Mapping[str, str]:
    """Return what does the work."""
    return {name: metadata.version(name) for name in ("onnxruntime", "numpy")}


def convert(work: Work) -> Mapping[str, Json]:
    """Write the model in ONNX Runtime's own format."""
    import onnxruntime

    options = work.options(ConvertOptions)
    artifact = work.output("artifact")
    artifact.mkdir()
    session_options = onnxruntime.SessionOptions()
    session_options.optimized_model_filepath = str(artifact / "model.ort")
    session_options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session_options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(
        str(work.input("model") / "model.onnx"), session_options, providers=["CPUExecutionProvider"]
    )
    ports = {key: [{**port, "layout": ""} for port in getattr(options, key)] for key in ("inputs", "outputs")}
    return {"placement": [], "io": ports, "notes": []}


def run(work: Work) -> Mapping[str, Json]:
    """Run the artefact on every sample."""
    import onnxruntime

    session = onnxruntime.InferenceSession(
        str(work.input("artifact") / "model.ort"), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    results = {
        sample: {
            name: value + value.dtype.type(OFFSET) for name, value in zip(names, session.run(names, feeds), strict=True)
        }
        for sample, feeds in tensors.load_samples(work.input("samples")).items()
    }
    tensors.save_samples(work.output("outputs"), results)
    return {"device": "CPU", "execution": {}}
