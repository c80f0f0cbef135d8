"""`make bench`: what a deploy costs beside doing the same by hand, as ratios of minima measured in turn in one run.

    bench.py [--rounds N] [--output bench.json]

The environments are built first where they are missing. Every deploy gets a new, empty store; the user's own stays.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aipc import home
from aipc.engines import ask_daemon, install
from aipc.engines.docker import DockerEngine
from aipc.engines.venv import VenvEngine
from aipc.store import Store
from aipc.upkeep import environments

HERE = Path(__file__).parent
RERUNS = 5
CELL = ("--runtime", "openvino", "--precision", "fp16", "--target", "cpu")
PROGRAM = """
import atexit, os, resource, sys
from pathlib import Path
from aipc.cli import main
peak = lambda: Path(os.environ["BENCH_PEAK"]).write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
atexit.register(peak)
sys.argv[0] = "aipc"
main()
"""
"""The command `aipc`, which writes its own peak memory (without its jobs) in bytes to $BENCH_PEAK in the end."""


def timed(argv: list[str], environ: dict[str, str]) -> tuple[float, str]:
    """Return the wall time of a command in seconds, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(argv, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"bench: {' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return seconds, done.stdout


def deploy(engine: str, folder: Path) -> dict[str, Any]:
    """Return what a deploy with a new, empty store takes, then the same again with a full one."""
    environ = {"AIPC_STORE": str(folder / "store"), "BENCH_PEAK": str(folder / "peak")}
    runs = folder / "runs"
    argv = [sys.executable, "-c", PROGRAM, "deploy", "esrgan", *CELL, "--engine", engine, "--runs", str(runs)]
    first, _ = timed(argv, environ)
    peak = int((folder / "peak").read_text())
    again = min(timed(argv, environ)[0] for _ in range(RERUNS))
    report = json.loads((runs / "esrgan/openvino/fp16@cpu/report.json").read_text())
    return {
        "seconds": first,
        "rerun_seconds": again,
        "verdict": report["verdict"],
        "steps": {stage["step"]: stage["seconds"] for stage in report["stages"]},
        "host_peak_bytes": peak,
        "job_peak_bytes": {stage["step"]: stage["peak_memory_bytes"] for stage in report["stages"]},
    }


def by_hand(folder: Path, cache: Path) -> dict[str, Any]:
    """Return what the plain script takes; it gets the weights and the samples that the deploy beside it used."""
    store = Store(folder / "store")
    entries = [entry for key in store.list_keys() if (entry := store.get(key)) is not None]
    prepared = next(entry for entry in entries if entry.record.parts["step"] == "prepare")
    weights, output = folder / "weights", folder / "by-hand"
    weights.mkdir()
    output.mkdir()
    for member in (cache / "members").glob("*/realesrgan-x4plus.*"):
        (weights / member.name).symlink_to(member)
    reference, openvino = (install.place(cache, each) for each in environments(("reference", "openvino")))
    packages = next(openvino.glob("lib/python3*/site-packages"))
    with tempfile.TemporaryDirectory() as code:
        Path(code, "runtimes").symlink_to(home.runtimes_folder())
        seconds, said = timed(
            [
                *(str(reference / "bin" / "python"), "-P", str(HERE / "by_hand.py")),
                *(str(weights), str(prepared.folder / "out" / "samples"), str(output)),
            ],
            {"PYTHONPATH": f"{code}:{packages}"},
        )
    return {"seconds": seconds, **{f"own_{key}": value for key, value in json.loads(said.splitlines()[-1]).items()}}


def measure(rounds: int) -> dict[str, Any]:
    """Return all figures; the sides take turns, so that a busy machine hits them alike."""
    cache = home.cache_folder()
    venv = VenvEngine(cache, "")
    for environment in environments(("reference", "openvino")):
        venv.ensure(environment, lambda line: print(line, file=sys.stderr))
    engines = ["venv"]
    if ask_daemon()[0]:
        docker = DockerEngine(cache)
        for environment in environments(("reference", "openvino")):
            docker.ensure(environment, lambda line: print(line, file=sys.stderr))
        docker.close()
        engines.append("docker")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in (*engines, "by_hand")}
    for number in range(rounds):
        for engine in engines:
            with tempfile.TemporaryDirectory(prefix="aipc-bench-") as folder:
                found[engine].append(deploy(engine, Path(folder)))
                if engine == "venv":
                    found["by_hand"].append(by_hand(Path(folder), cache))
        print(f"round {number + 1} of {rounds} is done", file=sys.stderr)
    helps = [timed([sys.executable, "-m", "aipc", "--help"], {})[0] for _ in range(10)]
    best = {name: min(each["seconds"] for each in runs) for name, runs in found.items()}
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"processors": os.cpu_count(), "platform": platform.platform(), "load": os.getloadavg()},
        "cell": "esrgan/openvino/fp16@cpu",
        "rounds": rounds,
        "ratios": {
            "deploy (venv, empty store) / by hand": best["venv"] / best["by_hand"],
            **({"deploy (docker) / deploy (venv)": best["docker"] / best["venv"]} if "docker" in best else {}),
        },
        "seconds": {
            **best,
            "rerun (venv)": min(each["rerun_seconds"] for each in found["venv"]),
            **({"rerun (docker)": min(each["rerun_seconds"] for each in found["docker"])} if "docker" in best else {}),
            "aipc --help": min(helps),
        },
        "runs": found,
    }


def main() -> None:
    """Measure, print the figures that matter, and write all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    asked = parser.parse_args()
    figures = measure(asked.rounds)
    asked.output.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps({key: figures[key] for key in ("machine", "ratios", "seconds")}, indent=2))


if __name__ == "__main__":
    main()
