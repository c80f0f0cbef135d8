"""Small ONNX models with one defect each, and the gate that catches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.runtimes.gate_models import (
    INT64,
    backwards,
    branch_with,
    calling,
    constant,
    float_cast_in_a_half_graph,
    model,
    node,
    outside,
    same_output_twice,
    size_by_data,
    size_too_short,
    sound,
    two_opsets,
    two_outputs_of_one_name,
    two_weights_of_one_name,
    unknown_domain,
    unused_outside,
    wide_outside,
    wide_outside_and_inside,
    without_outputs,
)


@dataclass(frozen=True, kw_only=True)
class Defect:
    """A defect, the gate that catches it, and what the file meets when that gate is left out.

    Attributes:
        gate: its name.
        words: what it says, among other things.
        make: the model, or the bytes of the file.
        behind: the gates that catch it too, when this one is left out; () where nothing else would.
        beside: the gates of the same stage that catch it as well.
        folder: files beside the model.
    """

    gate: str
    words: tuple[str, ...]
    make: Callable[[], onnx.ModelProto | bytes]
    behind: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    folder: dict[str, bytes] = field(default_factory=dict)


DEFECTS = {
    "no ONNX file": Defect(
        gate="readable",
        words=("model.onnx (10 bytes)", "no ONNX file"),
        make=lambda: b"PK\x03\x04 a zip"[:10],
        behind=("ir_version", "opset"),
    ),
    "an empty file": Defect(
        gate="readable", words=("0 bytes", "holds no graph"), make=lambda: b"", behind=("ir_version", "opset")
    ),
    "a file cut short": Defect(
        gate="readable",
        words=("cut short",),
        make=lambda: sound().SerializeToString()[:-20],
        behind=("ir_version", "opset"),
    ),
    "a graph that gives nothing": Defect(
        gate="readable", words=("model.onnx", "holds no graph with outputs"), make=without_outputs
    ),
    "data that is missing": Defect(
        gate="external_data",
        words=("tensor w", "'w.bin'", "not there"),
        make=lambda: outside("w.bin"),
        behind=("checker", "session"),
    ),
    "data cut short": Defect(
        gate="external_data",
        words=("up to byte 12", "ends at 8"),
        make=lambda: outside("w.bin"),
        folder={"w.bin": b"\0" * 8},
        behind=("session",),
    ),
    "data cut short that nothing takes": Defect(
        gate="external_data",
        words=("up to byte 12", "ends at 8"),
        make=unused_outside,
        folder={"w.bin": b"\0" * 8},
    ),
    "data of another size": Defect(
        gate="external_data",
        words=("16 bytes from 0", "takes 12"),
        make=lambda: outside("w.bin", length=16),
        folder={"w.bin": b"\0" * 16},
        behind=("session",),
    ),
    "data before the file's beginning": Defect(
        gate="external_data",
        words=("12 bytes from -4",),
        make=lambda: outside("w.bin", offset=-4),
        folder={"w.bin": b"\0" * 16},
        behind=("session",),
    ),
    "data in another folder": Defect(
        gate="external_data",
        words=("'../w.bin'", "no path below"),
        make=lambda: outside("../w.bin"),
        behind=("checker", "session"),
    ),
    "data at an absolute path": Defect(
        gate="external_data",
        words=("'/etc/hostname'", "no path below"),
        make=lambda: outside("/etc/hostname"),
        behind=("checker", "session"),
    ),
    "data nowhere": Defect(
        gate="external_data", words=("''", "no path below"), make=lambda: outside(""), behind=("checker", "session")
    ),
    "ir_version 99": Defect(
        gate="ir_version",
        words=("ir_version is 99, known are 3 to ",),
        make=lambda: model([node("Relu", ["x"], ["y"])], ir=99),
        behind=("checker", "session"),
    ),
    "opset 99": Defect(
        gate="opset",
        words=("opset is 99",),
        make=lambda: model([node("Relu", ["x"], ["y"])], opset=99),
        behind=("session",),
    ),
    "opsets twice": Defect(gate="opset", words=("names 2 opsets of ONNX's own operators, not one",), make=two_opsets),
    "an operator of another domain": Defect(
        gate="operators", words=("node y (Gelu)", "'com.microsoft'"), make=unknown_domain
    ),
    "an operator that is none": Defect(
        gate="operators",
        words=("node y (Relux)", "opset 17"),
        make=lambda: model([node("Relux", ["x"], ["y"])]),
        behind=("checker", "session"),
    ),
    "an operator of a domain that is not imported": Defect(
        gate="operators",
        words=("node y (Thing)", "'own'", "does not import"),
        make=lambda: model([node("Thing", ["x"], ["y"], domain="own")]),
        behind=("checker", "session"),
    ),
    "an operator of a later opset": Defect(
        gate="operators",
        words=("node y (Gelu)", "opset 17"),
        make=lambda: model([node("Gelu", ["x"], ["y"])]),
        behind=("checker", "session"),
    ),
    "an operator that draws at random": Defect(
        gate="operators",
        words=("node r (RandomNormalLike)", "draws at random"),
        make=lambda: model([node("RandomNormalLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])]),
    ),
    "two nodes of one name": Defect(
        gate="node_names",
        words=("2 nodes are called same",),
        make=lambda: model([node("Relu", ["x"], ["a"], "same"), node("Neg", ["a"], ["y"], "same")]),
        behind=("session",),
    ),
    "a node without a name": Defect(
        gate="node_names",
        words=("node 1 (Neg, makes y) has no name",),
        make=lambda: model([node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"], "")]),
    ),
    "a node without a name in a branch": Defect(
        gate="node_names",
        words=("node 0 (Neg, makes b)",),
        make=lambda: branch_with(node("Neg", ["x"], ["b"], "")),
    ),
    "a node without a name in a function": Defect(
        gate="node_names",
        words=("node 0 (Neg, makes y) in the function Own has no name",),
        make=lambda: calling(helper.make_node("Neg", ["x"], ["y"])),
    ),
    "two nodes of one name in a function": Defect(
        gate="node_names",
        words=("2 nodes in the function Own are called same",),
        make=lambda: calling(node("Neg", ["x"], ["a"], "same"), node("Abs", ["a"], ["y"], "same")),
        behind=("session",),
    ),
    "two weights of one name": Defect(
        gate="value_names",
        words=("2 initializers are called 'w'",),
        make=two_weights_of_one_name,
        behind=("checker",),
    ),
    "two outputs of one name": Defect(
        gate="value_names",
        words=("2 outputs are called 'y'",),
        make=two_outputs_of_one_name,
    ),
    "one output written twice": Defect(
        gate="ssa",
        words=("a is written by node one (Cast) and again by node two (Cast)",),
        make=same_output_twice,
        behind=("checker", "session"),
    ),
    "a weight written over": Defect(
        gate="ssa",
        words=("w is written by the graph itself and again by node over (Neg)",),
        make=lambda: model(
            [node("Neg", ["x"], ["w"], "over"), node("Add", ["x", "w"], ["y"])], {"w": np.ones((2, 3), np.float32)}
        ),
        behind=("checker", "session"),
    ),
    "an input from nowhere": Defect(
        gate="order",
        words=("node y (Add) takes ghost",),
        make=lambda: model([node("Add", ["x", "ghost"], ["y"])]),
        behind=("checker", "session"),
    ),
    "an output from nowhere": Defect(
        gate="order",
        words=("the output y is given by nothing",),
        make=lambda: model([node("Relu", ["x"], ["z"])]),
        behind=("checker", "session"),
    ),
    "an input from nowhere in a branch": Defect(
        gate="order",
        words=("node b (Neg) takes ghost",),
        make=lambda: branch_with(node("Neg", ["ghost"], ["b"])),
        behind=("checker", "session"),
    ),
    "a consumer before its producer": Defect(
        gate="order",
        words=("node y (Neg) stands before node a (Relu), whose output a it takes",),
        make=lambda: model([node("Neg", ["a"], ["y"]), node("Relu", ["x"], ["a"])]),
        behind=("checker",),
    ),
    "a branch before the producer it takes from": Defect(
        gate="order",
        words=("node y (If) stands before node a (Relu)",),
        make=lambda: backwards(branch_with(node("Neg", ["a"], ["b"]))),
        behind=("checker",),
    ),
    "an open size": Defect(
        gate="static_shapes",
        words=("input x has the sizes [batch, 3]", "model.onnx#64x3"),
        make=lambda: model([node("Relu", ["x"], ["y"])], shape=["batch", 3]),
    ),
    "a size that depends on the data": Defect(
        gate="static_shapes",
        words=("output y has the sizes [2, n]", "depend on the data"),
        make=size_by_data,
    ),
    "a number that does not fit 32 bits": Defect(
        gate="wide_integers",
        words=("constant big holds 2147483648",),
        make=lambda: model([node("Mul", ["x", "big"], ["y"])], {"big": np.array([2**31], np.int64)}, kind=INT64),
    ),
    "a number below 32 bits in a Constant": Defect(
        gate="wide_integers",
        words=("constant low holds -2147483649",),
        make=lambda: constant(value=numpy_helper.from_array(np.array([-(2**31) - 1], np.int64))),
    ),
    "a number that does not fit 32 bits in a Constant of one number": Defect(
        gate="wide_integers",
        words=("constant low holds 1099511627776",),
        make=lambda: constant(value_int=2**40),
    ),
    "a number that does not fit 32 bits in a Constant of many": Defect(
        gate="wide_integers",
        words=("constant low holds 1099511627776",),
        make=lambda: constant(value_ints=[1, 2**40, 3]),
    ),
    "a number that does not fit 32 bits in a ConstantOfShape": Defect(
        gate="wide_integers",
        words=("constant b holds 1099511627776",),
        make=lambda: model(
            [
                node("ConstantOfShape", ["s"], ["b"], value=numpy_helper.from_array(np.array([2**40], np.int64))),
                node("Mul", ["x", "b"], ["y"]),
            ],
            {"s": np.array([3], np.int64)},
            kind=INT64,
        ),
    ),
    "a number that does not fit 32 bits in another file": Defect(
        gate="wide_integers",
        words=("constant big holds 1099511627776",),
        make=wide_outside,
        folder={"w.bin": b"\0" * 8 + (2**40).to_bytes(8, "little")},
    ),
    "a number that does not fit 32 bits in a function": Defect(
        gate="wide_integers",
        words=("constant k holds 1099511627776",),
        make=lambda: calling(node("Constant", [], ["k"], value_int=2**40), node("Mul", ["x", "k"], ["y"]), kind=INT64),
    ),
    "a number that a Slice takes outside and a Mul in a branch": Defect(
        gate="wide_integers",
        words=("constant end holds 1099511627776",),
        make=wide_outside_and_inside,
    ),
    "a shape that is not the one declared": Defect(
        gate="checker",
        words=("onnx.checker", "Inferred shape and existing shape differ"),
        make=lambda: model([node("Relu", ["x"], ["y"])], out=[2, 4]),
    ),
    "a weight shorter than its shape": Defect(
        gate="checker", words=("onnx.checker", "raw_data"), make=size_too_short, beside=("session",)
    ),
    "a Cast to float in a graph of halves": Defect(
        gate="session",
        words=("ONNX Runtime", "float16"),
        make=float_cast_in_a_half_graph,
        beside=("checker",),
    ),
    "an operator of a type that nobody computes": Defect(
        gate="session",
        words=("ONNX Runtime", "Could not find an implementation for Acos(7) node"),
        make=lambda: model([node("Acos", ["x"], ["y"])], kind=TensorProto.DOUBLE),
    ),
}
