"""What a rewrite cannot do it says, with the node; ONNX Runtime runs none of these, so they are told apart from it."""

from __future__ import annotations

import onnx.parser
import pytest

from runtimes.reference.rewrites import find
from tests.runtimes.rewrites.graphs import obstacle, rewritten

OBSTACLES = [
    (
        *("explicit_average_pool", 17, "float[1, 1, 3] x", "float[1, 1, 2] y"),
        *("y = AveragePool <kernel_shape=[2], strides=[3], pads=[0, 2]> (x)", "in the padding alone"),
    ),
    (
        *("affine_grid_to_matmul", 20, "float[1, 2, 3] x", "float[1, 1, 5, 2] y"),
        *("s = Constant <value_ints=[1, 3, 1, 5]> () y = AffineGrid <align_corners=1> (x, s)", "no corners"),
    ),
    ("argmax_to_compare", 17, "float[16777217] x", "int64[1] y", "y = ArgMax <axis=0> (x)", "longer than float32"),
    ("argmax_to_compare", 17, "float[N, 3] x", "int64[1, 3] y", "y = ArgMax <axis=0> (x)", "shape of its input x"),
    ("decompose_reduction", 17, "int32[2, 3] x", "int32[2, 1] y", "y = ReduceL1 <axes=[1]> (x)", "over integers"),
    ("decompose_reduction", 18, "float[2, 3] x, int64[1] a", "float[M, N] y", "y = ReduceL1 (x, a)", "no constant"),
    (
        "cumsum_to_matmul",
        17,
        "float[4097] x",
        "float[4097] y",
        "a = Constant <value_int=0> () y = CumSum (x, a)",
        "4097",
    ),
    ("det_to_arithmetic", 17, "float[N, 3, 3] x", "float[N] y", "y = Det (x)", "shape of its input x"),
    ("gather_nd_to_gather", 17, "float[N, 3] x, int64[2, 1] i", "float[2, 3] y", "y = GatherND (x, i)", "input x"),
    (
        *("decompose_group_norm", 21, "float[1, 4, 3] x, float[2] s", "float[1, 4, 3] y"),
        *("y = GroupNormalization <num_groups=2> (x, s, s)", "not one for each of 4 channels"),
    ),
    (
        "decompose_layer_norm",
        17,
        "float[N, 3] x, float[3] s",
        "float[N, 3] y",
        "y = LayerNormalization (x, s)",
        "input x",
    ),
    ("decompose_rms_norm", 23, "float[N, 3] x, float[3] s", "float[N, 3] y", "y = RMSNormalization (x, s)", "input x"),
    ("dft_to_matmul", 17, "float[2, 8, 1] x, int64 n", "float[2, M, 2] y", "y = DFT (x, n)", "no constant"),
    (
        *("dft_to_matmul", 17, "float[2, 8, 2] x", "float[2, M, 2] y"),
        *("y = DFT <inverse=1, onesided=1> (x)", "inverse and one-sided"),
    ),
    (
        *("stft_to_conv", 17, "float[1, 64, 2] x", "float[1, A, B, 2] y"),
        *("s = Constant <value_int=4> () n = Constant <value_int=8> () y = STFT (x, s, , n)", "complex"),
    ),
    (
        *("stft_to_conv", 17, "float[1, 64] x, int64 s", "float[1, A, B, 2] y"),
        *("n = Constant <value_int=8> () y = STFT (x, s, , n)", "no constant"),
    ),
    (
        *("resize_to_matmul", 18, "float[1, 2, 3, 4, 5] x", "float[1, 2, 6, 8, 5] y"),
        *("s = Constant <value_ints=[1, 2, 6, 8, 5]> () y = Resize (x, , , s)", "5 axes"),
    ),
    (
        *("resize_to_matmul", 18, "int32[1, 2, 3, 4] x", "int32[1, 2, 6, 8] y"),
        *("s = Constant <value_ints=[1, 2, 6, 8]> () y = Resize (x, , , s)", "not of floats"),
    ),
    (
        *("scatter_elements_to_onehot", 17, "uint8[3] x, int64[3] i, uint8[3] u", "uint8[3] y"),
        *("y = ScatterElements (x, i, u)", "scatters UINT8"),
    ),
    (
        *("unroll_recurrent", 17, "float[2, 3, 4] x", "float[2, 3, 1, 1] y"),
        *("w = Constant <value_floats=[0.0]> () y = RNN <hidden_size=1, layout=1> (x, w, w)", "batch comes first"),
    ),
    (
        *("decompose_attention", 23, "float[1, 1, 3, 4] x, float[3, 2] m", "float[1, 1, 3, 4] y"),
        *("y = Attention (x, x, x, m)", "mask is shorter"),
    ),
    (
        *("split_rank", 17, "float[N, 2, 3, 2, 2, 2] x", "float[2, 2, 2, 3, 2, N] y"),
        *("y = Transpose (x)", "shape of x is not known"),
    ),
]


@pytest.mark.parametrize(
    ("name", "opset", "inputs", "outputs", "body", "said"),
    OBSTACLES,
    ids=[f"{each[0]}: {each[-1]}" for each in OBSTACLES],
)
def test_an_obstacle_is_said_with_its_node(
    name: str, opset: int, inputs: str, outputs: str, body: str, said: str
) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> graph ({inputs}) => ({outputs}) {{ {body} }}'
    )
    found = obstacle(model, name)
    assert said in found
    assert model.graph.node[-1].op_type in found


def test_where_one_node_has_an_obstacle_the_others_are_replaced() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> graph (float[2, 2] x, float[5, 5] z) => (float y, float w)'
        "{ [small] y = Det (x) [large] w = Det (z) }"
    )
    made, changed = rewritten(model, "det_to_arithmetic")
    assert changed == ["small"]
    assert [node.name for node in made.graph.node if node.op_type == "Det"] == ["large"]


@pytest.mark.parametrize("name", ["guard_silu", "split_rank", "unroll_recurrent"])
def test_a_rewrite_says_what_it_is_for(name: str) -> None:
    assert find(name).summary
    assert find(name).name == name
