"""Fewer Transposes, fewer layers: a net from TensorFlow, built with and without the rewrite `channels_first`."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.runtimes.openvino_jobs import FLOAT, Made, outputs, port, reference
from tests.runtimes.rewrites.graphs import build, rewritten
from tests.runtimes.rewrites.test_channels import tensorflow
from tests.runtimes.rknn_jobs import Jobs


def test_the_toolkit_makes_fewer_transposes_of_a_net_that_is_channels_first(
    environment_python: Callable[[str], Path], tmp_path: Path
) -> None:
    jobs = Jobs(tmp_path, environment_python("rknn"))
    nodes, feeds, constants = tensorflow()
    model = build(nodes, feeds, ["y"], constants=constants)
    counts, totals = {}, {}
    for name, each in (("last", model), ("first", rewritten(model, "channels_first")[0])):
        ports = [
            port((value.name, FLOAT, [size.dim_value for size in value.type.tensor_type.shape.dim]))
            for value in (each.graph.input[0], each.graph.output[0])
        ]
        made = Made(model=each, inputs=ports[:1], outputs=ports[1:])
        ended = jobs.convert(made, {"a": feeds}, name=name)
        np.testing.assert_allclose(outputs(ended)["a"]["y"], reference(made, feeds)["y"], atol=2e-2)
        placement = ended.result.facts["placement"]
        counts[name] = collections.Counter(layer["op"] for layer in placement)["Transpose"]
        totals[name] = len(placement)
    # Of eight, the toolkit takes four away by itself; the input's and the output's are left.
    assert counts == {"last": 4, "first": 2}
    assert totals["first"] == totals["last"] - 2
