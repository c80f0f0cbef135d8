"""Powers of two through a graph, so that float16 holds what it calculates.

Most operators pass a factor on: what a convolution, a maximum or a Reshape makes of x / 8 is an eighth of what it makes
of x. A tensor that is too large for float16 is divided by a power of two where it is made, in the weights where there
are some, and what hangs on it stays divided until it fits again, or until an operator needs it whole. Two take it
divided for good: a normalisation, and Softmax once the largest number is taken away. In float32 all of it is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from runtimes.kit.tensors import Array
from runtimes.reference import edits, retyping
from runtimes.reference.expansion import attribute
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always
from runtimes.reference.rewrites.opset import inline

LARGEST = float(np.finfo(np.float16).max)
WIDE = LARGEST / 4
"""What is larger on the samples is divided: other inputs may make it a few times larger."""

SMALL = 4096.0
"""What is divided becomes about so large; a mask of -10000, put for the lowest float32, still counts."""

MASK = 1e30
"""So large a number stands for infinity, and is not divided."""

NOTHING = -128.0
"""Softmax gives 0 for a number that is so much below the largest, in float32 as in float16."""

FINITE_MASK = -32768.0
"""In place of a mask of -infinity: Softmax gives 0 for it too, and no NaN where all of a row is masked."""

_MASKING = ("Add", "Expand", "Mul", "Where")
"""Operators by which a mask comes to the scores."""

_PASS = frozenset(
    {
        *("Abs", "AveragePool", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("GlobalAveragePool", "GlobalMaxPool", "Identity", "LeakyRelu", "MaxPool", "Neg", "PRelu", "ReduceL1"),
        *("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Reshape", "Resize", "Slice"),
        *("SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
"""Operators of their first input whose outputs grow with it."""

_JOIN = frozenset({"Add", "Concat", "Max", "Mean", "Min", "Sub", "Sum", "Where"})
"""Operators whose floating inputs must be divided by the same."""

_NORMS = frozenset({"GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization"})
"""Operators that give the same of any multiple of their first input, but for their epsilon."""

_WEIGHTS: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "BatchNormalization": {1: (1, -1), 2: (0, -1), 3: (-1, 0)},
    "Conv": {1: (1, -1), 2: (0, -1)},
    "ConvTranspose": {1: (1, -1), 2: (0, -1)},
    "Gemm": {1: (1, -1), 2: (0, -1)},
    "MatMul": {1: (1, -1)},
    "Mul": {1: (1, -1)},
}
"""The constants of an operator, and how often each is multiplied by what its input and its output are divided by."""


class _Scaling:
    """Follows a graph in its order, and divides what is too large.

    Attributes:
        graph: changed in place.
        opset: of ONNX's own operators.
        sizes: the largest number of each value on the samples.
        halvings: what a value is divided by: a power of two, by its exponent; 0 where it is not there.
        changed: the names of the nodes that take or give something divided.
    """

    def __init__(self, model: ir.Model, sizes: Mapping[ir.Value, float]) -> None:
        self.graph = model.graph
        self.opset = edits.opset_of(model)
        self.sizes = sizes
        self.halvings: dict[ir.Value, int] = {}
        self.changed: list[str] = []
        self._twins: dict[tuple[ir.Value, int], ir.Value] = {}

    def follow(self) -> list[str]:
        """Change the graph; return the names of the nodes that are not what they were."""
        for node in list(self.graph):
            if any(self.halvings.get(value, 0) for value in node.inputs if value is not None) or self._needed(node):
                if edits.is_own(node):
                    self._divide(node)
                else:
                    self.restore(node)
                self.changed.append(node.name or edits.NAMELESS)
        self._keep_outputs()
        return self.changed

    def _needed(self, node: ir.Node) -> int:
        """Return by how many halvings what the node gives comes into the range of float16."""
        size = max((self.sizes.get(value, 0.0) for value in node.outputs), default=0.0)
        return math.ceil(math.log2(size / SMALL)) if WIDE < size < MASK else 0

    def _divide(self, node: ir.Node) -> None:
        weights = _weights_of(node)
        if weights is not None:
            self._weigh(node, *weights)
        elif node.op_type in _PASS or (node.op_type == "Pad" and _pads_nothing(node)):
            self._bring(node, 0, wanted := max(self._of(node, 0), self._needed(node)))
            self._give(node, wanted)
        elif node.op_type in _JOIN:
            self._join(node)
        else:
            _RULES.get(node.op_type, _Scaling.restore)(self, node)

    def _of(self, node: ir.Node, index: int) -> int:
        value = edits.taken(node, index)
        return self.halvings.get(value, 0) if value is not None else 0

    def _give(self, node: ir.Node, halvings: int) -> None:
        self.halvings.update({value: halvings for value in node.outputs if value.dtype is ir.DataType.FLOAT})

    def restore(self, node: ir.Node) -> None:
        """Let the node take all of its inputs whole."""
        for index in range(len(node.inputs)):
            self._bring(node, index, 0)

    def _bring(self, node: ir.Node, index: int, wanted: int) -> None:
        """Let the node take its input number `index` divided by another power of two."""
        value = edits.taken(node, index)
        has = self._of(node, index)
        if value is None or value.dtype is not ir.DataType.FLOAT or wanted == has:
            return
        if (value, wanted) not in self._twins:
            held = edits.constant_of(value)
            if held is None:
                factor = self._constant(np.array(2.0 ** (has - wanted)), f"{value.name}_factor")
                self._twins[value, wanted] = self._append("Mul", node, value, factor)
            else:
                self._twins[value, wanted] = self._constant(held * 2.0 ** (has - wanted), f"{value.name}_divided")
            self.halvings[self._twins[value, wanted]] = wanted
        node.replace_input_with(index, self._twins[value, wanted])

    def _append(self, operator: str, before: ir.Node, *inputs: ir.Value, **attributes: ir.Attr) -> ir.Value:
        """Return what a new node in front of another gives."""
        made = ir.node(operator, list(inputs), attributes, name=f"{before.name}_{operator}_{len(self.graph)}")
        made.outputs[0].name = f"{made.name}_out"
        made.outputs[0].type = inputs[0].type
        self.graph.insert_before(before, made)
        return made.outputs[0]

    def _constant(self, array: Array, name: str, dtype: type[np.generic] = np.float32) -> ir.Value:
        while name in self.graph.initializers:
            name += "_"
        tensor = ir.tensor(array.astype(dtype), name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
        self.graph.register_initializer(value)
        return value

    def _weigh(self, node: ir.Node, data: int, weights: Mapping[int, tuple[int, int]]) -> None:
        """Divide in the constants of the node: what it gives is divided as much as it must be, and no more."""
        takes, gives = self._of(node, data), self._needed(node)
        for index, (ins, outs) in weights.items():
            self._bring(node, index, -(ins * takes + outs * gives))
        self._give(node, gives)

    def _join(self, node: ir.Node) -> None:
        wanted = max(self._needed(node), *(self._of(node, index) for index in range(len(node.inputs))))
        for index, value in enumerate(node.inputs):
            if value is not None and self._size(value) < MASK:
                self._bring(node, index, wanted)
        self._give(node, wanted)

    def _size(self, value: ir.Value) -> float:
        held = edits.constant_of(value)
        return self.sizes.get(value, 0.0) if held is None or held.dtype.kind != "f" else retyping.largest_finite(held)

    def multiply(self, node: ir.Node) -> None:
        """Follow a product of two that are calculated."""
        more = max(0, self._needed(node) - self._of(node, 0) - self._of(node, 1))
        self._bring(node, 0, self._of(node, 0) + more)
        self._give(node, self._of(node, 0) + self._of(node, 1))

    def share(self, node: ir.Node) -> None:
        """Follow a quotient."""
        under = self._of(node, 1)
        wanted = max(self._of(node, 0), under, self._needed(node) + under)
        self._bring(node, 0, wanted)
        self._give(node, wanted - under)

    def root(self, node: ir.Node) -> None:
        """Follow a square root."""
        wanted = self._of(node, 0) + self._of(node, 0) % 2
        self._bring(node, 0, wanted)
        self._give(node, wanted // 2)

    def power(self, node: ir.Node) -> None:
        """Follow a whole power; another takes its input whole."""
        held = edits.constant_of(edits.taken(node, 1))
        if held is None or held.size != 1 or float(held.reshape(())) not in {1.0, 2.0, 3.0, 4.0}:
            self.restore(node)
            return
        times = int(held.reshape(()))
        wanted = max(self._of(node, 0), math.ceil(self._needed(node) / times))
        self._bring(node, 0, wanted)
        self._give(node, wanted * times)

    def norm(self, node: ir.Node) -> None:
        """Divide the epsilon of a normalisation, which is added to a square."""
        epsilon = attribute(node, "epsilon", 1e-5) * 4.0 ** -self._of(node, 0)
        node.attributes["epsilon"] = ir.AttrFloat32("epsilon", epsilon)

    def soften(self, node: ir.Node) -> None:
        """Take the largest number away, and multiply what is left as far as Softmax sees a difference."""
        value, halvings = node.inputs[0], self._of(node, 0)
        if value is None or self.opset < 13:
            self.restore(node)
            return
        most = self._largest_along(node, value, attribute(node, "axis", -1))
        below = self._append("Sub", node, value, most)
        floor = self._constant(np.array(NOTHING * 2.0**-halvings), f"{node.name}_floor")
        near = self._append("Max", node, below, floor)
        whole = self._append("Mul", node, near, self._constant(np.array(2.0**halvings), f"{node.name}_factor"))
        node.replace_input_with(0, whole)

    def _largest_along(self, node: ir.Node, value: ir.Value, axis: int) -> ir.Value:
        if self.opset < 18:
            return self._append("ReduceMax", node, value, axes=ir.AttrInt64s("axes", [axis]))
        return self._append("ReduceMax", node, value, self._constant(np.array([axis]), f"{node.name}_axes", np.int64))

    def _keep_outputs(self) -> None:
        """Give the outputs of the model whole, by their names."""
        for index, value in enumerate(self.graph.outputs):
            if halvings := self.halvings.get(value, 0):
                factor = self._constant(np.array(2.0**halvings), f"{value.name}_factor")
                made = ir.node("Mul", [value, factor], name=f"{value.name}_Mul_{len(self.graph)}")
                whole = made.outputs[0]
                whole.name, whole.type, whole.shape = value.name, value.type, value.shape
                value.name = f"{value.name}_divided"
                self.graph.append(made)
                self.graph.outputs[index] = whole


_RULES: Mapping[str, Callable[[_Scaling, ir.Node], None]] = {
    "Div": _Scaling.share,
    "MatMul": _Scaling.multiply,
    "Mul": _Scaling.multiply,
    "Pow": _Scaling.power,
    "Softmax": _Scaling.soften,
    "Sqrt": _Scaling.root,
    **dict.fromkeys(_NORMS, _Scaling.norm),
}


def _weights_of(node: ir.Node) -> tuple[int, Mapping[int, tuple[int, int]]] | None:
    """Return which input is calculated, and what its constants are multiplied by; None where they are not constant."""
    weights = _WEIGHTS.get(node.op_type)
    if weights is None:
        return None
    if node.op_type in {"MatMul", "Mul"} and edits.constant_of(edits.taken(node, 0)) is not None:
        return 1, {0: (1, -1)}
    given = [index for index in weights if edits.taken(node, index) is not None]
    if any(edits.constant_of(edits.taken(node, index)) is None for index in given):
        return None
    return 0, {index: weights[index] for index in given}


def _pads_nothing(node: ir.Node) -> bool:
    """Return whether a Pad puts nothing but zeros, or numbers that are there, around."""
    value = edits.taken(node, 2)
    held = edits.constant_of(value)
    return attribute(node, "mode", "constant") != "constant" or value is None or (held is not None and not held.any())


def _obstacle(model: ir.Model) -> str:
    held = next((node for node in model.graph if node.op_type in retyping.HOLDS_GRAPHS), None)
    return "" if held is None else f"{edits.call(held)}: what the graph inside it takes cannot be divided"


def _rewrite(model: ir.Model, given: Given) -> list[str]:
    if not given.samples:
        raise Unsuitable("without samples nobody knows what leaves the range of float16")
    inline(model)
    edits.infer(model)
    made = retyping.made_as(model, ir.DataType.FLOAT)
    sizes = {value: max(each) for value, each in retyping.largest_of(model, made, given.samples).items()}
    for value in model.graph.outputs:
        if (size := sizes.get(value, 0.0)) > LARGEST:
            raise Unsuitable(
                f"output {value.name}: it reaches {size:.4g} on the samples, float16 holds up to {LARGEST:g}; "
                "nothing inside the graph mends that: let the model give less, or take a runtime that keeps float32"
            )
    return _Scaling(model, sizes).follow()


def _masks(model: ir.Model) -> list[tuple[ir.Node, int, Array]]:
    """Return the inputs that are constants with numbers below all that float16 holds, as a mask has, and these."""
    return [
        (node, index, held)
        for node in edits.nodes_of(model, *_MASKING)
        for index, value in enumerate(node.inputs)
        for held in (edits.constant_of(value),)
        if held is not None and held.dtype == np.float32 and bool((held < -LARGEST).any())
    ]


def _lift_masks(model: ir.Model, _given: Given) -> list[str]:
    masks = _masks(model)
    for node, index, held in masks:
        lifted = np.where(held < -LARGEST, np.float32(FINITE_MASK), held)
        node.replace_input_with(index, edits.constant_before(node, lifted))
    return [node.name or "" for node, *_ in masks]


def _mask_left(model: ir.Model) -> str:
    left = next((node for node, *_ in _masks(model)), None)
    return "" if left is None else f"{edits.call(left)} takes a number below {-LARGEST:g} still"


REWRITES = (
    Rewrite(
        name="lift_masks",
        summary="-32768 for what a mask of scores puts below all that float16 holds, -infinity too",
        requires=always,
        rewrite=_lift_masks,
        ensures=_mask_left,
    ),
    Rewrite(
        name="scale_overflow",
        summary="what float16 cannot hold divided by a power of two, up to where only proportions count",
        requires=_obstacle,
        rewrite=_rewrite,
        ensures=always,
    ),
)
