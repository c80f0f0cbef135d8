"""What aipc takes for the work that `rivals.py` does, in the environment `reference`; one line of JSON comes out.

ours.py compare LEFT RIGHT      the judge's numbers of two folders of tensors
ours.py rewrite MODEL TARGET    constants folded, nodes sorted and named, and the gates of every ONNX file
ours.py differ MODEL MODEL      the largest difference of the answers of two models to one random input
ours.py make FOLDER SEED BYTES  a folder of tensors, each of 64 MiB; it differs a little with the seed
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from runtimes.contract import Job, Layout, Step
from runtimes.kit import tensors
from runtimes.kit.work import Work

STEPS = ("fold_constants", "sort_nodes", "unique_names")
TENSOR_BYTES = 1 << 26


def make(folder: str, seed: str, size_bytes: str) -> dict[str, Any]:
    """Write tensors of normal numbers, and with another seed the same with a small error."""
    draw, error = np.random.default_rng(0), np.random.default_rng(int(seed))
    found = {}
    for number in range(int(size_bytes) // TENSOR_BYTES):
        values = draw.standard_normal(TENSOR_BYTES // 4, dtype=np.float32)
        if int(seed):
            values += np.float32(1e-4) * error.standard_normal(values.size, dtype=np.float32)
        found[f"tensor-{number:02d}"] = values.reshape(64, -1)
    tensors.save(Path(folder), found)
    return {"tensors": len(found)}


def compare(left: str, right: str) -> dict[str, Any]:
    """Measure each pair of tensors, and let it go."""
    from runtimes.reference.measures import measure

    began = time.perf_counter()
    golden, made = tensors.load(Path(left)), tensors.load(Path(right))
    worst = 200.0
    while golden:
        name, values = golden.popitem()
        found = measure(values, made.pop(name)).snr_db
        worst = min(worst, -200.0 if found is None else found)
    return {"seconds": time.perf_counter() - began, "agrees": worst >= 60.0, "snr_db": worst}


def rewrite(model: str, target: str) -> dict[str, Any]:
    """Rewrite a model and check it."""
    from runtimes.reference import gates, rewrites
    from runtimes.reference import rewrite as step

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        work = Work(layout, Job(step=Step.REWRITE, runtime="reference", inputs=(), options={}))
        steps = [(rewrites.find(name), step.Chosen(name=name)) for name in STEPS]
        changed = step.apply(Path(model), Path(target), steps, step.Trial(samples={}, golden={}), work)
    results = gates.check(Path(target), gates.without("static_shapes", of=gates.ALL))
    return {
        "seconds": time.perf_counter() - began,
        "checked": all(bool(result) for result in results),
        "changed": {name: len(nodes) for name, nodes in changed.items()},
    }


def differ(before: str, after: str) -> dict[str, Any]:
    """Return the nodes and bytes of a rewritten model, and how far its answers are from the model's before."""
    import onnx
    import onnxruntime

    sessions = [onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in (before, after)]
    draw = np.random.default_rng(1)
    feeds = {
        each.name: draw.random([size if isinstance(size, int) else 1 for size in each.shape]).astype(np.float32)
        if "float" in each.type
        else np.ones([size if isinstance(size, int) else 8 for size in each.shape], np.int64)
        for each in sessions[0].get_inputs()
    }
    answers = [session.run(None, feeds) for session in sessions]
    largest = max(
        float(np.abs(left.astype(np.float64) - right.astype(np.float64)).max())
        for left, right in zip(*answers, strict=True)
    )
    return {"nodes": len(onnx.load(after).graph.node), "bytes": Path(after).stat().st_size, "max_abs": largest}


def main() -> None:
    """Do what the command line asks, and say what it took."""
    task, *rest = sys.argv[1:]
    tasks: dict[str, Callable[..., dict[str, Any]]] = {
        "make": make,
        "compare": compare,
        "rewrite": rewrite,
        "differ": differ,
    }
    found = tasks[task](*rest)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**found, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
