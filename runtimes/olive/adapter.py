"""The Olive adapter: its passes for Qualcomm's HTP, as rewrites that a person asks for.

Nothing of what it makes is believed: the step `rewrite` of the reference compares the file with the one before.

Olive sends a heartbeat before it looks whether it may. Its lock has no OpenTelemetry, without which Olive does not
import its own module `telemetry`; so an empty one takes that place, and there is nothing left that could send.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import shutil
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runtimes.contract import Failure, Json, Kind, suggest
from runtimes.kit import qualcomm, quantization, tensors
from runtimes.kit.work import Failed, Work, fail, refuse

MODEL = "model.onnx"
PREPROCESS, QUANTIZE = "olive_qnn_preprocess", "olive_qnn_quantize"
ACTIVATIONS: Mapping[str, str] = types.MappingProxyType({"int8": "uint8", "a16w8": "uint16"})
"""The type of activations by a cell's precision; weights are int8 in both."""
WIDE_OPSET = 21
"""The first one whose own QuantizeLinear takes 16 bits; before it, ONNX Runtime writes operators of its own instead."""
CALIBRATION = "Percentile"
"""Of Olive's three ways to find ranges the one that comes nearest; its default, MinMax, lets one outlier set them."""
DATA = "aipc"
"""What Olive's registries know our calibration samples by."""
TELEMETRY = "olive.telemetry"

