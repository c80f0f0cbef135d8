#!/usr/bin/env python3
"""Build a model's TensorRT engine for several targets, and print verdict and size of each as one JSON object.

Exit codes: 0 all agree; 1 one does not, which is so without a GPU; 2, 3, 4 as aipc gives them; 5 aipc is not installed;
130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

NO_COMMAND = 5


def main() -> int:
    """Do what the command line asks, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model of matrix.toml, or a file")
    parser.add_argument("--target", action="append", help="again for each (default: sm89 and all)")
    parser.add_argument("--precision", default="fp16", help="(default: %(default)s)")
    parser.add_argument("--aipc", default="aipc", help="the command (default: %(default)s)")
    parser.add_argument("--runs", default="runs", help="the folder for reports (default: %(default)s)")
    asked = parser.parse_args()
    rows, codes = {}, []
    for target in asked.target or ["sm89", "all"]:
        command = [asked.aipc, "deploy", asked.model, "--runtime", "tensorrt", "--target", target]
        command += ["--precision", asked.precision, "--runs", asked.runs]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except OSError as error:
            sys.stderr.write(f"{error}\n")
            return NO_COMMAND
        codes.append(done.returncode)
        rows[target] = newest(Path(asked.runs), target) if done.returncode in (0, 1) else {"error": done.stderr}
    sys.stdout.write(json.dumps({"model": asked.model, "targets": rows}, indent=2) + "\n")
    return max(codes)


def newest(runs: Path, target: str) -> dict[str, Any]:
    """Return the verdict and the engine's size of the report that was written last for `target`."""
    for path in sorted(runs.rglob("report.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
        report = json.loads(path.read_text(encoding="utf-8"))
        if (report["runtime"], report["target"]) == ("tensorrt", target):
            files = report["artifact"]["components"] if report["artifact"] else []
            size = sum(each["size_bytes"] for each in files)
            return {
                "cell": report["cell"],
                "verdict": report["verdict"],
                "reasons": report["reasons"],
                "size_bytes": size,
            }
    return {"error": "aipc left no report"}


if __name__ == "__main__":
    sys.exit(main())
