"""PyTorch's two ONNX exporters, and what has to be done to make their files reproducible."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from runtimes.contract import Kind
from runtimes.kit.tensors import Array
from runtimes.reference import foreign
from runtimes.reference.models import Reference
from runtimes.reference.options import Exporter, ExportOptions, Origin

LARGEST_BYTES = 2**31 - 2**20
"""Above this, weights lie beside the file: no protobuf may reach 2³¹ bytes."""

DATA = "model.onnx.data"

_PRIVATE = ("doc_string", "metadata_props")
"""The fields in which exporters write stack traces and source lines, with the paths of this machine."""


def export(
    reference: Reference, outputs: tuple[str, ...], sample: Mapping[str, Array], path: Path, options: ExportOptions
) -> None:
    """Write the module of `reference` to `path` as ONNX with static shapes; large weights to `DATA` beside it.

    Args:
        reference: a PyTorch module.
        outputs: the names of its outputs.
        sample: arrays by input name; the shapes are theirs.
        path: where to.
        options: which exporter, which opset.

    Raises:
        Failed: the exporter gives up, or the model's own code does.
        Refused: a package is missing.
    """
    import torch

    arguments = tuple(torch.from_numpy(sample[each.name].copy()) for each in reference.inputs)
    where = f"the {options.exporter} exporter, opset {options.opset}"
    other = Exporter.DYNAMO if options.exporter is Exporter.TORCHSCRIPT else Exporter.TORCHSCRIPT
    hint = f"try the {other} exporter, or another opset"
    with foreign.wall(where, kind=_kind, hint=hint), torch.no_grad(), warnings.catch_warnings():
        # The TorchScript exporter is asked for, and says each time that it is old.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        if options.source is Origin.EXPORTED:
            # It checks the sizes of what it is given, as it did for the golden outputs; that cannot be traced.
            reference.module.validate_inputs = False
        torch.onnx.export(
            reference.module,
            arguments,
            str(path),
            opset_version=options.opset,
            input_names=[each.name for each in reference.inputs],
            output_names=list(outputs),
            **_how(reference.module, options.exporter),
        )
    gather(path)


def _how(module: Any, exporter: Exporter) -> dict[str, Any]:
    if exporter is Exporter.TORCHSCRIPT:
        return {"dynamo": False}
    size = sum(each.numel() * each.element_size() for each in module.state_dict().values())
    return {"dynamo": True, "external_data": size > LARGEST_BYTES, "verbose": False}


def gather(path: Path) -> None:
    """Put all weights that lie outside the file at `path` into one file, `DATA`, beside it."""
    model = onnx.load(path, load_external_data=False)
    others = {
        entry.value for each in model.graph.initializer for entry in each.external_data if entry.key == "location"
    }
    if not others - {DATA}:
        return
    onnx.load_external_data_for_model(model, str(path.parent))
    for name in sorted(others):
        (path.parent / name).unlink()
    onnx.save(model, path, save_as_external_data=True, all_tensors_to_one_file=True, location=DATA)


def strip(path: Path) -> None:
    """Take out of the file at `path` what exporters say about the machine that they ran on.

    Done on the protobuf itself: the passes of onnx_ir do the same but take longer to import than the checks to run.
    """
    model = onnx.load(path, load_external_data=False)
    if _clear(model):
        path.write_bytes(model.SerializeToString(deterministic=True))


def _clear(message: Any) -> bool:
    """Clear the private fields of `message` and of all that it holds; tell whether there was anything."""
    found = False
    for field, value in message.ListFields():
        if field.name in _PRIVATE:
            message.ClearField(field.name)
            found = True
        elif field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                found = _clear(each) or found
    return found


def _kind(error: BaseException) -> Kind:
    if "Unsupported ONNX opset version" in foreign.words(error):
        return Kind.UNSUPPORTED_OPSET
    return Kind.UNSUPPORTED_OP if type(error).__name__ == "UnsupportedOperatorError" else Kind.TOOLCHAIN
