"""Quantising an ONNX model for the HTP: QuantizeLinear and DequantizeLinear around every tensor, by ONNX Runtime.

ONNX Runtime 1.32.0 quantises constants that are nodes (the scales of a Resize) like tensors, and then the Resize cannot
be read: constants are folded first. Its own `quant_pre_process` would do that, but goes on without a word that a
program could see when it fails, and loses weights that lie beside the model.

Ranges are those of `ranges`, which ONNX Runtime takes for what it has measured itself. Weights of convolutions have a
scale for each channel.

Operators that the HTP has as one (Gelu, LpNormalization) must be one before they are quantised: the plugin finds them
among floats by itself, but not with QuantizeLinear between their parts, and then the Erf of a Gelu is refused. That is
`qnn_preprocess_model`, which Olive calls QNNPreprocess.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runtimes.contract import Failure, Kind
from runtimes.kit import qualcomm, ranges, tensors
from runtimes.kit.work import Failed, refuse

EXTERNAL_BYTES = 1 << 30
"""Above this size weights lie beside the model: a protobuf holds 2 GiB at most."""
QUANTIZE = "QuantizeLinear"
WEIGHTED = ("Conv", "ConvTranspose", "MatMul", "Gemm")
MOVES = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that give the numbers that they take, at other places."""
NARROW, WIDE = ("UINT8", "INT8", "UINT4", "INT4"), ("UINT16", "INT16")
"""ONNX's element types of whole numbers that activations and weights have."""


def quantize(
    source: Path,
    target: Path,
    samples: Mapping[str, Mapping[str, tensors.Array]],
    *,
    wide: bool,
    overrides: Mapping[str, list[dict[str, Any]]] | None = None,
) -> None:
    """Write the ONNX model at `source` with quantised tensors to `target`.

    Args:
        source: an ONNX file with fixed shapes.
        target: where to; its folder also gets what lies between.
        samples: what the tensors' ranges are taken from.
        wide: whether activations have 16 bits instead of 8; weights have 8.
        overrides: ONNX Runtime's `TensorQuantOverrides`, for tensors whose scale is known; folding may leave some out.

    Raises:
        Failed: in the vendor's words.
        Refused: the model holds a QuantizeLinear: with pairs around pairs the HTP takes it no more.
    """
    from onnxruntime import quantization
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

    _check_floats(source, wide=wide)
    large = is_large(source)
    plain = _join(_fold(source, target.with_name("folded.onnx")), target.with_name("joined.onnx"), large=large)
    measured = ranges.find(plain, samples, (1 << 16) - 1 if wide else (1 << 8) - 1)
    types = {
        "activation_type": quantization.QuantType.QUInt16 if wide else quantization.QuantType.QUInt8,
        "weight_type": quantization.QuantType.QInt8,
        "per_channel": True,
    }
    try:
        with qualcomm.vendor_errors():
            config = get_qnn_qdq_config(plain, None, init_overrides=_kept(overrides or {}, plain), **types)
            quantization.quantize_static(
                plain,
                target,
                None,
                calibration_cache_path=_cache(measured, target.with_name("ranges.json")),
                op_types_to_quantize=config.op_types_to_quantize,
                use_external_data_format=large,
                extra_options=config.extra_options,
                **types,
            )
    except (TypeError, KeyError, AttributeError, IndexError, AssertionError) as error:
        # Its Python, met with an operator that it was not written for, ends in any of these.
        words = f"onnxruntime.quantization: {type(error).__name__}: {error}"
        raise Failed(Failure(kind=Kind.TOOLCHAIN, message=words, hint="take fp16")) from error


def is_quantized(source: Path, *, wide: bool) -> bool:
    """Return whether a model is quantised already, in as many bits as are asked for.

    What counts are its convolutions and matrix products: one of them at least takes whole numbers. Of a model without
    any, a QuantizeLinear does.
    """
    import onnx

    graph = qualcomm.read_graph(source)
    quantized, weighted = _count(graph, wide=wide)
    if weighted:
        return quantized > 0
    types, makers = _types(graph), {name: node for node in graph.node for name in node.output}
    wanted = {getattr(onnx.TensorProto, name) for name in (WIDE if wide else NARROW)}
    return any(_kind(node.output[0], types, makers) in wanted for node in graph.node if node.op_type == QUANTIZE)


