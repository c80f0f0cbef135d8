"""Quantising an ONNX model for the HTP: QuantizeLinear and DequantizeLinear around every tensor, by ONNX Runtime.

ONNX Runtime 1.32.0 quantises constants that are nodes (the scales of a Resize) like tensors, and then the Resize cannot
be read: constants are folded first. Its own `quant_pre_process` would do that, but goes on without a word that a
program could see when it fails, and loses weights that lie beside the model.

Operators that the HTP has as one (Gelu, LpNormalization) must be one before they are quantised: the plugin finds them
among floats by itself, but not with QuantizeLinear between their parts, and then the Erf of a Gelu is refused. That is
`qnn_preprocess_model`, which Olive calls QNNPreprocess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runtimes.contract import Failure, Kind
from runtimes.kit import qualcomm, tensors
from runtimes.kit.work import Failed

EXTERNAL_BYTES = 1 << 30
"""Above this size weights lie beside the model: a protobuf holds 2 GiB at most."""


def quantize(source: Path, target: Path, samples: Mapping[str, Mapping[str, tensors.Array]], *, wide: bool) -> None:
    """Write the ONNX model at `source` with quantised tensors to `target`.

    Args:
        source: an ONNX file with fixed shapes.
        target: where to; its folder also gets what lies between.
        samples: what the tensors' ranges are taken from.
        wide: whether activations have 16 bits instead of 8; weights have 8.

    Raises:
        Failed: in the vendor's words.
    """
    from onnxruntime import quantization
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

    plain = _join(_fold(source, target.with_name("folded.onnx")), target.with_name("joined.onnx"), large=_large(source))
    activations = quantization.QuantType.QUInt16 if wide else quantization.QuantType.QUInt8
    try:
        with qualcomm.vendor_errors():
            config = get_qnn_qdq_config(
                plain, _reader(samples), activation_type=activations, weight_type=quantization.QuantType.QUInt8
            )
            config.use_external_data_format = _large(source)
            quantization.quantize(plain, target, config)
    except (TypeError, KeyError, AttributeError, IndexError, AssertionError) as error:
        # Its Python, met with an operator that it was not written for, ends in any of these.
        words = f"onnxruntime.quantization: {type(error).__name__}: {error}"
        raise Failed(Failure(kind=Kind.TOOLCHAIN, message=words, hint="take fp16")) from error


def _fold(source: Path, target: Path) -> Path:
    """Write the model with constants folded to `target`, its large weights beside it, and return that."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    # Only rewrites that any runtime understands.
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    settings.optimized_model_filepath = str(target)
    settings.add_session_config_entry(
        "session.optimized_model_external_initializers_file_name", target.with_suffix(".data").name
    )
    with qualcomm.vendor_errors():
        onnxruntime.InferenceSession(source, settings, providers=["CPUExecutionProvider"])
    return target


def _join(source: Path, target: Path, *, large: bool) -> Path:
    """Return an ONNX file in which what the HTP has as one operator is one: `target`, or `source` with nothing to join.

    Args:
        source: an ONNX file of ours; its metadata, which ends the search with a TypeError, is removed.
        target: where to.
        large: whether the weights are to lie beside it.
    """
    import onnx
    from onnxruntime.quantization.execution_providers.qnn import qnn_preprocess_model

    model = onnx.load(source, load_external_data=False)
    del model.metadata_props[:]
    onnx.save(model, source)
    return target if qnn_preprocess_model(source, target, save_as_external_data=large) else source


def _large(source: Path) -> bool:
    return sum(path.stat().st_size for path in source.parent.iterdir()) > EXTERNAL_BYTES


def _reader(samples: Mapping[str, Mapping[str, tensors.Array]]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Hands out one sample after another, then None."""

        def __init__(self) -> None:
            self._rest: Iterator[Mapping[str, tensors.Array]] = iter(samples.values())

        def get_next(self) -> dict[str, tensors.Array] | None:
            found = next(self._rest, None)
            return None if found is None else dict(found)

    return Reader()
