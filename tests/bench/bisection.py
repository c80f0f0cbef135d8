"""The third part of `make bench`: how many runs a search for the first bad node takes, and how long.

    bisection.py [--output bisection.json]

Each graph is a chain of N nodes with one bad node at a seeded place. Our own steps cut and compare; in place of a
runtime, ONNX Runtime runs each piece, its answer behind the bad node turned wrong (`faulty.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aipc import bisection, home, materials
from aipc.engines import install
from aipc.engines.venv import VenvEngine
from aipc.jobs import Session, StepRun
from aipc.model import Tolerance
from aipc.runtime import find
from aipc.store import Material, Store
from aipc.upkeep import environments
from runtimes.contract import Json, Step

HERE = Path(__file__).parent
SIZES = (64, 256, 1024)
SEED = 7


class Silent:
    """Listens, and says nothing."""

    def started(self, step: Step) -> None:
        """Say nothing."""

    def progress(self, text: str, fraction: float | None) -> None:
        """Say nothing."""

    def ended(self, run: StepRun) -> None:
        """Say nothing."""


class Faulty:
    """A runtime with one bad node; it runs in the reference environment, without a cage."""

    def __init__(self, python: Path, folder: Path, bad: str) -> None:
        self._python, self._folder, self._bad = python, folder, bad
        self._count = 0

    def __call__(
        self,
        model: Material,
        samples: Material,
        ports: Mapping[str, Json],  # noqa: ARG002 - the piece itself says it
        seconds: float,
    ) -> Material | None:
        """Return what a piece gives; see `aipc.bisection.Build`."""
        self._count += 1
        place = self._folder / str(self._count)
        given = [str(_folder(each)) for each in (model, samples)]
        self.script("run", *given, str(place), self._bad, seconds=seconds)
        return materials.of_folder(place, self._folder / "runs", "piece")

    def script(self, *argv: str, seconds: float | None = None) -> None:
        """Run `faulty.py` in the reference environment."""
        environ = {**os.environ, "PYTHONPATH": str(self._folder / "code")}
        command = [str(self._python), "-P", str(HERE / "faulty.py"), *argv]
        subprocess.run(command, env=environ, check=True, timeout=seconds)


def _folder(material: Material) -> Path:
    name, path = next(iter(material.places.items()))
    return path.parents[len(Path(name).parts) - 1]


def search(total: int, cache: Path) -> dict[str, Any]:
    """Return what one search in a chain of `total` nodes takes, with an empty store."""
    (environment,) = environments(("reference",))
    bad = random.Random(SEED * total).randrange(total)
    with tempfile.TemporaryDirectory(prefix="aipc-bench-") as scratch:
        folder = Path(scratch)
        (folder / "code").mkdir()
        (folder / "code" / "runtimes").symlink_to(home.runtimes_folder())
        runtime = Faulty(install.place(cache, environment) / "bin" / "python", folder, f"node-{bad}")
        runtime.script("make", str(folder / "model"), str(folder / "samples"), str(total))
        given = [materials.of_folder(folder / name, folder / "runs", name) for name in ("model", "samples")]
        session = Session(
            engine=VenvEngine(cache, "for a measurement"),
            store=Store(folder / "store"),
            cache=cache,
            listener=Silent(),
        )
        began = time.perf_counter()
        limit = Tolerance(cosine=0.999, snr_db=30.0)
        found = bisection.bisect(session, find("reference"), given[0], given[1], "one", limit, runtime).bisection
        seconds = time.perf_counter() - began
    return {
        "nodes": total,
        "bad node": bad,
        "found": found.index,
        "runs": found.runs,
        "log2(nodes)": math.log2(total),
        "bound": bisection.bound(total),
        "runs of a linear scan": bad + 1,
        "seconds": seconds,
        "seconds per run": seconds / found.runs,
    }


def main() -> None:
    """Measure, print the figures, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("bisection.json"))
    asked = parser.parse_args()
    cache = home.cache_folder()
    for environment in environments(("reference",)):
        VenvEngine(cache, "").ensure(environment, print)
    text = json.dumps({"seed": SEED, "searches": [search(total, cache) for total in SIZES]}, indent=2)
    asked.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
