#!/usr/bin/env python3
"""Deploy a model with aipc, and print the verdict as one JSON object.

Exit codes: 0 the cell agrees; 1 it does not; 2 aipc refuses the command; 3 nothing was selected;
4 engine, disk or network; 5 aipc left no report, or is not installed; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

NO_REPORT = 5


def main() -> int:
    """Do what the command line asks, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model of matrix.toml, a file, module:function, or a whole cell")
    parser.add_argument("--aipc", default="aipc", help="the command (default: %(default)s)")
    parser.add_argument("--runs", default="runs", help="the folder for reports (default: %(default)s)")
    parser.add_argument("options", nargs="*", help="more options of `aipc deploy`, behind --")
    asked = parser.parse_intermixed_args()
    command = [asked.aipc, "deploy", asked.model, "--runs", asked.runs, *asked.options]
    began = time.time_ns()
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        return tell({"command": command, "problem": str(error)}, NO_REPORT)
    told: dict[str, object] = {"command": command, "exit_code": done.returncode}
    made = [path for path in Path(asked.runs).rglob("report.json") if path.stat().st_mtime_ns >= began]
    if not made:
        problem = done.stderr.strip().splitlines()[-1:] or ["aipc left no report"]
        return tell({**told, "problem": problem[0]}, done.returncode or NO_REPORT)
    # A quantised cell is built on the same cell in floating point, whose report comes first.
    path = max(made, key=lambda path: path.stat().st_mtime_ns)
    report = json.loads(path.read_text(encoding="utf-8"))
    kept = ("cell", "verdict", "reasons", "device", "simulated")
    told |= {key: report[key] for key in kept} | {"report": str(path)}
    if report["failure"]:
        told["failure"] = report["failure"]["failure"]
    return tell(told, done.returncode)


def tell(told: dict[str, object], code: int) -> int:
    """Print `told` as JSON, and return `code`."""
    sys.stdout.write(json.dumps(told, indent=2) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