def count(source: Path, *, wide: bool) -> tuple[int, int]:
    """Return how many of a model's convolutions and matrix products take whole numbers, and how many there are.

    Args:
        source: an ONNX file.
        wide: whether those of 16 bits are asked for, beside others of 8, instead of 8 bits alone.
    """
    return _count(qualcomm.read_graph(source), wide=wide)


def _count(graph: Any, *, wide: bool) -> tuple[int, int]:
    import onnx

    types, makers = _types(graph), {name: node for node in graph.node for name in node.output}
    weighted = [node for node in graph.node if node.op_type in WEIGHTED]
    narrow, broad = ({getattr(onnx.TensorProto, name) for name in names} for names in (NARROW, WIDE))
    quantized = 0
    for node in weighted:
        found = {_fed(name, types, makers) for name in node.input[:2]}
        quantized += found <= narrow | broad and bool(found & broad) is wide
    return quantized, len(weighted)


def notes(source: Path, *, wide: bool) -> list[str]:
    """Return in words how many convolutions and matrix products of a quantised model are not; none where all are."""
    quantized, weighted = count(source, wide=wide)
    left = weighted - quantized
    return [f"{left} of {weighted} convolutions and matrix products calculate in float"] if left else []


def _check_floats(source: Path, *, wide: bool) -> None:
    graph = qualcomm.read_graph(source)
    if found := [node for node in graph.node if node.op_type == QUANTIZE]:
        _, weighted = _count(graph, wide=wide)
        refuse(
            Kind.OPTION,
            f"{source.name} holds {len(found)} {QUANTIZE}, but none of its {weighted} convolutions and matrix products "
            f"takes whole numbers of {16 if wide else 8} bits, and a model with {QUANTIZE} is not quantised again",
            hint=f"give the model without {QUANTIZE}, or quantised whole in {16 if wide else 8} bits",
        )


def _types(graph: Any) -> dict[str, int]:
    """Return the element types of a graph's constants by name."""
    constants = [node for node in graph.node if node.op_type == "Constant"]
    values = {node.output[0]: each for node in constants for each in node.attribute if each.name == "value"}
    return {
        **{each.name: each.data_type for each in graph.initializer},
        **{name: each.t.data_type for name, each in values.items()},
    }


def _fed(name: str, types: Mapping[str, int], makers: Mapping[str, Any]) -> int | None:
    """Return the element type of the whole numbers that a tensor stands for; None where it stands for none."""
    while (node := makers.get(name)) is not None and node.op_type in MOVES:
        name = node.input[0]
    return _kind(node.input[0], types, makers) if node is not None and node.op_type == "DequantizeLinear" else None


def _kind(name: str, types: Mapping[str, int], makers: Mapping[str, Any]) -> int | None:
    """Return the element type of a tensor that is a constant or made by a QuantizeLinear; None of others."""
    import onnx

    while (node := makers.get(name)) is not None and node.op_type in MOVES:
        name = node.input[0]
    if node is None or node.op_type != QUANTIZE:
        return types.get(name)
    if len(node.input) > 2 and node.input[2]:
        return types.get(node.input[2])
    return next((each.i for each in node.attribute if each.name == "output_dtype"), int(onnx.TensorProto.UINT8))


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


def is_large(source: Path) -> bool:
    """Return whether the weights of a model are to lie beside it."""
    return sum(path.stat().st_size for path in source.parent.iterdir()) > EXTERNAL_BYTES


def _cache(measured: Mapping[str, ranges.Range], path: Path) -> Path:
    """Write ranges as ONNX Runtime keeps those that it has measured to `path`, and return that."""
    from onnxruntime.quantization import CalibrationMethod, calibrate

    data = {name: tuple(np.array(end, np.float32) for end in ends) for name, ends in measured.items()}
    calibrate.save_tensors_data(calibrate.TensorsData(CalibrationMethod.MinMax, data), path)
    return path


def _kept(overrides: Mapping[str, list[dict[str, Any]]], source: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the overrides of tensors that a model has."""
    graph = qualcomm.read_graph(source)
    names = {each.name for each in (*graph.input, *graph.initializer)}
    names.update(name for node in graph.node for name in node.output)
    return {name: rows for name, rows in overrides.items() if name in names}
