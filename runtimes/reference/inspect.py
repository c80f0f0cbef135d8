"""The step `inspect`: what a model file holds, for people."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runtimes.contract import Json, Kind, suggest
from runtimes.kit.work import Work, refuse


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """What `inspect` is told.

    Attributes:
        op: an operator type of an ONNX file: each such node is shown.
        node: a node's name, likewise.
    """

    op: str = ""
    node: str = ""


def inspect(work: Work) -> dict[str, Json]:
    """Return what the model file in `in/file` holds; files that belong to it (weights, data) lie beside it.

    Raises:
        Refused: there is no file of a kind that is known, or more than one, or it cannot be read.
    """
    options = work.options(InspectOptions)
    folder = work.input("file")
    held = sorted(path for path in folder.iterdir() if path.is_file())
    known = [path for path in held if path.suffix.lower() in DESCRIBERS]
    if len(known) != 1:
        names = ", ".join(path.name for path in held) or "nothing"
        near = suggest(held[0].suffix, DESCRIBERS) if len(held) == 1 else f"; known are {', '.join(sorted(DESCRIBERS))}"
        refuse(Kind.OPTION, f"inspect: {names} is not one model file{near}")
    path = known[0]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    facts: dict[str, Json] = {"file": path.name, "size_bytes": path.stat().st_size, "sha256": digest}
    facts |= DESCRIBERS[path.suffix.lower()](path)
    if options.op or options.node:
        if path.suffix.lower() != ".onnx":
            refuse(Kind.OPTION, f"inspect: {path.name} has no operators to show; give an ONNX file")
        from runtimes.reference import nodes

        facts["matches"] = nodes.describe(path, options.op, options.node)
    return facts


def describe_onnx(path: Path) -> dict[str, Json]:
    """Return what an ONNX file holds, and what the gates say of it; of a damaged one the gates alone."""
    from runtimes.reference import external, gates, onnx_file, structure

    model = gates.parse(path)
    results = gates.check(path)
    facts: dict[str, Json] = {
        "format": "ONNX",
        "gates": [{"name": result.name, "passed": result.passed, "detail": result.detail} for result in results],
    }
    if not model.HasField("graph"):
        return facts

    def show(values: Any) -> list[Json]:
        return [
            {"name": each.name, "dtype": onnx_file.type_of(each), "shape": structure.sizes_of(each)} for each in values
        ]

    return {
        **facts,
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "ir_version": model.ir_version,
        "opsets": {each.domain or "ai.onnx": each.version for each in model.opset_import},
        "inputs": show(structure.inputs_of(model.graph)),
        "outputs": show(model.graph.output),
        "nodes": dict(sorted(collections.Counter(node.op_type for node in structure.nodes_of(model)).items())),
        "parameters": onnx_file.count_parameters(model),
        "external_data": external.locations(model),
    }


def describe_program(path: Path) -> dict[str, Json]:
    """Return what a file of `torch.export.save` holds."""
    from runtimes.reference import archives

    return {"format": "PyTorch exported program", **archives.describe(path)}


def describe_checkpoint(path: Path) -> dict[str, Json]:
    """Return what a checkpoint holds, and the architecture that spandrel sees in it."""
    from runtimes.reference import checkpoints

    state, architecture = checkpoints.recognise(path)
    return {
        "format": "safetensors" if path.suffix.lower() == ".safetensors" else "PyTorch checkpoint",
        "architecture": architecture,
        "tensors": {
            name: {"dtype": str(each.dtype).removeprefix("torch."), "shape": list(each.shape)}
            for name, each in state.items()
        },
        "parameters": sum(each.numel() for each in state.values()),
    }


def describe_ncnn(path: Path) -> dict[str, Json]:
    """Return what ncnn's text file holds."""
    from runtimes.reference import ncnn

    try:
        layers = ncnn.parse(path)
    except ncnn.BadWeights as error:
        refuse(Kind.INVALID_WEIGHTS, str(error))
    return {"format": "ncnn", "nodes": dict(sorted(collections.Counter(layer.kind for layer in layers).items()))}


DESCRIBERS: Mapping[str, Callable[[Path], dict[str, Json]]] = {
    ".onnx": describe_onnx,
    ".pt2": describe_program,
    ".param": describe_ncnn,
    **dict.fromkeys((".pth", ".pt", ".ckpt", ".safetensors"), describe_checkpoint),
}
"""What describes a file, by its suffix."""
