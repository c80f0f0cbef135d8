"""The network that TensorRT's parser makes of an ONNX model, and what can be read off it before it is built."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtimes.contract import Json, Kind
from runtimes.kit.ports import Port
from runtimes.kit.work import fail
from runtimes.tensorrt import failures
from runtimes.tensorrt.product import ERRORS, Product

DEVICE = "GPU"
LAYOUT = "as in the ONNX model"
DTYPES: Mapping[str, str] = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BOOL": "bool",
    "UINT8": "uint8",
    **{f"INT{bits}": f"int{bits}" for bits in (8, 32, 64)},
}
"""TensorRT's element types by numpy's names; numpy has none for the others."""
HALVES = ("HALF", "BF16")
FLOATS = ("FLOAT", *HALVES)
MAIN = ("CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY", "EINSUM")
"""The layers that take the time; in a network without one, all that calculate with floats count."""
ONLY_MOVES = (
    "CONSTANT",
    "CAST",
    "IDENTITY",
    "SHUFFLE",
    "SHAPE",
    "SLICE",
    "GATHER",
    "CONCATENATION",
    "SQUEEZE",
    "UNSQUEEZE",
)
_NODE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")


class Precision(enum.StrEnum):
    """What the model calculates in."""

    FP16 = "fp16"
    FP32 = "fp32"
    INT8 = "int8"


@dataclass(frozen=True, kw_only=True)
class Network:
    """A parsed model; the builder and the parser own what the network points to, and must live as long as it."""

    builder: Any
    parser: Any
    network: Any

    @property
    def inputs(self) -> list[Port]:
        """Its inputs; a size of −1 is dynamic."""
        return [port(self.network.get_input(index)) for index in range(self.network.num_inputs)]

    @property
    def outputs(self) -> list[Port]:
        """Its outputs; a size of −1 is known only when it runs."""
        return [port(self.network.get_output(index)) for index in range(self.network.num_outputs)]

    def layers(self) -> Iterator[Any]:
        """Yield its layers in order."""
        for index in range(self.network.num_layers):
            yield self.network.get_layer(index)


def parse(product: Product, source: Path) -> Network:
    """Return the strongly typed network of the ONNX file `source`.

    Raises:
        Refused: an operator, opset or shape that the parser does not take.
        Failed: no ONNX model, or not a valid one.
    """
    module = product.module
    builder = module.Builder(product.logger)
    network = builder.create_network(1 << int(module.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = module.OnnxParser(network, product.logger)
    if not parser.parse_from_file(str(source)) or parser.num_errors:
        failures.end(failures.of_parsing(failures.errors(parser, product.logger.nodes), product.words(*ERRORS)))
    if failure := failures.of_warnings(product.words("WARNING"), product.logger.nodes):
        failures.end(failure)
    return Network(builder=builder, parser=parser, network=network)


def port(tensor: Any) -> Port:
    """Return an input or output as we speak of it."""
    kind = tensor.dtype.name
    return Port(name=tensor.name, shape=tuple(tensor.shape), dtype=DTYPES.get(kind, kind.lower()))


def check_precision(network: Network, precision: Precision) -> list[str]:
    """Return notes on what does not calculate in `precision`, which nothing but the ONNX model decides.

    Raises:
        Failed: none of it does where fp16 or int8 is asked for, or anything does not where fp32 is.
    """
    if precision is Precision.INT8:
        return _check_whole(network)
    found = [calculates for layer in network.layers() if (calculates := _calculates(layer))]
    counted = [each for each in found if each.layer in MAIN] or found
    halves = sum(each.element in HALVES for each in found)
    if precision is Precision.FP32 and halves:
        fail(
            Kind.TOOLCHAIN,
            f"fp32 was asked for, but {halves} layers of the model calculate in half precision",
            hint="ask for fp16, or export the model in float32",
        )
    wide = sum(each.element != "HALF" for each in counted)
    if precision is Precision.FP16 and counted and wide == len(counted):
        fail(
            Kind.TOOLCHAIN,
            f"fp16 was asked for, but all {wide} layers that count calculate in something else",
            hint="TensorRT keeps the types of the ONNX model: the rewrite fp16 comes first (repairs.toml)",
        )
    return (
        [f"{wide} of {len(counted)} layers do not calculate in float16"] if precision is Precision.FP16 and wide else []
    )


def _check_whole(network: Network) -> list[str]:
    """Return notes on main layers that take something else than int8 through DequantizeLinear; some must take that."""
    makers = {layer.get_output(index).name: layer for layer in network.layers() for index in range(layer.num_outputs)}

    def whole(layer: Any) -> bool:
        taken = [layer.get_input(index) for index in range(min(2, layer.num_inputs))]
        return all(tensor is not None and _is_dequantized(makers.get(tensor.name), makers) for tensor in taken)

    counted = [whole(layer) for layer in network.layers() if layer.type.name in MAIN]
    if not any(counted):
        fail(
            Kind.TOOLCHAIN,
            f"int8 was asked for, but none of {len(counted)} convolutions and products takes int8",
            hint="TensorRT keeps the types of the ONNX model: the rewrite qdq comes first (repairs.toml)",
        )
    wide = len(counted) - sum(counted)
    return [f"{wide} of {len(counted)} convolutions and products do not calculate in int8"] if wide else []


def _is_dequantized(layer: Any, makers: Mapping[str, Any]) -> bool:
    """Return whether a layer makes floats of int8, or only moves such floats."""
    while layer is not None and layer.type.name in ONLY_MOVES and layer.num_inputs:
        layer = makers.get(layer.get_input(0).name)
    return bool(layer is not None and layer.type.name == "DEQUANTIZE" and layer.get_input(0).dtype.name == "INT8")


@dataclass(frozen=True, kw_only=True)
class _Calculates:
    """A layer that calculates with floats: its type, and theirs."""

    layer: str
    element: str


def _calculates(layer: Any) -> _Calculates | None:
    """Return how a layer calculates, or None where it only moves data or has no floats."""
    kind = layer.type.name
    if kind in ONLY_MOVES or not layer.num_outputs or not layer.get_output(0):
        return None
    element = layer.get_output(0).dtype.name
    return _Calculates(layer=kind, element=element) if element in FLOATS else None


def placement(network: Network, operators: Mapping[str, str]) -> list[dict[str, str]]:
    """Return which nodes of the model are in the network, and with it in the engine.

    Layers that the parser adds, most of them to calculate shapes, are left out.

    Args:
        network: the parsed model.
        operators: the ONNX nodes, each with its operator.
    """
    found = dict.fromkeys(node_of(layer) for layer in network.layers())
    return [{"node": node, "op": operators[node], "device": DEVICE} for node in found if node in operators]


def node_of(layer: Any) -> str:
    """Return the ONNX node that a layer came from, or its own name where it does not say."""
    found = _NODE.findall(layer.metadata)
    return found[-1] if found else str(layer.name)


def listed(ports: list[Port]) -> list[Json]:
    """Return inputs or outputs as facts."""
    return [{"name": each.name, "shape": list(each.shape), "dtype": each.dtype, "layout": LAYOUT} for each in ports]