_RAISED = (TypeError, KeyError, AttributeError, IndexError, AssertionError, ValueError, RuntimeError)
"""What Olive's Python, and ONNX Runtime's under it, end in with a graph that they were not written for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """A rewrite by name; it takes no options."""

    name: str
    options: Mapping[str, Json] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchOptions:
    """What `patch` is told: what to do, in order, and the precision of the cell."""

    rewrites: tuple[Chosen, ...]
    precision: str


def versions() -> Mapping[str, str]:
    """Return what does the work."""
    return {name: importlib.metadata.version(name) for name in ("olive-ai", "onnxruntime", "onnx", "numpy")}


def patch(work: Work) -> Mapping[str, Json]:
    """Make `model` of the input `model`, ranges taken from `calibration` where it is quantised.

    Raises:
        Refused: there is no such rewrite, or not for this precision.
        Failed: Olive does not do it, in its own words.
    """
    options = work.options(PatchOptions)
    _check(options)
    source = work.input("model") / MODEL
    import_olive()
    for number, each in enumerate(options.rewrites):
        work.progress(f"Olive: {each.name}")
        folder = work.layout.tmp / f"pass{number}"
        source = _preprocess(source, folder)
        if each.name == QUANTIZE:
            samples = tensors.load_samples(work.input("calibration"))
            source = _quantize(source, folder / "quantized", samples, ACTIVATIONS[options.precision])
    shutil.copytree(source.parent, work.output("model"))
    return {}


def import_olive() -> None:
    """Import Olive with nothing in the place of its telemetry."""
    os.environ.update(OLIVE_DISABLE_TELEMETRY="1", HF_HUB_OFFLINE="1")
    if TELEMETRY not in sys.modules:
        silent = types.ModuleType(TELEMETRY)
        silent.action = lambda function: function  # type: ignore[attr-defined]
        sys.modules[TELEMETRY] = silent
    import olive  # type: ignore[import-not-found]  # noqa: F401


def _check(options: PatchOptions) -> None:
    for each in options.rewrites:
        if each.name not in (PREPROCESS, QUANTIZE):
            refuse(Kind.OPTION, f"rewrite {each.name!r}: there is none{suggest(each.name, (PREPROCESS, QUANTIZE))}")
        if each.name == QUANTIZE and options.precision not in ACTIVATIONS:
            refuse(
                Kind.OPTION,
                f"rewrite {QUANTIZE}: there is none in {options.precision}",
                hint=f"take {' or '.join(ACTIVATIONS)}",
            )


def _preprocess(source: Path, folder: Path) -> Path:
    """Return the model in which what the HTP has as one operator is one: a new one, or `source`."""
    from olive.passes.onnx.qnn.qnn_preprocess import QNNPreprocess  # type: ignore[import-not-found]

    return _passed(QNNPreprocess, _weights(source), source, folder)


def _quantize(source: Path, folder: Path, samples: Mapping[str, Mapping[str, tensors.Array]], activations: str) -> Path:
    """Return the model with QuantizeLinear and DequantizeLinear around every tensor."""
    from olive.passes.onnx.conversion import OnnxOpVersionConversion  # type: ignore[import-not-found]
    from olive.passes.onnx.quantization import OnnxStaticQuantization  # type: ignore[import-not-found]

    if activations == ACTIVATIONS["a16w8"] and _opset(source) < WIDE_OPSET:
        raised = folder.with_name("raised")
        source = _passed(OnnxOpVersionConversion, {"target_opset": WIDE_OPSET, **_weights(source)}, source, raised)
    settings = {
        "precision": "int8",
        "per_channel": True,
        "calibrate_method": CALIBRATION,
        "activation_type": activations,
        "data_config": _data(list(samples.values())),
        **_weights(source),
    }
    return _passed(OnnxStaticQuantization, settings, source, folder)


def _passed(kind: Any, settings: Mapping[str, Any], source: Path, folder: Path) -> Path:
    """Return what a pass of Olive makes of the model at `source`: a file in `folder`, or `source` unchanged.

    Raises:
        Failed: in its words.
    """
    from olive.exception import OliveError  # type: ignore[import-not-found]
    from olive.hardware import AcceleratorSpec  # type: ignore[import-not-found]
    from olive.model import ONNXModelHandler  # type: ignore[import-not-found]
    from olive.passes.olive_pass import create_pass_from_dict  # type: ignore[import-not-found]

    folder.mkdir(parents=True)
    device = AcceleratorSpec(accelerator_type="npu", execution_provider=qualcomm.PLUGIN)
    try:
        with qualcomm.vendor_errors():
            made = create_pass_from_dict(kind, dict(settings), disable_search=True, accelerator_spec=device).run(
                ONNXModelHandler(str(source)), str(folder)
            )
    except (OliveError, *_RAISED) as error:
        words = f"Olive's {kind.__name__}: {type(error).__name__}: {error}"
        raise Failed(Failure(kind=Kind.REWRITE, message=words)) from error
    path = Path(made.model_path)
    if path != source and path != folder / MODEL:
        fail(Kind.REWRITE, f"Olive's {kind.__name__}: wrote {path.name}, not {MODEL}")
    return path


def _data(samples: Sequence[Mapping[str, tensors.Array]]) -> Any:
    """Return the samples as Olive wants them told: by names in its registries."""
    import torch
    from olive.data.config import DataComponentConfig, DataConfig  # type: ignore[import-not-found]
    from olive.data.registry import Registry  # type: ignore[import-not-found]

    @Registry.register_dataset(DATA)  # type: ignore[untyped-decorator]
    def _dataset(**_: object) -> Sequence[Mapping[str, tensors.Array]]:
        return samples

    @Registry.register_dataloader(DATA)  # type: ignore[untyped-decorator]
    def _loader(dataset: Sequence[Mapping[str, tensors.Array]], **_: object) -> list[tuple[dict[str, Any], None]]:
        return [({name: torch.from_numpy(array) for name, array in feeds.items()}, None) for feeds in dataset]

    return DataConfig(
        name=DATA,
        load_dataset_config=DataComponentConfig(type=DATA),
        pre_process_data_config=DataComponentConfig(type="skip_pre_process"),
        post_process_data_config=DataComponentConfig(type="skip_post_process"),
        dataloader_config=DataComponentConfig(type=DATA),
    )


def _opset(source: Path) -> int:
    import onnx

    opsets = onnx.load(source, load_external_data=False).opset_import
    return max((each.version for each in opsets if each.domain in {"", "ai.onnx"}), default=0)


def _weights(source: Path) -> dict[str, Any]:
    return {"save_as_external_data": quantization.is_large(source)}
