"""A lower opset: what a runtime that knows only older operators is given.

Most operators have changed only in the types that they take: what a node uses of one, the older version has too. Others
have an adapter here. One that is new is put in as ONNX itself defines it, a function of older operators. onnx's own
version converter takes no graph of over 2 GB, and does not say at which node it stops.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from runtimes.reference import edits
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always
from runtimes.reference.rewrites.folding import fold

LOWEST = 13
"""Below it, Squeeze, Softmax and others mean something else."""

_DOMAIN = "aipc.defined"
_REDEFINED = {"GroupNormalization": 21}
"""Operators that mean something else before this version, though they have the same form."""


def _rewrite(model: ir.Model, given: Given) -> list[str]:
    target = given.options.get("opset")
    if not isinstance(target, int) or not target >= LOWEST:
        raise Unsuitable(f"option opset: {target!r} is no opset from {LOWEST}")
    opset = edits.opset_of(model)
    if opset <= target:
        return []
    inline(model)
    changed = _define_all(model, opset, target)
    for node in edits.nodes_of(model):
        if not edits.is_own(node):
            continue
        adapter = ADAPTERS.get(node.op_type)
        if adapter is not None and adapter(node, target):
            changed.append(node.name or "")
        if node.graph is not None:
            _fit(node, target)
    _declare(model, target)
    return changed or [f"opset {opset}"]


def inline(model: ir.Model) -> None:
    """Put the model's functions where they are called.

    Raises:
        Unsuitable: they are made for another opset, or call themselves.
    """
    if not model.functions:
        return
    try:
        common.InlinePass()(model)
    except (ir.passes.PassError, ir.passes.PreconditionError, ValueError) as error:
        raise Unsuitable(f"the model's functions cannot be inlined: {error.__cause__ or error}") from error


def _define_all(model: ir.Model, opset: int, target: int) -> list[str]:
    """Put the definition of each operator that the target does not know in its place; return the nodes."""
    changed: list[str] = []
    while True:
        unknown = [node for node in edits.nodes_of(model) if edits.is_own(node) and _is_new(node, opset, target)]
        if not unknown:
            return changed
        for index, node in enumerate(unknown):
            _add_defaults(node, opset)
            function = _definition(node, opset, target)
            function.opset_imports[""] = model.graph.opset_imports.get("", opset)
            node.domain, node.overload = _DOMAIN, f"{len(changed)}_{index}"
            attributes = list(function.attributes.values())
            named = ir.Function(_DOMAIN, node.op_type, node.overload, graph=function.graph, attributes=attributes)
            model.functions[named.identifier()] = named
        changed += [node.name or "" for node in unknown]
        inline(model)
        model.graph.opset_imports.pop(_DOMAIN, None)
        edits.tidy(model)
        # A definition holds for every shape: here the shapes are known.
        fold(model)


def _is_new(node: ir.Node, opset: int, target: int) -> bool:
    redefined = _REDEFINED.get(node.op_type, 0)
    if opset >= redefined > target:
        return True
    return not onnx.defs.has(node.op_type, domain="", max_inclusive_version=target)


def _add_defaults(node: ir.Node, opset: int) -> None:
    """Write down what an attribute is that is left out: a definition asks for it."""
    for name, attribute in onnx.defs.get_schema(node.op_type, opset, "").attributes.items():
        if name not in node.attributes and attribute.default_value.name:
            node.attributes.add(ir.serde.deserialize_attribute(attribute.default_value))


def _definition(node: ir.Node, opset: int, target: int) -> ir.Function:
    """Return what a node's operator is made of, for opset `target` where it is defined for it.

    Raises:
        Unsuitable: ONNX does not define it by others.
    """
    # Its types do not know the functions of a schema.
    schema: Any = onnx.defs.get_schema(node.op_type, opset, "")
    plain, dependent = schema.function_opset_versions, schema.context_dependent_function_opset_versions
    versions = sorted({*plain, *dependent})
    if not versions:
        raise Unsuitable(f"{edits.call(node)}: opset {target} has no {node.op_type}, and nothing older makes it up")
    version = max((each for each in versions if each <= target), default=versions[0])
    if version in plain:
        content = schema.get_function_with_opset_version(version)
    else:
        given = [_type(value).SerializeToString() for value in node.inputs]
        written = ir.to_proto(node).SerializeToString()
        content = schema.get_context_dependent_function_with_opset_version(version, written, given)
    proto = onnx.FunctionProto.FromString(content)
    # Of outputs that the node leaves out, a definition may not tell how they are made.
    made = {name for each in proto.node for name in each.output}
    proto.output[:] = [name for name in proto.output if name in made]
    return ir.serde.deserialize_function(proto)


def _type(value: ir.Value | None) -> onnx.TypeProto:
    if value is None or value.type is None:
        return onnx.TypeProto()
    return ir.serde.serialize_value(value).type


def _fit(node: ir.Node, target: int) -> None:
    """Take from a node what its operator does not have at opset `target`, where it says only what is meant anyway.

    Raises:
        Unsuitable: it says more than that, or its types are too new.
    """
    schema = onnx.defs.get_schema(node.op_type, target, "")
    for name in list(node.attributes):
        if name in schema.attributes:
            continue
        if not _is_default(node, name):
            value = node.attributes[name].value
            raise Unsuitable(f"{edits.call(node)}: opset {target} has no attribute {name} (here {value!r})")
        del node.attributes[name]
    count = max((index + 1 for index, value in enumerate(node.inputs) if value is not None), default=0)
    if count > schema.max_input:
        raise Unsuitable(f"{edits.call(node)}: it has {count} inputs, at opset {target} at most {schema.max_input}")
    if count < len(node.inputs):
        node.resize_inputs(count)
    for values, formal in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for value, each in zip(values, formal, strict=False):
            if value is None or not isinstance(value.type, ir.TensorType):
                continue
            written = value.type.dtype.name.lower()
            if f"tensor({written})" not in each.types:
                raise Unsuitable(f"{edits.call(node)}: at opset {target} {value.name} cannot be {written}")


def _is_default(node: ir.Node, name: str) -> bool:
    """Tell whether an attribute of a newer version says what is meant without it."""
    attribute = node.attributes[name]
    if name == "allowzero":
        sizes = edits.constant_of(edits.taken(node, 1))
        return attribute.as_int() == 0 or (sizes is not None and 0 not in sizes)
    if name == "dilations":
        return all(size == 1 for size in attribute.as_ints())
    if name == "coordinate_transformation_mode" and node.op_type == "RoiAlign":
        return attribute.as_string() == "output_half_pixel"
    schemas = (each for each in onnx.defs.get_all_schemas_with_history() if each.name == node.op_type)
    held = [each.attributes[name] for each in schemas if each.domain == "" and name in each.attributes]
    if not held or not held[0].default_value.name:
        return False
    return bool(ir.serde.deserialize_attribute(held[0].default_value).value == attribute.value)


def _declare(model: ir.Model, target: int) -> None:
    imports = model.graph.opset_imports
    imports.pop("ai.onnx", None)
    imports[""] = target
    needed = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", target)])
    model.ir_version = min(model.ir_version, max(needed, 8))


def _grid_sample(node: ir.Node, target: int) -> bool:
    modes = {"linear": "bilinear", "cubic": "bicubic"}
    mode = node.attributes.get_string("mode", "linear")
    if target >= 20 or mode not in {*modes, "nearest"}:
        return False
    if edits.rank_of(node.inputs[0]) not in {4, None}:
        raise Unsuitable(f"{edits.call(node)}: before opset 20 it takes pictures of 4 axes only")
    node.attributes.add(ir.AttrString("mode", modes.get(mode, mode)))
    return mode in modes


def _dft(node: ir.Node, target: int) -> bool:
    if target >= 20 or "axis" in node.attributes:
        return False
    axis = edits.taken(node, 2)
    number = -2 if axis is None else _constant(node, 2).item()
    node.resize_inputs(min(len(node.inputs), 2))
    node.attributes.add(ir.AttrInt64("axis", number))
    return True


def _reduce(node: ir.Node, target: int) -> bool:
    if target >= 18 or len(node.inputs) < 2:
        return False
    if node.inputs[1] is not None:
        axes = _constant(node, 1).tolist()
        if axes:
            node.attributes.add(ir.AttrInt64s("axes", axes))
    if "axes" not in node.attributes and node.attributes.get_int("noop_with_empty_axes", 0) != 0:
        raise Unsuitable(f"{edits.call(node)}: before opset 18 it cannot reduce nothing")
    node.attributes.pop("noop_with_empty_axes", None)
    node.resize_inputs(1)
    return True


def _split(node: ir.Node, target: int) -> bool:
    count = node.attributes.get_int("num_outputs", 0)
    if target >= 18 or not count:
        return False
    del node.attributes["num_outputs"]
    shape = edits.shape_of(node.inputs[0])
    if shape is None:
        raise Unsuitable(f"{edits.call(node)}: the sizes of what it splits are not known")
    size = shape[node.attributes.get_int("axis", 0)]
    part = -(-size // count)
    parts = [part] * (count - 1) + [size - part * (count - 1)]
    node.resize_inputs(2)
    node.replace_input_with(1, edits.constant_before(node, np.array(parts, np.int64)))
    return True


def _pad(node: ir.Node, target: int) -> bool:
    if target < 19 and node.attributes.get_string("mode", "constant") == "wrap":
        raise Unsuitable(f"{edits.call(node)}: before opset 19 it has no mode wrap")
    if target >= 18 or edits.taken(node, 3) is None:
        return False
    rank = edits.rank_of(node.inputs[0])
    if rank is None:
        raise Unsuitable(f"{edits.call(node)}: it is not known how many axes it pads")
    pads, axes = _constant(node, 1), _constant(node, 3)
    whole = np.zeros((2, rank), np.int64)
    whole[:, axes % rank] = pads.reshape(2, -1)
    node.replace_input_with(1, edits.constant_before(node, whole.reshape(-1)))
    node.resize_inputs(3)
    return True


def _resize(node: ir.Node, target: int) -> bool:
    if target < 19 and node.attributes.get_string("coordinate_transformation_mode", "") == "half_pixel_symmetric":
        raise Unsuitable(f"{edits.call(node)}: before opset 19 it has no half_pixel_symmetric")
    axes = node.attributes.get_ints("axes", None)
    if target >= 18 or axes is None:
        return False
    shape = edits.shape_of(node.inputs[0])
    if shape is None:
        raise Unsuitable(f"{edits.call(node)}: the sizes of what it resizes are not known")
    places = [axis % len(shape) for axis in axes]
    for index, rest in ((1, [*([0.0] * len(shape)), *([1.0] * len(shape))]), (2, [1.0] * len(shape)), (3, shape)):
        if edits.taken(node, index) is None or not (held := _constant(node, index)).size:
            continue
        whole = np.array(rest, held.dtype)
        where = [*places, *(len(shape) + place for place in places)] if index == 1 else places
        whole[where] = held
        node.replace_input_with(index, edits.constant_before(node, whole))
    del node.attributes["axes"]
    return True


def _scatter(node: ir.Node, target: int) -> bool:
    if target < 18 and (reduction := node.attributes.get_string("reduction", "none")) in {"max", "min"}:
        raise Unsuitable(f"{edits.call(node)}: before opset 18 it has no reduction {reduction}")
    return False


def _quantize(node: ir.Node, _target: int) -> bool:
    """Drop a type that the zero point says as well."""
    zero = edits.taken(node, 2)
    given = node.attributes.get_int("output_dtype", 0)
    if given and zero is not None and zero.dtype is not None and given == zero.dtype.value:
        del node.attributes["output_dtype"]
    return False


def _constant(node: ir.Node, index: int) -> Any:
    held = edits.constant_of(edits.taken(node, index))
    if held is None:
        value = edits.taken(node, index)
        raise Unsuitable(f"{edits.call(node)}: its input {value.name if value else index} is no constant")
    return held


ADAPTERS: Mapping[str, Callable[[ir.Node, int], bool]] = types.MappingProxyType(
    {
        "DFT": _dft,
        "GridSample": _grid_sample,
        "Pad": _pad,
        "QuantizeLinear": _quantize,
        **dict.fromkeys(("Reduce" + word for word in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean")), _reduce),
        **dict.fromkeys(("Reduce" + word for word in ("Min", "Prod", "SumSquare")), _reduce),
        "Resize": _resize,
        "ScatterElements": _scatter,
        "ScatterND": _scatter,
        "Split": _split,
    }
)
"""What an older version of an operator says otherwise; each tells whether it changed the node."""

REWRITES = (
    Rewrite(
        name="lower_opset",
        summary="the same graph in the operators of a lower opset",
        requires=always,
        rewrite=_rewrite,
        ensures=always,
    ),
)
