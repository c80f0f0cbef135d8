"""What others' tools take for the same work, in the environment `bench`; one line of JSON comes out.

rivals.py compare LEFT RIGHT              Polygraphy's comparison of two folders of tensors
rivals.py rewrite TOOL MODEL TARGET       onnxsim or onnxslim, with its own check
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def compare(left: Path, right: Path) -> dict[str, Any]:
    """Compare two folders as Polygraphy does; the tensors are read as it reads them from a script."""
    from polygraphy.comparator import CompareFunc, IterationResult
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.ERROR
    names = [each["name"] for each in json.loads((left / "tensors.json").read_text())["tensors"]]
    began = time.perf_counter()
    sides = [
        IterationResult(outputs={name: np.load(side / f"{index}.npy") for index, name in enumerate(names)})
        for side in (left, right)
    ]
    found = CompareFunc.simple(atol=1e-2)(*sides)
    return {"seconds": time.perf_counter() - began, "agrees": all(bool(each) for each in found.values())}


def rewrite(tool: str, model: str, target: str) -> dict[str, Any]:
    """Simplify a model with one tool and check it, and write what came of it."""
    import onnx

    began = time.perf_counter()
    if tool == "onnxsim":
        import onnxsim

        made, checked = onnxsim.simplify(onnx.load(model), check_n=1)
        onnx.save(made, target)
    else:
        import onnxslim

        onnxslim.slim(model, target, model_check=True)
        checked = True
    return {"seconds": time.perf_counter() - began, "checked": bool(checked)}


def main() -> None:
    """Do what the command line asks, and say what it took."""
    task, *rest = sys.argv[1:]
    found = compare(Path(rest[0]), Path(rest[1])) if task == "compare" else rewrite(*rest)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**found, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
