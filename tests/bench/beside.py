"""The second half of `make bench`: our graph tools and our comparison of tensors beside those of others.

    beside.py [--rounds N] [--output beside.json]

Both sides run in environments of their own, in turn, and the minima are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aipc import home
from aipc.engines import install
from aipc.engines.venv import VenvEngine
from aipc.store import Store
from aipc.upkeep import environments

HERE = Path(__file__).parent
SET_BYTES = 1 << 30
GRAPHS = {"esrgan": "esrgan", "esrgan-compact": "esrgan-compact"}
TOOLS = ("onnxsim", "onnxslim")

Run = Callable[..., dict[str, Any]]


def runner(cache: Path, code: Path) -> Run:
    """Return what runs one of our scripts in an environment and gives its line of JSON."""
    engine = VenvEngine(cache, "")
    for environment in environments(("reference", "bench")):
        engine.ensure(environment, lambda line: print(line, file=sys.stderr))
    (code / "runtimes").symlink_to(home.runtimes_folder())
    pythons = {
        each.name: install.place(cache, each) / "bin" / "python" for each in environments(("reference", "bench"))
    }

    def run(environment: str, *argv: object) -> dict[str, Any]:
        script = HERE / ("ours.py" if environment == "reference" else "rivals.py")
        done = subprocess.run(
            [str(pythons[environment]), "-P", str(script), *map(str, argv)],
            env={**os.environ, "PYTHONPATH": str(code)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return {"failed": done.stderr.splitlines()[-1] if done.stderr else f"exit code {done.returncode}"}
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


def comparison(run: Run, folder: Path, rounds: int) -> dict[str, Any]:
    """Return what comparing two sets of 1 GB takes, ours beside Polygraphy's."""
    sides = [folder / name for name in ("left", "right")]
    for seed, side in enumerate(sides):
        run("reference", "make", side, seed, SET_BYTES)
    found: dict[str, list[dict[str, Any]]] = {"aipc": [], "polygraphy": []}
    for _ in range(rounds):
        found["aipc"].append(run("reference", "compare", *sides))
        found["polygraphy"].append(run("bench", "compare", *sides))
    best = {
        name: {key: min(each[key] for each in runs) for key in ("seconds", "peak_bytes")}
        for name, runs in found.items()
    }
    return {
        "set_bytes": SET_BYTES,
        "times as fast": best["polygraphy"]["seconds"] / best["aipc"]["seconds"],
        "share of the memory": best["aipc"]["peak_bytes"] / best["polygraphy"]["peak_bytes"],
        **best,
    }


def graphs(run: Run, models: dict[str, Path], folder: Path, rounds: int) -> dict[str, Any]:
    """Return what rewriting and checking each graph takes, ours beside onnxsim and onnxslim, and what came of it."""
    found: dict[str, Any] = {}
    for name, model in models.items():
        tries: dict[str, list[dict[str, Any]]] = {tool: [] for tool in ("aipc", *TOOLS)}
        targets = {}
        for number in range(rounds):
            for tool, runs in tries.items():
                place = folder / f"{name}-{tool}-{number}"
                place.mkdir()
                targets[tool] = place / "model.onnx"
                if tool == "aipc":
                    runs.append(run("reference", "rewrite", model, targets[tool]))
                else:
                    runs.append(run("bench", "rewrite", tool, model, targets[tool]))
        rows = {}
        for tool, runs in tries.items():
            bad = next((each["failed"] for each in runs if "failed" in each), "")
            rows[tool] = (
                {"failed": bad}
                if bad
                else {
                    **{key: min(each[key] for each in runs) for key in ("seconds", "peak_bytes")},
                    "checked": runs[-1]["checked"],
                    **run("reference", "differ", model, targets[tool]),
                }
            )
        before = run("reference", "differ", model, model)
        found[name] = {"before": {key: before.get(key) for key in ("nodes", "bytes")}, **rows}
    return found


def exported(folder: Path) -> dict[str, Path]:
    """Return the ONNX files of the matrix's models, made by the steps of a deploy."""
    store = folder / "store"
    found: dict[str, Path] = {}
    for name, model in GRAPHS.items():
        subprocess.run(
            [
                sys.executable,
                "-m",
                "aipc",
                "deploy",
                model,
                "--runtime",
                "openvino",
                "--engine",
                "venv",
                "--runs",
                folder,
            ],
            env={**os.environ, "AIPC_STORE": str(store)},
            check=True,
            capture_output=True,
        )
        entries = [entry for key in Store(store).list_keys() if (entry := Store(store).get(key)) is not None]
        steps = [each for each in entries if each.record.parts["step"] == "export"]
        found[name] = next(
            each.folder / "out" / "model" / "model.onnx"
            for each in steps
            if each.folder / "out" / "model" / "model.onnx" not in found.values()
        )
    return found


def measure(rounds: int) -> dict[str, Any]:
    """Return the figures."""
    with tempfile.TemporaryDirectory(prefix="aipc-bench-") as scratch:
        folder = Path(scratch)
        for name in ("code", "tensors", "graphs", "runs"):
            (folder / name).mkdir()
        run = runner(home.cache_folder(), folder / "code")
        compared = comparison(run, folder / "tensors", rounds)
        return {
            "comparison of two 1 GB sets": compared,
            "graphs": graphs(run, exported(folder / "runs"), folder / "graphs", rounds),
        }


def main() -> None:
    """Measure, print the figures, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("beside.json"))
    asked = parser.parse_args()
    figures = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"processors": os.cpu_count(), "platform": platform.platform(), "load": os.getloadavg()},
        "rounds": asked.rounds,
        **measure(asked.rounds),
    }
    text = json.dumps(figures, indent=2)
    asked.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
